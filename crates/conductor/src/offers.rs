// SPDX-License-Identifier: Apache-2.0
//! Which steps there are for a machine: those of its driver, and those of the agent on it.
//!
//! What the agent offered is remembered on the node, so that a plan can be told before the agent is
//! booted again.

use std::borrow::Cow;

use bmc_drivers::{Driver, NodeChanges, Registry, Target};
use lifecycle::{Foreseen, Offers};
use node_model::{InterfaceKind, Node, Step, StepArgument, StepFlow, StepOffer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Conductor;

/// All steps a driver offers for `flow`, and for which interfaces an agent may have more.
pub(crate) fn of_driver(driver: &Driver, flow: StepFlow) -> Offers {
    let all = InterfaceKind::ALL.iter().copied();
    let has_in_band_steps = flow != StepFlow::Verify;
    Offers {
        known: all.clone().flat_map(|kind| driver.interface(kind).steps(flow)).collect(),
        open: all
            .filter(|kind| has_in_band_steps && driver.interface(*kind).takes_agent_steps())
            .collect(),
    }
}

/// All steps there will be for `flow`, as far as can be told: those of the driver, and those the
/// agent offered when it was last asked, or, if it never was, those that agents usually offer.
pub(crate) fn foreseen(
    registry: &Registry,
    driver: &Driver,
    node: &Node,
    flow: StepFlow,
) -> Foreseen {
    let mut offers = of_driver(driver, flow);
    let mut is_usual = false;
    if !offers.open.is_empty() {
        is_usual = node.driver_internal_info.get(&key(flow)).is_none();
        let of_agent =
            if is_usual { registry.usual_agent_steps(flow) } else { remembered(node, flow) };
        add(&mut offers, of_agent);
    }
    Foreseen { offers, is_usual }
}

/// What the driver and the agent, which is up, offer for `flow`, and what to remember of it.
pub(crate) async fn of_both(
    conductor: &Conductor,
    driver: &Driver,
    target: &Target<'_>,
    flow: StepFlow,
) -> Result<(Offers, NodeChanges), bmc_drivers::Error> {
    let mut offers = of_driver(driver, flow);
    let (of_agent, changes) = conductor.registry.agent_steps(target, flow).await?;
    let kept: Vec<Remembered> = of_agent.iter().map(Remembered::of).collect();
    let kept = serde_json::to_value(kept).expect("texts, numbers and flags are JSON");
    add(&mut offers, of_agent);
    offers.open.clear();
    Ok((offers, changes.and(NodeChanges::remember(&key(flow), kept))))
}

/// Adds the agent's steps. Where the driver has one of the same name, it is the driver's, which has
/// the agent do its part.
fn add(offers: &mut Offers, of_agent: Vec<StepOffer>) {
    for offer in of_agent {
        let is_wanted = offers.open.iter().any(|kind| kind.as_str() == offer.step.interface);
        let is_new = |known: &StepOffer| known.step.qualified() != offer.step.qualified();
        if is_wanted && offers.known.iter().all(is_new) {
            offers.known.push(offer);
        }
    }
}

/// A step of the agent, as it is remembered.
#[derive(Serialize, Deserialize)]
struct Remembered {
    interface: String,
    step: String,
    priority: i64,
    #[serde(default)]
    abortable: bool,
    #[serde(default)]
    reboot_requested: bool,
    /// The names of its arguments, and whether it cannot do without them.
    #[serde(default)]
    arguments: Vec<(String, bool)>,
}

impl Remembered {
    fn of(offer: &StepOffer) -> Self {
        let Step { interface, step, priority, abortable, reboot_requested, .. } =
            offer.step.clone();
        let arguments = offer.arguments.iter();
        let arguments = arguments.map(|argument| (argument.name.to_string(), argument.required));
        let arguments = arguments.collect();
        Self { interface, step, priority, abortable, reboot_requested, arguments }
    }

    fn into_offer(self) -> StepOffer {
        let arguments = self.arguments.into_iter().map(|(name, required)| StepArgument {
            name: Cow::Owned(name),
            required,
            description: Cow::Borrowed(""),
        });
        StepOffer {
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

fn remembered(node: &Node, flow: StepFlow) -> Vec<StepOffer> {
    let kept = node.driver_internal_info.get(&key(flow)).unwrap_or(Value::Null);
    let kept: Vec<Remembered> = serde_json::from_value(kept).unwrap_or_default();
    kept.into_iter().map(Remembered::into_offer).collect()
}

/// Where a flow's steps are in `driver_internal_info`.
fn key(flow: StepFlow) -> String {
    format!("agent_cached_{flow}_steps")
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};

    use super::*;

    #[test]
    fn what_the_agent_offered_is_remembered_and_the_driver_wins() {
        let offer = |interface: &str, name: &str| StepOffer {
            step: Step { requires_ramdisk: true, ..Step::new(interface, name, 10) },
            arguments: vec![StepArgument::required("level", "")].into(),
        };
        let of_agent =
            vec![offer("deploy", "erase"), offer("deploy", "deploy"), offer("bios", "x")];
        let kept: Vec<Remembered> = of_agent.iter().map(Remembered::of).collect();
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.driver_internal_info
            .set(&key(StepFlow::Clean), serde_json::to_value(kept).expect("it is JSON"));
        assert_eq!(remembered(&node, StepFlow::Clean), of_agent);
        assert_eq!(remembered(&node, StepFlow::Deploy), Vec::new());

        let of_driver = StepOffer { arguments: Cow::Borrowed(&[]), ..offer("deploy", "deploy") };
        let mut offers =
            Offers { known: vec![of_driver.clone()], open: vec![InterfaceKind::Deploy] };
        add(&mut offers, remembered(&node, StepFlow::Clean));
        assert_eq!(offers.known, vec![of_driver, offer("deploy", "erase")]);
    }
}
