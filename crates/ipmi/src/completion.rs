// SPDX-License-Identifier: Apache-2.0
//! Completion codes and their meanings.

use crate::commands::Repetition;
use crate::message::netfn;

/// Success.
pub const OK: u8 = 0x00;
/// The BMC is busy.
pub const NODE_BUSY: u8 = 0xc0;
/// Unknown command.
pub const INVALID_COMMAND: u8 = 0xc1;
/// Timeout inside of the BMC.
pub const TIMEOUT: u8 = 0xc3;
/// Out of space.
pub const OUT_OF_SPACE: u8 = 0xc4;
/// The reservation was cancelled.
pub const RESERVATION_CANCELED: u8 = 0xc5;
/// Wrong length of the request.
pub const INVALID_LENGTH: u8 = 0xc7;
/// The response would exceed the size limit of the BMC.
pub const TOO_LONG: u8 = 0xca;
/// Unknown sensor, record or parameter.
pub const NOT_PRESENT: u8 = 0xcb;
/// Invalid value in the request.
pub const INVALID_FIELD: u8 = 0xcc;
/// The BMC is initialising.
pub const INITIALIZING: u8 = 0xd2;
/// Insufficient privilege.
pub const INSUFFICIENT_PRIVILEGE: u8 = 0xd4;
/// Not possible in the current state.
pub const NOT_IN_THIS_STATE: u8 = 0xd5;
/// Unspecified error.
pub const UNSPECIFIED: u8 = 0xff;

/// Returns whether a retry of the same request may succeed. After a timeout inside of the BMC the
/// request may have been executed.
#[must_use]
pub const fn is_transient(code: u8, repetition: Repetition) -> bool {
    match code {
        NODE_BUSY | OUT_OF_SPACE | INITIALIZING => true,
        TIMEOUT => matches!(repetition, Repetition::Harmless),
        _ => false,
    }
}

/// The meaning of `code` in the response to a command.
#[must_use]
pub fn meaning(netfn: u8, command: u8, code: u8) -> &'static str {
    let own = OWN.iter().find(|row| (row.0, row.1, row.2) == (netfn, command, code));
    let general = || GENERAL.iter().find(|row| row.0 == code).map(|row| row.1);
    own.map(|row| row.3).or_else(general).unwrap_or(match code {
        0x01..=0x7e => "the vendor's own reason",
        0x80..=0xbe => "the command's own reason",
        _ => "a reason that is not in the standard",
    })
}

const GENERAL: &[(u8, &str)] = &[
    (OK, "it was done"),
    (NODE_BUSY, "the BMC is busy"),
    (INVALID_COMMAND, "the BMC does not know this command"),
    (0xc2, "the BMC does not know this command in this place"),
    (TIMEOUT, "the BMC took too long over it"),
    (OUT_OF_SPACE, "the BMC is out of space"),
    (RESERVATION_CANCELED, "the reservation has ended"),
    (0xc6, "the request was cut short"),
    (INVALID_LENGTH, "the request has the wrong length"),
    (0xc8, "the request is too long"),
    (0xc9, "a parameter is out of range"),
    (TOO_LONG, "the response would be too long"),
    (NOT_PRESENT, "there is no such thing on this machine"),
    (INVALID_FIELD, "a value in the request is not allowed"),
    (0xcd, "this command does not fit that sensor or record"),
    (0xce, "the BMC could not respond"),
    (0xcf, "the BMC took it for a duplicate"),
    (0xd0, "its sensor records are being updated"),
    (0xd1, "its firmware is being updated"),
    (INITIALIZING, "the BMC is starting"),
    (0xd3, "there is nothing at the destination"),
    (INSUFFICIENT_PRIVILEGE, "the user's privilege is too low"),
    (NOT_IN_THIS_STATE, "not possible in the machine's present state"),
    (0xd6, "part of the command is switched off"),
    (UNSPECIFIED, "the BMC gave no reason"),
];

/// Command-specific codes: network function, command, code.
const OWN: &[(u8, u8, u8, &str)] = &[
    (netfn::CHASSIS, 0x08, 0x80, "the BMC does not have this boot parameter"),
    (netfn::CHASSIS, 0x08, 0x81, "another one is setting boot parameters"),
    (netfn::CHASSIS, 0x08, 0x82, "the boot parameter can only be read"),
    (netfn::CHASSIS, 0x09, 0x80, "the BMC does not have this boot parameter"),
    (netfn::APP, 0x34, 0x80, "the session through which to forward it is not valid"),
    (netfn::APP, 0x34, 0x81, "the bus to the controller behind the BMC was lost"),
    (netfn::APP, 0x34, 0x82, "the bus to the controller behind the BMC is in error"),
    (netfn::APP, 0x34, 0x83, "the controller behind the BMC does not respond"),
    (netfn::APP, 0x3b, 0x80, "the user may not have this privilege level"),
    (netfn::APP, 0x3b, 0x81, "the privilege level is above the limit of the user or the channel"),
    (netfn::APP, 0x48, 0x80, "serial over LAN is in use by another session"),
    (netfn::APP, 0x48, 0x81, "serial over LAN is switched off on the BMC"),
    (netfn::APP, 0x48, 0x82, "all serial-over-LAN sessions are in use"),
    (netfn::APP, 0x48, 0x83, "serial over LAN cannot be encrypted"),
    (netfn::APP, 0x48, 0x84, "serial over LAN must be encrypted"),
    (netfn::APP, 0x49, 0x80, "serial over LAN is not active"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_specific_codes_take_precedence() {
        assert_eq!(meaning(netfn::APP, 0x48, 0x80), "serial over LAN is in use by another session");
        assert_eq!(meaning(netfn::APP, 0x01, 0x80), "the command's own reason");
        assert_eq!(meaning(netfn::APP, 0x48, 0xd4), "the user's privilege is too low");
    }
}
