// SPDX-License-Identifier: Apache-2.0
//! Software RAID according to the node's `target_raid_config`.

use std::path::Path;

use disk_steps::raid::{self, RaidOptions};
use serde_json::{Map, Value, json};

use super::ManagerStepError;
use super::disk_selection::DiskSelection;
use super::disks::{SYSFS, run_blocking, step_error, wait_for_disks};
use crate::agent::RamdiskAgent;
use error_chain::error_chain;

/// The modules of the RAID levels, loaded if present.
const MODULES: &[&str] = &["md_mod", "raid0", "raid1", "raid10", "raid456"];

/// Creates the arrays of `target_raid_config`, if any.
pub(super) async fn create(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
) -> Result<Value, ManagerStepError> {
    match node.get("target_raid_config") {
        Some(target) if target.as_object().is_some_and(|target| !target.is_empty()) => {
            create_arrays(agent, node, target.clone()).await
        }
        Some(_) | None => Ok(json!({})),
    }
}

/// Deletes all arrays except protected ones.
pub(super) async fn delete(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
) -> Result<Value, ManagerStepError> {
    let selection = disk_selection(node)?;
    wait_for_disks(agent).await;
    let deleted =
        run_blocking(move || raid::delete(Path::new(SYSFS), selection.protected_volumes())).await?;
    let deleted = deleted.map_err(|error| step_error("SoftwareRAIDError", &error_chain(&error)))?;
    tracing::info!(arrays = deleted.len(), "RAID arrays deleted");
    Ok(Value::Null)
}

/// Creates the arrays of the argument `raid_config`, by default after deleting existing ones.
pub(super) async fn apply(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<Value, ManagerStepError> {
    let Some(target) = arguments.get("raid_config").filter(|target| target.is_object()) else {
        return Err(step_error("InvalidCommandParamsError", "raid_config must be an object"));
    };
    if arguments.get("delete_existing").and_then(agent_protocol::parse_bool).unwrap_or(true) {
        delete(agent, node).await?;
    }
    create_arrays(agent, node, target.clone()).await
}

async fn create_arrays(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
    target: Value,
) -> Result<Value, ManagerStepError> {
    let selection = disk_selection(node)?;
    wait_for_disks(agent).await;
    let disks = agent.managers.disks();
    let node = node.clone();
    let created = run_blocking(move || {
        let options = RaidOptions {
            uefi: Path::new("/sys/firmware/efi").exists(),
            gpt: uses_gpt(&node),
            keep: selection.protected_volumes(),
        };
        let existing = raid::list_arrays(Path::new(SYSFS));
        if raid::arrays_exist(&target, selection.protected_volumes(), &existing)? {
            return Ok(target);
        }
        let disks = selection.usable_disks(&existing, disks);
        let plan = raid::validate(&target, &disks, &options)?;
        raid::create(&plan, &existing)
    });
    created.await?.map_err(|error| step_error("SoftwareRAIDError", &error_chain(&error)))
}

fn disk_selection(node: &Map<String, Value>) -> Result<DiskSelection, ManagerStepError> {
    DiskSelection::from_node(node).map_err(|error| step_error("SoftwareRAIDError", &error))
}

/// Whether the node's capabilities request a GPT regardless of the boot mode.
fn uses_gpt(node: &Map<String, Value>) -> bool {
    ["instance_info", "properties"].iter().any(|field| {
        let capabilities = node.get(*field).and_then(|field| field.get("capabilities"));
        match capabilities {
            Some(Value::Object(capabilities)) => {
                capabilities.get("disk_label").and_then(Value::as_str) == Some("gpt")
            }
            Some(Value::String(text)) => {
                text.split(',').any(|pair| pair.trim() == "disk_label:gpt")
            }
            Some(_) | None => false,
        }
    })
}

/// Loads the modules of the RAID levels.
pub(super) fn load_modules(agent: &RamdiskAgent) {
    for name in MODULES {
        agent.devices.load_module(name);
    }
}
