// SPDX-License-Identifier: Apache-2.0
//! Rules for the BMC address, and for fields that the selected driver must support.

use super::super::bare_metal_host::{BareMetalHost, HostBootMode};
use super::super::bmc_address::{BmcAddress, BmcType, NO_RAID};
use crate::field_error::FieldError;

/// Checks the address and what depends on it. A host without an address is valid.
pub(super) fn check(host: &BareMetalHost) -> Vec<FieldError> {
    let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str());
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return boot_mac_format(host).into_iter().collect();
    };
    let mut errors = Vec::new();
    match BmcAddress::parse(address) {
        Err(error) => errors.push(FieldError::new("spec.bmc.address", error.to_string())),
        Ok(BmcAddress { bmc_type, .. }) => {
            errors.extend(hardware_raid_support(host, bmc_type));
            errors.extend(boot_mac_needed(host, bmc_type));
            errors.extend(secure_boot_support(host, bmc_type));
        }
    }
    errors.extend(boot_mac_format(host));
    errors
}

fn hardware_raid_support(host: &BareMetalHost, bmc_type: &BmcType) -> Option<FieldError> {
    let has_volumes = host.spec.raid.as_ref().is_some_and(|raid| !raid.hardware().is_empty());
    (has_volumes && bmc_type.raid_interface == NO_RAID).then(|| {
        FieldError::new(
            "spec.raid.hardwareRAIDVolumes",
            format!(
                "{} BMCs cannot configure hardware RAID; use softwareRAIDVolumes or a Redfish address",
                bmc_type.scheme
            ),
        )
    })
}

fn boot_mac_needed(host: &BareMetalHost, bmc_type: &BmcType) -> Option<FieldError> {
    if host.spec.boot_mac_address.is_some() {
        return None;
    }
    let reason = if bmc_type.needs_boot_mac {
        format!("{} BMCs need it", bmc_type.scheme)
    } else if host.is_inspection_disabled() {
        "it cannot be found because inspection is disabled".to_owned()
    } else {
        return None;
    };
    let problem = format!("is missing, and {reason}; set it to the MAC address of the boot NIC");
    Some(FieldError::new("spec.bootMACAddress", problem))
}

/// Ironic accepts only this notation. The pattern of the schema is not anchored.
fn boot_mac_format(host: &BareMetalHost) -> Option<FieldError> {
    let address = host.spec.boot_mac_address.as_deref()?;
    let octets: Vec<&str> = address.split(':').collect();
    let is_octet =
        |octet: &&str| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
    (octets.len() != 6 || !octets.iter().all(is_octet)).then(|| {
        FieldError::new(
            "spec.bootMACAddress",
            format!("{address:?} is not a MAC address; use six octets such as 00:53:00:12:34:56"),
        )
    })
}

fn secure_boot_support(host: &BareMetalHost, bmc_type: &BmcType) -> Option<FieldError> {
    let is_requested = host.spec.boot_mode == Some(HostBootMode::UefiSecureBoot);
    (is_requested && !bmc_type.supports_secure_boot).then(|| {
        FieldError::new(
            "spec.bootMode",
            format!(
                "{} BMCs cannot switch Secure Boot; use UEFI, or a Redfish address",
                bmc_type.scheme
            ),
        )
    })
}
