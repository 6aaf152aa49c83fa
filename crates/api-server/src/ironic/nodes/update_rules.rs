// SPDX-License-Identifier: Apache-2.0
//! Rules for changes of a node: which field may change in which state.

use access_policy::PolicyTarget;
use ironic_wire::{ApiVersion, Patch, ResourceDraft, WireError};
use lifecycle::{reconfigure_allowed, update_allowed};
use node_model::{InterfaceKind, Node, ProvisionState};
use serde_json::Value;
use store::StoreReader;

use crate::server::ApiError;
use crate::server::access::CallerAccess;

/// First version in which a node under inspection cannot be changed.
const INSPECTION_LOCKS_SINCE: u16 = 39;
/// First version in which a node can be removed from its chassis.
const LEAVE_CHASSIS_SINCE: u16 = 25;

/// Fields with a policy rule of their own.
const FIELD_RULES: &[(&str, &str)] = &[
    ("instance_info", "baremetal:node:update_instance_info"),
    ("instance_name", "baremetal:node:update_instance_info"),
    ("instance_uuid", "baremetal:node:update:instance_uuid"),
    ("extra", "baremetal:node:update_extra"),
    ("driver_info", "baremetal:node:update:driver_info"),
    ("properties", "baremetal:node:update:properties"),
    ("chassis_uuid", "baremetal:node:update:chassis_uuid"),
    ("lessee", "baremetal:node:update:lessee"),
    ("owner", "baremetal:node:update:owner"),
    ("driver", "baremetal:node:update:driver_interfaces"),
    ("network_data", "baremetal:node:update:network_data"),
    ("conductor_group", "baremetal:node:update:conductor_group"),
    ("name", "baremetal:node:update:name"),
    ("retired", "baremetal:node:update:retired"),
    ("retired_reason", "baremetal:node:update:retired"),
    ("shard", "baremetal:node:update:shard"),
    ("parent_node", "baremetal:node:update:parent_node"),
    ("disable_power_off", "baremetal:node:update:disable_power_off"),
    // Ironic lets every lessee change these: it could keep a machine after its lease, or evade quotas.
    ("protected", "ferrite:node:update:protected"),
    ("protected_reason", "ferrite:node:update:protected"),
    ("resource_class", "ferrite:node:update:resource_class"),
];
/// The rule of all other fields.
const UPDATE: &str = "baremetal:node:update";

/// Fails with 403 if the caller may not change one of the fields, with 409 if it may not change the
/// owner of a node in use.
pub(super) fn check_policy(
    node: &Node,
    patch: &Patch,
    access: &CallerAccess,
) -> Result<(), WireError> {
    if !access.is_restricted() {
        return Ok(());
    }
    let target = PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref());
    if patch.is_empty() {
        access.require(UPDATE, &target)?;
    }
    for field in patch.fields() {
        access.require(field_rule(field, patch), &target)?;
    }
    let changes_owner_in_use =
        patch.touches("owner") && node.provision_state == ProvisionState::Active;
    if changes_owner_in_use && !access.allows("baremetal:node:update_owner_provisioned", &target) {
        return Err(WireError::conflict(format!(
            "Cannot update the owner of node {} while it is in state {}.",
            node.label(),
            node.provision_state
        )));
    }
    Ok(())
}

fn field_rule(field: &str, patch: &Patch) -> &'static str {
    if let Some((_, rule)) = FIELD_RULES.iter().find(|(name, _)| *name == field) {
        return rule;
    }
    if InterfaceKind::ALL.iter().any(|kind| kind.field() == field) {
        return "baremetal:node:update:driver_interfaces";
    }
    if field == "maintenance" {
        // The rules of PUT and DELETE …/maintenance, which Ironic does not apply to a patch.
        let is_cleared = patch.value_of(field).is_none_or(is_false);
        return if is_cleared {
            "baremetal:node:clear_maintenance"
        } else {
            "baremetal:node:set_maintenance"
        };
    }
    if field == "automated_clean" && patch.value_of(field).is_some_and(is_false) {
        return "baremetal:node:disable_cleaning";
    }
    UPDATE
}

/// Whether a value is accepted as false.
fn is_false(value: &Value) -> bool {
    const FALSE: [&str; 6] = ["0", "f", "false", "n", "no", "off"];
    match value {
        Value::Bool(value) => !value,
        Value::String(text) => FALSE.contains(&text.trim().to_lowercase().as_str()),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Fails with 409 while a state transition is in progress.
pub(super) fn check_state(
    node: &Node,
    patch: &Patch,
    version: ApiVersion,
) -> Result<(), WireError> {
    // The instance of a node in maintenance can always be removed.
    if node.maintenance && patch.only_removes("instance_uuid") {
        return Ok(());
    }
    if node.target_provision_state.is_some() && !update_allowed(node.provision_state) {
        return Err(WireError::conflict(format!(
            "Node {} can not be updated while a state transition is in progress: it is {} on its \
             way to {}.",
            node.label(),
            node.provision_state,
            node.target_provision_state.map_or("nowhere", ProvisionState::as_str),
        )));
    }
    if node.provision_state == ProvisionState::Inspecting && version.has(INSPECTION_LOCKS_SINCE) {
        return Err(WireError::conflict(format!(
            "Cannot update node {} while it is in state {}.",
            node.label(),
            node.provision_state
        )));
    }
    Ok(())
}

/// Fails with 409 if the patch changes the owner of a node whose allocation has an owner.
pub(super) fn check_owner(
    reader: &mut StoreReader<'_>,
    node: &Node,
    patch: &Patch,
) -> Result<(), ApiError> {
    let Some(allocation) = node.allocation_id.filter(|_| patch.touches("owner")) else {
        return Ok(());
    };
    match reader.get(allocation)? {
        Some(allocation) if allocation.owner.is_some() => Err(WireError::conflict(format!(
            "Cannot update the owner of node {} while allocation {} holds it, which has an owner.",
            node.label(),
            allocation.id
        ))
        .into()),
        Some(_) | None => Ok(()),
    }
}

/// Checks the changed fields against the current node.
pub(super) fn check_changes(
    before: &Node,
    drafted: &ResourceDraft<Node>,
    version: ApiVersion,
) -> Result<(), WireError> {
    let after = &drafted.draft.node;
    if before.chassis_id.is_some()
        && after.chassis_id.is_none()
        && !version.has(LEAVE_CHASSIS_SINCE)
    {
        return Err(WireError::too_new("removing chassis_uuid", LEAVE_CHASSIS_SINCE));
    }
    check_console(before, drafted)?;
    check_flags(before, drafted)?;
    check_interfaces(before, drafted)?;
    check_instance(before, drafted)?;
    if drafted.has("resource_class")
        && before.resource_class.is_some()
        && !reconfigure_allowed(before.provision_state)
    {
        return Err(state_conflict(before, "resource_class", ""));
    }
    Ok(())
}

/// A running console must be stopped by the driver that started it.
fn check_console(before: &Node, drafted: &ResourceDraft<Node>) -> Result<(), WireError> {
    let changed = ["driver", InterfaceKind::Console.field()].into_iter().find(|f| drafted.has(f));
    match changed.filter(|_| before.console_enabled) {
        None => Ok(()),
        Some(field) => Err(WireError::conflict(format!(
            "Node {} can not have its {field} updated while its console is enabled, because the new one \
             could not stop it. Disable the console first.",
            before.label()
        ))),
    }
}

/// `protected` and `retired` can only be set in some states.
fn check_flags(before: &Node, drafted: &ResourceDraft<Node>) -> Result<(), WireError> {
    let after = &drafted.draft.node;
    let in_use = matches!(before.provision_state, ProvisionState::Active | ProvisionState::Rescue);
    if drafted.has("protected") && after.protected && !in_use {
        return Err(WireError::conflict(format!(
            "Node {} can only be made protected in state active or rescue; it is in state {}.",
            before.label(),
            before.provision_state
        )));
    }
    let available = before.provision_state == ProvisionState::Available;
    if drafted.has("retired") && after.retired && available {
        return Err(WireError::conflict(format!(
            "Node {} can not be retired while it is available: it could be allocated at any time. \
             Bring it to manageable first.",
            before.label()
        )));
    }
    Ok(())
}

fn check_interfaces(before: &Node, drafted: &ResourceDraft<Node>) -> Result<(), WireError> {
    // The patch itself may set or clear maintenance.
    if drafted.draft.node.maintenance || reconfigure_allowed(before.provision_state) {
        return Ok(());
    }
    let changed = InterfaceKind::ALL.iter().map(|kind| kind.field()).find(|f| drafted.has(f));
    match changed {
        None => Ok(()),
        Some(field) => Err(state_conflict(before, field, " or in maintenance")),
    }
}

fn check_instance(before: &Node, drafted: &ResourceDraft<Node>) -> Result<(), WireError> {
    if !drafted.has("instance_uuid") {
        return Ok(());
    }
    match (before.instance_uuid, drafted.draft.node.instance_uuid) {
        (Some(instance), Some(_)) => {
            Err(WireError::node_associated(&before.id.to_string(), &instance.to_string()))
        }
        (Some(_), None)
            if before.allocation_id.is_some()
                && !before.maintenance
                && !reconfigure_allowed(before.provision_state) =>
        {
            Err(state_conflict(before, "instance_uuid of an allocation", " or in maintenance"))
        }
        (Some(_) | None, None) | (None, Some(_)) => Ok(()),
    }
}

fn state_conflict(node: &Node, field: &str, alternative: &str) -> WireError {
    let allowed: Vec<&str> = ProvisionState::ALL
        .iter()
        .filter(|state| reconfigure_allowed(**state))
        .map(|state| state.as_str())
        .collect();
    WireError::conflict(format!(
        "Node {} can not have {field} updated unless it is in one of the states {}{alternative}; it is in \
         state {}.",
        node.label(),
        allowed.join(", "),
        node.provision_state
    ))
}
