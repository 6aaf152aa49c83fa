// SPDX-License-Identifier: Apache-2.0
//! What is known about a machine's hardware: reading it, keeping it, and power that follows power.

use bmc_drivers::{Driver, NodeChanges, Target};
use lifecycle::{Action, Outcome, ask_power};
use node_model::{
    Actor, BiosSetting, FirmwareComponent, Node, NodeId, PowerState, PowerTarget, Timestamp,
};
use serde_json::Value;
use store::{NodeFilter, Query, Writer};

use crate::Conductor;
use crate::inspect::Found;
use crate::ledger::write_ledger;

/// Reads everything about the hardware that is shown without asking the machine. What a BMC will not
/// tell is left as it was: none of it is needed to manage the machine. That it does not answer is
/// an error: it is asked again.
pub(crate) async fn read(
    driver: &Driver,
    target: &Target<'_>,
) -> Result<NodeChanges, bmc_drivers::Error> {
    let management = driver.management();
    let boot_mode = told(management.boot_mode(target).await)?;
    let mut changes = NodeChanges {
        bios_settings: told(driver.bios().settings(target).await)?.flatten(),
        firmware_components: told(driver.firmware().components(target).await)?.flatten(),
        boot_mode: boot_mode.map(|mode| mode.as_str().to_owned()),
        secure_boot: told(management.secure_boot(target).await)?,
        health: told(management.health(target).await)?.flatten(),
        ..NodeChanges::none()
    };
    changes = changes.and(told(probe(driver, target).await)?.unwrap_or_default());
    let known = target.node.properties.get("vendor").is_some();
    if !known && let Some(vendor) = told(management.detect_vendor(target).await)?.flatten() {
        changes.properties.insert("vendor".to_owned(), Value::String(vendor));
    }
    Ok(changes)
}

/// What was told; none if the BMC will not tell. Silence stays an error.
fn told<T>(answer: Result<T, bmc_drivers::Error>) -> Result<Option<T>, bmc_drivers::Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The key of `driver_internal_info` under which is kept what a machine's BMC is and can do.
pub(crate) const CAPABILITIES: &str = "bmc";

/// Finds out what the machine's BMC is and can do.
pub(crate) async fn probe(
    driver: &Driver,
    target: &Target<'_>,
) -> Result<NodeChanges, bmc_drivers::Error> {
    let found = driver.management().probe(target).await?;
    Ok(found.map_or_else(NodeChanges::none, |found| NodeChanges::remember(CAPABILITIES, found)))
}

/// Writes settings and firmware versions, keeping the times of what did not change.
pub(crate) fn write_tables(
    tx: &mut Writer<'_>,
    node: NodeId,
    changes: &NodeChanges,
) -> Result<(), store::Error> {
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

/// Writes what an out-of-band inspection found, and what came of it.
pub(crate) fn write_findings(
    tx: &mut Writer<'_>,
    node: &mut Node,
    found: &Option<Box<Found>>,
    hostname: &str,
) -> Result<(), store::Error> {
    let Some(found) = found else { return Ok(()) };
    found.write(tx, node, &Actor::Conductor { hostname: hostname.to_owned() })
}

/// Power goes down the family: children go off with their parent, and a parent comes on for its
/// children, unless they have a power supply of their own.
pub(crate) fn power_follows(
    tx: &mut Writer<'_>,
    node: &Node,
    action: &Action,
    outcome: &Outcome,
    conductor: &Conductor,
) -> Result<(), store::Error> {
    let Some(target) = action.power_target() else { return Ok(()) };
    if *outcome != Outcome::Done {
        return Ok(());
    }
    let relatives = match target.state() {
        PowerState::Off => tx.collect(&Query {
            filter: NodeFilter { parent_node: Some(node.id), ..NodeFilter::default() },
            ..Query::default()
        })?,
        PowerState::On if node.driver_info.get("has_dedicated_power_supply").is_none() => {
            match node.parent_node {
                Some(parent) => tx.get(parent)?.into_iter().collect(),
                None => Vec::new(),
            }
        }
        PowerState::On | PowerState::Error => Vec::new(),
    };
    for relative in relatives {
        // A list is not locked: the relative is read again before it is written.
        let Some(mut relative) = tx.get(relative.id)? else { continue };
        let wanted = target.state();
        if relative.power_state == Some(wanted) || relative.power_state.is_none() {
            continue;
        }
        let follow = if wanted == PowerState::Off { PowerTarget::Off } else { PowerTarget::On };
        let now = tx.now();
        if let Ok(ledger) = ask_power(&mut relative, follow, None, conductor.actor(), now) {
            write_ledger(tx, &mut relative, ledger, &conductor.actor(), conductor.hostname())?;
            tx.save(&mut relative)?;
            tx.wake(relative.id);
        }
    }
    Ok(())
}
