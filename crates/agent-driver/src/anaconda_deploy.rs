// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `anaconda`: the installer of Fedora, CentOS and related distributions installs
//! the system.
//!
//! The machine boots the installer over the network with a kickstart file. An installer is no agent
//! and accepts no commands: it sends a heartbeat when it starts, and when it ends or fails. In between,
//! only the timeout and the machine's power state can be checked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::ramdisk_boot::{power_off, start_machine};
use drivers::requested_firmware::{RequestedFirmware, prepare_instance_firmware};
use drivers::{
    BaseInterface, BootService, DeployInterface, DriverError, DriverTarget, InBandAgent,
    NetworkPurpose, NodeChanges, RamdiskMode, RegistryBuilder, SINGLE_DEPLOY_STEP, StepOutcome,
    steps_of_flow,
};
use node_model::{
    AvailableStep, BootMethod, BootPurpose, InterfaceKind, PowerState, Step, StepFlow, Timestamp,
};
use serde_json::Value;

use super::AgentAccess;
use super::agent_boot::tear_down_instance;

/// The implementation's name.
const NAME: &str = "anaconda";

/// Interval of power state queries during an installation.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a machine found off fails the installation, so that its last heartbeat can be stored.
const POWER_OFF_RECHECK: Duration = Duration::from_secs(10);

/// Driver state: time of the installer's first heartbeat.
const INSTALL_STARTED_KEY: &str = "installing_since";
/// Driver state: the machine was found off.
const FOUND_OFF_KEY: &str = "found_off";

const INSTALL_ACTION: &str = "install the system";

/// Registers this implementation.
pub(crate) fn register(
    registry: &mut RegistryBuilder,
    in_band: &Arc<AgentAccess>,
    install_timeout: u64,
) {
    let timeout = (install_timeout > 0).then(|| Duration::from_secs(install_timeout));
    let (in_band, boot_service) = (Arc::clone(in_band), registry.boot_service());
    let deploy = AnacondaDeploy { in_band, boot_service, timeout };
    registry.implementations.add_deploy(Arc::new(deploy));
}

/// Deploys with an installer. Cleaning and service use the agent.
struct AnacondaDeploy {
    in_band: Arc<AgentAccess>,
    boot_service: Arc<dyn BootService>,
    /// Timeout of an installation; `None` waits forever.
    timeout: Option<Duration>,
}

#[async_trait]
impl BaseInterface for AnacondaDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.check_boot(target)?;
        RequestedFirmware::from_target(target)?;
        // Cleaning boots the agent.
        target.driver.boot().validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(SINGLE_DEPLOY_STEP, self.kind(), flow)
    }

    fn runs_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        if flow != StepFlow::Deploy || step.step != SINGLE_DEPLOY_STEP[0].name {
            return self.in_band.run_agent_step(target, flow, step).await;
        }
        if !target.agent_was_awaited() {
            return boot_installer(target).await;
        }
        let agent = &target.node.agent;
        let message = agent.status_message.as_deref().filter(|text| !text.is_empty());
        match agent.status.as_deref() {
            Some("end") => boot_installed_system(target).await,
            Some("error") => Err(DriverError::failed(
                INSTALL_ACTION,
                format!(
                    "the installer reports: {}",
                    message.unwrap_or("an error without a reason")
                ),
            )),
            Some("start") => self.wait_for_end(target, message).await,
            // The heartbeat has no known status.
            Some(_) | None => Ok(target.wait_for_installer(NodeChanges::none())),
        }
    }
}

impl AnacondaDeploy {
    /// Fails if the machine cannot boot an installer or the instance does not define one.
    fn check_boot(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let boot = target.driver.boot().name();
        let Some(method) = network_boot_method(boot) else {
            return Err(DriverError::invalid(
                "boot_interface",
                format!(
                    "'{boot}' does not boot over the network, which an installer requires; use ipxe, \
                     pxe, http-ipxe or http"
                ),
            ));
        };
        self.boot_service.check(target, method, BootPurpose::Installer)
    }

    /// Waits for the installer. Fails if the timeout is reached or the machine is off.
    async fn wait_for_end(
        &self,
        target: &DriverTarget<'_>,
        message: Option<&str>,
    ) -> Result<StepOutcome, DriverError> {
        let state = target.driver_state;
        let mut changes = NodeChanges::none();
        let since = match state.get(INSTALL_STARTED_KEY).and_then(|since| since.as_i64()) {
            Some(since) => Timestamp(since),
            None => {
                changes =
                    changes.and(NodeChanges::driver_state_key(INSTALL_STARTED_KEY, target.now.0));
                let suffix = message.map(|text| format!(": {text}")).unwrap_or_default();
                let progress = format!("the installer has started{suffix}");
                changes = changes.and(NodeChanges::progress(progress));
                target.now
            }
        };
        // No timeout during maintenance: an operator works on the machine.
        let deadline = self.timeout.filter(|_| !target.node.maintenance).map(|it| since.plus(it));
        let mut interval = POLL_INTERVAL;
        if since != target.now {
            let is_off = target.driver.power().get(target).await? == Some(PowerState::Off);
            match (is_off, state.get(FOUND_OFF_KEY).is_some()) {
                (true, true) => return Err(powered_off_error()),
                // The final heartbeat may not be stored yet.
                (true, false) => {
                    changes = changes.and(NodeChanges::driver_state_key(FOUND_OFF_KEY, true));
                    interval = POWER_OFF_RECHECK;
                }
                (false, _) => {
                    changes =
                        changes.and(NodeChanges::driver_state_key(FOUND_OFF_KEY, Value::Null));
                    if deadline.is_some_and(|deadline| deadline <= target.now) {
                        return Err(timeout_error(target.now.since(since)));
                    }
                }
            }
        }
        let next = target.now.plus(interval);
        let poll_at = deadline
            .filter(|_| interval == POLL_INTERVAL)
            .map_or(next, |deadline| deadline.min(next));
        Ok(StepOutcome::poll_agent_at(poll_at, changes))
    }
}

#[async_trait]
impl DeployInterface for AnacondaDeploy {
    fn in_band(&self) -> Option<&dyn InBandAgent> {
        Some(&*self.in_band)
    }

    fn ramdisk_mode(&self) -> RamdiskMode {
        RamdiskMode::Installer
    }

    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.check_boot(target)?;
        target.driver.storage().attach_volumes(target).await
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        tear_down_instance(target).await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Installer).await?;
        Ok(changes.and(boot.clean_up_instance(target).await?))
    }
}

/// The boot method of a network boot interface, which has the same name.
fn network_boot_method(boot: &str) -> Option<BootMethod> {
    boot.parse().ok().filter(|method| *method != BootMethod::VirtualMedia)
}

/// Publishes the installer before it powers the machine off, because publishing is likelier to fail.
async fn boot_installer(target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
    let driver = target.driver;
    let prepared = driver.boot().prepare_ramdisk(target, RamdiskMode::Installer).await?;
    let changes = prepared.and(power_off(target).await?);
    let changes = changes.and(driver.network().join(target, NetworkPurpose::Provisioning).await?);
    let changes = start_machine(target, changes).await?;
    Ok(target.wait_for_installer(changes))
}

async fn boot_installed_system(target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
    let driver = target.driver;
    let changes = power_off(target).await?;
    let changes = changes.and(driver.boot().prepare_instance(target).await?);
    let changes = changes.and(prepare_instance_firmware(target).await?);
    let changes = changes.and(driver.network().leave(target, NetworkPurpose::Provisioning).await?);
    let changes = changes.and(driver.network().join(target, NetworkPurpose::Tenant).await?);
    let changes = start_machine(target, changes).await?;
    Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..changes }))
}

fn powered_off_error() -> DriverError {
    DriverError::failed(
        INSTALL_ACTION,
        "the machine is off, and the installer did not report its end: the power was cut, or the \
         kickstart powers the machine off without a final call with agent_status end",
    )
}

fn timeout_error(time: Duration) -> DriverError {
    DriverError::failed(
        INSTALL_ACTION,
        format!(
            "the installer started {} s ago and has not reported its end; check the machine's \
             console, where it may wait for input, check that the kickstart calls with agent_status \
             end, or increase drivers.install_timeout",
            time.as_secs()
        ),
    )
}
