// SPDX-License-Identifier: Apache-2.0
//! The driver of the simulated machines: power, and deployment without an agent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use drivers::{
    BaseInterface, DeployInterface, DriverError, DriverRegistry, DriverTarget, EnabledDrivers,
    ExternalBootService, HardwareType, NodeChanges, PowerInterface, RegistryBuilder,
    StepDefinition, StepOutcome, steps_of_flow,
};
use fake_driver::FakeSettings;
use node_model::{
    AvailableStep, InterfaceKind, PowerState, PowerTarget, Step, StepFlow, Timestamp,
};
use tokio::time::Instant;

use crate::machine::{MachineCommand, MachineReply, RESPONSE_TIMEOUT, TaskKind};
use crate::process::ProcessContext;

/// The name of the hardware type and its implementations.
pub(crate) const NAME: &str = "simulated";

/// How often a running task is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How often the power state is polled after a change.
const POWER_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a change of the power state may take.
const POWER_TIMEOUT: Duration = Duration::from_secs(60);

const HARDWARE_TYPE: &HardwareType = &HardwareType {
    name: NAME,
    supported: &[
        (InterfaceKind::Bios, &["no-bios"]),
        (InterfaceKind::Boot, &["fake"]),
        (InterfaceKind::Console, &["no-console"]),
        (InterfaceKind::Deploy, &[NAME]),
        (InterfaceKind::Firmware, &["no-firmware"]),
        (InterfaceKind::Inspect, &["fake"]),
        (InterfaceKind::Management, &["noop"]),
        (InterfaceKind::Network, &["noop"]),
        (InterfaceKind::Power, &[NAME]),
        (InterfaceKind::Raid, &["no-raid"]),
        (InterfaceKind::Rescue, &["no-rescue"]),
        (InterfaceKind::Storage, &["noop"]),
        (InterfaceKind::Vendor, &["no-vendor"]),
    ],
    accepts_any: false,
};

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: "write_image",
        flows: &[StepFlow::Deploy],
        priority: 100,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: "erase",
        flows: &[StepFlow::Clean],
        priority: 10,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
];

/// The drivers of one process.
pub(crate) fn registry(process: &Arc<ProcessContext>) -> Result<DriverRegistry> {
    let enabled = EnabledDrivers::new(&[NAME.to_owned()], |kind| {
        let names = HARDWARE_TYPE.supported(kind).iter().map(|name| (*name).to_owned());
        (names.collect(), None)
    });
    let mut builder = RegistryBuilder::new(enabled, Arc::new(ExternalBootService), 1);
    fake_driver::register(&mut builder, &FakeSettings::default())?;
    builder.add_hardware_type(HARDWARE_TYPE);
    builder.implementations.add_power(Arc::new(SimulatedPower(Arc::clone(process))));
    builder.implementations.add_deploy(Arc::new(SimulatedDeploy(Arc::clone(process))));
    Ok(builder.build()?)
}

/// Sends a command and waits for its response.
async fn send(
    process: &ProcessContext,
    target: &DriverTarget<'_>,
    command: MachineCommand,
) -> Result<MachineReply, DriverError> {
    let response = process.send_command(target.node.id, command);
    match tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(_)) | Err(_) => Err(DriverError::BmcUnreachable {
            address: target.node.label(),
            what: "send a command".to_owned(),
            source: None,
        }),
    }
}

/// Sends a power command, and waits until the machine has the power state.
async fn change_power(
    process: &ProcessContext,
    target: &DriverTarget<'_>,
    is_on: bool,
) -> Result<NodeChanges, DriverError> {
    let command = if is_on { MachineCommand::PowerOn } else { MachineCommand::PowerOff };
    send(process, target, command).await?;
    let deadline = Instant::now() + POWER_TIMEOUT;
    loop {
        let reply = send(process, target, MachineCommand::PowerStatus).await?;
        if reply == (MachineReply::Power { is_on }) {
            return Ok(NodeChanges::power(if is_on { PowerState::On } else { PowerState::Off }));
        }
        if Instant::now() >= deadline {
            return Err(failed("change the power state", reply));
        }
        tokio::time::sleep(POWER_POLL_INTERVAL).await;
    }
}

/// Restarts the machine.
async fn restart(
    process: &ProcessContext,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let off = change_power(process, target, false).await?;
    Ok(off.and(change_power(process, target, true).await?))
}

fn failed(what: &str, reply: MachineReply) -> DriverError {
    DriverError::Failed { what: what.to_owned(), why: format!("the machine responds {reply:?}") }
}

struct SimulatedPower(Arc<ProcessContext>);

impl BaseInterface for SimulatedPower {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Power
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl PowerInterface for SimulatedPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &DriverTarget<'_>) -> Result<Option<PowerState>, DriverError> {
        let reply = send(&self.0, target, MachineCommand::PowerStatus).await?;
        let MachineReply::Power { is_on } = reply else {
            return Err(failed("read the power state", reply));
        };
        Ok(Some(if is_on { PowerState::On } else { PowerState::Off }))
    }

    async fn set(
        &self,
        target: &DriverTarget<'_>,
        power_target: PowerTarget,
        _timeout: Option<Duration>,
    ) -> Result<NodeChanges, DriverError> {
        match power_target {
            PowerTarget::On => change_power(&self.0, target, true).await,
            PowerTarget::Off | PowerTarget::SoftOff => change_power(&self.0, target, false).await,
            PowerTarget::Reboot | PowerTarget::SoftReboot => restart(&self.0, target).await,
        }
    }
}

struct SimulatedDeploy(Arc<ProcessContext>);

#[async_trait]
impl BaseInterface for SimulatedDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(STEPS, self.kind(), flow)
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        _flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        const STARTED: &str = "started";
        let kind = if step.step == "erase" { TaskKind::Erase } else { TaskKind::WriteImage };
        let Some(work) = &target.node.work else {
            return Err(self.unsupported("run a step without a job"));
        };
        let next = Timestamp(target.now.0).plus(POLL_INTERVAL);
        if target.driver_state.get(STARTED).is_none() {
            let reply = send(&self.0, target, MachineCommand::Start(kind, work.id)).await?;
            if reply != MachineReply::Done {
                return Err(failed("start a task", reply));
            }
            return Ok(StepOutcome::poll_at(next, NodeChanges::driver_state_key(STARTED, true)));
        }
        let reply = send(&self.0, target, MachineCommand::TaskStatus(kind, work.id)).await?;
        if reply == MachineReply::TaskRuns {
            return Ok(StepOutcome::poll_at(next, NodeChanges::none()));
        }
        if reply == MachineReply::TaskEnded {
            return Ok(StepOutcome::done(NodeChanges::none()));
        }
        Err(failed("run a task", reply))
    }
}

#[async_trait]
impl DeployInterface for SimulatedDeploy {
    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        restart(&self.0, target).await
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        change_power(&self.0, target, false).await
    }

    async fn clean_up(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn take_over(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn prepare_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        restart(&self.0, target).await.map(StepOutcome::done)
    }

    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        change_power(&self.0, target, false).await
    }
}
