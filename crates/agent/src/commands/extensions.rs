// SPDX-License-Identifier: Apache-2.0
//! The commands by their names: `extension.command`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Command, CommandError, Flow, LookupReply, StepOrder, StepResult};
use serde_json::{Map, Value, json};

use super::images;
use super::journal::{Failed, Outcome};
use crate::agent::{Agent, Phase};
use crate::init::power::{self, PowerAction};
use crate::managers::StepError;
use crate::{inspection, logs, rescue};

/// How long the answer to a command has to get out before the machine goes.
const FAREWELL: Duration = Duration::from_millis(300);
const EXTENSIONS: &[&str] =
    &["standby", "clean", "deploy", "service", "image", "log", "rescue", "poll", "flow", "system"];

/// Work that goes on while the server asks about it.
pub(super) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What came of a command.
pub enum Told {
    /// It is over.
    Now(Outcome),
    /// It will be.
    Later(Work),
}

/// Why something is no command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such extension.
    UnknownExtension(String),
    /// It makes no sense.
    Invalid(String),
}

/// A failure by the name of an error of ironic-python-agent.
#[must_use]
pub(super) fn failed(kind: &str, details: impl Into<String>) -> Failed {
    let details = details.into();
    Failed::Error(CommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some("Command execution failed".to_owned()),
        details: Some(details),
    })
}

/// Carries out a command, or starts to.
///
/// # Errors
/// If it is none.
pub async fn carry_out(agent: &Arc<Agent>, command: Command) -> Result<Told, Refusal> {
    let Command { name, params } = command;
    let Some((extension, action)) = name.split_once('.') else {
        return Err(Refusal::Invalid("a command's name is <extension>.<command>".to_owned()));
    };
    if !EXTENSIONS.contains(&extension) {
        return Err(Refusal::UnknownExtension(extension.to_owned()));
    }
    match (extension, action) {
        ("clean", _) => flow_command(agent, Flow::Clean, action, params).await,
        ("deploy", _) => flow_command(agent, Flow::Deploy, action, params).await,
        ("service", _) => flow_command(agent, Flow::Service, action, params).await,
        ("standby", _) => standby(agent, action, params).await,
        ("image", "install_bootloader") => {
            let agent = Arc::clone(agent);
            Ok(later(async move { images::install_bootloader(&agent, &params).await }))
        }
        ("log", "collect_system_logs") => {
            let logs = tokio::task::spawn_blocking(logs::collect_base64).await.unwrap_or_default();
            now(json!({ "system_logs": logs }))
        }
        ("rescue", "finalize_rescue") => {
            let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
            let hashed = params.get("hashed").and_then(agent_protocol::flag).unwrap_or(false);
            match rescue::finalize(text("rescue_password"), hashed) {
                Ok(()) => {
                    soon(agent, |agent| agent.enter(Phase::Rescued));
                    now(Value::Null)
                }
                Err(error) => {
                    Ok(Told::Now(Err(failed("CommandExecutionError", logs::causes(&error)))))
                }
            }
        }
        ("system", "lockdown") => {
            soon(agent, |agent| agent.enter(Phase::LockedDown));
            now(Value::Null)
        }
        ("poll", "get_hardware_info") => {
            let inventory = inspection::inventory(agent).await;
            now(serde_json::to_value(inventory).unwrap_or_default())
        }
        ("poll", "set_node_info") => set_node_info(agent, params),
        ("flow", "start_flow") => start_flow(agent, params),
        _ => Err(unknown(&name)),
    }
}

async fn standby(
    agent: &Arc<Agent>,
    action: &str,
    params: Map<String, Value>,
) -> Result<Told, Refusal> {
    let turn = |action| {
        soon(agent, move |agent| power::act(action, agent.own_machine));
        Ok(later(std::future::pending()))
    };
    match action {
        "get_partition_uuids" => now(serde_json::to_value(agent.partitions()).unwrap_or_default()),
        "sync" => {
            let _ = tokio::task::spawn_blocking(power::sync).await;
            now(Value::Null)
        }
        "power_off" => turn(PowerAction::Off),
        "run_image" => turn(PowerAction::Restart),
        "prepare_image" => {
            let agent = Arc::clone(agent);
            Ok(later(async move { images::prepare(&agent, &params).await }))
        }
        "kexec" => {
            let agent = Arc::clone(agent);
            Ok(later(async move { images::kexec(&agent).await }))
        }
        _ => Err(unknown(&format!("standby.{action}"))),
    }
}

/// `get_<flow>_steps` and `execute_<flow>_step`.
async fn flow_command(
    agent: &Arc<Agent>,
    flow: Flow,
    action: &str,
    mut params: Map<String, Value>,
) -> Result<Told, Refusal> {
    let full = format!("{}.{action}", flow.as_str());
    if full == flow.list_command() {
        let Some(Value::Object(node)) = params.remove("node") else {
            return Err(Refusal::Invalid("node must be an object".to_owned()));
        };
        let ports = match params.remove("ports") {
            Some(Value::Array(ports)) => ports,
            Some(_) | None => Vec::new(),
        };
        agent.remember_node(&node);
        return Ok(Told::Now(match agent.managers.steps(agent, flow, &node, &ports).await {
            Ok(list) => Ok(list.into_result(flow)),
            Err(error) => Err(Failed::Error(error)),
        }));
    }
    if full != flow.execute_command() {
        return Err(unknown(&full));
    }
    let order = StepOrder::from_params(flow, params).map_err(Refusal::Invalid)?;
    let agent = Arc::clone(agent);
    Ok(later(async move { execute(&agent, flow, order).await }))
}

async fn execute(agent: &Agent, flow: Flow, order: StepOrder) -> Outcome {
    agent.remember_node(&order.node);
    let versions = agent.managers.versions();
    if order.versions.as_ref().is_some_and(|listed| *listed != versions) {
        return Err(Failed::VersionMismatch(CommandError {
            kind: "VersionMismatch".to_owned(),
            code: Some(500),
            message: Some(
                "Hardware manager version mismatch, reload agent with correct version".to_owned(),
            ),
            details: Some(format!(
                "the steps were listed by {:?}, but the managers are now {versions:?}",
                order.versions.unwrap_or_default()
            )),
        }));
    }
    let (kind, message) = match flow {
        Flow::Clean => ("CleaningError", "Clean step failed"),
        Flow::Deploy => ("DeploymentError", "Deploy step failed"),
        Flow::Service => ("ServicingError", "Service step failed"),
    };
    let fail = |details: String| {
        Err(Failed::Error(CommandError {
            kind: kind.to_owned(),
            code: Some(500),
            message: Some(message.to_owned()),
            details: Some(format!("{message}: {details}")),
        }))
    };
    let Some(name) = order.name().map(str::to_owned) else {
        return fail("the step has no name".to_owned());
    };
    tracing::info!(step = name, flow = flow.as_str(), "a step begins");
    match agent.managers.execute(agent, flow, &order).await {
        Ok(result) => Ok(StepResult { result, step: order.step }.into_result(flow)),
        Err(StepError::Failed(error)) => Err(Failed::Error(error)),
        Err(StepError::NotMine) => fail(format!(
            "no hardware manager of this agent has the step {name}; list the steps to see which there are"
        )),
    }
}

/// Tells an agent that nobody looks up which node it is.
fn set_node_info(agent: &Arc<Agent>, mut params: Map<String, Value>) -> Result<Told, Refusal> {
    if !agent.settings.api_urls.is_empty() {
        return Err(Refusal::Invalid("this agent asks its server which node it is".to_owned()));
    }
    let info = params.remove("node_info").unwrap_or_default();
    let reply: LookupReply = serde_json::from_value(info).map_err(|error| {
        Refusal::Invalid(format!("node_info is the answer to a lookup: {error}"))
    })?;
    match agent.learn(reply) {
        Ok(()) => now(Value::Null),
        Err(error) => Ok(Told::Now(Err(failed("CommandExecutionError", error.to_string())))),
    }
}

/// Several commands, one after the other, until one fails.
fn start_flow(agent: &Arc<Agent>, mut params: Map<String, Value>) -> Result<Told, Refusal> {
    let tasks: Vec<Map<String, Value>> =
        serde_json::from_value(params.remove("flow").unwrap_or_default())
            .map_err(|error| Refusal::Invalid(format!("flow is a list of objects: {error}")))?;
    let agent = Arc::clone(agent);
    Ok(later(async move {
        for (name, params) in tasks.into_iter().flatten() {
            let params = params.as_object().cloned().unwrap_or_default();
            if name.starts_with("flow.") {
                return Err(failed("CommandExecutionError", "a flow cannot start a flow"));
            }
            let told = Box::pin(carry_out(&agent, Command { name: name.clone(), params })).await;
            let outcome = match told {
                Ok(Told::Now(outcome)) => outcome,
                Ok(Told::Later(work)) => work.await,
                Err(refusal) => Err(failed("CommandExecutionError", format!("{refusal:?}"))),
            };
            if outcome.is_err() {
                return Err(failed("CommandExecutionError", format!("{name} failed")));
            }
        }
        Ok(Value::Null)
    }))
}

fn unknown(name: &str) -> Refusal {
    Refusal::Invalid(format!("there is no command {name}"))
}

fn now(result: Value) -> Result<Told, Refusal> {
    Ok(Told::Now(Ok(result)))
}

fn later(work: impl Future<Output = Outcome> + Send + 'static) -> Told {
    Told::Later(Box::pin(work))
}

/// Does something after the answer had time to get out.
fn soon(agent: &Arc<Agent>, action: impl FnOnce(&Agent) + Send + 'static) {
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        tokio::time::sleep(FAREWELL).await;
        action(&agent);
    });
}
