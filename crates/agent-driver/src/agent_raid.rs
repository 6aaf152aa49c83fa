// SPDX-License-Identifier: Apache-2.0
//! The RAID interface `agent`: the agent creates logical disks, including software RAID.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DriverError, DriverTarget, NodeChanges, RaidInterface, RegistryBuilder,
    StepDefinition, StepOutcome, steps_of_flow, with_raid_level,
};
use node_model::{AvailableStep, InterfaceKind, JsonObject, Step, StepArgument, StepFlow};
use serde_json::{Map, Value};

use super::AgentAccess;
use super::agent_steps::AgentStepProgress;

/// Registers this implementation.
pub(super) fn register(registry: &mut RegistryBuilder, in_band: &Arc<AgentAccess>) {
    let raid = AgentRaid(Arc::clone(in_band));
    registry.implementations.add_raid(Arc::new(raid));
}

struct AgentRaid(Arc<AgentAccess>);

const CREATE_ROOT_ARG: &str = "create_root_volume";
const CREATE_OTHERS_ARG: &str = "create_nonroot_volumes";
/// Limit of the stored RAID configuration in bytes.
const MAX_RAID_CONFIG_BYTES: usize = 64 << 10;

const fn raid_step(
    name: &'static str,
    flows: &'static [StepFlow],
    arguments: &'static [StepArgument],
) -> StepDefinition {
    StepDefinition { name, flows, priority: 0, abortable: false, requires_ramdisk: true, arguments }
}

static CREATE_ARGUMENTS: [StepArgument; 2] = [
    StepArgument::optional(
        CREATE_ROOT_ARG,
        "Whether to create the root volume; true if not given.",
    ),
    StepArgument::optional(
        CREATE_OTHERS_ARG,
        "Whether to create the other volumes; true if not given.",
    ),
];
static APPLY_ARGUMENTS: [StepArgument; 2] = [
    StepArgument::required("raid_config", "The logical disks to create."),
    StepArgument::optional("delete_existing", "Whether existing volumes are deleted first."),
];

static RAID_STEPS: &[StepDefinition] = &[
    raid_step("create_configuration", &[StepFlow::Clean], &CREATE_ARGUMENTS),
    raid_step("delete_configuration", &[StepFlow::Clean, StepFlow::Service], &[]),
    raid_step("apply_configuration", &[StepFlow::Deploy, StepFlow::Service], &APPLY_ARGUMENTS),
];

#[async_trait]
impl BaseInterface for AgentRaid {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Raid
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(RAID_STEPS, self.kind(), flow)
    }

    fn runs_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        if step.step != "create_configuration" {
            return self.run_raid_step(target, flow, step, step.args.parse()).await;
        }
        // The agent creates the `target_raid_config` of the node it gets, so the arguments select the
        // disks in it and are not sent.
        let mut node = target.node.clone();
        node.target_raid_config = disks_to_create(target, step)?.into();
        let target = DriverTarget { node: &node, ..*target };
        self.run_raid_step(&target, flow, step, Map::new()).await
    }
}

impl AgentRaid {
    async fn run_raid_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
        arguments: Map<String, Value>,
    ) -> Result<StepOutcome, DriverError> {
        match self.0.run_step(target, flow, step, async { Ok(arguments) }).await? {
            AgentStepProgress::Pending(outcome) => Ok(outcome),
            AgentStepProgress::Done(result, changes) => {
                Ok(StepOutcome::done(changes.and(raid_changes(target, step, result)?)))
            }
        }
    }
}

#[async_trait]
impl RaidInterface for AgentRaid {}

/// The logical disks to create: the node's target configuration, filtered by the step's arguments.
fn disks_to_create(
    target: &DriverTarget<'_>,
    step: &Step,
) -> Result<Map<String, Value>, DriverError> {
    let failed = |why: &str| DriverError::failed(format!("carry out {}", step.qualified()), why);
    let mut config = target.node.target_raid_config.parse();
    if config.is_empty() {
        return Err(failed("the node has no target RAID configuration; set one before cleaning"));
    }
    let arguments = step.args.parse();
    let flag = |name: &str| match arguments.get(name) {
        None | Some(Value::Null) => Ok(true),
        Some(value) => node_model::parse_bool(value)
            .ok_or_else(|| DriverError::invalid(name, "it must be true or false")),
    };
    let (root, others) = (flag(CREATE_ROOT_ARG)?, flag(CREATE_OTHERS_ARG)?);
    if let Some(Value::Array(disks)) = config.get_mut("logical_disks") {
        disks.retain(|disk| if is_root_volume(disk) { root } else { others });
        if disks.is_empty() {
            return Err(failed(
                "the arguments exclude all logical disks of the node's target RAID configuration",
            ));
        }
    }
    Ok(config)
}

fn is_root_volume(disk: &Value) -> bool {
    disk.get("is_root_volume").and_then(node_model::parse_bool).unwrap_or(false)
}

/// The changes of the node after the step.
fn raid_changes(
    target: &DriverTarget<'_>,
    step: &Step,
    result: Value,
) -> Result<NodeChanges, DriverError> {
    match step.step.as_str() {
        "create_configuration" | "apply_configuration" => created_disks(target, step, result),
        "delete_configuration" => {
            let mut changes =
                NodeChanges { raid_config: Some(JsonObject::empty()), ..NodeChanges::none() };
            changes.properties.insert("root_device".to_owned(), Value::Null);
            Ok(changes)
        }
        _ => Ok(NodeChanges::none()),
    }
}

/// The created logical disks, and the node properties that follow from the root volume.
fn created_disks(
    target: &DriverTarget<'_>,
    step: &Step,
    result: Value,
) -> Result<NodeChanges, DriverError> {
    let failed = |why: &str| DriverError::failed(format!("carry out {}", step.qualified()), why);
    let mut created = match result {
        Value::Object(made) if !made.is_empty() => made,
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            return Err(failed("the agent did not return the logical disks that it created"));
        }
    };
    let mut changes = NodeChanges::none();
    let disks = created.get("logical_disks").and_then(Value::as_array);
    if let Some(root) = disks.and_then(|disks| disks.iter().find(|disk| is_root_volume(disk))) {
        let properties = &mut changes.properties;
        if let Some(hint) = root.get("root_device_hint") {
            properties.insert("root_device".to_owned(), hint.clone());
        }
        if let Some(size) = root.get("size_gb").and_then(size_in_gib) {
            properties.insert("local_gb".to_owned(), size.into());
        }
        if let Some(level) = root.get("raid_level").and_then(Value::as_str) {
            let others = target.node.properties.get_str("capabilities").unwrap_or_default();
            let capabilities = with_raid_level(&others, level);
            properties.insert("capabilities".to_owned(), capabilities.into());
        }
    }
    created.insert("last_updated".to_owned(), target.now.to_string().into());
    let raid_config = JsonObject::from(created);
    if raid_config.as_str().len() > MAX_RAID_CONFIG_BYTES {
        return Err(failed("the RAID configuration that the agent returned is too long"));
    }
    Ok(NodeChanges { raid_config: Some(raid_config), ..changes })
}

/// A size in GiB, which may be text. `None` for `MAX`.
fn size_in_gib(size: &Value) -> Option<u64> {
    size.as_u64().or_else(|| size.as_str()?.trim().parse().ok())
}
