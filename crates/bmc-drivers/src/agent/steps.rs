// SPDX-License-Identifier: Apache-2.0
//! The steps that an agent offers: asking for them, and having it carry them out.

use std::borrow::Cow;
use std::future::Future;

use agent_protocol::{
    Command, CommandStatus, Flow, StepDescription, StepList, StepOrder, StepResult,
};
use node_model::{Step, StepArgument, StepFlow, StepOffer};
use serde_json::{Map, Value, json};

use super::following::{Followed, reboot, why};
use super::{InBand, told};
use crate::{Error, NodeChanges, Outcome, Target};

/// The key of `driver_internal_info` with the hardware managers of the agent.
const MANAGERS: &str = "hardware_manager_version";
/// The note that the machine is to be restarted because the step, which ended with this result,
/// wants that; and that it was.
const RESTART: &str = "restart_after_step";
const RESTARTED: &str = "restarted_after_step";
/// The note that the agent had other hardware managers than those it was asked about.
const OTHER_MANAGERS: &str = "agent_has_other_managers";

/// How an in-band step ended.
pub(super) enum Stepped {
    /// Not yet: this is the answer for now.
    NotYet(Outcome),
    /// Well, with this result.
    Done(Value, NodeChanges),
}

impl InBand {
    /// The steps that the agent offers for `flow`, and what to remember about it.
    pub(crate) async fn list_steps(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<StepOffer>, NodeChanges), Error> {
        let Some(of_agent) = in_band(flow) else { return Ok((Vec::new(), NodeChanges::none())) };
        let mut params = Map::new();
        params.insert("node".to_owned(), Value::Object(told::node(target)));
        params.insert("ports".to_owned(), Value::Array(told::ports(target)));
        let result = self.line.ask(target, &of_agent.list_command(), params).await?;
        let list = StepList::from_result(of_agent, result).map_err(|error| {
            Error::failed(
                "ask the agent for its steps",
                format!("its answer makes no sense: {error}"),
            )
        })?;
        let offers =
            list.steps.into_values().flatten().map(|step| self.offer(flow, step)).collect();
        Ok((offers, NodeChanges::remember(MANAGERS, list.versions)))
    }

    /// Has the agent carry out a step of its own with `arguments`, which are made when it is told,
    /// and goes on with it until it is over.
    pub(super) async fn run_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: impl Future<Output = Result<Map<String, Value>, Error>> + Send,
    ) -> Result<Stepped, Error> {
        let what = || format!("carry out the {flow} step {}", step.qualified());
        let Some(of_agent) = in_band(flow) else {
            return Err(Error::failed(what(), "agents have no such steps"));
        };
        if target.notes.get(RESTARTED).is_some() {
            // The agent has called since: it is up again.
            let ended = target.notes.get(RESTART).unwrap_or_default();
            return Ok(Stepped::Done(ended["result"].clone(), NodeChanges::none()));
        }
        if target.notes.get(RESTART).is_some() {
            let restarted = reboot(target).await?;
            let notes = NodeChanges::note(target.notes, RESTARTED, true);
            return Ok(Stepped::NotYet(target.wait_for_agent(restarted.and(notes))));
        }
        let command = async {
            let versions = match target.node.driver_internal_info.get(MANAGERS) {
                Some(Value::Object(versions)) => Some(versions),
                Some(_) | None => None,
            };
            Ok(order(target, of_agent, step, arguments.await?, versions))
        };
        let followed = self.line.follow(target, &of_agent.execute_command(), command).await?;
        let (report, changes) = match followed {
            Followed::NotYet(outcome) => return Ok(Stepped::NotYet(outcome)),
            Followed::Ended(report, changes) => (report, changes),
        };
        let notes = changes.notes.as_ref().unwrap_or(target.notes);
        let result = || {
            let result = report.command_result.as_ref();
            let result = result.and_then(|result| StepResult::from_result(of_agent, result));
            result.map(|result| result.result).unwrap_or_default()
        };
        match report.command_status {
            // Written down first: whoever is interrupted while the machine restarts must know that
            // the agent that comes up knows nothing of the step.
            CommandStatus::Succeeded if step.reboot_requested => {
                let noted = NodeChanges::note(notes, RESTART, json!({"result": result()}));
                let (moment, changes) = (target.now, changes.and(noted));
                Ok(Stepped::NotYet(Outcome::AgentWorks { moment, changes }))
            }
            CommandStatus::Succeeded => Ok(Stepped::Done(result(), changes)),
            // Other managers are loaded now. What they offer is asked, and the step tried again.
            CommandStatus::VersionMismatch if notes.get(OTHER_MANAGERS).is_some() => {
                Err(Error::failed(
                    what(),
                    "its hardware managers change their versions from one moment to the next; look \
                     at those in the ramdisk",
                ))
            }
            CommandStatus::VersionMismatch => {
                let noted = NodeChanges::note(notes, OTHER_MANAGERS, true);
                let (offers, managers) = self.list_steps(target, flow).await?;
                let is_same = |offer: &StepOffer| offer.step.qualified() == step.qualified();
                if !offers.iter().any(is_same) {
                    return Err(Error::failed(what(), "the agent does not offer it any more"));
                }
                let (moment, changes) = (target.now, changes.and(managers).and(noted));
                Ok(Stepped::NotYet(Outcome::AgentWorks { moment, changes }))
            }
            CommandStatus::Failed | CommandStatus::Running => {
                Err(Error::failed(what(), why(&report)))
            }
        }
    }

    /// Has the agent carry out a step of its own, whose result is of no interest.
    pub(crate) async fn agent_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        self.step_with(target, flow, step, async { Ok(step.args.parse()) }).await
    }

    /// The same, with other arguments than the step was asked for with.
    pub(super) async fn step_with(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: impl Future<Output = Result<Map<String, Value>, Error>> + Send,
    ) -> Result<Outcome, Error> {
        Ok(match self.run_step(target, flow, step, arguments).await? {
            Stepped::NotYet(outcome) => outcome,
            Stepped::Done(_, changes) => Outcome::Done(changes),
        })
    }

    /// What ironic-python-agent and ours have in common of what runs without being asked for.
    pub(crate) fn usual_steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        let steps: &[(&str, i64)] = match flow {
            StepFlow::Clean => &[("erase_devices_metadata", 99), ("erase_devices", 10)],
            StepFlow::Deploy | StepFlow::Service | StepFlow::Verify => &[],
        };
        let description = |&(step, priority): &(&str, i64)| StepDescription {
            step: step.to_owned(),
            priority,
            interface: "deploy".to_owned(),
            reboot_requested: false,
            abortable: true,
            argsinfo: None,
        };
        steps.iter().map(|step| self.offer(flow, description(step))).collect()
    }

    fn offer(&self, flow: StepFlow, description: StepDescription) -> StepOffer {
        let StepDescription { step, priority, interface, reboot_requested, abortable, argsinfo } =
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
        StepOffer {
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

/// The command to carry out a step.
fn order(
    target: &Target<'_>,
    flow: Flow,
    step: &Step,
    arguments: Map<String, Value>,
    versions: Option<Map<String, Value>>,
) -> Command {
    let described = serde_json::json!({
        "interface": step.interface,
        "step": step.step,
        "priority": step.priority,
        "abortable": step.abortable,
        "reboot_requested": step.reboot_requested,
        "args": arguments,
    });
    let Value::Object(described) = described else { unreachable!("it is written as an object") };
    let order = StepOrder {
        step: described,
        node: told::node(target),
        ports: told::ports(target),
        versions,
    };
    Command { name: flow.execute_command(), params: order.into_params(flow) }
}

/// The flows in which agents have steps.
const fn in_band(flow: StepFlow) -> Option<Flow> {
    match flow {
        StepFlow::Clean => Some(Flow::Clean),
        StepFlow::Deploy => Some(Flow::Deploy),
        StepFlow::Service => Some(Flow::Service),
        StepFlow::Verify => None,
    }
}
