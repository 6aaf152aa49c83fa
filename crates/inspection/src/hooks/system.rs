// SPDX-License-Identifier: Apache-2.0
//! Hooks for CPU, memory and boot mode.

use std::collections::HashSet;

use serde_json::Value;

use super::HookError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::InspectionLogLevel;

/// Longer names of architectures and boot modes are rejected.
const MAX_NAME_BYTES: usize = 64;

/// Sets `properties/cpu_arch`. Fails if it is missing, because images are selected by it.
pub(super) fn architecture(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let architecture = draft.report.inventory_value("cpu", "architecture").and_then(Value::as_str);
    let architecture = architecture
        .filter(|text| !text.is_empty() && text.len() <= MAX_NAME_BYTES)
        .ok_or(HookError::Missing("CPU architecture (cpu.architecture)"))?;
    draft.set_property("cpu_arch", architecture.into());
    Ok(())
}

/// Sets `properties/cpus`.
pub(super) fn cpus(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    match draft.report.inventory_value("cpu", "count").and_then(non_negative_integer) {
        Some(count) if count > 0 => draft.set_property("cpus", count.into()),
        Some(_) | None => {
            draft.log(InspectionLogLevel::Warning, "the inventory has no CPU count".to_owned());
        }
    }
    Ok(())
}

/// Sets `properties/memory_mb`.
pub(super) fn memory(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let memory = draft
        .report
        .inventory_value("memory", "physical_mb")
        .and_then(non_negative_integer)
        .ok_or(HookError::Missing("memory size (memory.physical_mb)"))?;
    draft.set_property("memory_mb", memory.into());
    Ok(())
}

/// Sets the capability `boot_mode`.
pub(super) fn boot_mode(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let mode = draft.report.inventory_value("boot", "current_boot_mode").and_then(Value::as_str);
    let Some(mode) = mode.filter(|mode| is_capability_value(mode)) else {
        draft.log(InspectionLogLevel::Warning, "the inventory has no boot mode".to_owned());
        return Ok(());
    };
    draft.set_capabilities(&[("boot_mode".to_owned(), mode.to_owned())])?;
    Ok(())
}

/// Sets a capability for each CPU flag that is mapped in the settings.
pub(super) fn cpu_capabilities(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let flags = draft.report.inventory_value("cpu", "flags").and_then(Value::as_array);
    let flags: HashSet<&str> = flags.into_iter().flatten().filter_map(Value::as_str).collect();
    if flags.is_empty() {
        draft.log(InspectionLogLevel::Warning, "the inventory has no CPU flags".to_owned());
        return Ok(());
    }
    let capabilities: Vec<(String, String)> = draft
        .settings
        .cpu_capabilities
        .iter()
        .filter(|(flag, _)| flags.contains(flag.as_str()))
        .map(|(_, name)| (name.clone(), "true".to_owned()))
        .collect();
    draft.set_capabilities(&capabilities)?;
    Ok(())
}

/// Parses a non-negative integer, also from text.
fn non_negative_integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Returns false for commas and colons, the separators of the `capabilities` property.
fn is_capability_value(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.contains([',', ':'])
}
