// SPDX-License-Identifier: Apache-2.0
//! Rules between the fields of a node.

use node_model::JsonObject;
use serde_json::{Map, Value};

use crate::error::{WireError, excerpt};
use crate::node::NodeDraft;
use crate::value::ValueError;
use crate::version::ApiVersion;

/// Checks and completes a node after `changed` fields were set.
pub(crate) fn complete(
    draft: &mut NodeDraft,
    changed: &[&'static str],
    _version: ApiVersion,
) -> Result<(), WireError> {
    let has_changed = |name: &str| changed.contains(&name);
    let node = &mut draft.node;

    if has_changed("properties") {
        check_properties(&node.properties).map_err(|error| error.in_field("properties"))?;
    }
    for (flag, reason, value, text) in [
        ("protected", "protected_reason", node.protected, &mut node.protected_reason),
        ("retired", "retired_reason", node.retired, &mut node.retired_reason),
    ] {
        if value {
            continue;
        }
        if has_changed(reason) && text.as_ref().is_some_and(|text| !text.is_empty()) {
            return Err(WireError::invalid(format!(
                "The {reason} field can only be set when {flag} is True"
            )));
        }
        if has_changed(flag) {
            *text = None;
        }
    }
    // Clients that do not know `instance_name` set the display name.
    if has_changed("instance_info")
        && !has_changed("instance_name")
        && node.instance_name.is_none()
        && let Some(Value::String(name)) = draft.instance_info.get("display_name")
        && !name.is_empty()
    {
        node.instance_name = Some(name.clone());
    }
    Ok(())
}

/// Checks that sizes are numbers and capabilities are pairs; otherwise scheduling would fail later.
fn check_properties(properties: &JsonObject) -> Result<(), ValueError> {
    if properties.is_empty() {
        return Ok(());
    }
    let map = properties.parse();
    for key in ["cpus", "local_gb", "memory_mb"] {
        check_size(&map, key)?;
    }
    match map.get("capabilities") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(Value::String(pairs)) => check_capabilities(pairs),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            Err("capabilities must be a string such as \"boot_mode:uefi,raid_level:1\"".into())
        }
    }
}

fn check_size(map: &Map<String, Value>, key: &str) -> Result<(), ValueError> {
    let number = match map.get(key) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(digits)) => digits.trim().parse().ok(),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    match number {
        Some(_) => Ok(()),
        None => Err(format!("{key} must be a whole number that is not negative").into()),
    }
}

fn check_capabilities(pairs: &str) -> Result<(), ValueError> {
    for pair in pairs.split(',').filter(|pair| !pair.trim().is_empty()) {
        if pair.split_once(':').is_none_or(|(key, _)| key.trim().is_empty()) {
            return Err(format!(
                "capability '{}' is not of the form key:value",
                excerpt(pair.trim())
            )
            .into());
        }
    }
    Ok(())
}
