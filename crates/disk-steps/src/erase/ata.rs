// SPDX-License-Identifier: Apache-2.0
//! ATA drives that erase themselves: the security feature set, through SCSI's ATA PASS-THROUGH (16).
//!
//! A password is set, and erasing the drive removes it again. The password is empty, so that a
//! drive which fails half-way can be unlocked by any tool.

use std::os::fd::{AsFd, BorrowedFd};

use agent_protocol::Disk;

use super::{Error, open};
use crate::kernel::{ScsiAnswer, ScsiData, scsi};

const IDENTIFY: u8 = 0xec;
const SET_PASSWORD: u8 = 0xf1;
const UNLOCK: u8 = 0xf2;
const ERASE_PREPARE: u8 = 0xf3;
const ERASE_UNIT: u8 = 0xf4;
const DISABLE_PASSWORD: u8 = 0xf6;

/// How long an ordinary command may take.
const MOMENT: u32 = 15_000;
/// How long erasing may take that does not say: twelve hours.
const LONGEST: u32 = 12 * 3600 * 1000;

/// What a drive says about its security: word 128 of IDENTIFY DEVICE, and how long erasing takes.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Security {
    supported: bool,
    enabled: bool,
    locked: bool,
    frozen: bool,
    enhanced: bool,
    timeout_ms: u32,
}

/// Lets a drive erase itself. None if it cannot.
pub(super) fn erase(disk: &Disk) -> Result<Option<&'static str>, Error> {
    let device = open(disk)?;
    if !device.is_block() {
        return Ok(None);
    }
    let drive = device.file().as_fd();
    let Some(security) = identify(drive).filter(|security| security.supported) else {
        return Ok(None);
    };
    if security.frozen {
        return Err(Error::drive(
            disk,
            "its security is frozen, as many firmwares do at boot; power-cycle the drive or forbid it in the firmware's setup, or allow writing over it (agent_continue_if_secure_erase_failed)",
        ));
    }
    let failed = |what: &str, why: String| Error::drive(disk, format!("{what} failed ({why})"));
    if security.locked {
        send(drive, UNLOCK, ScsiData::Out(&password(false)), MOMENT).map_err(|why| {
            failed("unlocking it; it has somebody's password, and unlocking", why)
        })?;
    }
    if !security.enabled {
        send(drive, SET_PASSWORD, ScsiData::Out(&password(false)), MOMENT)
            .map_err(|why| failed("setting a password", why))?;
    }
    let erased = send(drive, ERASE_PREPARE, ScsiData::None, MOMENT).and_then(|()| {
        let order = password(security.enhanced);
        send(drive, ERASE_UNIT, ScsiData::Out(&order), security.timeout_ms)
    });
    if let Err(why) = erased {
        // The drive must not keep a password that nobody knows of.
        let _ = send(drive, UNLOCK, ScsiData::Out(&password(false)), MOMENT);
        let _ = send(drive, DISABLE_PASSWORD, ScsiData::Out(&password(false)), MOMENT);
        return Err(failed("erasing", why));
    }
    let after = identify(drive);
    if after.is_none_or(|after| after.enabled || after.locked) {
        return Err(Error::drive(
            disk,
            "it says it is done and still has a password; look at its health",
        ));
    }
    Ok(Some(if security.enhanced { "ATA enhanced secure erase" } else { "ATA secure erase" }))
}

/// The drive's security; none if it is no ATA drive.
fn identify(drive: BorrowedFd<'_>) -> Option<Security> {
    let mut answer = [0; 512];
    send(drive, IDENTIFY, ScsiData::In(&mut answer), MOMENT).ok()?;
    Some(parse(&answer))
}

fn parse(answer: &[u8; 512]) -> Security {
    let word = |number: usize| u16::from_le_bytes([answer[2 * number], answer[2 * number + 1]]);
    let is = |bit: u16| word(128) & 1 << bit != 0;
    let enhanced = is(5);
    // Times are in units of two minutes; the top bit says that there are more of them. All ones is
    // "longer than can be said".
    let time = word(if enhanced { 90 } else { 89 });
    let (units, most) =
        if time & 0x8000 != 0 { (time & 0x7fff, 0x7fff) } else { (time & 0xff, 255) };
    let told = u32::from(units) * 2 * 60 * 1000;
    let timeout_ms = if units == 0 || units == most { LONGEST } else { told.saturating_mul(2) };
    Security {
        supported: is(0),
        enabled: is(1),
        locked: is(2),
        frozen: is(3),
        enhanced,
        timeout_ms: timeout_ms.clamp(30 * 60 * 1000, LONGEST * 4),
    }
}

/// The data of the security commands: the user's password, which is empty, and for erasing whether
/// it is to be enhanced.
fn password(enhanced: bool) -> [u8; 512] {
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
    let block = pass_through(command, &data);
    let answer = scsi(drive, &block, data, timeout_ms).map_err(|error| error.to_string())?;
    check(&answer)
}

/// ATA PASS-THROUGH (16).
fn pass_through(command: u8, data: &ScsiData<'_>) -> [u8; 16] {
    const NO_DATA: u8 = 3;
    const IN: u8 = 4;
    const OUT: u8 = 5;
    let mut block = [0; 16];
    block[0] = 0x85;
    // Blocks of 512 bytes, as many as the count says; bit 3 is for data from the drive.
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

fn check(answer: &ScsiAnswer) -> Result<(), String> {
    if answer.status == 0 && answer.host_status == 0 {
        return Ok(());
    }
    // A descriptor with the registers says more than the key: status and error of the drive.
    let sense = &answer.sense;
    let registers = (sense.first().is_some_and(|kind| kind & 0x7f >= 0x72) && sense.len() >= 22)
        .then(|| format!(", ATA status {:#04x}, error {:#04x}", sense[21], sense[11]));
    let key = sense.get(1).map_or(0, |key| key & 0x0f);
    Err(format!(
        "SCSI status {:#04x}, host status {:#04x}, sense key {key:#x}{}",
        answer.status,
        answer.host_status,
        registers.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_standard() {
        let mut room = [0; 512];
        let identify = pass_through(IDENTIFY, &ScsiData::In(&mut room));
        assert_eq!(identify, [0x85, 8, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0]);
        let prepare = pass_through(ERASE_PREPARE, &ScsiData::None);
        assert_eq!(prepare, [0x85, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf3, 0]);
        let unit = pass_through(ERASE_UNIT, &ScsiData::Out(&password(true)));
        assert_eq!(unit, [0x85, 10, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0]);
        assert_eq!(password(true)[..3], [2, 0, 0]);
        assert_eq!(password(false), [0; 512]);
    }

    #[test]
    fn security_is_read_from_word_128() {
        let identify = |words: &[(usize, u16)]| {
            let mut answer = [0; 512];
            for (number, value) in words {
                answer[2 * number..2 * number + 2].copy_from_slice(&value.to_le_bytes());
            }
            parse(&answer)
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
        assert_eq!(identify(&[(128, 1), (89, 255)]).timeout_ms, LONGEST);
        assert_eq!(identify(&[(128, 1), (89, 1)]).timeout_ms, 30 * 60 * 1000);
    }
}
