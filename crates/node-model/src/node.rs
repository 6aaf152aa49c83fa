// SPDX-License-Identifier: Apache-2.0
//! The machine itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    AllocationId, ChassisId, Fault, Health, Interfaces, JsonObject, NodeId, PowerRequest,
    PowerState, ProvisionState, Step, StepFlow, Timestamp, Wait, Work,
};

/// A machine Ferrite looks after.
///
/// `driver_info`, `instance_info` and `driver_internal_info` hold [`MASK`](crate::MASK) where a
/// secret stands: the secrets themselves are only in `sealed`, encrypted, and the store opens it
/// for those who act on the machine. Whoever has a `Node` can show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its identity.
    pub id: NodeId,
    /// When it was enrolled.
    pub created_at: Timestamp,
    /// When anything about it last changed.
    pub updated_at: Option<Timestamp>,
    /// Unique name, if it has one.
    pub name: Option<String>,
    /// Hardware type.
    pub driver: String,
    /// Implementation of each interface.
    pub interfaces: Interfaces,
    /// How to reach its BMC and boot it. Secrets are masked.
    pub driver_info: JsonObject,
    /// What it is made of.
    pub properties: JsonObject,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
    /// What is, or shall be, deployed on it. Secrets are masked.
    pub instance_info: JsonObject,
    /// What drivers remember about it. Secrets are masked.
    pub driver_internal_info: JsonObject,
    /// Static network configuration for its ramdisk.
    pub network_data: JsonObject,
    /// The secrets of the objects above, encrypted by the store.
    pub sealed: Vec<u8>,
    /// The chassis it is in.
    pub chassis_id: Option<ChassisId>,
    /// The instance on it.
    pub instance_uuid: Option<Uuid>,
    /// The instance's name.
    pub instance_name: Option<String>,
    /// The allocation that chose it.
    pub allocation_id: Option<AllocationId>,
    /// Power as last seen.
    pub power_state: Option<PowerState>,
    /// Power as asked for, while the change is under way.
    pub target_power_state: Option<PowerState>,
    /// Where it stands.
    pub provision_state: ProvisionState,
    /// Where it is going.
    pub target_provision_state: Option<ProvisionState>,
    /// When `provision_state` was last written, or a heartbeat last arrived in a waiting state.
    pub provision_updated_at: Option<Timestamp>,
    /// The process working on it right now.
    pub reservation: Option<String>,
    /// Hands off: an operator, or a fault, says so.
    pub maintenance: bool,
    /// Why.
    pub maintenance_reason: Option<String>,
    /// The fault that put it into maintenance.
    pub fault: Option<Fault>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Whether its console is on.
    pub console_enabled: bool,
    /// When the running inspection began.
    pub inspection_started_at: Option<Timestamp>,
    /// When the last inspection ended well.
    pub inspection_finished_at: Option<Timestamp>,
    /// Logical disks as they are.
    pub raid_config: JsonObject,
    /// Logical disks as they shall be.
    pub target_raid_config: JsonObject,
    /// What kind of machine it is to those who ask for one.
    pub resource_class: Option<String>,
    /// Which conductors may look after it. Lower case.
    pub conductor_group: String,
    /// Overrides the configured automated cleaning.
    pub automated_clean: Option<bool>,
    /// Refuses tear-down, rebuild and deletion.
    pub protected: bool,
    /// Why.
    pub protected_reason: Option<String>,
    /// At the end of its life: never made available again.
    pub retired: bool,
    /// Why.
    pub retired_reason: Option<String>,
    /// Project that owns it.
    pub owner: Option<String>,
    /// Project that uses it.
    pub lessee: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// `bios` or `uefi`, as the BMC last said.
    pub boot_mode: Option<String>,
    /// Secure boot, as the BMC last said.
    pub secure_boot: Option<bool>,
    /// A label by which clients divide the fleet among themselves.
    pub shard: Option<String>,
    /// The node this one is a part of.
    pub parent_node: Option<NodeId>,
    /// The machine must never be switched off; reboots are used instead.
    pub disable_power_off: bool,
    /// Condition, as the BMC last said.
    pub health: Option<Health>,
    /// What it offers to those who ask for a machine. Sorted.
    pub traits: Vec<String>,
    /// The ramdisk agent that runs on it.
    pub agent: Agent,
    /// The job in flight.
    pub work: Option<Work>,
    /// The change of power in flight.
    pub power_request: Option<PowerRequest>,
    /// Why it is not moving.
    pub wait: Option<Wait>,
    /// When it wants to be looked at next; none if only an event can move it.
    pub due_at: Option<Timestamp>,
}

/// What the ramdisk agent told about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Agent {
    /// Where it listens for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it last called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<Timestamp>,
    /// The certificate it presents (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_ca: Option<String>,
    /// `start`, `end` or `error`, from installers that report progress that way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The words that came with the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// Whether a token has been handed out (it is in `Node::sealed`).
    #[serde(default)]
    pub has_token: bool,
    /// Which run of which process handed it out. Until the agent has called, only that run can know
    /// that its answer arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_from: Option<Uuid>,
    /// Whether the token travels inside the boot medium instead of being asked for.
    #[serde(default)]
    pub token_pregenerated: bool,
    /// When the machine was last made to boot an agent: whatever is known of one is of that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_at: Option<Timestamp>,
}

impl Agent {
    /// The machine is made to boot another, which has this token with it, or none.
    pub fn replace(&mut self, has_token: bool, now: Timestamp) {
        self.url = None;
        self.verify_ca = None;
        self.has_token = has_token;
        self.token_pregenerated = has_token;
        self.status = None;
        self.status_message = None;
        self.replaced_at = Some(now);
    }

    /// Whether it called so recently that it counts as running: `within` what it was told to call
    /// in.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp, within: Duration) -> bool {
        self.last_heartbeat.is_some_and(|moment| now.since(moment) < within)
    }
}

impl Node {
    /// A newly enrolled machine; everything else at its default.
    #[must_use]
    pub fn new(id: NodeId, driver: &str, now: Timestamp) -> Self {
        Self {
            id,
            created_at: now,
            updated_at: None,
            name: None,
            driver: driver.to_owned(),
            interfaces: Interfaces::default(),
            driver_info: JsonObject::empty(),
            properties: JsonObject::empty(),
            extra: JsonObject::empty(),
            instance_info: JsonObject::empty(),
            driver_internal_info: JsonObject::empty(),
            network_data: JsonObject::empty(),
            sealed: Vec::new(),
            chassis_id: None,
            instance_uuid: None,
            instance_name: None,
            allocation_id: None,
            power_state: None,
            target_power_state: None,
            provision_state: ProvisionState::Enroll,
            target_provision_state: None,
            provision_updated_at: None,
            reservation: None,
            maintenance: false,
            maintenance_reason: None,
            fault: None,
            last_error: None,
            console_enabled: false,
            inspection_started_at: None,
            inspection_finished_at: None,
            raid_config: JsonObject::empty(),
            target_raid_config: JsonObject::empty(),
            resource_class: None,
            conductor_group: String::new(),
            automated_clean: None,
            protected: false,
            protected_reason: None,
            retired: false,
            retired_reason: None,
            owner: None,
            lessee: None,
            description: None,
            boot_mode: None,
            secure_boot: None,
            shard: None,
            parent_node: None,
            disable_power_off: false,
            health: None,
            traits: Vec::new(),
            agent: Agent::default(),
            work: None,
            power_request: None,
            wait: None,
            due_at: None,
        }
    }

    /// The step of `flow` that is being run.
    #[must_use]
    pub fn current_step(&self, flow: StepFlow) -> Option<&Step> {
        self.work.as_ref().filter(|work| work.kind.flow() == Some(flow))?.current_step()
    }

    /// Whether agents may stay on the machine between jobs, to be used by the next. `usually` is what
    /// holds where the node does not say.
    #[must_use]
    pub fn fast_track(&self, usually: bool) -> bool {
        // Asked at every call of an agent, so the text is searched before it is parsed.
        if !self.driver_info.as_str().contains("\"fast_track\"") {
            return usually;
        }
        let said = self.driver_info.get("fast_track");
        said.as_ref().and_then(truth).unwrap_or(usually)
    }

    /// The name if it has one, else the id: for messages.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// A yes or no, in any of the ways that people and clients write it.
#[must_use]
pub fn truth(value: &Value) -> Option<bool> {
    let text = match value {
        Value::Bool(flag) => return Some(*flag),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    match text.as_str() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_says_whether_agents_stay_in_many_ways() {
        for (said, stays) in [
            (json!(true), Some(true)),
            (json!(false), Some(false)),
            (json!(1), Some(true)),
            (json!(0), Some(false)),
            (json!(" Yes "), Some(true)),
            (json!("on"), Some(true)),
            (json!("F"), Some(false)),
            (json!("perhaps"), None),
            (json!(2), None),
            (json!(null), None),
            (json!([true]), None),
        ] {
            let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
            node.driver_info.set("fast_track", said.clone());
            for usually in [false, true] {
                assert_eq!(node.fast_track(usually), stays.unwrap_or(usually), "{said}");
            }
        }
        let silent = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        assert!(silent.fast_track(true) && !silent.fast_track(false));
    }
}
