// SPDX-License-Identifier: Apache-2.0
//! Hooks for PCI devices.

use serde_json::{Value, json};

use super::HookError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::InspectionLogLevel;

/// Sets `properties/accelerators`: known accelerators with their PCI address.
pub(super) fn accelerators(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let devices = devices(draft.plugin_data.get("pci_devices"))
        .or_else(|| devices(draft.report.inventory().get("pci_devices")));
    let Some(devices) = devices else {
        draft.log(InspectionLogLevel::Warning, "the ramdisk sent no PCI devices".to_owned());
        return Ok(());
    };
    let known = &draft.settings.known_accelerators;
    let accelerators: Vec<Value> = devices
        .iter()
        .filter_map(|device| {
            let (vendor, product) = ids(device)?;
            let known = known
                .iter()
                .find(|known| known.vendor_id == vendor && known.device_id == product)?;
            Some(json!({
                "vendor_id": known.vendor_id,
                "device_id": known.device_id,
                "type": known.accelerator_type,
                "device_info": known.device_info,
                "pci_address": device.get("bus"),
            }))
        })
        .collect();
    draft.set_property("accelerators", accelerators.into());
    Ok(())
}

/// Sets a capability with the number of devices for each configured alias.
pub(super) fn pci_devices(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let aliases = &draft.settings.pci_device_alias;
    let Some(devices) = draft.plugin_data.get("pci_devices").and_then(Value::as_array) else {
        if !aliases.is_empty() {
            draft.log(InspectionLogLevel::Warning, "the ramdisk sent no PCI devices".to_owned());
        }
        return Ok(());
    };
    let count = |vendor: &str, product: &str| {
        devices.iter().filter_map(ids).filter(|ids| *ids == (vendor, product)).count()
    };
    let counts: Vec<(String, String)> = aliases
        .iter()
        .map(|alias| (alias.name.clone(), count(&alias.vendor_id, &alias.product_id)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name, count.to_string()))
        .collect();
    draft.set_capabilities(&counts)?;
    Ok(())
}

fn devices(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array).filter(|devices| !devices.is_empty())
}

fn ids(device: &Value) -> Option<(&str, &str)> {
    Some((device.get("vendor_id")?.as_str()?, device.get("product_id")?.as_str()?))
}
