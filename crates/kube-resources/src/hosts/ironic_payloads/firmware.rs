// SPDX-License-Identifier: Apache-2.0
//! BIOS settings and firmware components: Ironic's lists as statuses and schemas, and specs as
//! steps.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::firmware_schema::BiosSettingSchema;
use super::super::host_firmware_components::{
    FirmwareComponentUpdate, FirmwareComponentVersion, is_supported_component,
};
use super::IronicStep;
use crate::optional::{non_empty, null_is_default};

/// An entry of `GET /v1/nodes/{id}/bios`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IronicBiosSetting {
    /// Name.
    pub name: String,
    /// Value.
    #[serde(deserialize_with = "null_is_default")]
    pub value: String,
    /// Type and limits; present only with `?detail=true`.
    #[serde(flatten)]
    pub schema: BiosSettingSchema,
}

/// An entry of `GET /v1/nodes/{id}/firmware`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IronicFirmwareComponent {
    /// Name.
    pub component: String,
    /// Version when the node was registered.
    #[serde(deserialize_with = "null_is_default")]
    pub initial_version: String,
    /// Installed version.
    #[serde(deserialize_with = "non_empty")]
    pub current_version: Option<String>,
    /// Version of the last update.
    #[serde(deserialize_with = "non_empty")]
    pub last_version_flashed: Option<String>,
    /// When the versions were read.
    pub updated_at: Option<Time>,
}

/// The current values by name.
#[must_use]
pub fn current_settings(settings: &[IronicBiosSetting]) -> BTreeMap<String, String> {
    settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())).collect()
}

/// The types and limits by name.
#[must_use]
pub fn settings_schema(settings: &[IronicBiosSetting]) -> BTreeMap<String, BiosSettingSchema> {
    settings.iter().map(|setting| (setting.name.clone(), setting.schema.clone())).collect()
}

/// The name of the `FirmwareSchema` object. Equal schemas have equal names, also with Metal3's
/// operator.
#[must_use]
pub fn firmware_schema_name(schema: &BTreeMap<String, BiosSettingSchema>) -> String {
    let mut words = Vec::new();
    for (name, setting) in schema {
        words.push(name.clone());
        let attribute_type = setting.attribute_type.as_ref();
        words.push(attribute_type.map(|name| name.as_str().to_owned()).unwrap_or_default());
        words.extend(setting.allowable_values.iter().cloned());
        let limits =
            [setting.lower_bound, setting.upper_bound, setting.min_length, setting.max_length];
        words.extend(limits.into_iter().flatten().map(|limit| limit.to_string()));
        words.extend(setting.read_only.map(|read_only| read_only.to_string()));
    }
    words.sort_unstable();
    let digest = Sha256::digest(format!("[{}]", words.join(" ")));
    let first: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("schema-{first}")
}

/// The step that changes the settings that differ from the current ones; `None` if none differs.
/// Without current values nothing is changed.
#[must_use]
pub fn bios_step(
    requested: &BTreeMap<String, IntOrString>,
    current: Option<&BTreeMap<String, String>>,
) -> Option<IronicStep> {
    let current = current?;
    let differs = |name: &str, value: &IntOrString| {
        let is_equal = |current: &String| match value {
            IntOrString::Int(number) => *current == number.to_string(),
            IntOrString::String(text) => current == text,
        };
        !current.get(name).is_some_and(is_equal)
    };
    let settings: Vec<Value> = requested
        .iter()
        .filter(|(name, value)| differs(name, value))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let is_needed = !settings.is_empty();
    is_needed.then(|| IronicStep::with_settings("bios", "apply_configuration", settings))
}

/// The step that installs firmware; `None` without updates.
#[must_use]
pub fn firmware_step(updates: &[FirmwareComponentUpdate]) -> Option<IronicStep> {
    let settings: Vec<Value> = updates.iter().map(|update| json!(update)).collect();
    let is_needed = !settings.is_empty();
    is_needed.then(|| IronicStep::with_settings("firmware", "update", settings))
}

/// The versions of the components that can be updated.
#[must_use]
pub fn component_versions(components: &[IronicFirmwareComponent]) -> Vec<FirmwareComponentVersion> {
    components
        .iter()
        .filter(|component| is_supported_component(&component.component))
        .map(|component| FirmwareComponentVersion {
            component: component.component.clone(),
            initial_version: component.initial_version.clone(),
            current_version: component.current_version.clone(),
            last_version_flashed: component.last_version_flashed.clone(),
            updated_at: component.updated_at.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Vec<IronicBiosSetting> {
        serde_json::from_value(json!([
            {"name": "ProcVirtualization", "value": "Enabled", "attribute_type": "Enumeration",
             "allowable_values": ["Enabled", "Disabled"], "lower_bound": null, "links": []},
            {"name": "NumCores", "value": "10", "attribute_type": "Integer", "lower_bound": 1,
             "upper_bound": 64, "read_only": false, "unique": null},
            {"name": "SystemMemorySize", "value": null},
        ]))
        .unwrap()
    }

    #[test]
    fn the_list_becomes_values_and_schema() {
        let values = current_settings(&listed());
        assert_eq!(
            json!(values),
            json!({"NumCores": "10", "ProcVirtualization": "Enabled", "SystemMemorySize": ""})
        );
        assert_eq!(
            json!(settings_schema(&listed())),
            json!({
                "NumCores": {"attribute_type": "Integer", "lower_bound": 1, "upper_bound": 64,
                    "read_only": false},
                "ProcVirtualization": {"attribute_type": "Enumeration",
                    "allowable_values": ["Enabled", "Disabled"]},
                "SystemMemorySize": {},
            })
        );
    }

    /// The names were computed with Metal3's algorithm in Go.
    #[test]
    fn schema_names_equal_those_of_metal3() {
        assert_eq!(firmware_schema_name(&BTreeMap::new()), "schema-4f53cda1");
        assert_eq!(firmware_schema_name(&settings_schema(&listed())), "schema-31e1742d");
    }

    #[test]
    fn only_changed_settings_are_applied() {
        let requested = |value: Value| serde_json::from_value(value).unwrap();
        let current = current_settings(&listed());
        let check = |changes: Value, expected: Value| {
            let step = bios_step(&requested(changes), Some(&current));
            assert_eq!(json!(step), expected);
        };
        check(json!({}), Value::Null);
        check(json!({"NumCores": 10, "ProcVirtualization": "Enabled"}), Value::Null);
        check(
            json!({"NumCores": "10", "ProcVirtualization": "Disabled", "New": 3}),
            json!({"interface": "bios", "step": "apply_configuration", "args": {"settings": [
                {"name": "New", "value": 3}, {"name": "ProcVirtualization", "value": "Disabled"},
            ]}}),
        );
        assert_eq!(bios_step(&requested(json!({"NumCores": 1})), None), None);
    }

    #[test]
    fn updates_become_a_step() {
        let update = FirmwareComponentUpdate { component: "bmc".into(), url: "http://a/f".into() };
        assert_eq!(
            json!(firmware_step(&[update])),
            json!({"interface": "firmware", "step": "update",
                "args": {"settings": [{"component": "bmc", "url": "http://a/f"}]}})
        );
        assert_eq!(firmware_step(&[]), None);
    }

    #[test]
    fn unsupported_components_are_ignored() {
        let listed: Vec<IronicFirmwareComponent> = serde_json::from_value(json!([
            {"component": "bios", "initial_version": "1", "current_version": null,
             "last_version_flashed": null, "updated_at": null},
            {"component": "psu", "initial_version": "1"},
            {"component": "nic:NIC1", "initial_version": null, "current_version": "2",
             "updated_at": "2026-11-17T10:00:00+00:00"},
        ]))
        .unwrap();
        assert_eq!(
            json!(component_versions(&listed)),
            json!([
                {"component": "bios", "initialVersion": "1"},
                {"component": "nic:NIC1", "initialVersion": "", "currentVersion": "2",
                 "updatedAt": "2026-11-17T10:00:00Z"},
            ])
        );
    }
}
