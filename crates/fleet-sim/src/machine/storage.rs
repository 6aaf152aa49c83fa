// SPDX-License-Identifier: Apache-2.0
//! Storage controllers, drives and RAID volumes.
//!
//! Controllers and drives are defined by the personality; only volumes are stored per machine.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::tasks::{BmcTaskId, BmcTaskJob};
use super::{MachineError, MachineModel};
use crate::personality::{ControllerRule, VolumeChangeRule};

/// RAID level of a volume, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaidKind {
    /// Striping.
    #[serde(rename = "RAID0")]
    Raid0,
    /// Mirroring.
    #[serde(rename = "RAID1")]
    Raid1,
    /// Single parity.
    #[serde(rename = "RAID5")]
    Raid5,
    /// Double parity.
    #[serde(rename = "RAID6")]
    Raid6,
    /// Striped mirrors.
    #[serde(rename = "RAID10")]
    Raid10,
    /// Striped RAID 5 sets.
    #[serde(rename = "RAID50")]
    Raid50,
    /// Striped RAID 6 sets.
    #[serde(rename = "RAID60")]
    Raid60,
}

/// A RAID volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedVolume {
    /// Its number; never reused on this machine.
    pub id: u32,
    /// The index of its controller in the personality.
    pub controller: usize,
    /// Its name.
    pub name: Box<str>,
    /// Its RAID level.
    pub raid: RaidKind,
    /// Its usable size.
    pub capacity_bytes: u64,
    /// The indexes of its drives on the controller.
    pub drives: Box<[usize]>,
}

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// The index of the controller.
    pub controller: usize,
    /// The name; generated if `None`.
    pub name: Option<Box<str>>,
    /// The RAID level.
    pub raid: RaidKind,
    /// The usable size; the largest possible if `None`.
    pub capacity_bytes: Option<u64>,
    /// The indexes of the drives; unused ones are chosen if empty.
    pub drives: Vec<usize>,
}

/// When a volume is created or deleted, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyTime {
    /// Immediately.
    Immediate,
    /// At the next reset.
    OnReset,
}

/// Result of creating or deleting a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeOutcome {
    /// The operation is complete; the volume's number.
    Completed(u32),
    /// A task completes the operation later.
    TaskStarted(BmcTaskId),
}

impl RaidKind {
    const ALL: [Self; 7] = [
        Self::Raid0,
        Self::Raid1,
        Self::Raid5,
        Self::Raid6,
        Self::Raid10,
        Self::Raid50,
        Self::Raid60,
    ];

    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid5 => "RAID5",
            Self::Raid6 => "RAID6",
            Self::Raid10 => "RAID10",
            Self::Raid50 => "RAID50",
            Self::Raid60 => "RAID60",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|raid| raid.name() == name)
    }

    /// Returns the value of the deprecated Redfish property `VolumeType`.
    #[must_use]
    pub fn volume_type(self) -> &'static str {
        match self {
            Self::Raid0 => "NonRedundant",
            Self::Raid1 => "Mirrored",
            Self::Raid5 | Self::Raid6 => "StripedWithParity",
            Self::Raid10 => "SpannedMirrors",
            Self::Raid50 | Self::Raid60 => "SpannedStripesWithParity",
        }
    }

    fn min_drives(self) -> usize {
        match self {
            Self::Raid0 => 1,
            Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Raid10 => 4,
            Self::Raid50 => 6,
            Self::Raid60 => 8,
        }
    }

    /// Returns how many of `drives` drives hold data rather than copies or parity.
    fn data_drives(self, drives: usize) -> usize {
        match self {
            Self::Raid0 => drives,
            Self::Raid1 => 1,
            Self::Raid5 => drives.saturating_sub(1),
            Self::Raid6 => drives.saturating_sub(2),
            Self::Raid10 => drives / 2,
            Self::Raid50 => drives.saturating_sub(2),
            Self::Raid60 => drives.saturating_sub(4),
        }
    }
}

impl SimulatedVolume {
    /// Returns how many bytes it uses on each of its drives.
    fn bytes_per_drive(&self) -> u64 {
        let data = self.raid.data_drives(self.drives.len()).max(1);
        self.capacity_bytes.div_ceil(u64::try_from(data).unwrap_or(u64::MAX))
    }
}

impl MachineModel {
    /// Returns the volumes of all controllers.
    #[must_use]
    pub fn volumes(&self) -> &[SimulatedVolume] {
        &self.volumes
    }

    /// Creates a volume, at once or by a task, depending on `apply` and the personality.
    ///
    /// # Errors
    /// When the controller, the drives, the RAID level or the size do not permit it.
    pub fn create_volume(
        &mut self,
        request: VolumeRequest,
        apply: Option<ApplyTime>,
        now: Timestamp,
    ) -> Result<VolumeOutcome, MachineError> {
        self.advance(now);
        let rule = self.controller(request.controller)?.clone();
        let apply = resolve_apply_time(&rule, apply)?;
        let volume = self.plan_volume(&rule, request)?;
        let id = volume.id;
        self.next_volume = self.next_volume.saturating_add(1);
        Ok(match (apply, rule.volume_changes) {
            (ApplyTime::Immediate, VolumeChangeRule::Immediate) => {
                self.volumes.push(volume);
                VolumeOutcome::Completed(id)
            }
            (ApplyTime::Immediate, VolumeChangeRule::Task) => VolumeOutcome::TaskStarted(
                self.start_task(BmcTaskJob::CreateVolume(Box::new(volume)), now),
            ),
            (ApplyTime::OnReset, _) => VolumeOutcome::TaskStarted(
                self.queue_task_for_reset(BmcTaskJob::CreateVolume(Box::new(volume)), now),
            ),
        })
    }

    /// Deletes a volume, at once or by a task.
    ///
    /// # Errors
    /// When the controller has no such volume.
    pub fn delete_volume(
        &mut self,
        controller: usize,
        id: u32,
        apply: Option<ApplyTime>,
        now: Timestamp,
    ) -> Result<VolumeOutcome, MachineError> {
        self.advance(now);
        let rule = self.controller(controller)?.clone();
        let apply = resolve_apply_time(&rule, apply)?;
        let is_requested =
            |volume: &SimulatedVolume| volume.id == id && volume.controller == controller;
        if !self.volumes.iter().any(is_requested) {
            return Err(MachineError::NotFound { what: "volume" });
        }
        Ok(match (apply, rule.volume_changes) {
            (ApplyTime::Immediate, VolumeChangeRule::Immediate) => {
                self.volumes.retain(|volume| !is_requested(volume));
                VolumeOutcome::Completed(id)
            }
            (ApplyTime::Immediate, VolumeChangeRule::Task) => {
                VolumeOutcome::TaskStarted(self.start_task(BmcTaskJob::DeleteVolume(id), now))
            }
            (ApplyTime::OnReset, _) => VolumeOutcome::TaskStarted(
                self.queue_task_for_reset(BmcTaskJob::DeleteVolume(id), now),
            ),
        })
    }

    /// Adds a planned volume. Fails if its drives have been used by another volume since.
    pub(super) fn add_planned_volume(
        &mut self,
        volume: SimulatedVolume,
    ) -> Result<(), MachineError> {
        let rule = self.controller(volume.controller)?.clone();
        self.check_space(&rule, &volume)?;
        self.volumes.push(volume);
        Ok(())
    }

    fn controller(&self, controller: usize) -> Result<&ControllerRule, MachineError> {
        self.personality.storage.get(controller).ok_or(MachineError::NotFound { what: "storage" })
    }

    fn plan_volume(
        &self,
        rule: &ControllerRule,
        request: VolumeRequest,
    ) -> Result<SimulatedVolume, MachineError> {
        if !rule.raid.contains(&request.raid) {
            return Err(MachineError::NotInList {
                property: "RAIDType",
                value: request.raid.name().to_owned(),
            });
        }
        let drives = rule.all_drives();
        let mut chosen = request.drives;
        if chosen.is_empty() {
            let is_free = |drive: &usize| self.used_bytes(request.controller, *drive) == 0;
            chosen = (0..drives.len()).filter(is_free).take(request.raid.min_drives()).collect();
        }
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.len() < request.raid.min_drives() {
            return Err(MachineError::Conflict { reason: "too few drives for this RAID type" });
        }
        let free = chosen.iter().map(|drive| {
            let drive_rule = drives.get(*drive).ok_or(MachineError::NotFound { what: "drive" })?;
            Ok(drive_rule.bytes().saturating_sub(self.used_bytes(request.controller, *drive)))
        });
        let smallest =
            free.collect::<Result<Vec<u64>, MachineError>>()?.into_iter().min().unwrap_or(0);
        let data = u64::try_from(request.raid.data_drives(chosen.len())).unwrap_or(u64::MAX);
        let volume = SimulatedVolume {
            id: self.next_volume,
            controller: request.controller,
            name: request.name.unwrap_or_else(|| format!("Volume {}", self.next_volume).into()),
            raid: request.raid,
            capacity_bytes: request.capacity_bytes.unwrap_or(smallest.saturating_mul(data)),
            drives: chosen.into(),
        };
        self.check_space(rule, &volume)?;
        Ok(volume)
    }

    fn check_space(
        &self,
        rule: &ControllerRule,
        volume: &SimulatedVolume,
    ) -> Result<(), MachineError> {
        let drives = rule.all_drives();
        let share = volume.bytes_per_drive();
        let has_room = volume.drives.iter().all(|drive| {
            let size = drives.get(*drive).map_or(0, |rule| rule.bytes());
            size.saturating_sub(self.used_bytes(volume.controller, *drive)) >= share
        });
        if volume.capacity_bytes == 0 || !has_room {
            return Err(MachineError::Conflict { reason: "not enough free space on the drives" });
        }
        Ok(())
    }

    fn used_bytes(&self, controller: usize, drive: usize) -> u64 {
        self.volumes
            .iter()
            .filter(|volume| volume.controller == controller && volume.drives.contains(&drive))
            .map(SimulatedVolume::bytes_per_drive)
            .fold(0, u64::saturating_add)
    }
}

fn resolve_apply_time(
    rule: &ControllerRule,
    requested: Option<ApplyTime>,
) -> Result<ApplyTime, MachineError> {
    match requested {
        Some(apply) if rule.apply_times.contains(&apply) => Ok(apply),
        Some(_) => Err(MachineError::NotInList {
            property: "@Redfish.OperationApplyTime",
            value: "the apply time".to_owned(),
        }),
        None => Ok(rule.apply_times.first().copied().unwrap_or(ApplyTime::Immediate)),
    }
}
