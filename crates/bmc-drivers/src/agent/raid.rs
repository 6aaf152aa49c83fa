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
use crate::interfaces::{Interface, Raid, with_raid_level};
use crate::step::{StepRow, offers};
use crate::{Error, NodeChanges, Outcome, Target};

/// Puts this implementation on its shelf.
pub(super) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>) {
    let raid = AgentRaid(Arc::clone(in_band));
    shelves.raid.push((raid.name(), Arc::new(raid)));
}

struct AgentRaid(Arc<InBand>);

const ROOT: &str = "create_root_volume";
const OTHERS: &str = "create_nonroot_volumes";
/// More than this is no description of logical disks.
const LARGEST_CONFIGURATION: usize = 64 << 10;

const fn step(
    name: &'static str,
    flows: &'static [StepFlow],
    arguments: &'static [StepArgument],
) -> StepRow {
    StepRow { name, flows, priority: 0, abortable: false, requires_ramdisk: true, arguments }
}

static CREATE: [StepArgument; 2] = [
    StepArgument::optional(ROOT, "Whether the root volume is made; true if not given."),
    StepArgument::optional(OTHERS, "Whether the other volumes are made; true if not given."),
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
        if step.step != "create_configuration" {
            return self.carry_out(target, flow, step, step.args.parse()).await;
        }
        // The arguments are about what is sent, and not for the agent: it makes what is wanted of the
        // node that it is shown.
        let mut node = target.node.clone();
        node.target_raid_config = wanted(target, step)?.into();
        let target = Target { node: &node, ..*target };
        self.carry_out(&target, flow, step, Map::new()).await
    }
}

impl AgentRaid {
    async fn carry_out(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: Map<String, Value>,
    ) -> Result<Outcome, Error> {
        match self.0.run_step(target, flow, step, async { Ok(arguments) }).await? {
            Stepped::NotYet(outcome) => Ok(outcome),
            Stepped::Done(result, changes) => {
                Ok(Outcome::Done(changes.and(kept(target, step, result)?)))
            }
        }
    }
}

#[async_trait]
impl Raid for AgentRaid {}

/// The logical disks that are to be made: those the node wants, as far as the step is about them.
fn wanted(target: &Target<'_>, step: &Step) -> Result<Map<String, Value>, Error> {
    let nothing = |why: &str| Error::failed(format!("carry out {}", step.qualified()), why);
    let mut config = target.node.target_raid_config.parse();
    if config.is_empty() {
        return Err(nothing("the node has no target RAID configuration; set one before cleaning"));
    }
    let arguments = step.args.parse();
    let flag = |name: &str| match arguments.get(name) {
        None | Some(Value::Null) => Ok(true),
        Some(value) => {
            node_model::truth(value).ok_or_else(|| Error::invalid(name, "it must be true or false"))
        }
    };
    let (root, others) = (flag(ROOT)?, flag(OTHERS)?);
    if let Some(Value::Array(disks)) = config.get_mut("logical_disks") {
        disks.retain(|disk| if is_root(disk) { root } else { others });
        if disks.is_empty() {
            return Err(nothing(
                "the arguments leave nothing of the node's target RAID configuration to be made",
            ));
        }
    }
    Ok(config)
}

fn is_root(disk: &Value) -> bool {
    disk.get("is_root_volume").and_then(node_model::truth).unwrap_or(false)
}

/// What the node has now.
fn kept(target: &Target<'_>, step: &Step, result: Value) -> Result<NodeChanges, Error> {
    match step.step.as_str() {
        "create_configuration" | "apply_configuration" => made(target, step, result),
        "delete_configuration" => {
            let mut changes =
                NodeChanges { raid_config: Some(JsonObject::empty()), ..NodeChanges::none() };
            changes.properties.insert("root_device".to_owned(), Value::Null);
            Ok(changes)
        }
        _ => Ok(NodeChanges::none()),
    }
}

/// The logical disks that were made, and what the root volume means for the node.
fn made(target: &Target<'_>, step: &Step, result: Value) -> Result<NodeChanges, Error> {
    let failed = |why: &str| Error::failed(format!("carry out {}", step.qualified()), why);
    let mut made = match result {
        Value::Object(made) if !made.is_empty() => made,
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            return Err(failed("the agent does not say which logical disks it made"));
        }
    };
    let mut changes = NodeChanges::none();
    let disks = made.get("logical_disks").and_then(Value::as_array);
    if let Some(root) = disks.and_then(|disks| disks.iter().find(|disk| is_root(disk))) {
        let properties = &mut changes.properties;
        if let Some(hint) = root.get("root_device_hint") {
            properties.insert("root_device".to_owned(), hint.clone());
        }
        if let Some(size) = root.get("size_gb").and_then(gibibytes) {
            properties.insert("local_gb".to_owned(), size.into());
        }
        if let Some(level) = root.get("raid_level").and_then(Value::as_str) {
            let others = target.node.properties.get_str("capabilities").unwrap_or_default();
            let capabilities = with_raid_level(&others, level);
            properties.insert("capabilities".to_owned(), capabilities.into());
        }
    }
    made.insert("last_updated".to_owned(), target.now.to_string().into());
    let raid_config = JsonObject::from(made);
    if raid_config.as_str().len() > LARGEST_CONFIGURATION {
        return Err(failed("what the agent says it made is too long to be logical disks"));
    }
    Ok(NodeChanges { raid_config: Some(raid_config), ..changes })
}

/// A size, which may be written as text. `MAX` says nothing.
fn gibibytes(size: &Value) -> Option<u64> {
    size.as_u64().or_else(|| size.as_str()?.trim().parse().ok())
}
