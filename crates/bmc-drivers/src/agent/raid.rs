// SPDX-License-Identifier: Apache-2.0
//! The RAID interface `agent`: the agent makes logical disks, in software where a configuration
//! says so.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, JsonObject, Step, StepArgument, StepFlow, StepOffer};
use serde_json::{Map, Value};

use super::InBand;
use super::steps::Stepped;
use crate::driver::Shelves;
use crate::interfaces::{Interface, Raid};
use crate::step::{StepRow, offers};
use crate::{Error, NodeChanges, Outcome, Target};

/// Puts this implementation on its shelf.
pub(super) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>) {
    let raid = AgentRaid(Arc::clone(in_band));
    shelves.raid.push((raid.name(), Arc::new(raid)));
}

struct AgentRaid(Arc<InBand>);

const fn step(
    name: &'static str,
    flows: &'static [StepFlow],
    arguments: &'static [StepArgument],
) -> StepRow {
    StepRow { name, flows, priority: 0, abortable: false, requires_ramdisk: true, arguments }
}

static CREATE: [StepArgument; 3] = [
    StepArgument::optional("create_root_volume", "Whether the root volume is made."),
    StepArgument::optional("create_nonroot_volumes", "Whether the other volumes are made."),
    StepArgument::optional("delete_existing", "Whether existing volumes are deleted first."),
];
static APPLY: [StepArgument; 2] = [
    StepArgument::required("raid_config", "The logical disks to make."),
    StepArgument::optional("delete_existing", "Whether existing volumes are deleted first."),
];

static STEPS: &[StepRow] = &[
    step("create_configuration", &[StepFlow::Clean], &CREATE),
    step("delete_configuration", &[StepFlow::Clean, StepFlow::Service], &[]),
    step("apply_configuration", &[StepFlow::Deploy, StepFlow::Service], &APPLY),
];

#[async_trait]
impl Interface for AgentRaid {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Raid
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(STEPS, self.kind(), flow)
    }

    fn takes_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        if step.step == "create_configuration" {
            wanted(target, step)?;
        }
        let arguments = match step.step.as_str() {
            // These are about what we send, and not for the agent.
            "create_configuration" => Map::new(),
            _ => step.args.parse(),
        };
        match self.0.run_step(target, flow, step, async { Ok(arguments) }).await? {
            Stepped::NotYet(outcome) => Ok(outcome),
            Stepped::Done(result, changes) => Ok(Outcome::Done(changes.and(kept(step, result)))),
        }
    }
}

#[async_trait]
impl Raid for AgentRaid {}

/// The node says which logical disks it wants.
fn wanted(target: &Target<'_>, step: &Step) -> Result<(), Error> {
    if target.node.target_raid_config.is_empty() {
        return Err(Error::failed(
            format!("carry out {}", step.qualified()),
            "the node has no target RAID configuration; set one before cleaning",
        ));
    }
    Ok(())
}

/// What the node has now.
fn kept(step: &Step, result: Value) -> NodeChanges {
    match (step.step.as_str(), result) {
        ("create_configuration" | "apply_configuration", Value::Object(made)) => {
            let root = made.get("logical_disks").and_then(Value::as_array).and_then(|disks| {
                disks.iter().find(|disk| disk.get("is_root_volume") == Some(&Value::Bool(true)))
            });
            let mut changes =
                NodeChanges { raid_config: Some(made.clone().into()), ..NodeChanges::none() };
            if let Some(hint) = root.and_then(|disk| disk.get("root_device_hint")) {
                changes.properties.insert("root_device".to_owned(), hint.clone());
            }
            if let Some(size) =
                root.and_then(|disk| disk.get("size_gb")).filter(|size| size.is_u64())
            {
                changes.properties.insert("local_gb".to_owned(), size.clone());
            }
            changes
        }
        ("delete_configuration", _) => {
            let mut changes =
                NodeChanges { raid_config: Some(JsonObject::empty()), ..NodeChanges::none() };
            changes.properties.insert("root_device".to_owned(), Value::Null);
            changes
        }
        (_, _) => NodeChanges::none(),
    }
}
