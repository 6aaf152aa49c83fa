// SPDX-License-Identifier: Apache-2.0
//! The available steps of a node: those of its driver and of its agent.
//!
//! The agent's steps are cached on the node, so that a job can be explained before the agent runs.

use std::borrow::Cow;

use drivers::{Driver, DriverRegistry, DriverTarget, NodeChanges};
use lifecycle::{AvailableSteps, StepForecast};
use node_model::{AvailableStep, InterfaceKind, Node, Step, StepArgument, StepFlow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Conductor;

/// The driver's steps for `flow`, and the interfaces for which an agent may offer more.
pub(crate) fn of_driver(driver: &Driver, flow: StepFlow) -> AvailableSteps {
    let all = InterfaceKind::ALL.iter().copied();
    let has_in_band_steps = flow != StepFlow::Verify;
    AvailableSteps {
        known: all.clone().flat_map(|kind| driver.interface(kind).steps(flow)).collect(),
        agent_interfaces: all
            .filter(|kind| has_in_band_steps && driver.interface(*kind).runs_agent_steps())
            .collect(),
    }
}

/// The steps that will probably be available for `flow`: those of the driver, and those that the agent
/// listed last, or those of a typical agent if it never listed any.
pub(crate) fn forecast(
    registry: &DriverRegistry,
    driver: &Driver,
    node: &Node,
    flow: StepFlow,
) -> StepForecast {
    let mut steps = of_driver(driver, flow);
    let mut is_assumed = false;
    if !steps.agent_interfaces.is_empty() {
        is_assumed = node.driver_internal_info.get(&cache_key(flow)).is_none();
        let agent_steps =
            if is_assumed { registry.usual_agent_steps(flow) } else { cached_steps(node, flow) };
        add_agent_steps(&mut steps, agent_steps);
    }
    StepForecast { steps, is_assumed }
}

/// Lists the steps of the driver and of the running agent for `flow`, with the changes that cache the
/// agent's steps.
pub(crate) async fn list_all(
    conductor: &Conductor,
    driver: &Driver,
    target: &DriverTarget<'_>,
    flow: StepFlow,
) -> Result<(AvailableSteps, NodeChanges), drivers::DriverError> {
    let mut steps = of_driver(driver, flow);
    let (agent_steps, changes) = conductor.registry.agent_steps(target, flow).await?;
    let cached: Vec<CachedStep> = agent_steps.iter().map(CachedStep::new).collect();
    let cached = serde_json::to_value(cached).expect("steps are serialisable");
    add_agent_steps(&mut steps, agent_steps);
    steps.agent_interfaces.clear();
    Ok((steps, changes.and(NodeChanges::internal_info(&cache_key(flow), cached))))
}

/// Adds the agent's steps. A driver's step of the same name takes precedence: it calls the agent.
fn add_agent_steps(steps: &mut AvailableSteps, agent_steps: Vec<AvailableStep>) {
    for available in agent_steps {
        let interface = &available.step.interface;
        let is_accepted = steps.agent_interfaces.iter().any(|kind| kind.as_str() == *interface);
        if is_accepted && steps.find(&available.step).is_none() {
            steps.known.push(available);
        }
    }
}

/// A step of the agent, as cached in `driver_internal_info`.
#[derive(Serialize, Deserialize)]
struct CachedStep {
    interface: String,
    step: String,
    priority: i64,
    #[serde(default)]
    abortable: bool,
    #[serde(default)]
    reboot_requested: bool,
    /// The names of the arguments, and whether they are mandatory.
    #[serde(default)]
    arguments: Vec<(String, bool)>,
}

impl CachedStep {
    fn new(available: &AvailableStep) -> Self {
        let Step { interface, step, priority, abortable, reboot_requested, .. } =
            available.step.clone();
        let arguments = available.arguments.iter();
        let arguments = arguments.map(|argument| (argument.name.to_string(), argument.required));
        let arguments = arguments.collect();
        Self { interface, step, priority, abortable, reboot_requested, arguments }
    }

    fn into_available(self) -> AvailableStep {
        let arguments = self.arguments.into_iter().map(|(name, required)| StepArgument {
            name: Cow::Owned(name),
            required,
            description: Cow::Borrowed(""),
        });
        AvailableStep {
            arguments: arguments.collect(),
            step: Step {
                abortable: self.abortable,
                requires_ramdisk: true,
                reboot_requested: self.reboot_requested,
                ..Step::new(&self.interface, &self.step, self.priority)
            },
        }
    }
}

fn cached_steps(node: &Node, flow: StepFlow) -> Vec<AvailableStep> {
    let cached = node.driver_internal_info.get(&cache_key(flow)).unwrap_or(Value::Null);
    let cached: Vec<CachedStep> = serde_json::from_value(cached).unwrap_or_default();
    cached.into_iter().map(CachedStep::into_available).collect()
}

/// The key of `driver_internal_info` with the agent's steps of a flow, as in Ironic.
fn cache_key(flow: StepFlow) -> String {
    format!("agent_cached_{flow}_steps")
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};

    use super::*;

    #[test]
    fn caches_agent_steps_and_prefers_driver_steps() {
        let available = |interface: &str, name: &str| AvailableStep {
            step: Step { requires_ramdisk: true, ..Step::new(interface, name, 10) },
            arguments: vec![StepArgument::required("level", "")].into(),
        };
        let agent_steps = vec![
            available("deploy", "erase"),
            available("deploy", "deploy"),
            available("bios", "x"),
        ];
        let cached: Vec<CachedStep> = agent_steps.iter().map(CachedStep::new).collect();
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.driver_internal_info
            .set(&cache_key(StepFlow::Clean), serde_json::to_value(cached).unwrap());
        assert_eq!(cached_steps(&node, StepFlow::Clean), agent_steps);
        assert_eq!(cached_steps(&node, StepFlow::Deploy), Vec::new());

        let driver_step =
            AvailableStep { arguments: Cow::Borrowed(&[]), ..available("deploy", "deploy") };
        let mut steps = AvailableSteps {
            known: vec![driver_step.clone()],
            agent_interfaces: vec![InterfaceKind::Deploy],
        };
        add_agent_steps(&mut steps, cached_steps(&node, StepFlow::Clean));
        assert_eq!(steps.known, vec![driver_step, available("deploy", "erase")]);
    }
}
