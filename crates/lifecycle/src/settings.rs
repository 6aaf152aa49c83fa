// SPDX-License-Identifier: Apache-2.0
//! What an operator may configure about decisions. The defaults are Ironic's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Timeouts, limits and habits of the conductor's decisions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Clean machines when they are provided and after they are torn down.
    pub automated_clean: bool,
    /// Seconds a deployment waits for the agent before it fails; 0 waits for ever.
    pub deploy_callback_timeout: u64,
    /// Seconds cleaning waits for the agent before it fails; 0 waits for ever.
    pub clean_callback_timeout: u64,
    /// Seconds service waits for the agent before it fails; 0 waits for ever.
    pub service_callback_timeout: u64,
    /// Seconds rescue waits for the agent before it fails; 0 waits for ever.
    pub rescue_callback_timeout: u64,
    /// Seconds inspection waits for its data before it fails; 0 waits for ever.
    pub inspect_wait_timeout: u64,
    /// Seconds after which a machine whose agent has not called since it was booted is booted again,
    /// by another way if its boot interface is `automatic`; 0 never does.
    pub boot_retry_timeout: u64,
    /// The longest `wait` step, in seconds.
    pub max_wait_step_seconds: u64,
    /// Let machines in maintenance be provided.
    pub allow_provisioning_in_maintenance: bool,
    /// Let available machines be removed without maintenance.
    pub allow_deleting_available_nodes: bool,
    /// Switch a machine off when cleaning it failed.
    pub poweroff_in_cleanfail: bool,
    /// Switch a machine off when servicing it failed.
    pub poweroff_in_servicefail: bool,
    /// Switch a machine off when deploying it failed.
    pub power_off_after_deploy_failure: bool,
    /// How many machines may be deployed at once.
    pub max_concurrent_deploy: u64,
    /// How many machines may be torn down or cleaned at once.
    pub max_concurrent_clean: u64,
    /// Deploy steps nobody may ask for, as `interface.step`.
    pub disallowed_deploy_steps: Vec<String>,
    /// Clean steps nobody may ask for, as `interface.step`.
    pub disallowed_clean_steps: Vec<String>,
    /// Service steps nobody may ask for, as `interface.step`.
    pub disallowed_service_steps: Vec<String>,
    /// Priorities that replace those of clean steps, as `interface.step` = priority.
    pub clean_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Priorities that replace those of deploy steps, as `interface.step` = priority.
    pub deploy_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Priorities that replace those of verify steps, as `interface.step` = priority.
    pub verify_step_priority_override: std::collections::BTreeMap<String, i64>,
    /// Put a machine back into the power state it should have when it is found in another.
    pub force_power_state_during_sync: bool,
    /// How many times in a row the BMC may fail to answer before the machine is put into
    /// maintenance.
    pub power_state_sync_max_retries: u32,
    /// Seconds to try again when the BMC does not answer while somebody waits for the outcome: a
    /// change of power, or the check when a machine is first managed.
    pub bmc_timeout: u64,
    /// Seconds to try again when the BMC does not answer in the middle of a job, such as a
    /// deployment: long enough for a BMC to restart.
    pub bmc_timeout_in_jobs: u64,
    /// Let agents call home on machines that no job runs on, and reuse them.
    pub fast_track: bool,
    /// Seconds after its last call that an agent still counts as running. Told by the conductor's
    /// settings, which say how often agents are to call.
    #[serde(skip)]
    pub agent_is_fresh: u64,
}

impl Default for Settings {
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
            agent_is_fresh: 300,
        }
    }
}

impl Settings {
    /// How long to go on trying when the BMC does not answer.
    pub(crate) const fn bmc_patience(&self, somebody_waits: bool) -> Duration {
        Duration::from_secs(if somebody_waits {
            self.bmc_timeout
        } else {
            self.bmc_timeout_in_jobs
        })
    }

    /// How long after its last call an agent still counts as running.
    pub(crate) const fn agent_is_fresh(&self) -> Duration {
        Duration::from_secs(self.agent_is_fresh)
    }

    /// How long an agent may stay silent before its machine is booted again; none is for ever.
    pub(crate) const fn boot_patience(&self) -> Option<Duration> {
        match self.boot_retry_timeout {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        }
    }

    /// How long a job in `state` may wait for the agent; zero is for ever.
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
        let found = timeouts.iter().find(|(waiting, _)| *waiting == state);
        Duration::from_secs(found.map_or(0, |(_, seconds)| *seconds))
    }
}
