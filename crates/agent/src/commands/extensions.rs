// SPDX-License-Identifier: Apache-2.0
//! Executes commands by name: `extension.command`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{
    AgentCommand, AgentCommandError, ExecuteStepRequest, ExecuteStepResult, LookupReply, StepFlow,
};
use error_chain::error_chain;
use serde_json::{Map, Value, json};

use super::command_log::{CommandFailure, CommandResult};
use super::images;
use crate::agent::{AgentPhase, RamdiskAgent};
use crate::init::power::{self, PowerAction};
use crate::managers::ManagerStepError;
use crate::{inspection, logs, rescue};

/// Time for the response to be sent before the machine restarts or disconnects.
const RESPONSE_DELAY: Duration = Duration::from_millis(300);
const EXTENSIONS: &[&str] =
    &["standby", "clean", "deploy", "service", "image", "log", "rescue", "poll", "flow", "system"];

/// The rest of an asynchronous command.
pub(super) type CommandFuture = Pin<Box<dyn Future<Output = CommandResult> + Send>>;

/// A command after its start.
pub enum CommandExecution {
    /// Finished.
    Finished(CommandResult),
    /// Asynchronous: still to be run.
    Running(CommandFuture),
}

/// A command that cannot be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RejectedCommand {
    /// Unknown extension.
    UnknownExtension(String),
    /// Unknown command or invalid parameters.
    Invalid(String),
}

/// Returns a failure with an error type of ironic-python-agent.
#[must_use]
pub(super) fn command_failure(kind: &str, details: impl Into<String>) -> CommandFailure {
    let details = details.into();
    CommandFailure::Error(AgentCommandError {
        kind: kind.to_owned(),
        code: Some(500),
        message: Some("Command execution failed".to_owned()),
        details: Some(details),
    })
}

/// Executes a synchronous command, or starts an asynchronous one.
///
/// # Errors
/// If the command is unknown or its parameters are invalid.
pub async fn execute_command(
    agent: &Arc<RamdiskAgent>,
    command: AgentCommand,
) -> Result<CommandExecution, RejectedCommand> {
    let AgentCommand { name, params } = command;
    let Some((extension, action)) = name.split_once('.') else {
        return Err(RejectedCommand::Invalid(
            "a command's name must be <extension>.<command>".to_owned(),
        ));
    };
    if !EXTENSIONS.contains(&extension) {
        return Err(RejectedCommand::UnknownExtension(extension.to_owned()));
    }
    match (extension, action) {
        ("clean", _) => flow_command(agent, StepFlow::Clean, action, params).await,
        ("deploy", _) => flow_command(agent, StepFlow::Deploy, action, params).await,
        ("service", _) => flow_command(agent, StepFlow::Service, action, params).await,
        ("standby", _) => standby(agent, action, params).await,
        ("image", "install_bootloader") => {
            let agent = Arc::clone(agent);
            Ok(running(async move { images::install_bootloader(&agent, &params).await }))
        }
        ("log", "collect_system_logs") => {
            let logs = tokio::task::spawn_blocking(logs::collect_base64).await.unwrap_or_default();
            finished(json!({ "system_logs": logs }))
        }
        ("rescue", "finalize_rescue") => {
            let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
            let hashed = params.get("hashed").and_then(agent_protocol::parse_bool).unwrap_or(false);
            match rescue::finalize(text("rescue_password"), hashed) {
                Ok(()) => {
                    after_response(agent, |agent| agent.set_phase(AgentPhase::Rescued));
                    finished(Value::Null)
                }
                Err(error) => Ok(CommandExecution::Finished(Err(command_failure(
                    "CommandExecutionError",
                    error_chain(&error),
                )))),
            }
        }
        ("system", "lockdown") => {
            after_response(agent, |agent| agent.set_phase(AgentPhase::LockedDown));
            finished(Value::Null)
        }
        ("poll", "get_hardware_info") => {
            let inventory = inspection::inventory(agent).await;
            finished(serde_json::to_value(inventory).unwrap_or_default())
        }
        ("poll", "set_node_info") => set_node_info(agent, params),
        ("flow", "start_flow") => start_flow(agent, params),
        _ => Err(unknown_command(&name)),
    }
}

async fn standby(
    agent: &Arc<RamdiskAgent>,
    action: &str,
    params: Map<String, Value>,
) -> Result<CommandExecution, RejectedCommand> {
    let power = |action| {
        after_response(agent, move |agent| power::execute(action, agent.in_ramdisk));
        Ok(running(std::future::pending()))
    };
    match action {
        "get_partition_uuids" => {
            finished(serde_json::to_value(agent.partitions()).unwrap_or_default())
        }
        "sync" => {
            let _ = tokio::task::spawn_blocking(power::sync).await;
            finished(Value::Null)
        }
        "power_off" => power(PowerAction::Off),
        "run_image" => power(PowerAction::Restart),
        "prepare_image" => {
            let agent = Arc::clone(agent);
            Ok(running(async move { images::prepare_image(&agent, &params).await }))
        }
        "kexec" => {
            let agent = Arc::clone(agent);
            Ok(running(async move { images::kexec(&agent).await }))
        }
        _ => Err(unknown_command(&format!("standby.{action}"))),
    }
}

/// `get_<flow>_steps` and `execute_<flow>_step`.
async fn flow_command(
    agent: &Arc<RamdiskAgent>,
    flow: StepFlow,
    action: &str,
    mut params: Map<String, Value>,
) -> Result<CommandExecution, RejectedCommand> {
    let full = format!("{}.{action}", flow.as_str());
    if full == flow.list_command() {
        let Some(Value::Object(node)) = params.remove("node") else {
            return Err(RejectedCommand::Invalid("node must be an object".to_owned()));
        };
        let ports = match params.remove("ports") {
            Some(Value::Array(ports)) => ports,
            Some(_) | None => Vec::new(),
        };
        agent.set_node(&node);
        return Ok(CommandExecution::Finished(
            match agent.managers.steps(agent, flow, &node, &ports).await {
                Ok(list) => Ok(list.into_result(flow)),
                Err(error) => Err(CommandFailure::Error(error)),
            },
        ));
    }
    if full != flow.execute_command() {
        return Err(unknown_command(&full));
    }
    let request =
        ExecuteStepRequest::from_params(flow, params).map_err(RejectedCommand::Invalid)?;
    let agent = Arc::clone(agent);
    Ok(running(async move { execute_step(&agent, flow, request).await }))
}

async fn execute_step(
    agent: &RamdiskAgent,
    flow: StepFlow,
    request: ExecuteStepRequest,
) -> CommandResult {
    agent.set_node(&request.node);
    let versions = agent.managers.versions();
    if request.versions.as_ref().is_some_and(|listed| *listed != versions) {
        return Err(CommandFailure::VersionMismatch(AgentCommandError {
            kind: "VersionMismatch".to_owned(),
            code: Some(500),
            message: Some(
                "Hardware manager version mismatch, reload agent with correct version".to_owned(),
            ),
            details: Some(format!(
                "the steps were listed by {:?}, but the current managers are {versions:?}",
                request.versions.unwrap_or_default()
            )),
        }));
    }
    let (kind, message) = match flow {
        StepFlow::Clean => ("CleaningError", "Clean step failed"),
        StepFlow::Deploy => ("DeploymentError", "Deploy step failed"),
        StepFlow::Service => ("ServicingError", "Service step failed"),
    };
    let fail = |details: String| {
        Err(CommandFailure::Error(AgentCommandError {
            kind: kind.to_owned(),
            code: Some(500),
            message: Some(message.to_owned()),
            details: Some(format!("{message}: {details}")),
        }))
    };
    let Some(name) = request.name().map(str::to_owned) else {
        return fail("the step has no name".to_owned());
    };
    tracing::info!(step = name, flow = flow.as_str(), "step started");
    match agent.managers.execute(agent, flow, &request).await {
        Ok(result) => Ok(ExecuteStepResult { result, step: request.step }.into_result(flow)),
        Err(ManagerStepError::Failed(error)) => Err(CommandFailure::Error(error)),
        Err(ManagerStepError::NotSupported) => fail(format!(
            "no hardware manager of this agent has the step {name}; list the steps to see the available ones"
        )),
    }
}

/// Sets the node of an agent that does no lookup.
fn set_node_info(
    agent: &Arc<RamdiskAgent>,
    mut params: Map<String, Value>,
) -> Result<CommandExecution, RejectedCommand> {
    if !agent.options.api_urls.is_empty() {
        return Err(RejectedCommand::Invalid(
            "this agent looks up its node at the server".to_owned(),
        ));
    }
    let info = params.remove("node_info").unwrap_or_default();
    let reply: LookupReply = serde_json::from_value(info).map_err(|error| {
        RejectedCommand::Invalid(format!("node_info must be a lookup response: {error}"))
    })?;
    match agent.apply_lookup(reply) {
        Ok(()) => finished(Value::Null),
        Err(error) => Ok(CommandExecution::Finished(Err(command_failure(
            "CommandExecutionError",
            error.to_string(),
        )))),
    }
}

/// Executes several commands in request, until one fails.
fn start_flow(
    agent: &Arc<RamdiskAgent>,
    mut params: Map<String, Value>,
) -> Result<CommandExecution, RejectedCommand> {
    let tasks: Vec<Map<String, Value>> =
        serde_json::from_value(params.remove("flow").unwrap_or_default()).map_err(|error| {
            RejectedCommand::Invalid(format!("flow must be a list of objects: {error}"))
        })?;
    let agent = Arc::clone(agent);
    Ok(running(async move {
        for (name, params) in tasks.into_iter().flatten() {
            let params = params.as_object().cloned().unwrap_or_default();
            if name.starts_with("flow.") {
                return Err(command_failure("CommandExecutionError", "a flow cannot start a flow"));
            }
            let execution =
                Box::pin(execute_command(&agent, AgentCommand { name: name.clone(), params }))
                    .await;
            let outcome = match execution {
                Ok(CommandExecution::Finished(outcome)) => outcome,
                Ok(CommandExecution::Running(work)) => work.await,
                Err(rejection) => {
                    Err(command_failure("CommandExecutionError", format!("{rejection:?}")))
                }
            };
            if outcome.is_err() {
                return Err(command_failure("CommandExecutionError", format!("{name} failed")));
            }
        }
        Ok(Value::Null)
    }))
}

fn unknown_command(name: &str) -> RejectedCommand {
    RejectedCommand::Invalid(format!("unknown command {name}"))
}

fn finished(result: Value) -> Result<CommandExecution, RejectedCommand> {
    Ok(CommandExecution::Finished(Ok(result)))
}

fn running(work: impl Future<Output = CommandResult> + Send + 'static) -> CommandExecution {
    CommandExecution::Running(Box::pin(work))
}

/// Runs an action after the response had time to be sent.
fn after_response(agent: &Arc<RamdiskAgent>, action: impl FnOnce(&RamdiskAgent) + Send + 'static) {
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        tokio::time::sleep(RESPONSE_DELAY).await;
        action(&agent);
    });
}
