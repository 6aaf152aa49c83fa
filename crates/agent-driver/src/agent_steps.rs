// SPDX-License-Identifier: Apache-2.0
//! The agent's steps: listing and running them.

use std::borrow::Cow;
use std::future::Future;

use agent_protocol::{
    AgentCommand, AgentStep, AgentStepList, CommandStatus, ExecuteStepRequest, ExecuteStepResult,
    StepFlow as AgentStepFlow,
};
use drivers::ramdisk_boot::reboot_ramdisk;
use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{AvailableStep, Step, StepArgument, StepFlow};
use serde_json::{Map, Value, json};

use super::agent_commands::{CommandProgress, failure_reason};
use super::{AgentAccess, node_info};

/// Agent steps whose arguments name an image to install.
const IMAGE_STEPS: [&str; 2] = ["write_image", "execute_bootc_install"];
/// The `driver_internal_info` key with the agent's hardware managers.
const MANAGERS_KEY: &str = "hardware_manager_version";
/// Driver state: the step, which ended with this result, requires a restart; and that the restart was
/// started.
const RESTART_PENDING_KEY: &str = "restart_after_step";
const RESTARTED_KEY: &str = "restarted_after_step";
/// Driver state: the agent's hardware managers differ from those that were listed.
const VERSION_MISMATCH_KEY: &str = "agent_has_other_managers";

/// The progress of an agent step.
pub(super) enum AgentStepProgress {
    /// It has not ended; the outcome of this call.
    Pending(StepOutcome),
    /// It succeeded with this result.
    Done(Value, NodeChanges),
}

impl AgentAccess {
    /// Queries the agent for its steps in `flow`. The changes record its hardware managers.
    pub(crate) async fn list_agent_steps(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<AvailableStep>, NodeChanges), DriverError> {
        let Some(agent_flow) = agent_flow(flow) else {
            return Ok((Vec::new(), NodeChanges::none()));
        };
        let mut params = Map::new();
        params.insert("node".to_owned(), Value::Object(node_info::node_for_agent(target)));
        params.insert("ports".to_owned(), Value::Array(node_info::ports_for_agent(target)));
        let result = self.client.run_sync(target, &agent_flow.list_command(), params).await?;
        let list = AgentStepList::from_result(agent_flow, result).map_err(|error| {
            DriverError::failed(
                "list the agent's steps",
                format!("the response is invalid: {error}"),
            )
        })?;
        let available = list
            .steps
            .into_values()
            .flatten()
            .map(|step| self.available_step(flow, step))
            .collect();
        Ok((available, NodeChanges::internal_info(MANAGERS_KEY, list.versions)))
    }

    /// Runs an agent step; repeat the call until it has ended. `arguments` is evaluated only when the
    /// step is sent.
    pub(super) async fn run_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: impl Future<Output = Result<Map<String, Value>, DriverError>> + Send,
    ) -> Result<AgentStepProgress, DriverError> {
        let what = || format!("carry out the {flow} step {}", step.qualified());
        let Some(agent_flow) = agent_flow(flow) else {
            return Err(DriverError::failed(what(), "agents have no steps in this flow"));
        };
        if target.driver_state.get(RESTARTED_KEY).is_some() {
            // Repeated after a heartbeat, so the agent runs again.
            let ended = target.driver_state.get(RESTART_PENDING_KEY).unwrap_or_default();
            return Ok(AgentStepProgress::Done(ended["result"].clone(), NodeChanges::none()));
        }
        if target.driver_state.get(RESTART_PENDING_KEY).is_some() {
            let restarted = reboot_ramdisk(target).await?;
            let restarted_state = NodeChanges::driver_state_key(RESTARTED_KEY, true);
            return Ok(AgentStepProgress::Pending(
                target.wait_for_agent(restarted.and(restarted_state)),
            ));
        }
        let command = async {
            let versions = match target.node.driver_internal_info.get(MANAGERS_KEY) {
                Some(Value::Object(versions)) => Some(versions),
                Some(_) | None => None,
            };
            Ok(execute_command(target, agent_flow, step, arguments.await?, versions))
        };
        let progress = self.client.follow(target, &agent_flow.execute_command(), command).await?;
        let (report, changes) = match progress {
            CommandProgress::Pending(outcome) => return Ok(AgentStepProgress::Pending(outcome)),
            CommandProgress::Ended(report, changes) => (report, changes),
        };
        let result = || {
            let result = report.command_result.as_ref();
            let result =
                result.and_then(|result| ExecuteStepResult::from_result(agent_flow, result));
            result.map(|result| result.result).unwrap_or_default()
        };
        match report.command_status {
            // Stored first: if the process stops during the restart, it must know that the new agent
            // does not know the step.
            CommandStatus::Succeeded if step.reboot_requested => {
                let pending =
                    NodeChanges::driver_state_key(RESTART_PENDING_KEY, json!({"result": result()}));
                Ok(AgentStepProgress::Pending(StepOutcome::checkpoint(changes.and(pending))))
            }
            CommandStatus::Succeeded => Ok(AgentStepProgress::Done(result(), changes)),
            // Other hardware managers are loaded. Their steps are listed, and the step is retried.
            CommandStatus::VersionMismatch
                if target.driver_state.get(VERSION_MISMATCH_KEY).is_some() =>
            {
                Err(DriverError::failed(
                    what(),
                    "the versions of the agent's hardware managers change repeatedly; check the \
                     hardware managers in the ramdisk",
                ))
            }
            CommandStatus::VersionMismatch => {
                let mismatch = NodeChanges::driver_state_key(VERSION_MISMATCH_KEY, true);
                let (available, managers) = self.list_agent_steps(target, flow).await?;
                let is_same =
                    |candidate: &AvailableStep| candidate.step.qualified() == step.qualified();
                if !available.iter().any(is_same) {
                    return Err(DriverError::failed(
                        what(),
                        "the agent does not provide it any more",
                    ));
                }
                Ok(AgentStepProgress::Pending(StepOutcome::checkpoint(
                    changes.and(managers).and(mismatch),
                )))
            }
            CommandStatus::Failed | CommandStatus::Running => {
                Err(DriverError::failed(what(), failure_reason(&report)))
            }
        }
    }

    /// Runs an agent step and ignores its result.
    pub(crate) async fn run_agent_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        if IMAGE_STEPS.contains(&step.step.as_str()) && self.boot_service.verifies_disk_images() {
            return Err(DriverError::invalid(
                format!("{flow} step '{}'", step.step),
                "the signatures of images are verified (images.disk_image_signatures), and its arguments name \
                 an image that was not; use the deploy interface direct or bootc, which install the \
                 image_source of the instance",
            ));
        }
        self.run_agent_step_with(target, flow, step, async { Ok(step.args.parse()) }).await
    }

    /// The same with other arguments than the step's own.
    pub(super) async fn run_agent_step_with(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: impl Future<Output = Result<Map<String, Value>, DriverError>> + Send,
    ) -> Result<StepOutcome, DriverError> {
        Ok(match self.run_step(target, flow, step, arguments).await? {
            AgentStepProgress::Pending(outcome) => outcome,
            AgentStepProgress::Done(_, changes) => StepOutcome::done(changes),
        })
    }

    /// The automatic steps that ironic-python-agent and Ferrite's agent have in common.
    pub(crate) fn usual_agent_steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        let steps: &[(&str, i64)] = match flow {
            StepFlow::Clean => &[("erase_devices_metadata", 99), ("erase_devices", 10)],
            StepFlow::Deploy | StepFlow::Service | StepFlow::Verify => &[],
        };
        let description = |&(step, priority): &(&str, i64)| AgentStep {
            step: step.to_owned(),
            priority,
            interface: "deploy".to_owned(),
            reboot_requested: false,
            abortable: true,
            argsinfo: None,
        };
        steps.iter().map(|step| self.available_step(flow, description(step))).collect()
    }

    fn available_step(&self, flow: StepFlow, description: AgentStep) -> AvailableStep {
        let AgentStep { step, priority, interface, reboot_requested, abortable, argsinfo } =
            description;
        let configured = match flow {
            StepFlow::Clean => self.settings.clean_priority(&step),
            StepFlow::Deploy | StepFlow::Service | StepFlow::Verify => None,
        };
        let arguments =
            argsinfo.unwrap_or_default().into_iter().map(|(name, argument)| StepArgument {
                name: Cow::Owned(name),
                required: argument.required,
                description: Cow::Owned(argument.description),
            });
        AvailableStep {
            arguments: arguments.collect(),
            step: Step {
                abortable,
                requires_ramdisk: true,
                reboot_requested,
                ..Step::new(&interface, &step, configured.unwrap_or(priority))
            },
        }
    }
}

/// The command that runs a step.
fn execute_command(
    target: &DriverTarget<'_>,
    flow: AgentStepFlow,
    step: &Step,
    arguments: Map<String, Value>,
    versions: Option<Map<String, Value>>,
) -> AgentCommand {
    let description = serde_json::json!({
        "interface": step.interface,
        "step": step.step,
        "priority": step.priority,
        "abortable": step.abortable,
        "reboot_requested": step.reboot_requested,
        "args": arguments,
    });
    let Value::Object(description) = description else {
        unreachable!("it is written as an object")
    };
    let request = ExecuteStepRequest {
        step: description,
        node: node_info::node_for_agent(target),
        ports: node_info::ports_for_agent(target),
        versions,
    };
    AgentCommand { name: flow.execute_command(), params: request.into_params(flow) }
}

/// The flow in the agent protocol; `None` for flows without agent steps.
const fn agent_flow(flow: StepFlow) -> Option<AgentStepFlow> {
    match flow {
        StepFlow::Clean => Some(AgentStepFlow::Clean),
        StepFlow::Deploy => Some(AgentStepFlow::Deploy),
        StepFlow::Service => Some(AgentStepFlow::Service),
        StepFlow::Verify => None,
    }
}
