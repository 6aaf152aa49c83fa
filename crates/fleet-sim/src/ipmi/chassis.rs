// SPDX-License-Identifier: Apache-2.0
//! Power, boot options and the identification light, as IPMI has them.

use ipmi::{BootDevice, BootFlags, ChassisControl, ChassisStatus, IdentifyChassis, completion};
use node_model::Timestamp;

use crate::machine::{
    BootChange, BootMode, BootTarget, Indicator, Machine, Override, PowerState, Refused, Reset,
};

/// The answer to Get Chassis Status.
pub(super) fn status(machine: &Machine) -> Vec<u8> {
    let status = ChassisStatus {
        power_on: matches!(machine.power_state(), PowerState::On | PowerState::PoweringOff),
        identify: Some(machine.indicator() != Indicator::Off),
        ..ChassisStatus::default()
    };
    let mut out = Vec::new();
    status.emit(&mut out);
    out
}

/// Chassis Control.
pub(super) fn control(machine: &mut Machine, now: Timestamp, data: &[u8]) -> Result<Vec<u8>, u8> {
    let [number] = data else { return Err(completion::INVALID_LENGTH) };
    let control = ChassisControl::numbered(*number).ok_or(completion::INVALID_FIELD)?;
    let resets: &[Reset] = match control {
        ChassisControl::PowerDown => &[Reset::ForceOff],
        ChassisControl::PowerUp => &[Reset::On, Reset::ForceOn],
        ChassisControl::PowerCycle => &[Reset::PowerCycle, Reset::ForceRestart],
        ChassisControl::HardReset => &[Reset::ForceRestart, Reset::PowerCycle],
        ChassisControl::Diagnostic => &[Reset::Nmi],
        ChassisControl::SoftShutdown => &[Reset::GracefulShutdown, Reset::PushPowerButton],
    };
    let needs_power = matches!(
        control,
        ChassisControl::PowerCycle | ChassisControl::HardReset | ChassisControl::Diagnostic
    );
    if needs_power && machine.power_state() == PowerState::Off {
        return Err(completion::NOT_IN_THIS_STATE);
    }
    // What a kind of BMC lacks over Redfish it does another way over IPMI.
    for reset in resets {
        match machine.reset(*reset, now) {
            Ok(()) => return Ok(Vec::new()),
            // Being there already is well in IPMI; being on the way elsewhere is not.
            Err(Refused::WrongPowerState { is, .. }) => {
                let there = if needs_power || control == ChassisControl::PowerUp {
                    PowerState::On
                } else {
                    PowerState::Off
                };
                return if is == there {
                    Ok(Vec::new())
                } else {
                    Err(completion::NOT_IN_THIS_STATE)
                };
            }
            Err(_) => {}
        }
    }
    Err(completion::INVALID_FIELD)
}

/// Chassis Identify. The light stays until it is switched off, whatever time is given.
pub(super) fn identify(machine: &mut Machine, _now: Timestamp, data: &[u8]) -> Result<Vec<u8>, u8> {
    machine.set_indicator(match IdentifyChassis::parse_request(data) {
        IdentifyChassis::Seconds(0) => Indicator::Off,
        IdentifyChassis::Seconds(_) => Indicator::Blinking,
        IdentifyChassis::Always => Indicator::Lit,
    });
    Ok(Vec::new())
}

/// Set System Boot Options.
pub(super) fn set_boot_option(
    machine: &mut Machine,
    now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    let [parameter, value @ ..] = data else { return Err(completion::INVALID_LENGTH) };
    match parameter & 0x7f {
        FLAGS => {
            let flags = BootFlags::parse(value).map_err(|_| completion::INVALID_LENGTH)?;
            set_flags(machine, now, flags)?;
            Ok(Vec::new())
        }
        // Progress, clearing and acknowledgement: nothing here depends on them.
        0..=4 => Ok(Vec::new()),
        _ => Err(NO_SUCH_PARAMETER),
    }
}

/// Get System Boot Options.
pub(super) fn boot_option(
    machine: &mut Machine,
    _now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    const VERSION: u8 = 1;
    let [parameter, ..] = data else { return Err(completion::INVALID_LENGTH) };
    let parameter = parameter & 0x7f;
    let value: &[u8] = match parameter {
        FLAGS => &flags(machine).bytes(),
        0..=3 => &[0],
        4 => &[0, 0],
        6 => &[0; 9],
        7 => &[0; 17],
        _ => return Err(NO_SUCH_PARAMETER),
    };
    Ok([&[VERSION, parameter], value].concat())
}

const FLAGS: u8 = 5;
const NO_SUCH_PARAMETER: u8 = 0x80;

const DEVICES: &[(BootDevice, BootTarget)] = &[
    (BootDevice::NONE, BootTarget::None),
    (BootDevice::PXE, BootTarget::Pxe),
    (BootDevice::DISK, BootTarget::Hdd),
    (BootDevice::REMOTE_MEDIA, BootTarget::Hdd),
    (BootDevice::CDROM, BootTarget::Cd),
    (BootDevice::BIOS, BootTarget::BiosSetup),
    (BootDevice::FLOPPY, BootTarget::Floppy),
    (BootDevice::DIAGNOSTIC, BootTarget::Diags),
    (BootDevice::SAFE, BootTarget::Hdd),
];

fn flags(machine: &Machine) -> BootFlags {
    let settings = machine.boot_settings();
    let device = DEVICES.iter().find(|(_, target)| *target == settings.target);
    let is_set = settings.enabled != Override::Disabled && settings.target != BootTarget::None;
    BootFlags {
        valid: is_set,
        persistent: settings.enabled == Override::Continuous,
        uefi: settings.mode == BootMode::Uefi,
        device: device.filter(|_| is_set).map_or(BootDevice::NONE, |(device, _)| *device),
    }
}

fn set_flags(machine: &mut Machine, now: Timestamp, flags: BootFlags) -> Result<(), u8> {
    let found = DEVICES.iter().find(|(device, _)| *device == flags.device);
    let (_, target) = found.ok_or(completion::INVALID_FIELD)?;
    let rules = &machine.personality().boot;
    let mode = if flags.uefi { BootMode::Uefi } else { BootMode::Legacy };
    let enabled = if !flags.valid || *target == BootTarget::None {
        Override::Disabled
    } else if flags.persistent && rules.continuous {
        Override::Continuous
    } else {
        Override::Once
    };
    let change = BootChange {
        target: Some(*target),
        enabled: Some(enabled),
        mode: rules.mode_changes.then_some(mode),
        http_uri: None,
    };
    machine.set_boot(change, now).map_err(|refused| {
        if refused == Refused::DuringPost {
            completion::NOT_IN_THIS_STATE
        } else {
            completion::INVALID_FIELD
        }
    })
}
