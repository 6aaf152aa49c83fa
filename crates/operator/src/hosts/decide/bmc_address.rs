// SPDX-License-Identifier: Apache-2.0
//! Whether a new BMC address leads to the machine that the host was registered with.

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::ACCEPT_REPLACED_MACHINE;
use kube_resources::hosts::conditions::ConditionStatus;
use kube_resources::hosts::host_status::BareMetalHostStatus;
use serde::Deserialize;

use super::super::provisioner::{BmcAddressChange, BmcAddressCheck, DIFFERENT_MACHINE};
use super::conditions;

/// Condition with the result of the last change of the BMC address. Not part of Metal3.
pub const BMC_ADDRESS_VERIFIED: &str = "BMCAddressVerified";

/// Reason of the condition: the user accepted another machine.
const ACCEPTED: &str = "Accepted";
/// The same after the inspection of the machine.
const ACCEPTED_AND_INSPECTED: &str = "AcceptedAndInspected";
/// UUID of boards whose manufacturer did not set one, in any order of its bytes.
const DEFAULT_UUID: [u8; 16] = [3, 0, 2, 0, 4, 0, 5, 0, 0, 6, 0, 7, 0, 8, 0, 9];
/// Serial numbers of boards whose manufacturer did not set one.
const PLACEHOLDERS: [&str; 11] = [
    "0123456789",
    "123456789",
    "default string",
    "empty",
    "n/a",
    "none",
    "not available",
    "not specified",
    "system serial number",
    "to be filled by o.e.m.",
    "unknown",
];

/// What identifies a machine. Any part may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostIdentity {
    /// UUID of the system.
    pub system_uuid: Option<String>,
    /// Serial number of the system.
    pub serial_number: Option<String>,
    /// MAC addresses of its NICs.
    pub mac_addresses: Vec<String>,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityComparison {
    /// Every value that is known of both is equal; the values.
    Same(String),
    /// A value differs.
    Different {
        /// The values of the registered machine.
        expected: String,
        /// The values of the machine behind the new address.
        found: String,
    },
    /// No value is known of both.
    Unknown,
}

/// Compares the registered machine with the one behind a new address. MAC addresses count only if
/// nothing else is known, because BMCs do not list all NICs.
#[must_use]
pub fn compare_identities(expected: &HostIdentity, found: &HostIdentity) -> IdentityComparison {
    let uuid = |identity: &HostIdentity| identity.system_uuid.as_deref().and_then(usable_uuid);
    let serial = |identity: &HostIdentity| {
        identity
            .serial_number
            .as_deref()
            .map(str::trim)
            .filter(|text| is_usable_serial(text))
            .map(str::to_owned)
    };
    let uuids = uuid(expected).zip(uuid(found));
    let serials = serial(expected).zip(serial(found));
    if uuids.is_none() && serials.is_none() {
        return compare_mac_addresses(&expected.mac_addresses, &found.mac_addresses);
    }
    let is_same = uuids.as_ref().is_none_or(|(one, other)| is_same_uuid(*one, *other))
        && serials.as_ref().is_none_or(|(one, other)| one.eq_ignore_ascii_case(other));
    let text = |identity: &HostIdentity| {
        let uuid = identity.system_uuid.as_ref().filter(|_| uuids.is_some());
        let serial = identity.serial_number.as_ref().filter(|_| serials.is_some());
        let uuid = uuid.map(|uuid| format!("system UUID {uuid}"));
        let serial = serial.map(|serial| format!("serial number {}", serial.trim()));
        uuid.into_iter().chain(serial).collect::<Vec<_>>().join(", ")
    };
    match is_same {
        true => IdentityComparison::Same(text(expected)),
        false => IdentityComparison::Different { expected: text(expected), found: text(found) },
    }
}

fn compare_mac_addresses(expected: &[String], found: &[String]) -> IdentityComparison {
    if expected.is_empty() || found.is_empty() {
        return IdentityComparison::Unknown;
    }
    let is_found = |mac: &&String| found.iter().any(|other| other.eq_ignore_ascii_case(mac));
    let text = |addresses: &[String]| format!("MAC addresses {}", addresses.join(", "));
    match expected.iter().find(is_found) {
        Some(common) => IdentityComparison::Same(format!("MAC address {common}")),
        None => IdentityComparison::Different { expected: text(expected), found: text(found) },
    }
}

/// The bytes of a UUID, unless it is not one or identifies nothing.
fn usable_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    let bytes = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
    let is_usable =
        bytes.iter().any(|byte| *byte != bytes[0]) && !is_same_uuid(bytes, DEFAULT_UUID);
    is_usable.then_some(bytes)
}

/// IPMI and Redfish, and BMCs among themselves, disagree about the order of the bytes.
fn is_same_uuid(one: [u8; 16], other: [u8; 16]) -> bool {
    let [a, b, c, d, e, f, g, h, rest @ ..] = other;
    let mut mixed = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    mixed[8..].copy_from_slice(&rest);
    let mut reversed = other;
    reversed.reverse();
    [other, mixed, reversed].contains(&one)
}

fn is_usable_serial(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let first = lower.chars().next();
    !PLACEHOLDERS.contains(&lower.as_str()) && lower.chars().any(|letter| Some(letter) != first)
}

/// The error of a host whose new address leads to another machine, or perhaps does.
#[must_use]
pub fn address_rejection(comparison: &IdentityComparison, consequence: &str) -> Option<String> {
    let problem = match comparison {
        IdentityComparison::Same(_) => return None,
        IdentityComparison::Different { expected, found } => {
            format!("leads to another machine: expected {expected}, found {found}")
        }
        IdentityComparison::Unknown => {
            "cannot be verified, because the BMC reports no UUID, serial number or MAC address that is \
             known of this host"
                .to_owned()
        }
    };
    Some(format!(
        "spec.bmc.address {problem}; {consequence}. Correct the address, or set the \
         annotation {ACCEPT_REPLACED_MACHINE} to accept the machine"
    ))
}

/// Shows a change of the address. `boot_mac` is the MAC address of the boot NIC.
pub(super) fn show_change(
    status: &mut BareMetalHostStatus,
    change: &BmcAddressChange,
    boot_mac: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (condition, reason, mut message) = match &change.check {
        BmcAddressCheck::SameMachine { identity } => {
            (ConditionStatus::True, "SameMachine", identity.clone())
        }
        BmcAddressCheck::Accepted => {
            let is_read = change.probe_failure.is_none();
            let mut message = format!("accepted by the annotation {ACCEPT_REPLACED_MACHINE}");
            if let Some(mac) = boot_mac.filter(|mac| is_known_nic(status, mac)) {
                message.push_str(&format!(
                    "; spec.bootMACAddress {mac} is a NIC of the earlier machine: unless that NIC was moved, \
                     change it together with the annotation"
                ));
            }
            let status = if is_read { ConditionStatus::True } else { ConditionStatus::Unknown };
            (status, ACCEPTED, message)
        }
        BmcAddressCheck::NotVerified { reason } => {
            (ConditionStatus::Unknown, "NotVerified", reason.clone())
        }
    };
    if let Some(failure) = &change.probe_failure {
        message.push_str("; the service keeps the details of the earlier machine: ");
        message.push_str(failure);
    }
    conditions::set(status, BMC_ADDRESS_VERIFIED, (condition, reason, message), generation, now);
}

/// Whether the last inspection found a NIC with this MAC address.
fn is_known_nic(status: &BareMetalHostStatus, mac: &str) -> bool {
    let nics = status.hardware.as_ref().map(|hardware| hardware.nics.as_slice());
    let mut macs = nics.unwrap_or_default().iter().filter_map(|nic| nic.mac.as_deref());
    macs.any(|known| known.eq_ignore_ascii_case(mac))
}

/// Whether the user accepted another machine that the service could not read yet.
#[must_use]
pub fn is_accepted_machine_unread(status: &BareMetalHostStatus) -> bool {
    status.conditions.iter().any(|condition| {
        condition.type_ == BMC_ADDRESS_VERIFIED
            && condition.reason == ACCEPTED
            && condition.status == "Unknown"
    })
}

/// Whether the user accepted another machine that was not inspected yet, so that its NICs are not known.
#[must_use]
pub fn is_accepted_machine_uninspected(status: &BareMetalHostStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions
        .any(|condition| condition.type_ == BMC_ADDRESS_VERIFIED && condition.reason == ACCEPTED)
}

/// Records that an accepted machine was inspected.
pub(super) fn show_inspection(
    status: &mut BareMetalHostStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    // One that was not read is read again first.
    if is_accepted_machine_uninspected(status) && !is_accepted_machine_unread(status) {
        let message = format!("accepted by the annotation {ACCEPT_REPLACED_MACHINE}");
        let value = (ConditionStatus::True, ACCEPTED_AND_INSPECTED, message);
        conditions::set(status, BMC_ADDRESS_VERIFIED, value, generation, now);
    }
}

/// Shows that the address is the earlier one again, if another one was rejected.
pub(super) fn end_rejection(
    status: &mut BareMetalHostStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    let mut conditions = status.conditions.iter();
    let is_rejected = conditions
        .any(|condition| condition.type_ == BMC_ADDRESS_VERIFIED && condition.status == "False");
    if is_rejected {
        let value = (ConditionStatus::True, "Unchanged", String::new());
        conditions::set(status, BMC_ADDRESS_VERIFIED, value, generation, now);
    }
}

/// Shows why the address was rejected.
pub(super) fn show_rejection(
    status: &mut BareMetalHostStatus,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let value = (ConditionStatus::False, DIFFERENT_MACHINE, message.to_owned());
    conditions::set(status, BMC_ADDRESS_VERIFIED, value, generation, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4c4c4544-0051-3510-8052-b4c04f4a3132";
    /// The same with the first three fields in the other byte order.
    const MIXED: &str = "44454c4c-5100-1035-8052-B4C04F4A3132";
    /// The same with all bytes in the other order.
    const REVERSED: &str = "32314a4f-c0b4-5280-1035-51004445 4c4c";

    const KEPT: &str = "the host keeps its old address";

    fn identity(uuid: &str, serial: &str, macs: &[&str]) -> HostIdentity {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        HostIdentity {
            system_uuid: text(&uuid.replace(' ', "")),
            serial_number: text(serial),
            mac_addresses: macs.iter().map(|mac| (*mac).to_owned()).collect(),
        }
    }

    #[test]
    fn machines_are_compared_by_all_known_values() {
        let other = "11111111-2222-4333-8444-555555555555";
        let zero = "00000000-0000-0000-0000-000000000000";
        let unset = "03000200-0400-0500-0006-000700080009";
        let unset_mixed = "00020003-0004-0005-0006-000700080009";
        let unset_reversed = "09000800-0700-0600-0005-000400020003";
        for (expected, found, result) in [
            (identity(UUID, "A1", &[]), identity(UUID, "A1", &[]), "same"),
            (identity(UUID, "A1", &[]), identity(UUID, " a1 ", &[]), "same"),
            (identity(UUID, "", &[]), identity(MIXED, "A1", &[]), "same"),
            (identity(UUID, "", &[]), identity(REVERSED, "", &[]), "same"),
            (identity("", "A1", &[]), identity(UUID, "A1", &[]), "same"),
            (identity(UUID, "A1", &[]), identity(other, "A1", &[]), "different"),
            (identity(UUID, "A1", &[]), identity(UUID, "B2", &[]), "different"),
            (identity("", "A1", &[]), identity("", "B2", &[]), "different"),
            // Values that many machines have identify none.
            (identity(zero, "", &[]), identity(zero, "", &[]), "unknown"),
            (identity(unset, "", &[]), identity(unset, "", &[]), "unknown"),
            (identity(unset, "", &[]), identity(unset_mixed, "", &[]), "unknown"),
            (identity(unset_mixed, "", &[]), identity(unset_mixed, "", &[]), "unknown"),
            (identity(unset_reversed, "", &[]), identity(unset_reversed, "", &[]), "unknown"),
            (identity("", "None", &[]), identity("", "None", &[]), "unknown"),
            (identity("", "000000", &[]), identity("", "000000", &[]), "unknown"),
            (identity("x", "", &[]), identity("x", "", &[]), "unknown"),
            (identity(UUID, "", &[]), identity("", "A1", &[]), "unknown"),
            (identity("", "", &[]), identity(UUID, "A1", &["a"]), "unknown"),
            // NICs only if nothing else is known.
            (identity("", "", &["0a", "0b"]), identity(UUID, "", &["0B"]), "same"),
            (identity("", "", &["0a"]), identity("", "", &["0c"]), "different"),
            (identity(UUID, "", &["0a"]), identity(other, "", &["0a"]), "different"),
            (identity(UUID, "", &["0a"]), identity(UUID, "", &["0c"]), "same"),
        ] {
            let compared = match compare_identities(&expected, &found) {
                IdentityComparison::Same(_) => "same",
                IdentityComparison::Different { .. } => "different",
                IdentityComparison::Unknown => "unknown",
            };
            assert_eq!(compared, result, "{expected:?} {found:?}");
        }
    }

    #[test]
    fn a_rejection_names_both_machines_and_the_way_out() {
        let compared = compare_identities(&identity(UUID, "A1", &[]), &identity("", "B2", &[]));
        let text = address_rejection(&compared, KEPT).unwrap();
        for part in ["expected serial number A1, found serial number B2", ACCEPT_REPLACED_MACHINE] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            address_rejection(&IdentityComparison::Unknown, KEPT)
                .unwrap()
                .contains("cannot be verified")
        );
        assert_eq!(address_rejection(&IdentityComparison::Same(String::new()), KEPT), None);
    }
}
