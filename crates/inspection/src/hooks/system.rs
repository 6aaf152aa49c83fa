// SPDX-License-Identifier: Apache-2.0
//! CPU, memory and boot mode.

use std::collections::HashSet;

use serde_json::Value;

use super::HookFailure;
use crate::draft::Draft;
use crate::findings::Level;

/// Longer than the name of any architecture or boot mode.
const MAX_NAME_BYTES: usize = 64;

/// `properties/cpu_arch`, which images are chosen by; a report without it is no good.
pub(super) fn architecture(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let architecture = draft.report.hardware("cpu", "architecture").and_then(Value::as_str);
    let architecture = architecture
        .filter(|text| !text.is_empty() && text.len() <= MAX_NAME_BYTES)
        .ok_or(HookFailure::Missing("CPU architecture (cpu.architecture)"))?;
    draft.set_property("cpu_arch", architecture.into());
    Ok(())
}

/// `properties/cpus`.
pub(super) fn cpus(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    match draft.report.hardware("cpu", "count").and_then(whole_number) {
        Some(count) if count > 0 => draft.set_property("cpus", count.into()),
        Some(_) | None => {
            draft.note(Level::Warning, "the inventory has no CPU count".to_owned());
        }
    }
    Ok(())
}

/// `properties/memory_mb`.
pub(super) fn memory(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let memory = draft
        .report
        .hardware("memory", "physical_mb")
        .and_then(whole_number)
        .ok_or(HookFailure::Missing("memory size (memory.physical_mb)"))?;
    draft.set_property("memory_mb", memory.into());
    Ok(())
}

/// The capability `boot_mode`.
pub(super) fn boot_mode(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let mode = draft.report.hardware("boot", "current_boot_mode").and_then(Value::as_str);
    let Some(mode) = mode.filter(|mode| is_capability_value(mode)) else {
        draft.note(Level::Warning, "the inventory does not say the boot mode".to_owned());
        return Ok(());
    };
    draft.set_capabilities(&[("boot_mode".to_owned(), mode.to_owned())])?;
    Ok(())
}

/// A capability for each CPU flag that the settings name.
pub(super) fn cpu_capabilities(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let flags = draft.report.hardware("cpu", "flags").and_then(Value::as_array);
    let flags: HashSet<&str> = flags.into_iter().flatten().filter_map(Value::as_str).collect();
    if flags.is_empty() {
        draft.note(Level::Warning, "the inventory has no CPU flags".to_owned());
        return Ok(());
    }
    let found: Vec<(String, String)> = draft
        .settings
        .cpu_capabilities
        .iter()
        .filter(|(flag, _)| flags.contains(flag.as_str()))
        .map(|(_, name)| (name.clone(), "true".to_owned()))
        .collect();
    draft.set_capabilities(&found)?;
    Ok(())
}

/// A number that is not negative, also when written as text.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Commas and colons would break the list of capabilities apart.
fn is_capability_value(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.contains([',', ':'])
}
