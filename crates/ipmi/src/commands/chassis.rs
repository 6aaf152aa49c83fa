// SPDX-License-Identifier: Apache-2.0
//! Power control and the identification light.

use super::{Repetition, TypedIpmiCommand};
use crate::MalformedIpmiMessage;
use crate::message::netfn;

/// Get Chassis Status.
#[derive(Clone, Copy, Debug)]
pub struct GetChassisStatus;

/// The state of power and chassis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChassisStatus {
    /// Whether the machine is powered on.
    pub power_on: bool,
    /// Power overload.
    pub power_overload: bool,
    /// Power off because of an interlock.
    pub interlock: bool,
    /// Power fault.
    pub power_fault: bool,
    /// Power control fault.
    pub power_control_fault: bool,
    /// Chassis intrusion.
    pub intrusion: bool,
    /// Drive fault.
    pub drive_fault: bool,
    /// Cooling fault.
    pub cooling_fault: bool,
    /// Whether the identification light is on; `None` if the BMC does not report it.
    pub identify: Option<bool>,
}

/// Chassis Control: power actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChassisControl {
    /// Power off immediately.
    PowerDown,
    /// Power on.
    PowerUp,
    /// Power off, and on after a delay.
    PowerCycle,
    /// Reset without powering off.
    HardReset,
    /// A diagnostic interrupt.
    Diagnostic,
    /// Soft shutdown by the operating system.
    SoftShutdown,
}

/// Turns the identification light on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentifyChassis {
    /// For this many seconds; zero turns it off.
    Seconds(u8),
    /// Until it is turned off.
    Always,
}

impl TypedIpmiCommand for GetChassisStatus {
    const NAME: &'static str = "Get Chassis Status";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x01;
    type Response = ChassisStatus;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<ChassisStatus, MalformedIpmiMessage> {
        let [power, _, misc, ..] = data else {
            return Err(MalformedIpmiMessage("Get Chassis Status response: too short"));
        };
        let bit = |byte: &u8, number: u8| byte & 1 << number != 0;
        Ok(ChassisStatus {
            power_on: bit(power, 0),
            power_overload: bit(power, 1),
            interlock: bit(power, 2),
            power_fault: bit(power, 3),
            power_control_fault: bit(power, 4),
            intrusion: bit(misc, 0),
            drive_fault: bit(misc, 2),
            cooling_fault: bit(misc, 3),
            identify: bit(misc, 6).then_some(misc & 0x30 != 0),
        })
    }
}

impl ChassisStatus {
    /// Encodes the response, for simulated BMCs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = |set: bool, number: u8| u8::from(set) << number;
        let power = bit(self.power_on, 0)
            | bit(self.power_overload, 1)
            | bit(self.interlock, 2)
            | bit(self.power_fault, 3)
            | bit(self.power_control_fault, 4);
        let misc = bit(self.intrusion, 0)
            | bit(self.drive_fault, 2)
            | bit(self.cooling_fault, 3)
            | self.identify.map_or(0, |lit| 0x40 | bit(lit, 4));
        out.extend_from_slice(&[power, 0, misc]);
    }
}

impl ChassisControl {
    /// The number of the action.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::PowerDown => 0,
            Self::PowerUp => 1,
            Self::PowerCycle => 2,
            Self::HardReset => 3,
            Self::Diagnostic => 4,
            Self::SoftShutdown => 5,
        }
    }

    /// The action with this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        let all = [
            Self::PowerDown,
            Self::PowerUp,
            Self::PowerCycle,
            Self::HardReset,
            Self::Diagnostic,
            Self::SoftShutdown,
        ];
        all.into_iter().find(|control| control.number() == number)
    }
}

impl TypedIpmiCommand for ChassisControl {
    const NAME: &'static str = "Chassis Control";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x02;
    type Response = ();

    fn repetition(&self) -> Repetition {
        match self {
            Self::PowerDown | Self::PowerUp => Repetition::Harmless,
            // Many operating systems treat a second press of the button as an immediate power off.
            Self::PowerCycle | Self::HardReset | Self::Diagnostic | Self::SoftShutdown => {
                Repetition::Harmful
            }
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.number());
    }

    fn parse(_data: &[u8]) -> Result<(), MalformedIpmiMessage> {
        Ok(())
    }
}

impl TypedIpmiCommand for IdentifyChassis {
    const NAME: &'static str = "Chassis Identify";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x04;
    type Response = ();

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seconds(seconds) => out.push(*seconds),
            Self::Always => out.extend_from_slice(&[0, 1]),
        }
    }

    fn parse(_data: &[u8]) -> Result<(), MalformedIpmiMessage> {
        Ok(())
    }
}

impl IdentifyChassis {
    /// Parses the request, for simulated BMCs.
    #[must_use]
    pub fn parse_request(data: &[u8]) -> Self {
        match data {
            [_, force, ..] if force & 1 != 0 => Self::Always,
            [seconds, ..] => Self::Seconds(*seconds),
            [] => Self::Seconds(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_status_parses_to_the_same_value() {
        let on = ChassisStatus { power_on: true, ..ChassisStatus::default() };
        let troubled = ChassisStatus {
            power_fault: true,
            drive_fault: true,
            cooling_fault: true,
            intrusion: true,
            identify: Some(true),
            ..ChassisStatus::default()
        };
        let dark = ChassisStatus { identify: Some(false), ..on };
        for status in [on, troubled, dark] {
            let mut bytes = Vec::new();
            status.emit(&mut bytes);
            assert_eq!(GetChassisStatus::parse(&bytes), Ok(status));
        }
        assert!(GetChassisStatus::parse(&[1, 0]).is_err());
    }

    #[test]
    fn encoded_control_and_identification_parse_to_the_same_values() {
        for number in 0..6 {
            assert_eq!(ChassisControl::numbered(number).map(ChassisControl::number), Some(number));
        }
        assert_eq!(ChassisControl::numbered(6), None);
        for identify in [IdentifyChassis::Always, IdentifyChassis::Seconds(0)] {
            let mut bytes = Vec::new();
            identify.emit(&mut bytes);
            assert_eq!(IdentifyChassis::parse_request(&bytes), identify);
        }
    }
}
