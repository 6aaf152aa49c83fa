// SPDX-License-Identifier: Apache-2.0
//! The boot device and boot mode.

use super::TypedIpmiCommand;
use crate::MalformedIpmiMessage;
use crate::message::netfn;

/// A boot device, as the four bits of IPMI. Vendors assign their own meanings to some numbers, so any
/// number is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiBootDevice(pub u8);

/// The boot flags for the next boot, or for all boots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiBootFlags {
    /// Whether the flags are valid.
    pub valid: bool,
    /// Whether they apply to all further boots.
    pub persistent: bool,
    /// Whether to boot with UEFI.
    pub uefi: bool,
    /// The boot device.
    pub device: IpmiBootDevice,
}

/// Reads the boot flags.
#[derive(Clone, Copy, Debug)]
pub struct GetBootFlags;

/// Sets the boot flags.
#[derive(Clone, Copy, Debug)]
pub struct SetBootFlags(pub IpmiBootFlags);

/// Prevents the BMC from clearing the boot device if the machine does not boot within a minute.
#[derive(Clone, Copy, Debug)]
pub struct DisableBootTimeout;

impl IpmiBootDevice {
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
    /// The firmware setup.
    pub const BIOS: Self = Self(6);
    /// A floppy.
    pub const FLOPPY: Self = Self(15);
    /// The first remote medium.
    pub const REMOTE_MEDIA: Self = Self(9);
}

impl IpmiBootFlags {
    /// Parses the five bytes of boot parameter 5.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedIpmiMessage> {
        let [first, second, ..] = bytes else {
            return Err(MalformedIpmiMessage("boot flags: too short"));
        };
        Ok(Self {
            valid: first & 0x80 != 0,
            persistent: first & 0x40 != 0,
            uefi: first & 0x20 != 0,
            device: IpmiBootDevice(second >> 2 & 0x0f),
        })
    }

    /// Encodes the five bytes of boot parameter 5.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 5] {
        let first = (self.valid as u8) << 7 | (self.persistent as u8) << 6 | (self.uefi as u8) << 5;
        [first, (self.device.0 & 0x0f) << 2, 0, 0, 0]
    }
}

impl TypedIpmiCommand for GetBootFlags {
    const NAME: &'static str = "Get System Boot Options";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x09;
    type Response = IpmiBootFlags;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[PARAMETER_FLAGS, 0, 0]);
    }

    fn parse(data: &[u8]) -> Result<IpmiBootFlags, MalformedIpmiMessage> {
        let [_version, parameter, flags @ ..] = data else {
            return Err(MalformedIpmiMessage("Get System Boot Options response: too short"));
        };
        if parameter & 0x7f != PARAMETER_FLAGS {
            return Err(MalformedIpmiMessage(
                "Get System Boot Options response: another parameter",
            ));
        }
        IpmiBootFlags::parse(flags)
    }
}

impl TypedIpmiCommand for SetBootFlags {
    const NAME: &'static str = "Set System Boot Options";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = SET_BOOT_OPTIONS;
    type Response = ();

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(PARAMETER_FLAGS);
        out.extend_from_slice(&self.0.bytes());
    }

    fn parse(_data: &[u8]) -> Result<(), MalformedIpmiMessage> {
        Ok(())
    }
}

impl TypedIpmiCommand for DisableBootTimeout {
    const NAME: &'static str = "Set System Boot Options (no timeout)";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = SET_BOOT_OPTIONS;
    type Response = ();

    fn emit(&self, out: &mut Vec<u8>) {
        const KEEP_ON_TIMEOUT: u8 = 0x08;
        out.extend_from_slice(&[PARAMETER_VALID_BIT_CLEARING, KEEP_ON_TIMEOUT]);
    }

    fn parse(_data: &[u8]) -> Result<(), MalformedIpmiMessage> {
        Ok(())
    }
}

const SET_BOOT_OPTIONS: u8 = 0x08;
const PARAMETER_VALID_BIT_CLEARING: u8 = 3;
const PARAMETER_FLAGS: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(command: &impl TypedIpmiCommand) -> Vec<u8> {
        let mut out = Vec::new();
        command.emit(&mut out);
        out
    }

    #[test]
    fn encodes_the_same_bytes_as_ironic() {
        let flags = |device, persistent, uefi| {
            written(&SetBootFlags(IpmiBootFlags { valid: true, persistent, uefi, device }))
        };
        for (bytes, wanted) in [
            (flags(IpmiBootDevice::PXE, true, true), [0x05, 0xe0, 0x04, 0, 0, 0]),
            (flags(IpmiBootDevice::DISK, false, true), [0x05, 0xa0, 0x08, 0, 0, 0]),
            (flags(IpmiBootDevice::SAFE, false, false), [0x05, 0x80, 0x0c, 0, 0, 0]),
            (flags(IpmiBootDevice::CDROM, true, false), [0x05, 0xc0, 0x14, 0, 0, 0]),
            (flags(IpmiBootDevice::BIOS, false, true), [0x05, 0xa0, 0x18, 0, 0, 0]),
            (flags(IpmiBootDevice::REMOTE_MEDIA, true, true), [0x05, 0xe0, 0x24, 0, 0, 0]),
        ] {
            assert_eq!(bytes, wanted);
            let response = [&[1, 5], &bytes[1..]].concat();
            let read = GetBootFlags::parse(&response).unwrap();
            assert_eq!(read.bytes(), bytes[1..]);
        }
        assert_eq!(written(&DisableBootTimeout), [0x03, 0x08]);
    }
}
