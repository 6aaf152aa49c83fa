// SPDX-License-Identifier: Apache-2.0
//! Settings of decisions. The defaults are Ironic's.

use std::time::Duration;

use node_model::WorkKind;
use serde::{Deserialize, Serialize};

/// Timeouts, limits and policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecycleSettings {
    /// Whether nodes are cleaned when they are provided and after they are torn down.
    pub automated_clean: bool,
    /// Seconds a deployment waits for the agent before it fails; 0 waits forever.
    pub deploy_callback_timeout: u64,
    /// Seconds cleaning waits for the agent before it fails; 0 waits forever.
    pub clean_callback_timeout: u64,
    /// Seconds service waits for the agent before it fails; 0 waits forever.
    pub service_callback_timeout: u64,
    /// Seconds rescue waits for the agent before it fails; 0 waits forever.
    pub rescue_callback_timeout: u64,
    /// Seconds inspection waits for its data before it fails; 0 waits forever.
    pub inspect_wait_timeout: u64,
    /// Seconds after which a machine is booted again if its agent made no request since the last boot,
    /// with another boot method if its boot interface is `automatic`; 0 disables it.
    pub boot_retry_timeout: u64,
    /// The longest `wait` step, in seconds.
    pub max_wait_step_seconds: u64,
    /// Whether nodes in maintenance can be provided.
    pub allow_provisioning_in_maintenance: bool,
    /// Whether available nodes can be deleted without maintenance.
    pub allow_deleting_available_nodes: bool,
    /// Whether a machine is powered off when cleaning fails.
    pub poweroff_in_cleanfail: bool,
    /// Whether a machine is powered off when service fails.
    pub poweroff_in_servicefail: bool,
    /// Whether a machine is powered off when a deployment fails.
    pub power_off_after_deploy_failure: bool,
    /// The maximum number of concurrent deployments; more wait in a queue.
    pub max_concurrent_deploy: u64,
    /// The maximum number of nodes that are cleaned concurrently; more wait in a queue.
    pub max_concurrent_clean: u64,
    /// Deploy steps that requests must not contain, as `interface.step`.
    pub disallowed_deploy_steps: Vec<String>,
    /// Clean steps that requests must not contain, as `interface.step`.
    pub disallowed_clean_steps: Vec<String>,
    /// Service steps that requests must not contain, as `interface.step`.
    pub disallowed_service_steps: Vec<String>,
    /// Priorities that replace those of clean steps, as `interface.step` = priority.
    pub clean_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Priorities that replace those of deploy steps, as `interface.step` = priority.
    pub deploy_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Priorities that replace those of verify steps, as `interface.step` = priority.
    pub verify_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Whether the recorded power state is restored when the BMC reports another one.
    pub force_power_state_during_sync: bool,
    /// The number of consecutive power polls that may fail before the node is put into maintenance.
    pub power_state_sync_max_retries: u32,
    /// Seconds for which interactive actions (power changes, verification) are retried while the BMC
    /// does not respond.
    pub bmc_timeout: u64,
    /// Seconds for which actions of other jobs are retried while the BMC does not respond: long enough
    /// for a BMC to restart.
    pub bmc_timeout_in_jobs: u64,
    /// Whether agents may keep running between jobs and be reused.
    pub fast_track: bool,
    /// Seconds after its last heartbeat during which an agent counts as running. Copied from the
    /// conductor's `ramdisk_heartbeat_timeout`.
    #[serde(skip)]
    pub heartbeat_timeout: u64,
}

impl Default for LifecycleSettings {
    fn default() -> Self {
        let blocked = vec!["vendor.send_raw".to_owned()];
        Self {
            automated_clean: true,
            deploy_callback_timeout: 1800,
            clean_callback_timeout: 1800,
            service_callback_timeout: 1800,
            rescue_callback_timeout: 1800,
            inspect_wait_timeout: 1800,
            boot_retry_timeout: 1200,
            max_wait_step_seconds: 30,
            allow_provisioning_in_maintenance: true,
            allow_deleting_available_nodes: true,
            poweroff_in_cleanfail: false,
            poweroff_in_servicefail: false,
            power_off_after_deploy_failure: true,
            max_concurrent_deploy: 250,
            max_concurrent_clean: 50,
            disallowed_deploy_steps: blocked.clone(),
            disallowed_clean_steps: blocked.clone(),
            disallowed_service_steps: blocked,
            clean_step_priority_override: Default::default(),
            deploy_step_priority_override: Default::default(),
            verify_step_priority_override: Default::default(),
            force_power_state_during_sync: true,
            power_state_sync_max_retries: 3,
            bmc_timeout: 30,
            bmc_timeout_in_jobs: 300,
            fast_track: false,
            heartbeat_timeout: 300,
        }
    }
}

impl LifecycleSettings {
    /// How long an action of a job, or of a power request (`None`), is retried while the BMC does not
    /// respond. Shorter if a user waits for the result.
    pub(crate) fn bmc_retry_timeout(&self, job: Option<WorkKind>) -> Duration {
        let is_interactive = job.is_none_or(|job| job == WorkKind::Verify);
        Duration::from_secs(if is_interactive {
            self.bmc_timeout
        } else {
            self.bmc_timeout_in_jobs
        })
    }

    /// How long after its last heartbeat an agent counts as running.
    pub(crate) const fn agent_heartbeat_timeout(&self) -> Duration {
        Duration::from_secs(self.heartbeat_timeout)
    }

    /// How long to wait for the agent's first request before the machine is booted again.
    pub(crate) const fn boot_timeout(&self) -> Option<Duration> {
        match self.boot_retry_timeout {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        }
    }

    /// How long a job in `state` waits for the agent; zero means forever.
    #[must_use]
    pub fn callback_timeout(&self, state: node_model::ProvisionState) -> Duration {
        use node_model::ProvisionState::{
            CleanWait, DeployWait, InspectWait, RescueWait, ServiceWait,
        };
        let timeouts = [
            (DeployWait, self.deploy_callback_timeout),
            (CleanWait, self.clean_callback_timeout),
            (ServiceWait, self.service_callback_timeout),
            (RescueWait, self.rescue_callback_timeout),
            (InspectWait, self.inspect_wait_timeout),
        ];
        let timeout = timeouts.iter().find(|(waiting, _)| *waiting == state);
        Duration::from_secs(timeout.map_or(0, |(_, seconds)| *seconds))
    }
}
