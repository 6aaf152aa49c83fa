// SPDX-License-Identifier: Apache-2.0
//! The disk that the system goes on.

use agent_protocol::Hints;
use serde_json::{Map, Value};

use super::HookFailure;
use crate::draft::Draft;
use crate::findings::{Level, ObjectField};
use crate::report::disks_of;

const GIB: u64 = 1 << 30;

/// Finds the disk that the hints mean, else takes the ramdisk's word for it, and derives
/// `properties/local_gb`. A machine without a disk has none: 0.
pub(super) fn root_device(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    if let Some(disk) = hinted_disk(draft)? {
        draft.plugin_data.insert("root_disk".to_owned(), disk.clone().into());
    }
    let root_disk = draft.plugin_data.get("root_disk").and_then(Value::as_object);
    let size = root_disk.map(|disk| disk.get("size").and_then(Value::as_u64).unwrap_or(0));
    let (local_gb, text) = match size {
        None => (0, Some("no root disk was found; the machine counts as diskless")),
        Some(size) if size < GIB => {
            (0, Some("the root disk is smaller than 1 GiB, or its size is unknown"))
        }
        Some(size) => (size / GIB - u64::from(draft.settings.disk_partitioning_spacing), None),
    };
    if let Some(text) = text {
        draft.note(Level::Warning, text.to_owned());
    }
    draft.plugin_data.insert("local_gb".to_owned(), local_gb.into());
    draft.set_property("local_gb", local_gb.into());
    Ok(())
}

/// If exactly one disk has appeared since the last inspection, it becomes the root device: so a
/// RAID volume is found whose serial number the BMC does not tell.
pub(super) fn raid_device(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    if draft.object(ObjectField::Properties).contains_key("root_device") {
        draft.note(Level::Debug, "properties/root_device is known already".to_owned());
        return Ok(());
    }
    let now: Vec<&str> = serials(draft.report.inventory()).collect();
    if now.is_empty() {
        draft.note(Level::Warning, "the inventory has no disks with serial numbers".to_owned());
        return Ok(());
    }
    let Some(previous) = draft.previous else {
        let text =
            "no earlier inventory to compare disks with; inspect again after creating the volume";
        draft.note(Level::Info, text.to_owned());
        return Ok(());
    };
    let before = previous.inventory.parse();
    let before: Vec<&str> = serials(&before).collect();
    let new: Vec<&str> = now.into_iter().filter(|serial| !before.contains(serial)).collect();
    match new.as_slice() {
        [serial] => {
            let hints = Map::from_iter([("serial".to_owned(), Value::from(*serial))]);
            draft.set_property("root_device", hints.into());
        }
        [] => draft.note(Level::Warning, "no disk is new since the last inspection".to_owned()),
        several => {
            let text =
                format!("{} disks are new; which is the root disk cannot be told", several.len());
            draft.note(Level::Warning, text);
        }
    }
    Ok(())
}

/// The first disk that matches `properties/root_device` and is not to be skipped; none if there
/// are no hints.
fn hinted_disk<'a>(draft: &mut Draft<'a>) -> Result<Option<&'a Map<String, Value>>, HookFailure> {
    let properties = draft.object(ObjectField::Properties);
    let Some(hints) = properties.get("root_device").and_then(Value::as_object) else {
        return Ok(None);
    };
    if hints.is_empty() {
        return Ok(None);
    }
    let wrong = |property| move |source| HookFailure::Hints { property, source };
    let hints = Hints::parse(hints).map_err(wrong("properties/root_device"))?;
    let skipped: Vec<Hints> = properties
        .get("skip_block_devices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        // Volumes to be kept are named for the RAID steps, and are no disks of the inventory.
        .filter(|hints| !hints.contains_key("volume_name"))
        .map(Hints::parse)
        .collect::<Result<_, _>>()
        .map_err(wrong("properties/skip_block_devices"))?;
    let report = draft.report;
    let root = report
        .disks()
        .filter(|disk| !skipped.iter().any(|skip| skip.matches(disk)))
        .find(|disk| hints.matches(disk))
        .ok_or_else(|| HookFailure::NoRootDisk { disks: report.disks().count() })?;
    let name = root.get("name").and_then(Value::as_str).unwrap_or("a disk without a name");
    draft.note(Level::Info, format!("{name} matches properties/root_device"));
    Ok(Some(root))
}

fn serials(inventory: &Map<String, Value>) -> impl Iterator<Item = &str> {
    disks_of(inventory)
        .filter_map(|disk| disk.get("serial")?.as_str())
        .filter(|serial| !serial.is_empty())
}
