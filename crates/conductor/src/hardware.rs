// SPDX-License-Identifier: Apache-2.0
//! Reads hardware data from BMCs and stores them; changes the power of related nodes.

use drivers::{Driver, DriverTarget, NodeChanges};
use lifecycle::{
    Action, ActionOutcome, RelatedNodes, needs_related_change, related_power_change, request_power,
};
use node_model::{BiosSetting, FirmwareComponent, Node, NodeId, Timestamp};
use serde_json::Value;
use store::{NodeFilter, ResourceQuery, StoreWriter};

use crate::Conductor;
use crate::pending_entries::write_pending_entries;

/// Reads the hardware data that the API shows from the database. Data that the BMC does not provide are
/// left unchanged, because none are needed to manage the machine. Fails only if the BMC does not
/// respond, so that the action is retried.
pub(crate) async fn read(
    driver: &Driver,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, drivers::DriverError> {
    let management = driver.management();
    let boot_mode = optional(management.boot_mode(target).await)?;
    let mut changes = NodeChanges {
        bios_settings: optional(driver.bios().settings(target).await)?.flatten(),
        firmware_components: optional(driver.firmware().components(target).await)?.flatten(),
        boot_mode: boot_mode.map(|mode| mode.as_str().to_owned()),
        secure_boot: optional(management.secure_boot(target).await)?,
        health: optional(management.health(target).await)?.flatten(),
        ..NodeChanges::none()
    };
    changes = changes.and(optional(probe(driver, target).await)?.unwrap_or_default());
    let has_vendor = target.node.properties.get("vendor").is_some();
    if !has_vendor && let Some(vendor) = optional(management.detect_vendor(target).await)?.flatten()
    {
        changes.properties.insert("vendor".to_owned(), Value::String(vendor));
    }
    Ok(changes)
}

/// `None` for errors of a BMC that responds.
fn optional<T>(result: Result<T, drivers::DriverError>) -> Result<Option<T>, drivers::DriverError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The key of `driver_internal_info` with the product and capabilities of the BMC.
pub(crate) const CAPABILITIES: &str = "bmc";

/// Reads the product and capabilities of the BMC.
pub(crate) async fn probe(
    driver: &Driver,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, drivers::DriverError> {
    let probed = driver.management().probe(target).await?;
    let stored = probed.map(|bmc| NodeChanges::internal_info(CAPABILITIES, bmc));
    Ok(stored.unwrap_or_default())
}

/// Writes BIOS settings and firmware versions. Unchanged ones keep their timestamps.
pub(crate) fn write_tables(
    tx: &mut StoreWriter<'_>,
    node: NodeId,
    changes: &NodeChanges,
) -> Result<(), store::StoreError> {
    let now = tx.now();
    if let Some(settings) = &changes.bios_settings {
        let before = tx.bios_settings(node)?;
        let settings: Vec<BiosSetting> =
            settings.iter().map(|setting| dated_setting(setting, &before, now)).collect();
        if settings != before {
            tx.replace_bios_settings(node, &settings)?;
        }
    }
    if let Some(components) = &changes.firmware_components {
        let before = tx.firmware_components(node)?;
        let components: Vec<FirmwareComponent> =
            components.iter().map(|component| dated_component(component, &before, now)).collect();
        if components != before {
            tx.replace_firmware_components(node, &components)?;
        }
    }
    Ok(())
}

fn dated_setting(setting: &BiosSetting, before: &[BiosSetting], now: Timestamp) -> BiosSetting {
    let mut setting = setting.clone();
    match before.iter().find(|known| known.name == setting.name) {
        None => (setting.created_at, setting.updated_at) = (now, None),
        Some(known) => {
            let same = known.value == setting.value && known.registry == setting.registry;
            setting.created_at = known.created_at;
            setting.updated_at = if same { known.updated_at } else { Some(now) };
        }
    }
    setting
}

fn dated_component(
    component: &FirmwareComponent,
    before: &[FirmwareComponent],
    now: Timestamp,
) -> FirmwareComponent {
    let mut component = component.clone();
    match before.iter().find(|known| known.component == component.component) {
        None => (component.created_at, component.updated_at) = (now, None),
        Some(known) => {
            let same = known.current_version == component.current_version;
            component.initial_version.clone_from(&known.initial_version);
            if component.last_version_flashed.is_none() {
                component.last_version_flashed.clone_from(&known.last_version_flashed);
            }
            component.created_at = known.created_at;
            component.updated_at = if same { known.updated_at } else { Some(now) };
        }
    }
    component
}

/// Requests the power changes of related nodes that follow from a power change of `node`.
pub(crate) fn change_related_power(
    tx: &mut StoreWriter<'_>,
    node: &Node,
    action: &Action,
    outcome: &ActionOutcome,
    conductor: &Conductor,
) -> Result<(), store::StoreError> {
    if *outcome != ActionOutcome::DONE {
        return Ok(());
    }
    let change = action.power_target().and_then(|target| related_power_change(node, target));
    let Some((related, target)) = change else { return Ok(()) };
    let ids: Vec<NodeId> = match related {
        RelatedNodes::Children => {
            let filter = NodeFilter { parent_node: Some(node.id), ..NodeFilter::default() };
            let children =
                tx.collect::<Node>(&ResourceQuery { filter, ..ResourceQuery::default() })?;
            children.into_iter().map(|child| child.id).collect()
        }
        RelatedNodes::Parent => node.parent_node.into_iter().collect(),
    };
    for id in ids {
        let Some(mut related) = tx.get(id)? else { continue };
        if !needs_related_change(&related, target) {
            continue;
        }
        let (actor, now) = (conductor.actor(), tx.now());
        // A related node that rejects the request, such as one in cleaning, keeps its power state.
        if let Ok(entries) = request_power(&mut related, target, None, actor.clone(), now) {
            write_pending_entries(tx, &mut related, entries, &actor, conductor.hostname())?;
            tx.save(&mut related)?;
            tx.wake(id);
        }
    }
    Ok(())
}
