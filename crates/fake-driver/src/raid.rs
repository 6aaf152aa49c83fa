// SPDX-License-Identifier: Apache-2.0
//! The fake RAID interface: creates exactly the requested logical disks.

use std::sync::Arc;

use drivers::{
    DriverError, DriverTarget, NodeChanges, RaidInterface, StepDefinition, StepOutcome,
    validate_raid_config, with_raid_level,
};
use node_model::{JsonObject, Step, StepArgument, StepFlow};
use serde_json::{Map, Value, json};

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake RAID interface.
pub(crate) struct FakeRaid(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeRaid, Raid, RAID, STEPS);

impl RaidInterface for FakeRaid {}

/// The size of a disk with the size `MAX`.
const DISK_GB: u64 = 960;

const CREATE_STEP: &str = "create_configuration";
const APPLY_STEP: &str = "apply_configuration";
const DELETE_STEP: &str = "delete_configuration";

const CREATE_ROOT_ARG: StepArgument = StepArgument::optional(
    "create_root_volume",
    "Whether to create the root volume; true if not given.",
);
const CREATE_OTHERS_ARG: StepArgument = StepArgument::optional(
    "create_nonroot_volumes",
    "Whether to create the volumes other than the root volume; true if not given.",
);
const DELETE_EXISTING_ARG: StepArgument = StepArgument::optional(
    "delete_existing",
    "Whether to delete the existing logical disks first; true if not given when a \
                  configuration is applied, false when the target configuration is created.",
);
const CONFIG_ARG: StepArgument =
    StepArgument::required("raid_config", "The RAID configuration to apply.");

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: CREATE_STEP,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[CREATE_ROOT_ARG, CREATE_OTHERS_ARG, DELETE_EXISTING_ARG],
    },
    StepDefinition {
        name: DELETE_STEP,
        flows: &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: APPLY_STEP,
        flows: &[StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[CONFIG_ARG, CREATE_ROOT_ARG, CREATE_OTHERS_ARG, DELETE_EXISTING_ARG],
    },
];

impl FakeRaid {
    fn run(&self, target: &DriverTarget<'_>, step: &Step) -> Result<StepOutcome, DriverError> {
        let arguments = step.args.parse();
        let changes = match step.step.as_str() {
            DELETE_STEP => delete_disks(),
            APPLY_STEP => {
                let config = arguments.get("raid_config").and_then(Value::as_object);
                let config = config.ok_or_else(|| {
                    DriverError::missing("raid_config", "give the RAID configuration to apply")
                })?;
                create_disks(target, config, &arguments, true)?
            }
            _ => {
                let config = target.node.target_raid_config.parse();
                if config.is_empty() {
                    return Err(DriverError::missing(
                        "target_raid_config",
                        "set it with PUT states/raid before creating the configuration",
                    ));
                }
                create_disks(target, &config, &arguments, false)?
            }
        };
        Ok(StepOutcome::done(changes))
    }
}

fn delete_disks() -> NodeChanges {
    let mut changes = NodeChanges { raid_config: Some(JsonObject::empty()), ..NodeChanges::none() };
    changes.properties.insert("root_device".to_owned(), Value::Null);
    changes
}

/// Recreating an existing disk changes only the date, so that the step can be repeated.
fn create_disks(
    target: &DriverTarget<'_>,
    config: &Map<String, Value>,
    arguments: &Map<String, Value>,
    delete_first: bool,
) -> Result<NodeChanges, DriverError> {
    validate_raid_config(config)?;
    let flag =
        |name: &str, default| arguments.get(name).and_then(Value::as_bool).unwrap_or(default);
    let requested =
        config.get("logical_disks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut disks = if flag(&DELETE_EXISTING_ARG.name, delete_first) {
        Vec::new()
    } else {
        existing_disks(target)
    };
    let mut changes = NodeChanges::none();
    for (index, disk) in requested.iter().enumerate() {
        let is_root = disk.get("is_root_volume") == Some(&Value::Bool(true));
        let argument = if is_root { CREATE_ROOT_ARG } else { CREATE_OTHERS_ARG };
        if !flag(&argument.name, true) {
            continue;
        }
        let created = created_disk(target, index, disk);
        if is_root {
            changes.properties = root_properties(target, &created);
        }
        disks.retain(|disk| disk.get("volume_name") != created.get("volume_name"));
        disks.push(Value::Object(created));
    }
    let mut raid_config = Map::new();
    raid_config.insert("logical_disks".to_owned(), Value::Array(disks));
    raid_config.insert("last_updated".to_owned(), Value::from(target.now.to_string()));
    changes.raid_config = Some(JsonObject::from(raid_config));
    Ok(changes)
}

fn existing_disks(target: &DriverTarget<'_>) -> Vec<Value> {
    match target.node.raid_config.get("logical_disks") {
        Some(Value::Array(disks)) => disks,
        Some(_) | None => Vec::new(),
    }
}

/// The disk as a controller reports it: with size, name and root device hint.
fn created_disk(target: &DriverTarget<'_>, index: usize, disk: &Value) -> Map<String, Value> {
    let mut disk = disk.as_object().cloned().unwrap_or_default();
    if disk.get("size_gb").is_some_and(Value::is_string) {
        disk.insert("size_gb".to_owned(), Value::from(DISK_GB));
    }
    disk.entry("volume_name").or_insert_with(|| Value::from(format!("volume-{index}")));
    disk.entry("controller").or_insert_with(|| Value::from("fake-controller-0"));
    let id = target.node.id.0.as_u128() as u64 ^ index as u64;
    disk.insert("root_device_hint".to_owned(), json!({"wwn": format!("0x{id:016x}")}));
    disk
}

/// The node properties that follow from the root volume: size, root device hint, and RAID level in the
/// capabilities.
fn root_properties(target: &DriverTarget<'_>, root: &Map<String, Value>) -> Map<String, Value> {
    let level = root.get("raid_level").and_then(Value::as_str).unwrap_or_default();
    let capabilities = target.node.properties.get_str("capabilities").unwrap_or_default();
    let mut properties = Map::new();
    for (property, key) in [("local_gb", "size_gb"), ("root_device", "root_device_hint")] {
        properties.insert(property.to_owned(), root.get(key).cloned().unwrap_or_default());
    }
    properties
        .insert("capabilities".to_owned(), Value::from(with_raid_level(&capabilities, level)));
    properties
}
