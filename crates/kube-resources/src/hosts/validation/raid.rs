// SPDX-License-Identifier: Apache-2.0
//! Rules for RAID volumes.

use std::collections::BTreeMap;

use super::super::raid::{HardwareRaidVolume, HostRaid, RaidVolumeLevel};
use crate::field_error::FieldError;

const HARDWARE: &str = "spec.raid.hardwareRAIDVolumes";
const SOFTWARE: &str = "spec.raid.softwareRAIDVolumes";
/// Levels of Linux software RAID that the agent creates.
const SOFTWARE_LEVELS: &[RaidVolumeLevel] =
    &[RaidVolumeLevel::Raid0, RaidVolumeLevel::Raid1, RaidVolumeLevel::Raid10];

/// Checks a RAID configuration.
pub(super) fn check(raid: &HostRaid) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(hardware_or_software(raid));
    for (index, volume) in raid.hardware().iter().enumerate() {
        let path = format!("{HARDWARE}[{index}]");
        errors.extend(hardware_level(&path, volume));
        errors.extend(disks_need_controller(&path, volume));
        errors.extend(disk_count(&path, volume));
    }
    errors.extend(unique_names(raid.hardware()));
    errors.extend(first_software_volume(raid));
    errors.extend(software_levels(raid));
    errors
}

fn hardware_or_software(raid: &HostRaid) -> Option<FieldError> {
    (!raid.hardware().is_empty() && !raid.software().is_empty()).then(|| {
        FieldError::new(
            "spec.raid",
            "has both hardwareRAIDVolumes and softwareRAIDVolumes; remove one of them",
        )
    })
}

fn hardware_level(path: &str, volume: &HardwareRaidVolume) -> Option<FieldError> {
    let RaidVolumeLevel::Other(level) = &volume.level else { return None };
    let values = RaidVolumeLevel::VALUES.join(", ");
    Some(FieldError::new(
        format!("{path}.level"),
        format!("{level:?} is not a RAID level; use one of {values}"),
    ))
}

fn disks_need_controller(path: &str, volume: &HardwareRaidVolume) -> Option<FieldError> {
    (!volume.physical_disks.is_empty() && volume.controller.is_none()).then(|| {
        FieldError::new(
            format!("{path}.controller"),
            "is missing; set it to the controller of physicalDisks",
        )
    })
}

fn disk_count(path: &str, volume: &HardwareRaidVolume) -> Option<FieldError> {
    let count = volume.number_of_physical_disks?;
    let listed = volume.physical_disks.len();
    (listed != 0 && usize::try_from(count) != Ok(listed)).then(|| {
        FieldError::new(
            format!("{path}.numberOfPhysicalDisks"),
            format!("is {count}, and physicalDisks has {listed}; remove it or make them equal"),
        )
    })
}

fn unique_names(volumes: &[HardwareRaidVolume]) -> Vec<FieldError> {
    let mut first_index = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let Some(name) = volume.name.as_deref() else { continue };
        let first = *first_index.entry(name).or_insert(index);
        if first != index {
            errors.push(FieldError::new(
                format!("{HARDWARE}[{index}].name"),
                format!("{name:?} is also the name of volume {first}; choose another name"),
            ));
        }
    }
    errors
}

/// The system boots from the first volume, which must survive the loss of a disk.
fn first_software_volume(raid: &HostRaid) -> Option<FieldError> {
    let first = raid.software().first()?;
    (first.level != RaidVolumeLevel::Raid1).then(|| {
        FieldError::new(
            format!("{SOFTWARE}[0].level"),
            format!("is {:?}; the host boots from this volume, so use 1", first.level.as_str()),
        )
    })
}

fn software_levels(raid: &HostRaid) -> Vec<FieldError> {
    // The first volume has a stricter rule.
    let others = raid.software().iter().enumerate().skip(1);
    others
        .filter(|(_, volume)| !SOFTWARE_LEVELS.contains(&volume.level))
        .map(|(index, volume)| {
            FieldError::new(
                format!("{SOFTWARE}[{index}].level"),
                format!(
                    "{:?} is not supported by software RAID; use 0, 1 or 1+0",
                    volume.level.as_str()
                ),
            )
        })
        .collect()
}
