// SPDX-License-Identifier: Apache-2.0
//! Rules for a `BareMetalHost` by itself.

use uuid::Uuid;

use super::super::annotations::INSPECT_DISABLED;
use super::super::bare_metal_host::{
    AutomatedCleaningMode, BareMetalHost, HostBootMode, HostInspectionMode,
};
use super::{annotations, bmc, image, raid, secrets};
use crate::field_error::FieldError;

/// Checks a host on creation, and as part of every update.
#[must_use]
pub fn validate_host(host: &BareMetalHost) -> Vec<FieldError> {
    let spec = &host.spec;
    let mut errors = Vec::new();
    errors.extend(name(host.metadata.name.as_deref().unwrap_or_default()));
    errors.extend(known_values(host));
    errors.extend(bmc::check(host));
    errors.extend(removed_firmware(host));
    errors.extend(secrets::same_namespace(
        host.metadata.namespace.as_deref(),
        &[
            ("spec.userData", spec.user_data.as_ref()),
            ("spec.networkData", spec.network_data.as_ref()),
            ("spec.metaData", spec.meta_data.as_ref()),
        ],
    ));
    if let Some(requested) = &spec.raid {
        errors.extend(raid::check(requested));
    }
    errors.extend(root_device_name(host));
    if let Some(requested) = &spec.image {
        errors.extend(image::check("spec.image", requested));
    }
    errors.extend(annotations::check_host(host));
    errors.extend(inspection_mode_and_annotation(host));
    errors.extend(power_off_disabled(host));
    errors
}

/// Names become names of nodes, which must not look like UUIDs.
fn name(name: &str) -> Option<FieldError> {
    let is_allowed =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    if !name.chars().all(is_allowed) {
        return Some(FieldError::new(
            "metadata.name",
            format!("{name:?} has other characters than [A-Za-z0-9._-]; choose another name"),
        ));
    }
    Uuid::parse_str(name).ok().map(|_| {
        FieldError::new("metadata.name", "is a UUID, which a node ID could be; choose another name")
    })
}

/// The schema rejects other values, unless the object was stored under another version of it.
fn known_values(host: &BareMetalHost) -> Vec<FieldError> {
    let spec = &host.spec;
    let mut errors = Vec::new();
    let mut check = |path: &str, value: Option<&str>, values: &[&str]| {
        if let Some(value) = value.filter(|value| !values.contains(value)) {
            let problem = format!("{value:?} is not supported; use one of {}", values.join(", "));
            errors.push(FieldError::new(path, problem));
        }
    };
    check(
        "spec.automatedCleaningMode",
        spec.automated_cleaning_mode.as_ref().map(AutomatedCleaningMode::as_str),
        AutomatedCleaningMode::VALUES,
    );
    check("spec.bootMode", spec.boot_mode.as_ref().map(HostBootMode::as_str), HostBootMode::VALUES);
    check(
        "spec.inspectionMode",
        spec.inspection_mode.as_ref().map(HostInspectionMode::as_str),
        HostInspectionMode::VALUES,
    );
    errors
}

/// No driver translates these settings any more.
fn removed_firmware(host: &BareMetalHost) -> Option<FieldError> {
    host.spec.firmware.as_ref().map(|_| {
        FieldError::new(
            "spec.firmware",
            "is no longer supported; remove it and set BIOS settings in a HostFirmwareSettings object",
        )
    })
}

/// The device must be directly below `/dev/` or `/dev/disk/by-path/`.
fn root_device_name(host: &BareMetalHost) -> Option<FieldError> {
    let device = host.spec.root_device_hints.as_ref()?.device_name.as_deref()?;
    let below_dev = device.strip_prefix("/dev/");
    let file = below_dev.map(|path| path.strip_prefix("disk/by-path/").unwrap_or(path));
    let is_valid = file.is_some_and(|file| !file.is_empty() && !file.contains('/'));
    (!is_valid).then(|| {
        FieldError::new(
            "spec.rootDeviceHints.deviceName",
            format!(
                "{device:?} is not a device; use a path such as /dev/sda or /dev/disk/by-path/…, \
                 or another hint such as wwn"
            ),
        )
    })
}

/// The field and the older annotation must not contradict each other.
fn inspection_mode_and_annotation(host: &BareMetalHost) -> Option<FieldError> {
    let mode = host.spec.inspection_mode.as_ref()?;
    let annotation =
        host.annotation(super::super::annotations::INSPECT).filter(|value| !value.is_empty())?;
    let is_disabled_by_field = *mode == HostInspectionMode::Disabled;
    let is_disabled_by_annotation = annotation == INSPECT_DISABLED;
    (is_disabled_by_field != is_disabled_by_annotation).then(|| {
        FieldError::new(
            "spec.inspectionMode",
            format!(
                "{mode} contradicts the annotation inspect.metal3.io={annotation}; remove the annotation"
            ),
        )
    })
}

/// A host that must never be powered off cannot be requested to be off.
fn power_off_disabled(host: &BareMetalHost) -> Option<FieldError> {
    (host.spec.disable_power_off && !host.spec.online).then(|| {
        FieldError::new(
            "spec.online",
            "is false while spec.disablePowerOff is true; set online to true or disablePowerOff to false",
        )
    })
}
