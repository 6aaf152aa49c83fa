// SPDX-License-Identifier: Apache-2.0
//! Software RAID, as a node's `target_raid_config` wants it.

use std::path::Path;

use disk_steps::raid::{self, RaidOptions};
use serde_json::{Map, Value, json};

use super::StepError;
use super::disks::{SYS, blocking, fail, ready};
use super::wishes::Wishes;
use crate::agent::Agent;
use crate::logs::causes;

/// The modules of RAID levels; those that are there are loaded.
const MODULES: &[&str] = &["md_mod", "raid0", "raid1", "raid10", "raid456"];

/// Makes the volumes the node wants; none if it wants none.
pub(super) async fn create(agent: &Agent, node: &Map<String, Value>) -> Result<Value, StepError> {
    match node.get("target_raid_config") {
        Some(target) if target.as_object().is_some_and(|target| !target.is_empty()) => {
            make(agent, node, target.clone()).await
        }
        Some(_) | None => Ok(json!({})),
    }
}

/// Deletes all volumes but those the node says to keep.
pub(super) async fn delete(agent: &Agent, node: &Map<String, Value>) -> Result<Value, StepError> {
    let wishes = wishes_of(node)?;
    ready(agent).await;
    let deleted = blocking(move || raid::delete(Path::new(SYS), wishes.kept())).await?;
    let deleted = deleted.map_err(|error| fail("SoftwareRAIDError", &causes(&error)))?;
    tracing::info!(volumes = deleted.len(), "RAID volumes were deleted");
    Ok(Value::Null)
}

/// Replaces the volumes there are by those of an argument.
pub(super) async fn apply(
    agent: &Agent,
    node: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<Value, StepError> {
    let Some(target) = arguments.get("raid_config").filter(|target| target.is_object()) else {
        return Err(fail("InvalidCommandParamsError", "raid_config must be an object"));
    };
    if arguments.get("delete_existing").and_then(agent_protocol::flag).unwrap_or(true) {
        delete(agent, node).await?;
    }
    make(agent, node, target.clone()).await
}

async fn make(agent: &Agent, node: &Map<String, Value>, target: Value) -> Result<Value, StepError> {
    let wishes = wishes_of(node)?;
    ready(agent).await;
    let disks = agent.managers.disks();
    let node = node.clone();
    let made = blocking(move || {
        let options = RaidOptions {
            uefi: Path::new("/sys/firmware/efi").exists(),
            gpt: wants_gpt(&node),
            keep: wishes.kept(),
        };
        let there = raid::existing(Path::new(SYS));
        if raid::is_there(&target, wishes.kept(), &there)? {
            return Ok(target);
        }
        let disks = wishes.usable(&there, disks);
        let plan = raid::validate(&target, &disks, &options)?;
        raid::create(&plan, &there)
    });
    made.await?.map_err(|error| fail("SoftwareRAIDError", &causes(&error)))
}

fn wishes_of(node: &Map<String, Value>) -> Result<Wishes, StepError> {
    Wishes::of(node).map_err(|error| fail("SoftwareRAIDError", &error))
}

/// Whether the node wants a GPT whatever it boots by.
fn wants_gpt(node: &Map<String, Value>) -> bool {
    ["instance_info", "properties"].iter().any(|place| {
        let capabilities = node.get(*place).and_then(|place| place.get("capabilities"));
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

/// Lets the kernel know the RAID levels there are.
pub(super) fn load_modules(agent: &Agent) {
    for name in MODULES {
        agent.devices.load_module(name);
    }
}
