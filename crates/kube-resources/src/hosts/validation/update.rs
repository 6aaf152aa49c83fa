// SPDX-License-Identifier: Apache-2.0
//! Rules for changes of a `BareMetalHost`.

use super::super::annotations::ACCEPT_REPLACED_MACHINE;
use super::super::bare_metal_host::BareMetalHost;
use super::super::host_status::{BareMetalHostStatus, HostProvisioningState, OperationalStatus};
use super::host::validate_host;
use crate::field_error::FieldError;

/// Checks the new version of a host, and what may change in its state.
#[must_use]
pub fn validate_host_update(old: &BareMetalHost, new: &BareMetalHost) -> Vec<FieldError> {
    let mut errors = validate_host(new);
    let status = new.status.clone().unwrap_or_default();
    errors.extend(bmc_address(old, new, &status));
    errors.extend(boot_mac_address(old, new));
    errors.extend(externally_provisioned(old, new, &status));
    errors
}

/// Another address is verified by the controller. Without one a managed host cannot be managed.
fn bmc_address(
    old: &BareMetalHost,
    new: &BareMetalHost,
    status: &BareMetalHostStatus,
) -> Option<FieldError> {
    let address = |host: &BareMetalHost| {
        let bmc = host.spec.bmc.as_ref().map(|bmc| bmc.address.clone());
        bmc.filter(|address| !address.is_empty())
    };
    let old = address(old)?;
    let is_allowed = status.operational_status == OperationalStatus::Detached
        || status.provisioning.state == HostProvisioningState::Registering;
    (address(new).is_none() && !is_allowed).then(|| {
        FieldError::new(
            "spec.bmc.address",
            format!(
                "can be removed only while the host is registering or detached; keep {old}, or first \
                 detach the host with the annotation baremetalhost.metal3.io/detached"
            ),
        )
    })
}

/// Another machine has other NICs, so the user who replaces the machine changes the address too.
fn boot_mac_address(old: &BareMetalHost, new: &BareMetalHost) -> Option<FieldError> {
    let old = old.spec.boot_mac_address.as_deref()?;
    if new.annotation(ACCEPT_REPLACED_MACHINE).is_some() {
        return None;
    }
    let is_same =
        new.spec.boot_mac_address.as_deref().is_some_and(|new| new.eq_ignore_ascii_case(old));
    (!is_same).then(|| {
        FieldError::new(
            "spec.bootMACAddress",
            format!(
                "cannot be changed; keep {old}, or delete and create the host; if the machine was \
                 replaced, set the annotation {ACCEPT_REPLACED_MACHINE} in the same change"
            ),
        )
    })
}

fn externally_provisioned(
    old: &BareMetalHost,
    new: &BareMetalHost,
    status: &BareMetalHostStatus,
) -> Option<FieldError> {
    let is_enabled = !old.spec.externally_provisioned && new.spec.externally_provisioned;
    let state = &status.provisioning.state;
    (is_enabled && *state != HostProvisioningState::Available).then(|| {
        FieldError::new(
            "spec.externallyProvisioned",
            format!(
                "can be set only when the host is created or available, and it is {:?}; wait until it is available",
                state.as_str()
            ),
        )
    })
}
