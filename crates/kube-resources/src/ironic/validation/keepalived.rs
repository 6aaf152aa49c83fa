// SPDX-License-Identifier: Apache-2.0
//! Rules for virtual addresses.

use super::super::networking::{IpAddressManager, KeepalivedSettings};
use super::super::service::IronicSpec;
use super::addresses::ip_address;
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    const MANAGER: &str = "spec.networking.ipAddressManager";
    let networking = &spec.networking;
    let mut errors = Vec::new();
    let enabled = networking.keepalived.as_ref().filter(|keepalived| keepalived.enabled);
    match &networking.ip_address_manager {
        None => {}
        Some(IpAddressManager::Keepalived) => {
            errors.extend(prerequisites(spec, MANAGER));
            errors.extend(required(
                enabled.is_none(),
                MANAGER,
                "cannot be combined with keepalived; remove ipAddressManager, which is its older form",
            ));
        }
        Some(IpAddressManager::Other(manager)) => {
            let values = IpAddressManager::VALUES.join(", ");
            let problem = format!("{manager:?} is not supported; use {values}, or remove it");
            errors.push(FieldError::new(MANAGER, problem));
        }
    }
    if let Some(keepalived) = enabled {
        errors.extend(prerequisites(spec, "spec.networking.keepalived.enabled"));
        errors.extend(virtual_addresses(keepalived));
    }
    errors
}

/// The address must be given, and belong to one replica.
fn prerequisites(spec: &IronicSpec, path: &str) -> Vec<FieldError> {
    let networking = &spec.networking;
    let mut errors = Vec::new();
    errors.extend(required(
        !spec.high_availability,
        path,
        "cannot be used with highAvailability; remove one of them",
    ));
    errors.extend(required(
        networking.ip_address.is_some() && networking.interface.is_some(),
        path,
        "needs the address and its interface; set networking.ipAddress and networking.interface",
    ));
    errors
}

fn virtual_addresses(keepalived: &KeepalivedSettings) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, address) in keepalived.additional_vips.iter().enumerate() {
        let base = format!("spec.networking.keepalived.additionalVIPs[{index}]");
        errors.extend(ip_address(&format!("{base}.ipAddress"), &address.ip_address));
        errors.extend(required(
            !address.interface.is_empty(),
            &format!("{base}.interface"),
            "is empty; set it to the interface that gets the address",
        ));
        let largest = if address.ip_address.contains(':') { 128 } else { 32 };
        if let Some(prefix) = address.prefix {
            errors.extend(required(
                (0..=largest).contains(&prefix),
                &format!("{base}.prefix"),
                format!("{prefix} is not a prefix length; use a number from 0 to {largest}"),
            ));
        }
    }
    errors
}
