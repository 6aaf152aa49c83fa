// SPDX-License-Identifier: Apache-2.0
//! Power and the light that says "it is this one".

use super::{Ask, Repetition};
use crate::Malformed;
use crate::message::netfn;

/// Asks for the state of the power and the chassis.
#[derive(Clone, Copy, Debug)]
pub struct GetChassisStatus;

/// The state of the power and the chassis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChassisStatus {
    /// Whether the machine is on.
    pub power_on: bool,
    /// Whether the power supplies are overloaded.
    pub power_overload: bool,
    /// Whether the power went away because of an interlock.
    pub interlock: bool,
    /// Whether the power is faulty.
    pub power_fault: bool,
    /// Whether the power could not be switched as asked.
    pub power_control_fault: bool,
    /// Whether the chassis was opened.
    pub intrusion: bool,
    /// Whether a disk is faulty.
    pub drive_fault: bool,
    /// Whether the cooling is faulty.
    pub cooling_fault: bool,
    /// Whether the identification light is on; none if the BMC does not say.
    pub identify: Option<bool>,
}

/// Switches the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChassisControl {
    /// Off, at once.
    PowerDown,
    /// On.
    PowerUp,
    /// Off, and on after a while.
    PowerCycle,
    /// Restart without switching off.
    HardReset,
    /// A diagnostic interrupt.
    Diagnostic,
    /// Asks the operating system to shut down.
    SoftShutdown,
}

/// Makes the chassis show itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentifyChassis {
    /// For so many seconds; zero stops it.
    Seconds(u8),
    /// Until told otherwise.
    Always,
}

impl Ask for GetChassisStatus {
    const NAME: &'static str = "Get Chassis Status";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x01;
    type Answer = ChassisStatus;

    fn emit(&self, _out: &mut Vec<u8>) {}

    fn parse(data: &[u8]) -> Result<ChassisStatus, Malformed> {
        let [power, _, misc, ..] = data else {
            return Err(Malformed("Get Chassis Status answer: too short"));
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
    /// Writes it as a BMC does.
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
    /// The number that stands for it.
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

    /// The control with this number.
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

impl Ask for ChassisControl {
    const NAME: &'static str = "Chassis Control";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x02;
    type Answer = ();

    fn repetition(&self) -> Repetition {
        match self {
            Self::PowerDown | Self::PowerUp => Repetition::Harmless,
            // Many systems take a second press of the button for an order to go off at once.
            Self::PowerCycle | Self::HardReset | Self::Diagnostic | Self::SoftShutdown => {
                Repetition::Harmful
            }
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.number());
    }

    fn parse(_data: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

impl Ask for IdentifyChassis {
    const NAME: &'static str = "Chassis Identify";
    const NETFN: u8 = netfn::CHASSIS;
    const COMMAND: u8 = 0x04;
    type Answer = ();

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seconds(seconds) => out.push(*seconds),
            Self::Always => out.extend_from_slice(&[0, 1]),
        }
    }

    fn parse(_data: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

impl IdentifyChassis {
    /// Reads the request, as a BMC does.
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
    fn a_status_is_read_as_written() {
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
    fn controls_and_identification_are_read_as_written() {
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
