// SPDX-License-Identifier: Apache-2.0
//! Parsing and execution of agent commands.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{
    AgentCommand, AgentCommandError, CommandReport, CommandStatus, ExecuteStepRequest,
    ExecuteStepResult, PartitionUuids, StepFlow,
};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::lifecycle::AgentTiming;
use super::server::CommandRejection;
use super::{AgentContext, SimulatedAgent, steps, write_image};
use crate::faults::AgentStepFault;
use crate::machine::{ResetType, RunningSoftware};
use crate::simulated_bmc::SimulatedBmc;

/// The agent's logs: a tar archive with one line of text, compressed with gzip, in base64.
pub(super) const LOGS: &str = "H4sIAAAAAAACA+3SQQrCMBCF4aw9xZxAEhK68DYBQyzUjKTT+9u6EVzUlaLwf5s3vJnl5FqaHSet7nP8akjpkavX9D7F57z1IcQQnXj3BctsuYu4rmp7d+/2f2oer8uUrZwlb59wkqZ2GVsVU+nlpt0ODgAAAAAAAAAAAAAAAADwe+65Tq9dACgAAA==";

/// A command that simulated agents support.
pub(super) enum SimulatedCommand {
    ListSteps(StepFlow),
    Execute(StepFlow, Box<ExecuteStepRequest>),
    PartitionUuids,
    Sync,
    PowerOff,
    RunImage,
    InstallBootloader,
    CollectLogs,
    FinalizeRescue,
    Kexec,
    LockDown,
}

/// The extensions of ironic-python-agent.
const EXTENSIONS: &[&str] =
    &["standby", "clean", "deploy", "service", "image", "log", "rescue", "poll", "flow", "system"];

impl SimulatedCommand {
    /// Parses a command. The errors imitate those of ironic-python-agent.
    pub(super) fn parse(
        command: AgentCommand,
        is_ferrite_agent: bool,
    ) -> Result<Self, CommandRejection> {
        let bad = |reason: String| CommandRejection::new(StatusCode::BAD_REQUEST, reason);
        let Some((extension, name)) = command.name.split_once('.') else {
            return Err(bad("Command name must be of the form <extension>.<name>".to_owned()));
        };
        if !EXTENSIONS.contains(&extension) {
            let reason = format!("Extension {extension} was not found");
            return Err(CommandRejection::new(StatusCode::NOT_FOUND, reason));
        }
        for flow in [StepFlow::Clean, StepFlow::Deploy, StepFlow::Service] {
            if command.name == flow.list_command() {
                return Ok(Self::ListSteps(flow));
            }
            if command.name == flow.execute_command() {
                let request = ExecuteStepRequest::from_params(flow, command.params).map_err(bad)?;
                return Ok(Self::Execute(flow, Box::new(request)));
            }
        }
        match command.name.as_str() {
            "standby.get_partition_uuids" => Ok(Self::PartitionUuids),
            "standby.sync" => Ok(Self::Sync),
            "standby.power_off" => Ok(Self::PowerOff),
            "standby.run_image" => Ok(Self::RunImage),
            "standby.kexec" if is_ferrite_agent => Ok(Self::Kexec),
            "image.install_bootloader" => Ok(Self::InstallBootloader),
            "log.collect_system_logs" => Ok(Self::CollectLogs),
            "rescue.finalize_rescue" => Ok(Self::FinalizeRescue),
            "system.lockdown" => Ok(Self::LockDown),
            _ => Err(bad(format!("Invalid command: {name}"))),
        }
    }

    /// Returns its name in command reports.
    fn name(&self) -> String {
        match self {
            Self::ListSteps(flow) => format!("get_{}_steps", flow.as_str()),
            Self::Execute(flow, _) => format!("execute_{}_step", flow.as_str()),
            Self::PartitionUuids => "get_partition_uuids".to_owned(),
            Self::Sync => "sync".to_owned(),
            Self::PowerOff => "power_off".to_owned(),
            Self::RunImage => "run_image".to_owned(),
            Self::InstallBootloader => "install_bootloader".to_owned(),
            Self::CollectLogs => "collect_system_logs".to_owned(),
            Self::FinalizeRescue => "finalize_rescue".to_owned(),
            Self::Kexec => "kexec".to_owned(),
            Self::LockDown => "lockdown".to_owned(),
        }
    }

    /// Whether the response is sent before the command is finished.
    pub(super) fn is_async(&self) -> bool {
        match self {
            Self::Execute(..) | Self::PowerOff | Self::RunImage | Self::InstallBootloader => true,
            Self::ListSteps(_)
            | Self::PartitionUuids
            | Self::Sync
            | Self::CollectLogs
            | Self::FinalizeRescue
            | Self::Kexec
            | Self::LockDown => false,
        }
    }

    /// Returns its path for fault rules, which contains the step name if it is a step.
    fn fault_path(&self) -> String {
        match self.step() {
            Some((_, step)) => format!("/agent/step/{}", step.name().unwrap_or_default()),
            None => format!("/agent/command/{}", self.name()),
        }
    }

    /// Returns the step to execute, if the command is one.
    fn step(&self) -> Option<(StepFlow, &ExecuteStepRequest)> {
        if let Self::Execute(flow, step) = self { Some((*flow, &**step)) } else { None }
    }
}

/// Result of a command.
enum CommandOutcome {
    Succeeded(Value),
    Failed(AgentCommandError),
    /// The step list came from other hardware manager versions.
    VersionMismatch,
}

/// What the machine does after a successful command.
enum AfterCommand {
    KeepRunning,
    PowerOff,
    Restart,
    HandOver(RunningSoftware),
}

/// Starts a command and returns its id. Rejects it if another command is running.
pub(super) fn start_command(
    bmc: &Arc<SimulatedBmc>,
    context: &Arc<AgentContext>,
    agent: &Arc<SimulatedAgent>,
    command: SimulatedCommand,
) -> Result<String, CommandRejection> {
    let id = Uuid::new_v4().to_string();
    {
        let mut state = agent.state();
        if let Some(last) = state.commands.last()
            && last.command_status == CommandStatus::Running
        {
            let reason = format!("Agent is busy: executing command {}", last.command_name);
            return Err(CommandRejection::new(StatusCode::CONFLICT, reason));
        }
        state.commands.push(CommandReport {
            id: id.clone(),
            command_name: command.name(),
            command_status: CommandStatus::Running,
            command_error: None,
            command_result: None,
        });
    }
    let (bmc, context, agent, task_id) =
        (Arc::clone(bmc), Arc::clone(context), Arc::clone(agent), id.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = run_command(&bmc, &context, &agent, command, &task_id) => {}
            () = agent.wait_for_end() => {}
        }
    });
    Ok(id)
}

async fn run_command(
    bmc: &Arc<SimulatedBmc>,
    context: &AgentContext,
    agent: &SimulatedAgent,
    command: SimulatedCommand,
    id: &str,
) {
    let is_async = command.is_async();
    let after = after_command(&command);
    let outcome = run_with_faults(bmc, context, agent, command).await;
    let succeeded = matches!(outcome, CommandOutcome::Succeeded(_));
    record_outcome(agent, id, outcome);
    match after {
        AfterCommand::PowerOff if succeeded => {
            bmc.with_model(|machine, now| machine.power_down(now));
        }
        AfterCommand::Restart if succeeded => {
            // The machine is on, so the restart cannot be rejected.
            let _ = bmc.with_model(|machine, now| machine.reset(ResetType::ForceRestart, now));
        }
        AfterCommand::HandOver(software) if succeeded => {
            bmc.with_model(|machine, _| machine.hand_over_to(software));
        }
        AfterCommand::KeepRunning
        | AfterCommand::PowerOff
        | AfterCommand::Restart
        | AfterCommand::HandOver(_) => {
            if is_async {
                agent.heartbeat_now.notify_one();
            }
        }
    }
}

fn after_command(command: &SimulatedCommand) -> AfterCommand {
    match command {
        SimulatedCommand::PowerOff => AfterCommand::PowerOff,
        SimulatedCommand::RunImage => AfterCommand::Restart,
        SimulatedCommand::Kexec => AfterCommand::HandOver(RunningSoftware::Instance),
        SimulatedCommand::FinalizeRescue => AfterCommand::HandOver(RunningSoftware::Rescue),
        SimulatedCommand::ListSteps(_)
        | SimulatedCommand::Execute(..)
        | SimulatedCommand::PartitionUuids
        | SimulatedCommand::Sync
        | SimulatedCommand::InstallBootloader
        | SimulatedCommand::CollectLogs
        | SimulatedCommand::LockDown => AfterCommand::KeepRunning,
    }
}

fn record_outcome(agent: &SimulatedAgent, id: &str, outcome: CommandOutcome) {
    let mut state = agent.state();
    if let Some(report) = state.commands.iter_mut().find(|report| report.id == id) {
        match outcome {
            CommandOutcome::Succeeded(result) => {
                report.command_status = CommandStatus::Succeeded;
                report.command_result = Some(result).filter(|result| !result.is_null());
            }
            CommandOutcome::Failed(error) => {
                report.command_status = CommandStatus::Failed;
                report.command_error = Some(error);
            }
            CommandOutcome::VersionMismatch => {
                report.command_status = CommandStatus::VersionMismatch
            }
        }
    }
    drop(state);
    agent.progress.send_modify(|progress| progress.finished_commands += 1);
}

/// Executes a command with the faults that apply to it.
async fn run_with_faults(
    bmc: &Arc<SimulatedBmc>,
    context: &AgentContext,
    agent: &SimulatedAgent,
    command: SimulatedCommand,
) -> CommandOutcome {
    let faults = bmc.fleet.faults.evaluate(bmc.index, "AGENT", &command.fault_path(), bmc.now());
    let duration = if command.is_async() {
        AgentTiming::for_bmc(bmc).scaled(context.config.step_seconds, 12) + faults.delay
    } else {
        faults.delay
    };
    let half = duration / 2;
    pause(half).await;
    if faults.termination.is_some() {
        return pending().await;
    }
    match faults.step_fault {
        None => {}
        Some(AgentStepFault::Fail(reason)) => {
            let error = command_failure(&command, "failed by a fault rule", &reason);
            return CommandOutcome::Failed(error);
        }
        Some(AgentStepFault::WrongChecksum) => {
            let reason = "checksum mismatch, injected by a fault rule";
            let error = write_image::command_error("ImageChecksumError", reason);
            return CommandOutcome::Failed(error);
        }
        Some(AgentStepFault::PowerCut) => {
            bmc.with_model(|machine, now| machine.power_down(now));
            return pending().await;
        }
        Some(AgentStepFault::NetworkLoss(duration)) => {
            agent.state().network_down_until = Some(bmc.now().plus(duration));
        }
    }
    pause(half).await;
    execute_command(bmc, context, agent, command).await
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

async fn execute_command(
    bmc: &Arc<SimulatedBmc>,
    context: &AgentContext,
    agent: &SimulatedAgent,
    command: SimulatedCommand,
) -> CommandOutcome {
    match command {
        SimulatedCommand::ListSteps(flow) => {
            let managers = agent.state().hardware_managers.clone();
            CommandOutcome::Succeeded(steps::list_steps(flow, managers).into_result(flow))
        }
        SimulatedCommand::Execute(flow, request) => {
            execute_step(bmc, context, agent, flow, *request).await
        }
        SimulatedCommand::PartitionUuids => {
            let root = bmc.with_model(|machine, _| {
                machine.disk_image().is_some().then(|| machine.identity().uuid())
            });
            CommandOutcome::Succeeded(json!(PartitionUuids { root, ..PartitionUuids::default() }))
        }
        SimulatedCommand::CollectLogs => CommandOutcome::Succeeded(json!({ "system_logs": LOGS })),
        SimulatedCommand::Kexec if bmc.with_model(|machine, _| machine.disk_image().is_none()) => {
            let error = command_failure(&command, "failed", "no image was written to the disk");
            CommandOutcome::Failed(error)
        }
        SimulatedCommand::Kexec
        | SimulatedCommand::Sync
        | SimulatedCommand::PowerOff
        | SimulatedCommand::RunImage
        | SimulatedCommand::InstallBootloader
        | SimulatedCommand::FinalizeRescue
        | SimulatedCommand::LockDown => {
            CommandOutcome::Succeeded(json!({"result": format!("{}: done", command.name())}))
        }
    }
}

async fn execute_step(
    bmc: &Arc<SimulatedBmc>,
    context: &AgentContext,
    agent: &SimulatedAgent,
    flow: StepFlow,
    request: ExecuteStepRequest,
) -> CommandOutcome {
    let managers = agent.state().hardware_managers.clone();
    if request.versions.as_ref().is_some_and(|versions| *versions != managers) {
        return CommandOutcome::VersionMismatch;
    }
    let step = request.name().unwrap_or_default().to_owned();
    if !steps::has_step(flow, &step) {
        let command = SimulatedCommand::Execute(flow, Box::new(request));
        let error = command_failure(&command, "failed", "unknown step");
        return CommandOutcome::Failed(error);
    }
    let result = match step.as_str() {
        "write_image" | "execute_bootc_install" => {
            match write_image::write_image(bmc, context, &request).await {
                Ok(text) => Value::String(text),
                Err(error) => return CommandOutcome::Failed(error),
            }
        }
        "erase_devices" | "erase_devices_metadata" | "erase_devices_express" => {
            bmc.with_model(|machine, _| machine.set_disk_image(None));
            Value::Null
        }
        "create_configuration" => {
            request.node.get("target_raid_config").cloned().unwrap_or_default()
        }
        "apply_configuration" => {
            let config = request.arguments().and_then(|arguments| arguments.get("raid_config"));
            config.cloned().unwrap_or_default()
        }
        _ => Value::Null,
    };
    bmc.with_model(|machine, _| machine.record_completed_step(&step));
    let result = ExecuteStepResult { result, step: without_arguments(request.step) };
    CommandOutcome::Succeeded(result.into_result(flow))
}

/// Removes the arguments, which may contain a large config drive, from the returned step.
fn without_arguments(mut step: Map<String, Value>) -> Map<String, Value> {
    step.remove("args");
    step
}

fn command_failure(command: &SimulatedCommand, event: &str, reason: &str) -> AgentCommandError {
    let (kind, message) = match command.step().map(|(flow, _)| flow) {
        Some(StepFlow::Clean) => ("CleaningError", "Clean step failed"),
        Some(StepFlow::Deploy) => ("DeploymentError", "Deploy step failed"),
        Some(StepFlow::Service) => ("ServicingError", "Service step failed"),
        None => ("CommandExecutionError", "Command execution failed"),
    };
    let name = match command.step() {
        Some((_, step)) => step.name().unwrap_or_default().to_owned(),
        None => command.name(),
    };
    AgentCommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some(message.to_owned()),
        details: Some(format!("{message}: {name} {event}: {reason}")),
    }
}
