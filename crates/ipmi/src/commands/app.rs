// SPDX-License-Identifier: Apache-2.0
//! Commands to the BMC itself: identification, restart, serial console.

use super::TypedIpmiCommand;
use crate::MalformedIpmiMessage;
use crate::message::netfn;

/// Get Device ID.
#[derive(Clone, Copy, Debug)]
pub struct GetDeviceId;

/// The identification of a BMC. Fields that a short response omits are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceId {
    /// The device id of the vendor.
    pub device: u8,
    /// The device revision.
    pub revision: u8,
    /// The major firmware version.
    pub firmware_major: u8,
    /// The minor firmware version, in binary-coded decimal.
    pub firmware_minor: u8,
    /// The version of IPMI: 0x02 is 2.0, 0x51 is 1.5.
    pub ipmi_version: u8,
    /// Additional device support: sensors, records, events.
    pub support: u8,
    /// The IANA enterprise number of the manufacturer.
    pub manufacturer: u32,
    /// The product id of the manufacturer.
    pub product: u16,
}

/// Restarts the BMC, not the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetController {
    /// Cold reset.
    Cold,
    /// Warm reset, which keeps the settings.
    Warm,
}

/// Activates the serial console in this session.
#[derive(Clone, Copy, Debug)]
pub struct ActivateSol;

/// The parameters of the serial console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SolActivated {
    /// The size limit of payloads to the BMC, in bytes.
    pub inbound_size: u16,
    /// The size limit of payloads from the BMC, in bytes.
    pub outbound_size: u16,
    /// The UDP port.
    pub port: u16,
}

/// Deactivates the serial console in any session.
#[derive(Clone, Copy, Debug)]
pub struct DeactivateSol;

impl TypedIpmiCommand for GetDeviceId {
    const NAME: &'static str = "Get Device ID";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x01;
    type Response = DeviceId;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<DeviceId, MalformedIpmiMessage> {
        if data.is_empty() {
            return Err(MalformedIpmiMessage("Get Device ID response: empty"));
        }
        // Emulators omit fields that they do not support.
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
    /// Encodes the response, for simulated BMCs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let [m0, m1, m2, _] = self.manufacturer.to_le_bytes();
        let [p0, p1] = self.product.to_le_bytes();
        out.extend_from_slice(&[self.device, self.revision, self.firmware_major]);
        out.extend_from_slice(&[self.firmware_minor, self.ipmi_version, self.support]);
        out.extend_from_slice(&[m0, m1, m2, p0, p1]);
    }
}

impl ResetController {
    /// The command number of a cold or warm reset.
    #[must_use]
    pub const fn command(self) -> u8 {
        match self {
            Self::Cold => 0x02,
            Self::Warm => 0x03,
        }
    }

    /// The name in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "Cold Reset",
            Self::Warm => "Warm Reset",
        }
    }
}

impl TypedIpmiCommand for ActivateSol {
    const NAME: &'static str = "Activate Payload";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x48;
    type Response = SolActivated;

    fn emit(&self, out: &mut Vec<u8>) {
        const ENCRYPTED_AND_SIGNED: u8 = 0xc0;
        out.extend_from_slice(&[SOL, INSTANCE, ENCRYPTED_AND_SIGNED, 0, 0, 0]);
    }

    fn parse(data: &[u8]) -> Result<SolActivated, MalformedIpmiMessage> {
        let [_, _, _, _, i0, i1, o0, o1, p0, p1, ..] = data else {
            return Err(MalformedIpmiMessage("Activate Payload response: too short"));
        };
        Ok(SolActivated {
            inbound_size: u16::from_le_bytes([*i0, *i1]),
            outbound_size: u16::from_le_bytes([*o0, *o1]),
            port: u16::from_le_bytes([*p0, *p1]),
        })
    }
}

impl SolActivated {
    /// Encodes the response, for simulated BMCs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.inbound_size.to_le_bytes());
        out.extend_from_slice(&self.outbound_size.to_le_bytes());
        out.extend_from_slice(&self.port.to_le_bytes());
        // No VLAN.
        out.extend_from_slice(&[0xff, 0xff]);
    }
}

impl TypedIpmiCommand for DeactivateSol {
    const NAME: &'static str = "Deactivate Payload";
    const NETFN: u8 = netfn::APP;
    const COMMAND: u8 = 0x49;
    type Response = ();

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[SOL, INSTANCE, 0, 0, 0, 0]);
    }

    fn parse(_data: &[u8]) -> Result<(), MalformedIpmiMessage> {
        Ok(())
    }
}

/// The payload type of the serial console.
const SOL: u8 = 1;
/// BMCs have one instance.
const INSTANCE: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_complete_and_short_device_ids() {
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
    fn encoded_activation_parses_to_the_same_value() {
        let activated = SolActivated { inbound_size: 255, outbound_size: 200, port: 623 };
        let mut bytes = Vec::new();
        activated.emit(&mut bytes);
        assert_eq!(ActivateSol::parse(&bytes), Ok(activated));
    }
}
