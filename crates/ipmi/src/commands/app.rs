// SPDX-License-Identifier: Apache-2.0
//! Commands to the BMC itself: who it is, its restart, its serial console.

use super::Ask;
use crate::Malformed;
use crate::message::netfn;

/// Asks who the BMC is.
#[derive(Clone, Copy, Debug)]
pub struct GetDeviceId;

/// Who a BMC is. What a short answer leaves out is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceId {
    /// The vendor's number of the device.
    pub device: u8,
    /// Its revision.
    pub revision: u8,
    /// The firmware's version before the point.
    pub firmware_major: u8,
    /// And after it, in binary-coded decimal.
    pub firmware_minor: u8,
    /// The version of IPMI: 0x02 is 2.0, 0x51 is 1.5.
    pub ipmi_version: u8,
    /// What it can do besides: sensors, records, events.
    pub support: u8,
    /// Who made it: an enterprise number of IANA's.
    pub manufacturer: u32,
    /// The manufacturer's number of the product.
    pub product: u16,
}

/// Restarts the BMC, not the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetController {
    /// Everything anew.
    Cold,
    /// Keeping its settings.
    Warm,
}

/// Makes this session the one that carries the serial console.
#[derive(Clone, Copy, Debug)]
pub struct ActivateSol;

/// How the serial console may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SolActivated {
    /// How many bytes of payload the BMC takes at a time.
    pub inbound_size: u16,
    /// How many it sends at a time.
    pub outbound_size: u16,
    /// Where it is to be had.
    pub port: u16,
}

/// Ends the serial console, whichever session carries it.
#[derive(Clone, Copy, Debug)]
pub struct DeactivateSol;

impl Ask for GetDeviceId {
    const NAME: &'static str = "Get Device ID";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x01;
    type Answer = DeviceId;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<DeviceId, Malformed> {
        if data.is_empty() {
            return Err(Malformed("Get Device ID answer: empty"));
        }
        // Emulators leave out what they have nothing to say about.
        let at = |index: usize| data.get(index).copied().unwrap_or(0);
        Ok(DeviceId {
            device: at(0),
            revision: at(1) & 0x0f,
            firmware_major: at(2) & 0x7f,
            firmware_minor: at(3),
            ipmi_version: at(4),
            support: at(5),
            manufacturer: u32::from_le_bytes([at(6), at(7), at(8) & 0x0f, 0]),
            product: u16::from_le_bytes([at(9), at(10)]),
        })
    }
}

impl DeviceId {
    /// Writes it as a BMC does.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let [m0, m1, m2, _] = self.manufacturer.to_le_bytes();
        let [p0, p1] = self.product.to_le_bytes();
        out.extend_from_slice(&[self.device, self.revision, self.firmware_major]);
        out.extend_from_slice(&[self.firmware_minor, self.ipmi_version, self.support]);
        out.extend_from_slice(&[m0, m1, m2, p0, p1]);
    }
}

impl ResetController {
    /// The command for a cold or a warm restart.
    #[must_use]
    pub const fn command(self) -> u8 {
        match self {
            Self::Cold => 0x02,
            Self::Warm => 0x03,
        }
    }

    /// What the standard calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "Cold Reset",
            Self::Warm => "Warm Reset",
        }
    }
}

impl Ask for ActivateSol {
    const NAME: &'static str = "Activate Payload";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x48;
    type Answer = SolActivated;

    fn emit(&self, out: &mut Vec<u8>) {
        const ENCRYPTED_AND_SIGNED: u8 = 0xc0;
        out.extend_from_slice(&[SOL, INSTANCE, ENCRYPTED_AND_SIGNED, 0, 0, 0]);
    }

    fn parse(data: &[u8]) -> Result<SolActivated, Malformed> {
        let [_, _, _, _, i0, i1, o0, o1, p0, p1, ..] = data else {
            return Err(Malformed("Activate Payload answer: too short"));
        };
        Ok(SolActivated {
            inbound_size: u16::from_le_bytes([*i0, *i1]),
            outbound_size: u16::from_le_bytes([*o0, *o1]),
            port: u16::from_le_bytes([*p0, *p1]),
        })
    }
}

impl SolActivated {
    /// Writes it as a BMC does.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.inbound_size.to_le_bytes());
        out.extend_from_slice(&self.outbound_size.to_le_bytes());
        out.extend_from_slice(&self.port.to_le_bytes());
        // No VLAN.
        out.extend_from_slice(&[0xff, 0xff]);
    }
}

impl Ask for DeactivateSol {
    const NAME: &'static str = "Deactivate Payload";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x49;
    type Answer = ();

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[SOL, INSTANCE, 0, 0, 0, 0]);
    }

    fn parse(_data: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// The payload type of the serial console.
const SOL: u8 = 1;
/// BMCs have one.
const INSTANCE: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_id_is_read_as_written_and_may_be_short() {
        let device = DeviceId {
            device: 0x20,
            revision: 1,
            firmware_major: 2,
            firmware_minor: 0x10,
            ipmi_version: 2,
            support: 0xbf,
            manufacturer: 10_876,
            product: 0x1234,
        };
        let mut bytes = Vec::new();
        device.emit(&mut bytes);
        assert_eq!(GetDeviceId::parse(&bytes), Ok(device));
        let short = GetDeviceId::parse(&bytes[..5]).unwrap();
        assert_eq!((short.ipmi_version, short.manufacturer), (2, 0));
        assert!(GetDeviceId::parse(&[]).is_err());
    }

    #[test]
    fn an_activation_is_read_as_written() {
        let activated = SolActivated { inbound_size: 255, outbound_size: 200, port: 623 };
        let mut bytes = Vec::new();
        activated.emit(&mut bytes);
        assert_eq!(ActivateSol::parse(&bytes), Ok(activated));
    }
}
