// SPDX-License-Identifier: Apache-2.0
//! Boot mode and Secure Boot as capabilities of a node.

use serde_json::{Map, Value, json};

use super::super::bare_metal_host::HostBootMode;

/// The value of `properties.capabilities`. Other capabilities of the existing value are kept,
/// because inspection sets them.
#[must_use]
pub fn properties_capabilities(existing: Option<&Value>, mode: &HostBootMode) -> String {
    let existing = existing.and_then(Value::as_str).unwrap_or_default();
    let is_ours = |item: &str| item.starts_with("boot_mode:") || item.starts_with("secure_boot:");
    let others = existing.split(',').filter(|item| !item.is_empty() && !is_ours(item));
    others.chain(boot_mode_items(mode).iter().copied()).collect::<Vec<_>>().join(",")
}

fn boot_mode_items(mode: &HostBootMode) -> &'static [&'static str] {
    match mode {
        // An unknown mode does not pass validation; UEFI is the default.
        HostBootMode::Uefi | HostBootMode::Other(_) => &["boot_mode:uefi"],
        HostBootMode::UefiSecureBoot => &["boot_mode:uefi", "secure_boot:true"],
        HostBootMode::Legacy => &["boot_mode:bios"],
    }
}

/// The value of `instance_info.capabilities`.
#[must_use]
pub fn instance_capabilities(mode: &HostBootMode) -> Map<String, Value> {
    match mode {
        HostBootMode::UefiSecureBoot => Map::from_iter([("secure_boot".to_owned(), json!("true"))]),
        HostBootMode::Uefi | HostBootMode::Legacy | HostBootMode::Other(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_capabilities_are_kept() {
        let text = |text: &str| Some(json!(text));
        for (existing, mode, expected) in [
            (None, HostBootMode::Uefi, "boot_mode:uefi"),
            (text(""), HostBootMode::Legacy, "boot_mode:bios"),
            (Some(json!({"a": "b"})), HostBootMode::Uefi, "boot_mode:uefi"),
            (text("cpu_vt:true"), HostBootMode::Uefi, "cpu_vt:true,boot_mode:uefi"),
            (
                text("boot_mode:uefi,secure_boot:true,cpu_vt:true"),
                HostBootMode::Legacy,
                "cpu_vt:true,boot_mode:bios",
            ),
            (
                text("a:1,boot_mode:bios,b:2"),
                HostBootMode::UefiSecureBoot,
                "a:1,b:2,boot_mode:uefi,secure_boot:true",
            ),
        ] {
            assert_eq!(properties_capabilities(existing.as_ref(), &mode), expected);
        }
    }

    #[test]
    fn only_secure_boot_is_a_capability_of_the_instance() {
        let check = |mode, expected: Value| {
            assert_eq!(Value::Object(instance_capabilities(&mode)), expected);
        };
        check(HostBootMode::Uefi, json!({}));
        check(HostBootMode::Legacy, json!({}));
        check(HostBootMode::UefiSecureBoot, json!({"secure_boot": "true"}));
    }
}
