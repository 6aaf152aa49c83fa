// SPDX-License-Identifier: Apache-2.0
//! ATA secure erase: the security feature set, through SCSI's ATA PASS-THROUGH (16).
//!
//! A password is set, and erasing removes it again. The password is empty, so that a drive whose erase
//! is interrupted can be unlocked with any tool.

use std::os::fd::{AsFd, BorrowedFd};

use agent_protocol::InventoryDisk;

use super::{EraseError, open};
use crate::syscalls::{ScsiData, ScsiResponse, send_scsi_command};

const IDENTIFY: u8 = 0xec;
const SET_PASSWORD: u8 = 0xf1;
const UNLOCK: u8 = 0xf2;
const ERASE_PREPARE: u8 = 0xf3;
const ERASE_UNIT: u8 = 0xf4;
const DISABLE_PASSWORD: u8 = 0xf6;

/// Timeout of ordinary commands.
const COMMAND_TIMEOUT_MS: u32 = 15_000;
/// Timeout of an erase whose duration the drive does not report: twelve hours.
const MAX_ERASE_TIMEOUT_MS: u32 = 12 * 3600 * 1000;

/// Security status from IDENTIFY DEVICE: word 128, and the erase time.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct AtaSecurity {
    supported: bool,
    enabled: bool,
    locked: bool,
    frozen: bool,
    enhanced: bool,
    timeout_ms: u32,
}

/// Runs the secure erase; returns `None` if the drive does not support it.
pub(super) fn erase(disk: &InventoryDisk) -> Result<Option<&'static str>, EraseError> {
    let device = open(disk)?;
    if !device.is_block() {
        return Ok(None);
    }
    let drive = device.file().as_fd();
    let Some(security) = identify(drive).filter(|security| security.supported) else {
        return Ok(None);
    };
    if security.frozen {
        return Err(EraseError::drive(
            disk,
            "its security is frozen, which many firmwares do at boot; power-cycle the drive, disable freezing in the firmware setup, or allow overwriting instead (agent_continue_if_secure_erase_failed)",
        ));
    }
    let failed =
        |what: &str, reason: String| EraseError::drive(disk, format!("{what} failed ({reason})"));
    if security.locked {
        send(drive, UNLOCK, ScsiData::Out(&security_data(false)), COMMAND_TIMEOUT_MS)
            .map_err(|reason| failed("unlocking it (another password is set)", reason))?;
    }
    if !security.enabled {
        send(drive, SET_PASSWORD, ScsiData::Out(&security_data(false)), COMMAND_TIMEOUT_MS)
            .map_err(|reason| failed("setting a password", reason))?;
    }
    let erased = send(drive, ERASE_PREPARE, ScsiData::None, COMMAND_TIMEOUT_MS).and_then(|()| {
        let data = security_data(security.enhanced);
        send(drive, ERASE_UNIT, ScsiData::Out(&data), security.timeout_ms)
    });
    if let Err(reason) = erased {
        // Remove the password if the erase failed.
        let _ = send(drive, UNLOCK, ScsiData::Out(&security_data(false)), COMMAND_TIMEOUT_MS);
        let _ =
            send(drive, DISABLE_PASSWORD, ScsiData::Out(&security_data(false)), COMMAND_TIMEOUT_MS);
        return Err(failed("erasing", reason));
    }
    let security_after = identify(drive);
    if security_after.is_none_or(|security_after| security_after.enabled || security_after.locked) {
        return Err(EraseError::drive(
            disk,
            "it reports completion but a password is still set; check its health",
        ));
    }
    Ok(Some(if security.enhanced { "ATA enhanced secure erase" } else { "ATA secure erase" }))
}

/// Reads the security status; `None` if it is not an ATA drive.
fn identify(drive: BorrowedFd<'_>) -> Option<AtaSecurity> {
    let mut response = [0; 512];
    send(drive, IDENTIFY, ScsiData::In(&mut response), COMMAND_TIMEOUT_MS).ok()?;
    Some(parse_security(&response))
}

fn parse_security(response: &[u8; 512]) -> AtaSecurity {
    let word = |number: usize| u16::from_le_bytes([response[2 * number], response[2 * number + 1]]);
    let is_set = |bit: u16| word(128) & 1 << bit != 0;
    let enhanced = is_set(5);
    // Times are in units of two minutes. Bit 15 selects the extended format; the maximum means "longer
    // than can be represented".
    let time = word(if enhanced { 90 } else { 89 });
    let (units, unknown) =
        if time & 0x8000 != 0 { (time & 0x7fff, 0x7fff) } else { (time & 0xff, 255) };
    let reported_ms = u32::from(units) * 2 * 60 * 1000;
    let timeout_ms = if units == 0 || units == unknown {
        MAX_ERASE_TIMEOUT_MS
    } else {
        reported_ms.saturating_mul(2)
    };
    AtaSecurity {
        supported: is_set(0),
        enabled: is_set(1),
        locked: is_set(2),
        frozen: is_set(3),
        enhanced,
        timeout_ms: timeout_ms.clamp(30 * 60 * 1000, MAX_ERASE_TIMEOUT_MS * 4),
    }
}

/// Returns the data of security commands: the empty user password, and for ERASE UNIT the enhanced flag.
fn security_data(enhanced: bool) -> [u8; 512] {
    let mut data = [0; 512];
    data[0] = if enhanced { 2 } else { 0 };
    data
}

fn send(
    drive: BorrowedFd<'_>,
    command: u8,
    data: ScsiData<'_>,
    timeout_ms: u32,
) -> Result<(), String> {
    let block = ata_pass_through(command, &data);
    let response =
        send_scsi_command(drive, &block, data, timeout_ms).map_err(|error| error.to_string())?;
    check_response(&response)
}

/// Builds an ATA PASS-THROUGH (16) command.
fn ata_pass_through(command: u8, data: &ScsiData<'_>) -> [u8; 16] {
    const NO_DATA: u8 = 3;
    const IN: u8 = 4;
    const OUT: u8 = 5;
    let mut block = [0; 16];
    block[0] = 0x85;
    // The count is in blocks of 512 bytes; bit 3 of the flags means data from the drive.
    let (protocol, flags, count) = match data {
        ScsiData::None => (NO_DATA, 0x00, 0),
        ScsiData::In(_) => (IN, 0x0e, 1),
        ScsiData::Out(_) => (OUT, 0x06, 1),
    };
    block[1] = protocol << 1;
    block[2] = flags;
    block[6] = count;
    block[14] = command;
    block
}

fn check_response(response: &ScsiResponse) -> Result<(), String> {
    if response.status == 0 && response.host_status == 0 {
        return Ok(());
    }
    // Descriptor-format sense data contains the ATA status and error registers.
    let sense = &response.sense;
    let registers = (sense.first().is_some_and(|kind| kind & 0x7f >= 0x72) && sense.len() >= 22)
        .then(|| format!(", ATA status {:#04x}, error {:#04x}", sense[21], sense[11]));
    let key = sense.get(1).map_or(0, |key| key & 0x0f);
    Err(format!(
        "SCSI status {:#04x}, host status {:#04x}, sense key {key:#x}{}",
        response.status,
        response.host_status,
        registers.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_match_the_standard() {
        let mut buffer = [0; 512];
        let identify = ata_pass_through(IDENTIFY, &ScsiData::In(&mut buffer));
        assert_eq!(identify, [0x85, 8, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0]);
        let prepare = ata_pass_through(ERASE_PREPARE, &ScsiData::None);
        assert_eq!(prepare, [0x85, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf3, 0]);
        let unit = ata_pass_through(ERASE_UNIT, &ScsiData::Out(&security_data(true)));
        assert_eq!(unit, [0x85, 10, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0]);
        assert_eq!(security_data(true)[..3], [2, 0, 0]);
        assert_eq!(security_data(false), [0; 512]);
    }

    #[test]
    fn parses_security_from_word_128() {
        let identify = |words: &[(usize, u16)]| {
            let mut response = [0; 512];
            for (number, value) in words {
                response[2 * number..2 * number + 2].copy_from_slice(&value.to_le_bytes());
            }
            parse_security(&response)
        };
        let none = identify(&[]);
        assert!(!none.supported && !none.frozen);
        // Supported, frozen, enhanced; 60 units of two minutes, doubled.
        let frozen = identify(&[(128, 0b10_1001), (90, 60), (89, 1)]);
        assert!(frozen.supported && frozen.frozen && frozen.enhanced && !frozen.locked);
        assert_eq!(frozen.timeout_ms, 60 * 2 * 60 * 1000 * 2);
        let locked = identify(&[(128, 0b111), (89, 0x8000 | 300)]);
        assert!(locked.locked && locked.enabled && !locked.enhanced);
        assert_eq!(locked.timeout_ms, 300 * 2 * 60 * 1000 * 2);
        assert_eq!(identify(&[(128, 1), (89, 255)]).timeout_ms, MAX_ERASE_TIMEOUT_MS);
        assert_eq!(identify(&[(128, 1), (89, 1)]).timeout_ms, 30 * 60 * 1000);
    }
}
