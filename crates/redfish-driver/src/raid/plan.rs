// SPDX-License-Identifier: Apache-2.0
//! Placement of logical disks on drives. Pure functions without I/O.
//!
//! A logical disk uses drives of one controller with the same media type, interface and size. Disks
//! with named drives are placed first, and named drives are not used for other disks. The others use
//! the smallest suitable drives, as few as their level needs. If the rest does not fit then, other
//! combinations are tried.

use serde::{Deserialize, Serialize};

use super::levels::RaidLevel;
use super::requested_disks::{DriveChoice, GIB, RequestedLogicalDisk, matches_hint};
use super::storage::{RaidController, RaidDrive};

/// Maximum number of placements that are tried.
const MAX_TRIES: usize = 20_000;
/// Maximum number of drives whose problems a message lists.
const MAX_DRIVES_LISTED: usize = 16;

/// A volume to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlannedVolume {
    /// The id of the controller.
    pub(super) controller: String,
    /// The RAID level in the notation of a RAID configuration.
    pub(super) level: String,
    /// The paths of its drives.
    pub(super) drives: Vec<String>,
    /// Its size; `None` for the maximum, which the controller computes.
    pub(super) bytes: Option<u64>,
    pub(super) name: Option<String>,
    /// Whether it is the root volume.
    pub(super) root: bool,
}

/// What happens to existing volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingVolumes {
    /// They are kept with their data.
    Keep,
    /// They are deleted first.
    Delete,
}

/// Places all logical disks, in the requested order. The error is the reason why it is impossible.
pub(super) fn plan(
    controllers: &[RaidController],
    wanted: &[RequestedLogicalDisk],
    existing: ExistingVolumes,
) -> Result<Vec<PlannedVolume>, String> {
    let space = FreeSpace::new(controllers, existing);
    let mut chosen = Vec::with_capacity(wanted.len());
    for disk in wanted {
        chosen.push(match &disk.drives {
            None => None,
            Some(choice) => Some(resolve_choice(controllers, disk, choice)?),
        });
    }
    let named: Vec<DriveIndex> = chosen.iter().flatten().flatten().copied().collect();
    let mut search = PlacementSearch { controllers, named, tries: 0 };
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    // Named drives before chosen ones, and disks of maximum size after those with a size.
    order.sort_by_key(|index| {
        let (is_named, has_size) = (chosen[*index].is_some(), wanted[*index].bytes.is_some());
        match (is_named, has_size) {
            (true, true) => 0,
            (false, true) => 1,
            (false, false) => 2,
            (true, false) => 3,
        }
    });
    let to_place: Vec<DiskToPlace<'_>> =
        order.iter().map(|index| (&wanted[*index], chosen[*index].as_deref())).collect();
    let drive_indexes = search.place_all(&to_place, &space)?;
    let mut placed: Vec<(usize, Vec<DriveIndex>)> = order.into_iter().zip(drive_indexes).collect();
    placed.sort_by_key(|(index, _)| *index);
    Ok(placed
        .into_iter()
        .map(|(index, drive_indexes)| planned(controllers, &wanted[index], &drive_indexes))
        .collect())
}

/// A drive: the index of its controller, and its index there.
type DriveIndex = (usize, usize);
/// A logical disk, and the drives that were selected for it.
type DiskToPlace<'a> = (&'a RequestedLogicalDisk, Option<&'a [DriveIndex]>);

/// The free space of each drive, by controller.
#[derive(Debug, Clone)]
struct FreeSpace(Vec<Vec<DriveSpace>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DriveSpace {
    bytes: u64,
    /// Whether no volume is on the drive.
    untouched: bool,
}

/// What the drives of a logical disk have in common.
#[derive(PartialEq, Eq)]
struct DriveGroupKey<'a> {
    spare: bool,
    bytes: u64,
    controller: usize,
    media: &'a str,
    protocol: &'a str,
}

struct PlacementSearch<'a> {
    controllers: &'a [RaidController],
    /// Drives that are named for one logical disk are not chosen for another.
    named: Vec<DriveIndex>,
    tries: usize,
}

impl FreeSpace {
    fn new(controllers: &[RaidController], existing: ExistingVolumes) -> Self {
        let free = |controller: &RaidController, drive: &RaidDrive| {
            let mut free = DriveSpace { bytes: drive.bytes, untouched: true };
            if existing == ExistingVolumes::Keep {
                for (level, bytes, drives) in volumes_on(controller, drive) {
                    let used = bytes.div_ceil(level.data_drives(drives));
                    free = DriveSpace { bytes: free.bytes.saturating_sub(used), untouched: false };
                }
            }
            free
        };
        Self(
            controllers
                .iter()
                .map(|controller| {
                    controller.drives.iter().map(|drive| free(controller, drive)).collect()
                })
                .collect(),
        )
    }

    fn at(&self, drive_index: DriveIndex) -> DriveSpace {
        let none = DriveSpace { bytes: 0, untouched: false };
        self.0
            .get(drive_index.0)
            .and_then(|drives| drives.get(drive_index.1))
            .copied()
            .unwrap_or(none)
    }

    fn set(&mut self, drive_index: DriveIndex, free: DriveSpace) {
        if let Some(known) =
            self.0.get_mut(drive_index.0).and_then(|drives| drives.get_mut(drive_index.1))
        {
            *known = free;
        }
    }

    /// Returns the space after placing a logical disk on these drives; `None` if it does not fit.
    fn with(&self, disk: &RequestedLogicalDisk, drive_indexes: &[DriveIndex]) -> Option<Self> {
        let spaces: Vec<DriveSpace> =
            drive_indexes.iter().map(|drive_index| self.at(*drive_index)).collect();
        if !disk.share && spaces.iter().any(|free| !free.untouched) {
            return None;
        }
        let least = spaces.iter().map(|free| free.bytes).min()?;
        let used = match disk.bytes {
            Some(bytes) => bytes.div_ceil(disk.level.data_drives(drive_indexes.len())),
            None => least,
        };
        if least == 0 || used > least {
            return None;
        }
        let mut after = self.clone();
        for (drive_index, free) in drive_indexes.iter().zip(spaces) {
            let bytes = if disk.share { free.bytes - used } else { 0 };
            after.set(*drive_index, DriveSpace { bytes, untouched: false });
        }
        Some(after)
    }
}

impl PlacementSearch<'_> {
    /// Places the logical disks in order. The error is about the disk that failed with the most other
    /// disks placed.
    fn place_all(
        &mut self,
        to_place: &[DiskToPlace<'_>],
        space: &FreeSpace,
    ) -> Result<Vec<Vec<DriveIndex>>, String> {
        let mut deepest = (0, None);
        let found = self.next(to_place, space, 0, &mut deepest);
        found.ok_or_else(|| deepest.1.unwrap_or_else(|| "there is nothing to place".to_owned()))
    }

    fn next(
        &mut self,
        to_place: &[DiskToPlace<'_>],
        space: &FreeSpace,
        depth: usize,
        deepest: &mut (usize, Option<String>),
    ) -> Option<Vec<Vec<DriveIndex>>> {
        let Some(((disk, chosen), rest)) = to_place.split_first() else { return Some(Vec::new()) };
        let candidates = match chosen {
            Some(drive_indexes) => vec![drive_indexes.to_vec()],
            None => self.candidates(disk, space),
        };
        for drive_indexes in candidates {
            self.tries += 1;
            if self.tries > MAX_TRIES {
                return None;
            }
            let Some(after) = space.with(disk, &drive_indexes) else { continue };
            if let Some(mut others) = self.next(rest, &after, depth + 1, deepest) {
                others.insert(0, drive_indexes);
                return Some(others);
            }
        }
        if deepest.1.is_none() || depth > deepest.0 {
            *deepest = (depth, Some(self.failure_reason(disk, *chosen, space)));
        }
        None
    }

    /// The sets of drives that a logical disk could use, best first.
    fn candidates(&self, disk: &RequestedLogicalDisk, space: &FreeSpace) -> Vec<Vec<DriveIndex>> {
        let mut candidates = Vec::new();
        for group in self.groups(disk, space) {
            let counts: Vec<usize> = match disk.count {
                Some(count) => vec![count],
                None => disk.level.drive_counts(group.len()).collect(),
            };
            let fits =
                |count: &usize| disk.level.accepts_drive_count(*count) && *count <= group.len();
            for count in counts.into_iter().filter(fits) {
                candidates.push(group[..count].to_vec());
            }
        }
        candidates
    }

    /// Groups of equal drives with free space: hot spares last, else the smallest drives first; within
    /// a group those with the least space first.
    fn groups(&self, disk: &RequestedLogicalDisk, space: &FreeSpace) -> Vec<Vec<DriveIndex>> {
        let mut groups: Vec<(DriveGroupKey<'_>, Vec<DriveIndex>)> = Vec::new();
        for (number, controller) in self.controllers.iter().enumerate() {
            if !may_use(disk, controller) {
                continue;
            }
            for (index, drive) in controller.drives.iter().enumerate() {
                let drive_index = (number, index);
                let free = space.at(drive_index);
                let open = if disk.share { free.bytes > 0 } else { free.untouched };
                if drive.problem.is_some()
                    || !disk.fits(drive)
                    || !open
                    || self.named.contains(&drive_index)
                {
                    continue;
                }
                let likeness = DriveGroupKey {
                    spare: drive.spare,
                    bytes: drive.bytes,
                    controller: number,
                    media: &drive.media,
                    protocol: &drive.protocol,
                };
                match groups.iter_mut().find(|(known, _)| *known == likeness) {
                    Some((_, drive_indexes)) => drive_indexes.push(drive_index),
                    None => groups.push((likeness, vec![drive_index])),
                }
            }
        }
        groups.sort_by_key(|(likeness, _)| (likeness.spare, likeness.bytes));
        for (_, drive_indexes) in &mut groups {
            drive_indexes.sort_by_key(|drive_index| space.at(*drive_index).bytes);
        }
        groups.into_iter().map(|(_, drive_indexes)| drive_indexes).collect()
    }

    /// Describes why a logical disk cannot be placed.
    fn failure_reason(
        &self,
        disk: &RequestedLogicalDisk,
        chosen: Option<&[DriveIndex]>,
        space: &FreeSpace,
    ) -> String {
        let what = disk.description();
        if let Some(drive_indexes) = chosen {
            let names: Vec<_> =
                drive_indexes.iter().map(|drive_index| self.drive(*drive_index)).collect();
            let used = drive_indexes.iter().any(|drive_index| !space.at(*drive_index).untouched);
            let least = drive_indexes
                .iter()
                .map(|drive_index| space.at(*drive_index).bytes)
                .min()
                .unwrap_or(0);
            let room = least.saturating_mul(disk.level.data_drives(drive_indexes.len())) / GIB;
            return if used && !disk.share {
                format!(
                    "no room for {what}: not all of the drives {} are free; delete the existing \
                     volumes first, or set share_physical_disks",
                    names.join(", ")
                )
            } else {
                format!("no room for {what}: {} have {room} GiB for data", names.join(", "))
            };
        }
        let mut reasons = Vec::new();
        for controller in self.controllers {
            if disk.controller.as_ref().is_some_and(|name| !controller.is_called(name)) {
                continue;
            }
            if controller.volume_collection.is_none() {
                reasons.push(format!("controller {} does not support volumes", controller.id));
            } else if !controller.supports(disk.level) {
                let known = controller.raid_types.as_deref().unwrap_or_default().join(", ");
                let known = if known.is_empty() { "no RAID at all" } else { &known };
                reasons.push(format!("controller {} supports {known}", controller.id));
            }
        }
        let fitting = self.controllers.iter().filter(|controller| may_use(disk, controller));
        for drive in
            fitting.flat_map(|c| &c.drives).filter(|d| disk.fits(d)).take(MAX_DRIVES_LISTED)
        {
            if let Some(problem) = &drive.problem {
                reasons.push(format!("drive {} cannot be used: {problem}", drive.id));
            }
        }
        let groups = self.groups(disk, space);
        if groups.is_empty() {
            reasons.push("no drive of that kind is free".to_owned());
        }
        for drive_indexes in groups {
            let Some(first) = drive_indexes.first() else { continue };
            let Some((controller, drive)) = self.find(*first) else { continue };
            reasons.push(format!(
                "controller {} has {} free {} {} drive(s) of {} GiB",
                controller.id,
                drive_indexes.len(),
                drive.protocol,
                drive.media,
                drive.bytes / GIB
            ));
        }
        let count = disk.count.map_or_else(String::new, |count| format!(", requested on {count}"));
        format!(
            "no drives for {what}, which needs {}{count}: {}",
            disk.level.drive_requirement(),
            reasons.join("; ")
        )
    }

    fn find(&self, drive_index: DriveIndex) -> Option<(&RaidController, &RaidDrive)> {
        let controller = self.controllers.get(drive_index.0)?;
        Some((controller, controller.drives.get(drive_index.1)?))
    }

    fn drive(&self, drive_index: DriveIndex) -> &str {
        self.find(drive_index).map_or("?", |(_, drive)| drive.id.as_str())
    }
}

/// Whether a logical disk may be on this controller.
fn may_use(disk: &RequestedLogicalDisk, controller: &RaidController) -> bool {
    controller.volume_collection.is_some()
        && controller.supports(disk.level)
        && disk.controller.as_ref().is_none_or(|name| controller.is_called(name))
}

/// Returns the drives that the operator selected for a logical disk.
fn resolve_choice(
    controllers: &[RaidController],
    disk: &RequestedLogicalDisk,
    choice: &DriveChoice,
) -> Result<Vec<DriveIndex>, String> {
    let what = disk.description();
    let wanted = disk.controller.as_deref();
    let found = controllers
        .iter()
        .enumerate()
        .find(|(_, controller)| wanted.is_none_or(|name| controller.is_called(name)));
    let Some((number, controller)) = found else {
        let known: Vec<_> = controllers.iter().map(|controller| controller.id.as_str()).collect();
        return Err(format!(
            "{what} names the controller '{}', which does not exist; existing controllers: {}",
            wanted.unwrap_or_default(),
            known.join(", ")
        ));
    };
    if controller.volume_collection.is_none() || !controller.supports(disk.level) {
        return Err(format!("{what}: controller {} does not support that level", controller.id));
    }
    let mut indices: Vec<usize> = Vec::new();
    match choice {
        DriveChoice::Named(names) => {
            for name in names {
                let index = controller.drives.iter().position(|drive| drive.is_called(name));
                indices.push(index.ok_or_else(|| {
                    let known: Vec<_> =
                        controller.drives.iter().map(|drive| drive.id.as_str()).collect();
                    format!(
                        "{what} names the drive '{name}', which controller {} does not have; it \
                         has {}",
                        controller.id,
                        known.join(", ")
                    )
                })?);
            }
        }
        DriveChoice::Hints(hints) => {
            for hint in hints {
                let mut index = None;
                for (candidate, drive) in controller.drives.iter().enumerate() {
                    let free = !indices.contains(&candidate) && drive.problem.is_none();
                    if free && matches_hint(drive, hint).map_err(|why| format!("{what}: {why}"))? {
                        index = Some(candidate);
                        break;
                    }
                }
                indices.push(index.ok_or_else(|| {
                    let hint = serde_json::Value::Object(hint.clone());
                    format!("{what}: controller {} has no drive like {hint}", controller.id)
                })?);
            }
        }
    }
    for index in &indices {
        if let Some(drive) = controller.drives.get(*index)
            && let Some(problem) = &drive.problem
        {
            return Err(format!("{what} names the drive '{}': {problem}", drive.id));
        }
    }
    if !disk.level.accepts_drive_count(indices.len())
        || disk.count.is_some_and(|count| count != indices.len())
    {
        return Err(format!(
            "{what} names {} drive(s) and needs {}{}",
            indices.len(),
            disk.level.drive_requirement(),
            disk.count
                .map_or_else(String::new, |count| format!("; number_of_physical_disks is {count}"))
        ));
    }
    Ok(indices.into_iter().map(|index| (number, index)).collect())
}

/// Level, size and number of drives of the volumes on a drive.
fn volumes_on<'a>(
    controller: &'a RaidController,
    drive: &'a RaidDrive,
) -> impl Iterator<Item = (&'a RaidLevel, u64, usize)> {
    controller.volumes.iter().filter_map(|volume| {
        let is_on = volume.drives.iter().any(|path| same_path(path, &drive.path))
            || drive.volumes.iter().any(|path| same_path(path, &volume.path));
        // A passed-through drive counts as free: it becomes part of a volume that way.
        is_on.then_some((volume.level?, volume.bytes, volume.drives.len()))
    })
}

pub(super) fn same_path(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn planned(
    controllers: &[RaidController],
    disk: &RequestedLogicalDisk,
    drive_indexes: &[DriveIndex],
) -> PlannedVolume {
    let drive = |drive_index: &DriveIndex| {
        let controller = controllers.get(drive_index.0)?;
        Some((controller, controller.drives.get(drive_index.1)?))
    };
    let controller =
        drive_indexes.first().and_then(drive).map(|(controller, _)| controller.id.clone());
    PlannedVolume {
        controller: controller.unwrap_or_default(),
        level: disk.level.name.to_owned(),
        drives: drive_indexes
            .iter()
            .filter_map(drive)
            .map(|(_, drive)| drive.path.clone())
            .collect(),
        bytes: disk.bytes,
        name: disk.name.clone(),
        root: disk.root,
    }
}

#[cfg(test)]
mod tests;
