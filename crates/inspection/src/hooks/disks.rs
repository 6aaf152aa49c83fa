// SPDX-License-Identifier: Apache-2.0
//! Hooks for the root disk.

use agent_protocol::RootDeviceHints;
use serde_json::{Map, Value};

use super::HookError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::{InspectionLogLevel, ObjectField};
use crate::report::inventory_disks;

const GIB: u64 = 1 << 30;

/// Sets `root_disk` in the plugin data to the disk that matches the hints, otherwise keeps the
/// ramdisk's choice, and derives `properties/local_gb`: 0 for a machine without disks.
pub(super) fn root_device(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    if let Some(disk) = hinted_disk(draft)? {
        draft.plugin_data.insert("root_disk".to_owned(), disk.clone().into());
    }
    let root_disk = draft.plugin_data.get("root_disk").and_then(Value::as_object);
    let size = root_disk.map(|disk| disk.get("size").and_then(Value::as_u64).unwrap_or(0));
    let (local_gb, text) = match size {
        None => (0, Some("no root disk found; the machine is treated as diskless")),
        Some(size) if size < GIB => {
            (0, Some("the root disk is smaller than 1 GiB, or its size is unknown"))
        }
        Some(size) => (size / GIB - u64::from(draft.settings.disk_partitioning_spacing), None),
    };
    if let Some(text) = text {
        draft.log(InspectionLogLevel::Warning, text.to_owned());
    }
    draft.plugin_data.insert("local_gb".to_owned(), local_gb.into());
    draft.set_property("local_gb", local_gb.into());
    Ok(())
}

/// Sets the root device to the new disk if exactly one disk is new since the last inspection. Finds
/// RAID volumes whose serial number the BMC does not report.
pub(super) fn raid_device(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    if draft.object(ObjectField::Properties).contains_key("root_device") {
        draft.log(InspectionLogLevel::Debug, "properties/root_device is already set".to_owned());
        return Ok(());
    }
    let serials_now: Vec<&str> = serials(draft.report.inventory()).collect();
    if serials_now.is_empty() {
        draft.log(
            InspectionLogLevel::Warning,
            "the inventory has no disks with serial numbers".to_owned(),
        );
        return Ok(());
    }
    let Some(previous) = draft.previous else {
        let text =
            "no earlier inventory to compare disks with; inspect again after creating the volume";
        draft.log(InspectionLogLevel::Info, text.to_owned());
        return Ok(());
    };
    let before = previous.inventory.parse();
    let before: Vec<&str> = serials(&before).collect();
    let new: Vec<&str> =
        serials_now.into_iter().filter(|serial| !before.contains(serial)).collect();
    match new.as_slice() {
        [serial] => {
            let hints = Map::from_iter([("serial".to_owned(), Value::from(*serial))]);
            draft.set_property("root_device", hints.into());
        }
        [] => draft.log(
            InspectionLogLevel::Warning,
            "no disk is new since the last inspection".to_owned(),
        ),
        several => {
            let text =
                format!("{} disks are new, so the root disk cannot be determined", several.len());
            draft.log(InspectionLogLevel::Warning, text);
        }
    }
    Ok(())
}

/// Returns the first disk that matches `properties/root_device` and is not in
/// `skip_block_devices`; `None` if there are no hints.
fn hinted_disk<'a>(
    draft: &mut InspectionDraft<'a>,
) -> Result<Option<&'a Map<String, Value>>, HookError> {
    let properties = draft.object(ObjectField::Properties);
    let Some(hints) = properties.get("root_device").and_then(Value::as_object) else {
        return Ok(None);
    };
    if hints.is_empty() {
        return Ok(None);
    }
    let invalid = |property| move |source| HookError::Hints { property, source };
    let hints = RootDeviceHints::parse(hints).map_err(invalid("properties/root_device"))?;
    let skipped: Vec<RootDeviceHints> = properties
        .get("skip_block_devices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        // Entries with `volume_name` are for RAID steps; the inventory has no such disks.
        .filter(|hints| !hints.contains_key("volume_name"))
        .map(RootDeviceHints::parse)
        .collect::<Result<_, _>>()
        .map_err(invalid("properties/skip_block_devices"))?;
    let report = draft.report;
    let root = report
        .disks()
        .filter(|disk| !skipped.iter().any(|skip| skip.matches(disk)))
        .find(|disk| hints.matches(disk))
        .ok_or_else(|| HookError::NoRootDisk { disks: report.disks().count() })?;
    let name = root.get("name").and_then(Value::as_str).unwrap_or("a disk without a name");
    draft.log(InspectionLogLevel::Info, format!("{name} matches properties/root_device"));
    Ok(Some(root))
}

fn serials(inventory: &Map<String, Value>) -> impl Iterator<Item = &str> {
    inventory_disks(inventory)
        .filter_map(|disk| disk.get("serial")?.as_str())
        .filter(|serial| !serial.is_empty())
}
