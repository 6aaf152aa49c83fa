// SPDX-License-Identifier: Apache-2.0
//! What agents are told to do, and doing it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{
    Command, CommandError, CommandReport, CommandStatus, Flow, PartitionUuids, StepOrder,
    StepResult,
};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::life::Pace;
use super::serve::Refused;
use super::{Agent, Site, steps, write};
use crate::bmc::Bmc;
use crate::faults::Mishap;
use crate::machine::{Reset, Runs};

/// The agent's logs: a tar archive with one line in it, compressed with gzip, in base64.
pub(super) const LOGS: &str = "H4sIAAAAAAACA+3SQQrCMBCF4aw9xZxAEhK68DYBQyzUjKTT+9u6EVzUlaLwf5s3vJnl5FqaHSet7nP8akjpkavX9D7F57z1IcQQnXj3BctsuYu4rmp7d+/2f2oer8uUrZwlb59wkqZ2GVsVU+nlpt0ODgAAAAAAAAAAAAAAAADwe+65Tq9dACgAAA==";

/// What an agent is told to do.
pub(super) enum Order {
    ListSteps(Flow),
    Execute(Flow, Box<StepOrder>),
    PartitionUuids,
    Sync,
    PowerOff,
    Restart,
    InstallBootloader,
    CollectLogs,
    FinalizeRescue,
    Kexec,
    LockDown,
}

const EXTENSIONS: &[&str] =
    &["standby", "clean", "deploy", "service", "image", "log", "rescue", "poll", "flow", "system"];

impl Order {
    /// Understands a command, or says as agents do that there is none such.
    pub(super) fn parse(command: Command, is_ours: bool) -> Result<Self, Refused> {
        let bad = |why: String| Refused::new(StatusCode::BAD_REQUEST, why);
        let Some((extension, name)) = command.name.split_once('.') else {
            return Err(bad("Command name must be of the form <extension>.<name>".to_owned()));
        };
        if !EXTENSIONS.contains(&extension) {
            let why = format!("Extension {extension} was not found");
            return Err(Refused::new(StatusCode::NOT_FOUND, why));
        }
        for flow in [Flow::Clean, Flow::Deploy, Flow::Service] {
            if command.name == flow.list_command() {
                return Ok(Self::ListSteps(flow));
            }
            if command.name == flow.execute_command() {
                let order = StepOrder::from_params(flow, command.params).map_err(bad)?;
                return Ok(Self::Execute(flow, Box::new(order)));
            }
        }
        match command.name.as_str() {
            "standby.get_partition_uuids" => Ok(Self::PartitionUuids),
            "standby.sync" => Ok(Self::Sync),
            "standby.power_off" => Ok(Self::PowerOff),
            "standby.run_image" => Ok(Self::Restart),
            "standby.kexec" if is_ours => Ok(Self::Kexec),
            "image.install_bootloader" => Ok(Self::InstallBootloader),
            "log.collect_system_logs" => Ok(Self::CollectLogs),
            "rescue.finalize_rescue" => Ok(Self::FinalizeRescue),
            "system.lockdown" => Ok(Self::LockDown),
            _ => Err(bad(format!("Invalid command: {name}"))),
        }
    }

    /// Its name in reports.
    fn name(&self) -> String {
        match self {
            Self::ListSteps(flow) => format!("get_{}_steps", flow.as_str()),
            Self::Execute(flow, _) => format!("execute_{}_step", flow.as_str()),
            Self::PartitionUuids => "get_partition_uuids".to_owned(),
            Self::Sync => "sync".to_owned(),
            Self::PowerOff => "power_off".to_owned(),
            Self::Restart => "run_image".to_owned(),
            Self::InstallBootloader => "install_bootloader".to_owned(),
            Self::CollectLogs => "collect_system_logs".to_owned(),
            Self::FinalizeRescue => "finalize_rescue".to_owned(),
            Self::Kexec => "kexec".to_owned(),
            Self::LockDown => "lockdown".to_owned(),
        }
    }

    /// Whether the answer comes before it is done.
    pub(super) fn takes_time(&self) -> bool {
        match self {
            Self::Execute(..) | Self::PowerOff | Self::Restart | Self::InstallBootloader => true,
            Self::ListSteps(_)
            | Self::PartitionUuids
            | Self::Sync
            | Self::CollectLogs
            | Self::FinalizeRescue
            | Self::Kexec
            | Self::LockDown => false,
        }
    }

    /// What rules call it: a step by its own name.
    fn fault_path(&self) -> String {
        match self.step() {
            Some((_, step)) => format!("/agent/step/{}", step.name().unwrap_or_default()),
            None => format!("/agent/command/{}", self.name()),
        }
    }

    /// The step it is to carry out, if it is one.
    fn step(&self) -> Option<(Flow, &StepOrder)> {
        if let Self::Execute(flow, step) = self { Some((*flow, &**step)) } else { None }
    }
}

/// How an order ended.
enum Ended {
    Well(Value),
    Badly(CommandError),
    /// The step was offered by other managers than those there are.
    Mismatch,
}

/// What becomes of the machine after an order.
enum Then {
    GoesOn,
    GoesOff,
    Restarts,
    Becomes(Runs),
}

/// Starts carrying out an order; its number in the agent's memory is what it is known by.
pub(super) fn begin(
    bmc: &Arc<Bmc>,
    site: &Arc<Site>,
    agent: &Arc<Agent>,
    order: Order,
) -> Result<String, Refused> {
    let id = Uuid::new_v4().to_string();
    {
        let mut memory = agent.memory();
        if let Some(last) = memory.commands.last()
            && last.command_status == CommandStatus::Running
        {
            let why = format!("Agent is busy: executing command {}", last.command_name);
            return Err(Refused::new(StatusCode::CONFLICT, why));
        }
        memory.commands.push(CommandReport {
            id: id.clone(),
            command_name: order.name(),
            command_status: CommandStatus::Running,
            command_error: None,
            command_result: None,
        });
    }
    let (bmc, site, agent, known) =
        (Arc::clone(bmc), Arc::clone(site), Arc::clone(agent), id.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = carry_out(&bmc, &site, &agent, order, &known) => {}
            () = agent.ended() => {}
        }
    });
    Ok(id)
}

async fn carry_out(bmc: &Arc<Bmc>, site: &Site, agent: &Agent, order: Order, id: &str) {
    let takes_time = order.takes_time();
    let then = then(&order);
    let ended = struck(bmc, site, agent, order).await;
    let went_well = matches!(ended, Ended::Well(_));
    finish(agent, id, ended);
    match then {
        Then::GoesOff if went_well => bmc.with(|machine, now| machine.go_off(now)),
        Then::Restarts if went_well => {
            // A machine that is on can be restarted.
            let _ = bmc.with(|machine, now| machine.reset(Reset::ForceRestart, now));
        }
        Then::Becomes(runs) if went_well => bmc.with(|machine, _| machine.hand_over_to(runs)),
        Then::GoesOn | Then::GoesOff | Then::Restarts | Then::Becomes(_) => {
            if takes_time {
                agent.call_now.notify_one();
            }
        }
    }
}

fn then(order: &Order) -> Then {
    match order {
        Order::PowerOff => Then::GoesOff,
        Order::Restart => Then::Restarts,
        Order::Kexec => Then::Becomes(Runs::Instance),
        Order::FinalizeRescue => Then::Becomes(Runs::Rescue),
        Order::ListSteps(_)
        | Order::Execute(..)
        | Order::PartitionUuids
        | Order::Sync
        | Order::InstallBootloader
        | Order::CollectLogs
        | Order::LockDown => Then::GoesOn,
    }
}

fn finish(agent: &Agent, id: &str, ended: Ended) {
    let mut memory = agent.memory();
    if let Some(report) = memory.commands.iter_mut().find(|report| report.id == id) {
        match ended {
            Ended::Well(result) => {
                report.command_status = CommandStatus::Succeeded;
                report.command_result = Some(result).filter(|result| !result.is_null());
            }
            Ended::Badly(error) => {
                report.command_status = CommandStatus::Failed;
                report.command_error = Some(error);
            }
            Ended::Mismatch => report.command_status = CommandStatus::VersionMismatch,
        }
    }
    drop(memory);
    agent.news.send_modify(|news| news.finished += 1);
}

/// Carries out an order, with what rules do to it.
async fn struck(bmc: &Arc<Bmc>, site: &Site, agent: &Agent, order: Order) -> Ended {
    let verdict = bmc.shared.faults.verdict(bmc.index, "AGENT", &order.fault_path(), bmc.now());
    let duration = if order.takes_time() {
        Pace::of(bmc).scaled(site.config.step, 12) + verdict.delay
    } else {
        verdict.delay
    };
    let half = duration / 2;
    pause(half).await;
    if verdict.end.is_some() {
        return pending().await;
    }
    match verdict.agent {
        None => {}
        Some(Mishap::Fails(why)) => return Ended::Badly(failure(&order, "is ruled to fail", &why)),
        Some(Mishap::WrongChecksum) => {
            return Ended::Badly(write::checksum_error("simulated", "what was ruled", "another"));
        }
        Some(Mishap::PowerCut) => {
            bmc.with(|machine, now| machine.go_off(now));
            return pending().await;
        }
        Some(Mishap::Away(how_long)) => {
            agent.memory().away_until = Some(bmc.now().plus(how_long));
        }
    }
    pause(half).await;
    perform(bmc, site, agent, order).await
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

async fn perform(bmc: &Arc<Bmc>, site: &Site, agent: &Agent, order: Order) -> Ended {
    match order {
        Order::ListSteps(flow) => {
            let managers = agent.memory().managers.clone();
            Ended::Well(steps::list(flow, managers).into_result(flow))
        }
        Order::Execute(flow, order) => execute(bmc, site, agent, flow, *order).await,
        Order::PartitionUuids => {
            let root =
                bmc.with(|machine, _| machine.disk().is_some().then(|| machine.identity().uuid()));
            Ended::Well(json!(PartitionUuids { root, ..PartitionUuids::default() }))
        }
        Order::CollectLogs => Ended::Well(json!({ "system_logs": LOGS })),
        Order::Kexec if bmc.with(|machine, _| machine.disk().is_none()) => {
            Ended::Badly(failure(&order, "cannot be done", "there is no system on the disk"))
        }
        Order::Kexec
        | Order::Sync
        | Order::PowerOff
        | Order::Restart
        | Order::InstallBootloader
        | Order::FinalizeRescue
        | Order::LockDown => Ended::Well(json!({"result": format!("{}: done", order.name())})),
    }
}

async fn execute(
    bmc: &Arc<Bmc>,
    site: &Site,
    agent: &Agent,
    flow: Flow,
    order: StepOrder,
) -> Ended {
    if order.versions.as_ref().is_some_and(|versions| *versions != agent.memory().managers) {
        return Ended::Mismatch;
    }
    let step = order.name().unwrap_or_default().to_owned();
    if !steps::is_offered(flow, &step) {
        let order = Order::Execute(flow, Box::new(order));
        return Ended::Badly(failure(&order, "cannot be found", &step));
    }
    let result = match step.as_str() {
        "write_image" | "execute_bootc_install" => match write::write(bmc, site, &order).await {
            Ok(text) => Value::String(text),
            Err(error) => return Ended::Badly(error),
        },
        "erase_devices" | "erase_devices_metadata" | "erase_devices_express" => {
            bmc.with(|machine, _| machine.set_disk(None));
            Value::Null
        }
        "create_configuration" => order.node.get("target_raid_config").cloned().unwrap_or_default(),
        "apply_configuration" => {
            let wanted = order.arguments().and_then(|arguments| arguments.get("raid_config"));
            wanted.cloned().unwrap_or_default()
        }
        _ => Value::Null,
    };
    bmc.with(|machine, _| machine.count_step(&step));
    Ended::Well(StepResult { result, step: without_arguments(order.step) }.into_result(flow))
}

/// The step as it comes back: a config drive need not travel twice.
fn without_arguments(mut step: Map<String, Value>) -> Map<String, Value> {
    step.remove("args");
    step
}

fn failure(order: &Order, how: &str, why: &str) -> CommandError {
    let (kind, message) = match order.step().map(|(flow, _)| flow) {
        Some(Flow::Clean) => ("CleaningError", "Clean step failed"),
        Some(Flow::Deploy) => ("DeploymentError", "Deploy step failed"),
        Some(Flow::Service) => ("ServicingError", "Service step failed"),
        None => ("CommandExecutionError", "Command execution failed"),
    };
    let name = match order.step() {
        Some((_, step)) => step.name().unwrap_or_default().to_owned(),
        None => order.name(),
    };
    CommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some(message.to_owned()),
        details: Some(format!("{message}: {name} {how}: {why}")),
    }
}
