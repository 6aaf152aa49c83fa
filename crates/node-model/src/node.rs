// SPDX-License-Identifier: Apache-2.0
//! The node: the record of one machine.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    AllocationId, BootProof, ChassisId, Fault, Health, Interfaces, JobQueue, JsonObject, NodeId,
    PowerRequest, PowerState, ProvisionState, Step, StepFlow, Timestamp, Wait, Work,
};

/// The record of one machine.
///
/// `driver_info`, `instance_info` and `driver_internal_info` contain [`MASK`](crate::MASK) in the
/// place of secrets. The secrets are in `sealed`, encrypted, and only the store can decrypt them, so
/// a `Node` can be shown to users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The id.
    pub id: NodeId,
    /// When it was enrolled.
    pub created_at: Timestamp,
    /// When any field last changed.
    pub updated_at: Option<Timestamp>,
    /// The unique name.
    pub name: Option<String>,
    /// The hardware type.
    pub driver: String,
    /// The implementation of each interface.
    pub interfaces: Interfaces,
    /// Address and credentials of the BMC, ramdisk images. Secrets are masked.
    pub driver_info: JsonObject,
    /// Hardware properties used for scheduling.
    pub properties: JsonObject,
    /// Free-form data of the operator.
    pub extra: JsonObject,
    /// The instance that is, or will be, deployed. Secrets are masked.
    pub instance_info: JsonObject,
    /// Data that drivers store on the node. Secrets are masked.
    pub driver_internal_info: JsonObject,
    /// Static network configuration for the ramdisk.
    pub network_data: JsonObject,
    /// The secrets of the objects above, encrypted by the store.
    pub sealed: Vec<u8>,
    /// The chassis.
    pub chassis_id: Option<ChassisId>,
    /// The instance.
    pub instance_uuid: Option<Uuid>,
    /// The name of the instance.
    pub instance_name: Option<String>,
    /// The allocation that holds the node.
    pub allocation_id: Option<AllocationId>,
    /// The last known power state.
    pub power_state: Option<PowerState>,
    /// The requested power state while a power request is in progress. Derived from `power_request`
    /// by [`Node::set_power_request`], because lists of nodes and filters read this column only.
    pub target_power_state: Option<PowerState>,
    /// The provision state.
    pub provision_state: ProvisionState,
    /// The provision state that the job leads to.
    pub target_provision_state: Option<ProvisionState>,
    /// When `provision_state` was last written, or a heartbeat last arrived in a waiting state.
    pub provision_updated_at: Option<Timestamp>,
    /// The process that holds the node's lease.
    pub reservation: Option<String>,
    /// Whether an operator or a fault has put the node into maintenance.
    pub maintenance: bool,
    /// The reason for maintenance.
    pub maintenance_reason: Option<String>,
    /// The fault that put the node into maintenance.
    pub fault: Option<Fault>,
    /// The last error.
    pub last_error: Option<String>,
    /// Whether the console is enabled.
    pub console_enabled: bool,
    /// When the running inspection began.
    pub inspection_started_at: Option<Timestamp>,
    /// When the last inspection succeeded.
    pub inspection_finished_at: Option<Timestamp>,
    /// The existing logical disks.
    pub raid_config: JsonObject,
    /// The requested logical disks.
    pub target_raid_config: JsonObject,
    /// The resource class, for schedulers and allocations.
    pub resource_class: Option<String>,
    /// The conductor group whose conductors manage the node. Lower case.
    pub conductor_group: String,
    /// Overrides the configured default of automated cleaning.
    pub automated_clean: Option<bool>,
    /// Whether tear-down, rebuild and deletion are rejected.
    pub protected: bool,
    /// The reason for `protected`.
    pub protected_reason: Option<String>,
    /// Whether the node is at the end of its life and is not made available again.
    pub retired: bool,
    /// The reason for `retired`.
    pub retired_reason: Option<String>,
    /// The project that owns the node.
    pub owner: Option<String>,
    /// The project that uses the node.
    pub lessee: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// `bios` or `uefi`, as last reported by the BMC.
    pub boot_mode: Option<String>,
    /// Secure boot, as last reported by the BMC.
    pub secure_boot: Option<bool>,
    /// The shard, by which clients divide the fleet among themselves.
    pub shard: Option<String>,
    /// The parent node, such as the server that contains a SmartNIC.
    pub parent_node: Option<NodeId>,
    /// Whether the machine must never be powered off; reboots are used instead.
    pub disable_power_off: bool,
    /// The health, as last reported by the BMC.
    pub health: Option<Health>,
    /// The traits, for schedulers and allocations. Sorted.
    pub traits: Vec<String>,
    /// The ramdisk agent that runs on the machine.
    pub agent: AgentInfo,
    /// The job in progress.
    pub work: Option<Work>,
    /// The power request in progress. Change it with [`Node::set_power_request`].
    pub power_request: Option<PowerRequest>,
    /// Why the job waits; see [`Work`].
    pub wait: Option<Wait>,
    /// When the next action or deadline is due; `None` if only an event can advance the node.
    /// Derived by `lifecycle`.
    pub due_at: Option<Timestamp>,
    /// The queue of a job that waits in it or was started by it. Derived by `lifecycle`.
    pub job_queue: Option<JobQueue>,
    /// Since when the job waits in `job_queue`; `None` once it was started.
    pub queued_at: Option<Timestamp>,
}

/// What is known about the ramdisk agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The URL of its command API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the last heartbeat arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat: Option<Timestamp>,
    /// The certificate of its command API (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_ca: Option<String>,
    /// `start`, `end` or `error`, from installers that report progress that way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The message that came with the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// Whether the agent was given a token. Derived from the token in `Node::sealed` by the store,
    /// whenever secrets are sealed; it allows lookups and lists without decrypting the token.
    #[serde(default)]
    pub has_token: bool,
    /// The process run that issued the token. Until the first heartbeat, only that run can know
    /// whether its response reached the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_from: Option<Uuid>,
    /// Whether the agent got the token with its kernel parameters instead of requesting it by a lookup.
    #[serde(default)]
    pub token_pregenerated: bool,
    /// How the agent proved that it is the one that was booted; `None` before its first request, and
    /// for agents of versions without boot proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<BootProof>,
    /// The address of the machine: its DHCP lease when it loaded the boot script, or the source address
    /// of the lookup that got the token. Only this address gets the token again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// When the machine was last booted into an agent. All other fields refer to that agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_at: Option<Timestamp>,
}

impl AgentInfo {
    /// Resets the record for a new agent. Call it after the token on its boot image is sealed, or the
    /// previous token is deleted.
    pub fn replace(&mut self, now: Timestamp) {
        self.url = None;
        self.verify_ca = None;
        self.token_pregenerated = self.has_token;
        self.token_from = None;
        self.proof = None;
        self.address = None;
        self.status = None;
        self.status_message = None;
        self.replaced_at = Some(now);
    }

    /// Whether the last heartbeat is so recent (less than `timeout` ago) that the agent counts as
    /// running.
    #[must_use]
    pub fn is_running(&self, now: Timestamp, timeout: Duration) -> bool {
        self.last_heartbeat.is_some_and(|heartbeat| now.since(heartbeat) < timeout)
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
            agent: AgentInfo::default(),
            work: None,
            power_request: None,
            wait: None,
            due_at: None,
            job_queue: None,
            queued_at: None,
        }
    }

    /// The running step of `flow`.
    #[must_use]
    pub fn current_step(&self, flow: StepFlow) -> Option<&Step> {
        self.work.as_ref().filter(|work| work.kind.flow() == Some(flow))?.current_step()
    }

    /// Sets or clears the power request together with `target_power_state`.
    pub fn set_power_request(&mut self, request: Option<PowerRequest>) {
        self.target_power_state = request.as_ref().map(PowerRequest::target_state);
        self.power_request = request;
    }

    /// Whether agents may keep running between jobs and be reused by the next. Returns `default` if
    /// `driver_info` does not contain `fast_track`.
    #[must_use]
    pub fn fast_track(&self, default: bool) -> bool {
        // Evaluated for every heartbeat, so search the text before parsing it.
        if !self.driver_info.as_str().contains("\"fast_track\"") {
            return default;
        }
        let value = self.driver_info.get("fast_track");
        value.as_ref().and_then(parse_bool).unwrap_or(default)
    }

    /// The name, or the id if the node has none; for messages.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// Parses the boolean spellings that Ironic accepts: `true`, `1`, `"yes"`, `"on"`, …
#[must_use]
pub fn parse_bool(value: &Value) -> Option<bool> {
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
    fn fast_track_accepts_all_boolean_spellings() {
        for (value, expected) in [
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
            node.driver_info.set("fast_track", value.clone());
            for default in [false, true] {
                assert_eq!(node.fast_track(default), expected.unwrap_or(default), "{value}");
            }
        }
        let unset = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        assert!(unset.fast_track(true) && !unset.fast_track(false));
    }
}
