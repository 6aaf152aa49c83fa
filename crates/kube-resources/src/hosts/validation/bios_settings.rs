// SPDX-License-Identifier: Apache-2.0
//! Rules for requested BIOS settings, from the schema of the hardware.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::firmware_schema::{BiosAttributeType, BiosSettingSchema, FirmwareSchemaSpec};
use super::super::host_firmware_settings::HostFirmwareSettingsSpec;
use crate::field_error::FieldError;

/// Checks all requested settings.
#[must_use]
pub fn validate_firmware_settings(
    requested: &HostFirmwareSettingsSpec,
    schema: &FirmwareSchemaSpec,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, value) in &requested.settings {
        let problem = match schema.schema.get(name) {
            Some(schema) => validate_bios_setting(name, value, schema).err(),
            None => Some("is not a setting of this hardware; remove it".to_owned()),
        };
        errors.extend(problem.map(|text| FieldError::new(format!("spec.settings[{name}]"), text)));
    }
    errors
}

/// Checks one value. The error states what to use instead.
pub fn validate_bios_setting(
    name: &str,
    value: &IntOrString,
    schema: &BiosSettingSchema,
) -> Result<(), String> {
    if schema.read_only == Some(true) {
        return Err("is read-only; remove it".to_owned());
    }
    // Not all BMCs report the type of passwords.
    if name.contains("Password") || schema.attribute_type == Some(BiosAttributeType::Password) {
        return Err("is a password, which cannot be set; remove it".to_owned());
    }
    let text = match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    match &schema.attribute_type {
        Some(BiosAttributeType::Enumeration) => enumeration(&text, schema),
        Some(BiosAttributeType::Integer) => integer(&text, schema),
        Some(BiosAttributeType::Text) => length(&text, schema),
        Some(BiosAttributeType::Boolean) => match text.as_str() {
            "true" | "false" => Ok(()),
            _ => Err(format!("{text:?} is not a boolean; use true or false")),
        },
        Some(BiosAttributeType::Password) => Ok(()),
        Some(BiosAttributeType::Other(other)) => {
            Err(format!("has the type {other:?}, which is not supported; remove it"))
        }
        // Without a registry of the BMC there is nothing to check against.
        None => Ok(()),
    }
}

fn enumeration(text: &str, schema: &BiosSettingSchema) -> Result<(), String> {
    if schema.allowable_values.iter().any(|value| value == text) {
        return Ok(());
    }
    Err(format!("{text:?} is not supported; use one of {}", schema.allowable_values.join(", ")))
}

fn integer(text: &str, schema: &BiosSettingSchema) -> Result<(), String> {
    let number: i64 = text.parse().map_err(|_| format!("{text:?} is not an integer"))?;
    match (schema.lower_bound, schema.upper_bound) {
        (Some(lower), _) if number < lower => Err(format!("{number} is less than {lower}")),
        (_, Some(upper)) if number > upper => Err(format!("{number} is greater than {upper}")),
        _ => Ok(()),
    }
}

fn length(text: &str, schema: &BiosSettingSchema) -> Result<(), String> {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    match (schema.min_length, schema.max_length) {
        (Some(shortest), _) if length < shortest => {
            Err(format!("{text:?} is shorter than {shortest} bytes"))
        }
        (_, Some(longest)) if length > longest => {
            Err(format!("{text:?} is longer than {longest} bytes"))
        }
        _ => Ok(()),
    }
}
