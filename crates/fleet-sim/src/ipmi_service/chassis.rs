// SPDX-License-Identifier: Apache-2.0
//! IPMI chassis commands: power, boot options, identify LED.

use ipmi::{
    ChassisControl, ChassisStatus, IdentifyChassis, IpmiBootDevice, IpmiBootFlags, completion,
};
use node_model::Timestamp;

use crate::machine::{
    BootChange, BootMode, BootOverride, BootTarget, IndicatorLed, MachineError, MachineModel,
    PowerState, ResetType,
};

/// Get Chassis Status.
pub(super) fn status(machine: &MachineModel) -> Vec<u8> {
    let status = ChassisStatus {
        power_on: matches!(machine.power_state(), PowerState::On | PowerState::PoweringOff),
        identify: Some(machine.indicator() != IndicatorLed::Off),
        ..ChassisStatus::default()
    };
    let mut out = Vec::new();
    status.emit(&mut out);
    out
}

/// Chassis Control.
pub(super) fn control(
    machine: &mut MachineModel,
    now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    let [number] = data else { return Err(completion::INVALID_LENGTH) };
    let control = ChassisControl::numbered(*number).ok_or(completion::INVALID_FIELD)?;
    let resets: &[ResetType] = match control {
        ChassisControl::PowerDown => &[ResetType::ForceOff],
        ChassisControl::PowerUp => &[ResetType::On, ResetType::ForceOn],
        ChassisControl::PowerCycle => &[ResetType::PowerCycle, ResetType::ForceRestart],
        ChassisControl::HardReset => &[ResetType::ForceRestart, ResetType::PowerCycle],
        ChassisControl::Diagnostic => &[ResetType::Nmi],
        ChassisControl::SoftShutdown => &[ResetType::GracefulShutdown, ResetType::PushPowerButton],
    };
    let needs_power = matches!(
        control,
        ChassisControl::PowerCycle | ChassisControl::HardReset | ChassisControl::Diagnostic
    );
    if needs_power && machine.power_state() == PowerState::Off {
        return Err(completion::NOT_IN_THIS_STATE);
    }
    // If the BMC does not support the first reset type, use the alternative.
    for reset in resets {
        match machine.reset(*reset, now) {
            Ok(()) => return Ok(Vec::new()),
            // In IPMI the requested state is a success, a transition to the other state is not.
            Err(MachineError::WrongPowerState { current, .. }) => {
                let requested = if needs_power || control == ChassisControl::PowerUp {
                    PowerState::On
                } else {
                    PowerState::Off
                };
                return if current == requested {
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

/// Chassis Identify. The duration is ignored: the LED stays on until it is switched off.
pub(super) fn identify(
    machine: &mut MachineModel,
    _now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    machine.set_indicator(match IdentifyChassis::parse_request(data) {
        IdentifyChassis::Seconds(0) => IndicatorLed::Off,
        IdentifyChassis::Seconds(_) => IndicatorLed::Blinking,
        IdentifyChassis::Always => IndicatorLed::Lit,
    });
    Ok(Vec::new())
}

/// Set System Boot Options.
pub(super) fn set_boot_option(
    machine: &mut MachineModel,
    now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    let [parameter, value @ ..] = data else { return Err(completion::INVALID_LENGTH) };
    match parameter & 0x7f {
        BOOT_FLAGS_PARAMETER => {
            let flags = IpmiBootFlags::parse(value).map_err(|_| completion::INVALID_LENGTH)?;
            set_boot_flags(machine, now, flags)?;
            Ok(Vec::new())
        }
        // Set-in-progress, clearing and acknowledgement have no effect.
        0..=4 => Ok(Vec::new()),
        _ => Err(PARAMETER_NOT_SUPPORTED),
    }
}

/// Get System Boot Options.
pub(super) fn get_boot_option(
    machine: &mut MachineModel,
    _now: Timestamp,
    data: &[u8],
) -> Result<Vec<u8>, u8> {
    const VERSION: u8 = 1;
    let [parameter, ..] = data else { return Err(completion::INVALID_LENGTH) };
    let parameter = parameter & 0x7f;
    let value: &[u8] = match parameter {
        BOOT_FLAGS_PARAMETER => &boot_flags(machine).bytes(),
        0..=3 => &[0],
        4 => &[0, 0],
        6 => &[0; 9],
        7 => &[0; 17],
        _ => return Err(PARAMETER_NOT_SUPPORTED),
    };
    Ok([&[VERSION, parameter], value].concat())
}

const BOOT_FLAGS_PARAMETER: u8 = 5;
const PARAMETER_NOT_SUPPORTED: u8 = 0x80;

const DEVICES: &[(IpmiBootDevice, BootTarget)] = &[
    (IpmiBootDevice::NONE, BootTarget::None),
    (IpmiBootDevice::PXE, BootTarget::Pxe),
    (IpmiBootDevice::DISK, BootTarget::Hdd),
    (IpmiBootDevice::REMOTE_MEDIA, BootTarget::Hdd),
    (IpmiBootDevice::CDROM, BootTarget::Cd),
    (IpmiBootDevice::BIOS, BootTarget::BiosSetup),
    (IpmiBootDevice::FLOPPY, BootTarget::Floppy),
    (IpmiBootDevice::DIAGNOSTIC, BootTarget::Diags),
    (IpmiBootDevice::SAFE, BootTarget::Hdd),
];

fn boot_flags(machine: &MachineModel) -> IpmiBootFlags {
    let settings = machine.boot_settings();
    let device = DEVICES.iter().find(|(_, target)| *target == settings.target);
    let is_set = settings.enabled != BootOverride::Disabled && settings.target != BootTarget::None;
    IpmiBootFlags {
        valid: is_set,
        persistent: settings.enabled == BootOverride::Continuous,
        uefi: settings.mode == BootMode::Uefi,
        device: device.filter(|_| is_set).map_or(IpmiBootDevice::NONE, |(device, _)| *device),
    }
}

fn set_boot_flags(
    machine: &mut MachineModel,
    now: Timestamp,
    flags: IpmiBootFlags,
) -> Result<(), u8> {
    let found = DEVICES.iter().find(|(device, _)| *device == flags.device);
    let (_, target) = found.ok_or(completion::INVALID_FIELD)?;
    let rules = &machine.personality().boot;
    let mode = if flags.uefi { BootMode::Uefi } else { BootMode::Legacy };
    let enabled = if !flags.valid || *target == BootTarget::None {
        BootOverride::Disabled
    } else if flags.persistent && rules.supports_continuous {
        BootOverride::Continuous
    } else {
        BootOverride::Once
    };
    let change = BootChange {
        target: Some(*target),
        enabled: Some(enabled),
        mode: rules.supports_mode_changes.then_some(mode),
        http_uri: None,
    };
    machine.set_boot(change, now).map_err(|error| {
        if error == MachineError::DuringPost {
            completion::NOT_IN_THIS_STATE
        } else {
            completion::INVALID_FIELD
        }
    })
}
