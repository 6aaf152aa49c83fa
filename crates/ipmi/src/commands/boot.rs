// SPDX-License-Identifier: Apache-2.0
//! Where the machine boots from next.

use super::Ask;
use crate::Malformed;
use crate::message::netfn;

/// A device to boot from, by the four bits that IPMI has for it. Vendors give some of the numbers
/// meanings of their own, so any number can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootDevice(pub u8);

/// What the machine shall do at its next boot, or at all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootFlags {
    /// Whether the rest means anything.
    pub valid: bool,
    /// Whether it is for all further boots rather than for the next.
    pub persistent: bool,
    /// Whether to boot by UEFI rather than by BIOS.
    pub uefi: bool,
    /// Where from.
    pub device: BootDevice,
}

/// Asks where the machine boots from next.
#[derive(Clone, Copy, Debug)]
pub struct GetBootFlags;

/// Sets where the machine boots from next.
#[derive(Clone, Copy, Debug)]
pub struct SetBootFlags(pub BootFlags);

/// Keeps the BMC from forgetting the boot device when the machine does not boot within a minute.
#[derive(Clone, Copy, Debug)]
pub struct DisableBootTimeout;

impl BootDevice {
    /// No override.
    pub const NONE: Self = Self(0);
    /// The network.
    pub const PXE: Self = Self(1);
    /// The first disk.
    pub const DISK: Self = Self(2);
    /// The first disk, safe mode.
    pub const SAFE: Self = Self(3);
    /// The diagnostic partition.
    pub const DIAGNOSTIC: Self = Self(4);
    /// A CD.
    pub const CDROM: Self = Self(5);
    /// The firmware's setup page.
    pub const BIOS: Self = Self(6);
    /// A floppy.
    pub const FLOPPY: Self = Self(15);
    /// The first of the remote media.
    pub const REMOTE_MEDIA: Self = Self(9);
}

impl BootFlags {
    /// Reads the five bytes of boot parameter 5.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let [first, second, ..] = bytes else {
            return Err(Malformed("boot flags: too short"));
        };
        Ok(Self {
            valid: first & 0x80 != 0,
            persistent: first & 0x40 != 0,
            uefi: first & 0x20 != 0,
            device: BootDevice(second >> 2 & 0x0f),
        })
    }

    /// Writes the five bytes of boot parameter 5.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 5] {
        let first = (self.valid as u8) << 7 | (self.persistent as u8) << 6 | (self.uefi as u8) << 5;
        [first, (self.device.0 & 0x0f) << 2, 0, 0, 0]
    }
}

impl Ask for GetBootFlags {
    const NAME: &'static str = "Get System Boot Options";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x09;
    type Answer = BootFlags;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[PARAMETER_FLAGS, 0, 0]);
    }

    fn parse(data: &[u8]) -> Result<BootFlags, Malformed> {
        let [_version, parameter, flags @ ..] = data else {
            return Err(Malformed("Get System Boot Options answer: too short"));
        };
        if parameter & 0x7f != PARAMETER_FLAGS {
            return Err(Malformed("Get System Boot Options answer: another parameter"));
        }
        BootFlags::parse(flags)
    }
}

impl Ask for SetBootFlags {
    const NAME: &'static str = "Set System Boot Options";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = SET_BOOT_OPTIONS;
    type Answer = ();

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(PARAMETER_FLAGS);
        out.extend_from_slice(&self.0.bytes());
    }

    fn parse(_data: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

impl Ask for DisableBootTimeout {
    const NAME: &'static str = "Set System Boot Options (no timeout)";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = SET_BOOT_OPTIONS;
    type Answer = ();

    fn emit(&self, out: &mut Vec<u8>) {
        const KEEP_ON_TIMEOUT: u8 = 0x08;
        out.extend_from_slice(&[PARAMETER_VALID_BIT_CLEARING, KEEP_ON_TIMEOUT]);
    }

    fn parse(_data: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

const SET_BOOT_OPTIONS: u8 = 0x08;
const PARAMETER_VALID_BIT_CLEARING: u8 = 3;
const PARAMETER_FLAGS: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ask: &impl Ask) -> Vec<u8> {
        let mut out = Vec::new();
        ask.emit(&mut out);
        out
    }

    #[test]
    fn the_bytes_are_those_that_ironic_sends() {
        let flags = |device, persistent, uefi| {
            written(&SetBootFlags(BootFlags { valid: true, persistent, uefi, device }))
        };
        for (bytes, wanted) in [
            (flags(BootDevice::PXE, true, true), [0x05, 0xe0, 0x04, 0, 0, 0]),
            (flags(BootDevice::DISK, false, true), [0x05, 0xa0, 0x08, 0, 0, 0]),
            (flags(BootDevice::SAFE, false, false), [0x05, 0x80, 0x0c, 0, 0, 0]),
            (flags(BootDevice::CDROM, true, false), [0x05, 0xc0, 0x14, 0, 0, 0]),
            (flags(BootDevice::BIOS, false, true), [0x05, 0xa0, 0x18, 0, 0, 0]),
            (flags(BootDevice::REMOTE_MEDIA, true, true), [0x05, 0xe0, 0x24, 0, 0, 0]),
        ] {
            assert_eq!(bytes, wanted);
            let answer = [&[1, 5], &bytes[1..]].concat();
            let read = GetBootFlags::parse(&answer).unwrap();
            assert_eq!(read.bytes(), bytes[1..]);
        }
        assert_eq!(written(&DisableBootTimeout), [0x03, 0x08]);
    }
}
