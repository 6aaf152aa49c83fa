// SPDX-License-Identifier: Apache-2.0
//! Storage: controllers with drives, and the RAID volumes made of them.
//!
//! Controllers and drives come from the personality; only volumes are the machine's own.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::tasks::{Job, TaskId};
use super::{Machine, Refused};
use crate::personality::{ControllerRule, VolumeTiming};

/// How volumes are laid out, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaidKind {
    /// Striped.
    #[serde(rename = "RAID0")]
    Raid0,
    /// Mirrored.
    #[serde(rename = "RAID1")]
    Raid1,
    /// One drive's worth of parity.
    #[serde(rename = "RAID5")]
    Raid5,
    /// Two drives' worth of parity.
    #[serde(rename = "RAID6")]
    Raid6,
    /// Mirrored, then striped.
    #[serde(rename = "RAID10")]
    Raid10,
    /// RAID 5, striped.
    #[serde(rename = "RAID50")]
    Raid50,
    /// RAID 6, striped.
    #[serde(rename = "RAID60")]
    Raid60,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its number, unique in the machine's life.
    pub id: u32,
    /// The controller it is on, by its place in the personality.
    pub controller: usize,
    /// Its name.
    pub name: Box<str>,
    /// Its layout.
    pub raid: RaidKind,
    /// Its size.
    pub capacity_bytes: u64,
    /// Its drives, by their place on the controller.
    pub drives: Box<[usize]>,
}

/// What is asked for in a new volume.
#[derive(Clone, Debug)]
pub struct VolumeWish {
    /// The controller.
    pub controller: usize,
    /// The name; one is made up if there is none.
    pub name: Option<Box<str>>,
    /// The layout.
    pub raid: RaidKind,
    /// The size; as large as possible if there is none.
    pub capacity_bytes: Option<u64>,
    /// The drives; the BMC chooses free ones if there are none.
    pub drives: Vec<usize>,
}

/// When a change of volumes is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyTime {
    /// Now.
    Immediate,
    /// At the next reset.
    OnReset,
}

/// What came of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeOutcome {
    /// It is done; the volume's number.
    Done(u32),
    /// A task will do it.
    Later(TaskId),
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

    /// Redfish's name.
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

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|raid| raid.name() == name)
    }

    /// What old BMCs call volume types.
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

    fn fewest_drives(self) -> usize {
        match self {
            Self::Raid0 => 1,
            Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Raid10 => 4,
            Self::Raid50 => 6,
            Self::Raid60 => 8,
        }
    }

    /// How many of `drives` drives hold data rather than copies or parity.
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

impl Volume {
    /// How much of each of its drives it takes.
    fn share_of_a_drive(&self) -> u64 {
        let data = self.raid.data_drives(self.drives.len()).max(1);
        self.capacity_bytes.div_ceil(u64::try_from(data).unwrap_or(u64::MAX))
    }
}

impl Machine {
    /// The volumes on all controllers.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Makes a volume, now or later as asked and as this kind of BMC does.
    ///
    /// # Errors
    /// When the controller, the drives, the layout or the size do not allow it.
    pub fn create_volume(
        &mut self,
        wish: VolumeWish,
        apply: Option<ApplyTime>,
        now: Timestamp,
    ) -> Result<VolumeOutcome, Refused> {
        self.advance(now);
        let rule = self.controller(wish.controller)?.clone();
        let apply = checked_apply_time(&rule, apply)?;
        let volume = self.plan_volume(&rule, wish)?;
        let id = volume.id;
        self.next_volume = self.next_volume.saturating_add(1);
        Ok(match (apply, rule.timing) {
            (ApplyTime::Immediate, VolumeTiming::AtOnce) => {
                self.volumes.push(volume);
                VolumeOutcome::Done(id)
            }
            (ApplyTime::Immediate, VolumeTiming::ByTask) => {
                VolumeOutcome::Later(self.start_task(Job::CreateVolume(Box::new(volume)), now))
            }
            (ApplyTime::OnReset, _) => {
                VolumeOutcome::Later(self.wait_for_reset(Job::CreateVolume(Box::new(volume)), now))
            }
        })
    }

    /// Deletes a volume, now or later.
    ///
    /// # Errors
    /// When there is no such volume on that controller.
    pub fn delete_volume(
        &mut self,
        controller: usize,
        id: u32,
        apply: Option<ApplyTime>,
        now: Timestamp,
    ) -> Result<VolumeOutcome, Refused> {
        self.advance(now);
        let rule = self.controller(controller)?.clone();
        let apply = checked_apply_time(&rule, apply)?;
        let is_there = |volume: &Volume| volume.id == id && volume.controller == controller;
        if !self.volumes.iter().any(is_there) {
            return Err(Refused::NoSuch { what: "volume" });
        }
        Ok(match (apply, rule.timing) {
            (ApplyTime::Immediate, VolumeTiming::AtOnce) => {
                self.volumes.retain(|volume| !is_there(volume));
                VolumeOutcome::Done(id)
            }
            (ApplyTime::Immediate, VolumeTiming::ByTask) => {
                VolumeOutcome::Later(self.start_task(Job::DeleteVolume(id), now))
            }
            (ApplyTime::OnReset, _) => {
                VolumeOutcome::Later(self.wait_for_reset(Job::DeleteVolume(id), now))
            }
        })
    }

    /// Puts a planned volume in its place, unless something else took its drives meanwhile.
    pub(super) fn finish_volume(&mut self, volume: Volume) -> Result<(), Refused> {
        let rule = self.controller(volume.controller)?.clone();
        self.check_space(&rule, &volume)?;
        self.volumes.push(volume);
        Ok(())
    }

    fn controller(&self, controller: usize) -> Result<&ControllerRule, Refused> {
        self.personality.storage.get(controller).ok_or(Refused::NoSuch { what: "storage" })
    }

    fn plan_volume(&self, rule: &ControllerRule, wish: VolumeWish) -> Result<Volume, Refused> {
        if !rule.raid.contains(&wish.raid) {
            return Err(Refused::NotInList {
                property: "RAIDType",
                value: wish.raid.name().to_owned(),
            });
        }
        let drives = rule.all_drives();
        let mut chosen = wish.drives;
        if chosen.is_empty() {
            let is_free = |drive: &usize| self.used_of(wish.controller, *drive) == 0;
            chosen = (0..drives.len()).filter(is_free).take(wish.raid.fewest_drives()).collect();
        }
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.len() < wish.raid.fewest_drives() {
            return Err(Refused::Conflict { why: "there are too few drives for this RAID type" });
        }
        let free = chosen.iter().map(|drive| {
            let drive_rule = drives.get(*drive).ok_or(Refused::NoSuch { what: "drive" })?;
            Ok(drive_rule.bytes().saturating_sub(self.used_of(wish.controller, *drive)))
        });
        let smallest = free.collect::<Result<Vec<u64>, Refused>>()?.into_iter().min().unwrap_or(0);
        let data = u64::try_from(wish.raid.data_drives(chosen.len())).unwrap_or(u64::MAX);
        let volume = Volume {
            id: self.next_volume,
            controller: wish.controller,
            name: wish.name.unwrap_or_else(|| format!("Volume {}", self.next_volume).into()),
            raid: wish.raid,
            capacity_bytes: wish.capacity_bytes.unwrap_or(smallest.saturating_mul(data)),
            drives: chosen.into(),
        };
        self.check_space(rule, &volume)?;
        Ok(volume)
    }

    fn check_space(&self, rule: &ControllerRule, volume: &Volume) -> Result<(), Refused> {
        let drives = rule.all_drives();
        let share = volume.share_of_a_drive();
        let has_room = volume.drives.iter().all(|drive| {
            let whole = drives.get(*drive).map_or(0, |rule| rule.bytes());
            whole.saturating_sub(self.used_of(volume.controller, *drive)) >= share
        });
        if volume.capacity_bytes == 0 || !has_room {
            return Err(Refused::Conflict { why: "the drives have no room for the volume" });
        }
        Ok(())
    }

    fn used_of(&self, controller: usize, drive: usize) -> u64 {
        self.volumes
            .iter()
            .filter(|volume| volume.controller == controller && volume.drives.contains(&drive))
            .map(Volume::share_of_a_drive)
            .fold(0, u64::saturating_add)
    }
}

fn checked_apply_time(
    rule: &ControllerRule,
    asked: Option<ApplyTime>,
) -> Result<ApplyTime, Refused> {
    match asked {
        Some(apply) if rule.apply_times.contains(&apply) => Ok(apply),
        Some(_) => Err(Refused::NotInList {
            property: "@Redfish.OperationApplyTime",
            value: "the apply time".to_owned(),
        }),
        None => Ok(rule.apply_times.first().copied().unwrap_or(ApplyTime::Immediate)),
    }
}
