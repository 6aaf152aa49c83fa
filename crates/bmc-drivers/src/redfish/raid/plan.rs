// SPDX-License-Identifier: Apache-2.0
//! Which drives each logical disk goes onto. Nothing here talks to a BMC.
//!
//! A logical disk is built on drives of one controller that are alike in kind and size. Those whose
//! drives the operator named are placed first, and nothing else goes onto drives that were named.
//! The others take the smallest drives that do, as few as their level needs. If that leaves no room
//! for the rest, other choices are tried.

use serde::{Deserialize, Serialize};

use super::hardware::{Controller, Drive};
use super::levels::Level;
use super::wanted::{Choice, GIB, Wanted, is_like};

/// How many placements are tried before we say that there is none.
const MOST_TRIES: usize = 20_000;
/// Of how many drives a message tells why they cannot be used.
const MOST_TOLD: usize = 16;

/// A volume to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planned {
    /// The controller.
    pub(super) controller: String,
    /// The RAID level, as operators write it.
    pub(super) level: String,
    /// The paths of its drives.
    pub(super) drives: Vec<String>,
    /// Its size; none for all there is, which the controller knows best.
    pub(super) bytes: Option<u64>,
    pub(super) name: Option<String>,
    /// Whether the operating system goes here.
    pub(super) root: bool,
}

/// What happens to the volumes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// They stay, and so does what is on them.
    Stay,
    /// They are deleted first.
    Go,
}

/// Places all logical disks, in the order in which they are wanted; or says why that cannot be.
pub(super) fn plan(
    controllers: &[Controller],
    wanted: &[Wanted],
    existing: Existing,
) -> Result<Vec<Planned>, String> {
    let space = Space::of(controllers, existing);
    let mut chosen = Vec::with_capacity(wanted.len());
    for disk in wanted {
        chosen.push(match &disk.drives {
            None => None,
            Some(choice) => Some(choose(controllers, disk, choice)?),
        });
    }
    let named: Vec<Place> = chosen.iter().flatten().flatten().copied().collect();
    let mut search = Search { controllers, named, tries: 0 };
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    // Named drives before chosen ones, and what takes all there is after what has a size.
    order.sort_by_key(|index| {
        let (is_named, has_size) = (chosen[*index].is_some(), wanted[*index].bytes.is_some());
        match (is_named, has_size) {
            (true, true) => 0,
            (false, true) => 1,
            (false, false) => 2,
            (true, false) => 3,
        }
    });
    let asked: Vec<Asked<'_>> =
        order.iter().map(|index| (&wanted[*index], chosen[*index].as_deref())).collect();
    let places = search.place(&asked, &space)?;
    let mut placed: Vec<(usize, Vec<Place>)> = order.into_iter().zip(places).collect();
    placed.sort_by_key(|(index, _)| *index);
    Ok(placed
        .into_iter()
        .map(|(index, places)| planned(controllers, &wanted[index], &places))
        .collect())
}

/// A drive: the number of its controller, and its own.
type Place = (usize, usize);
/// A logical disk, and the drives that were chosen for it if any were.
type Asked<'a> = (&'a Wanted, Option<&'a [Place]>);

/// What is free on each drive.
#[derive(Debug, Clone)]
struct Space(Vec<Vec<Free>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    bytes: u64,
    /// Nothing is on it yet.
    untouched: bool,
}

/// What the drives of a logical disk have in common.
#[derive(PartialEq, Eq)]
struct Likeness<'a> {
    spare: bool,
    bytes: u64,
    controller: usize,
    media: &'a str,
    protocol: &'a str,
}

struct Search<'a> {
    controllers: &'a [Controller],
    /// Drives that an operator named for one logical disk are not chosen for another.
    named: Vec<Place>,
    tries: usize,
}

impl Space {
    fn of(controllers: &[Controller], existing: Existing) -> Self {
        let free = |controller: &Controller, drive: &Drive| {
            let mut free = Free { bytes: drive.bytes, untouched: true };
            if existing == Existing::Stay {
                for (level, bytes, drives) in volumes_on(controller, drive) {
                    let used = bytes.div_ceil(level.data_drives(drives));
                    free = Free { bytes: free.bytes.saturating_sub(used), untouched: false };
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

    fn at(&self, place: Place) -> Free {
        let none = Free { bytes: 0, untouched: false };
        self.0.get(place.0).and_then(|drives| drives.get(place.1)).copied().unwrap_or(none)
    }

    fn set(&mut self, place: Place, free: Free) {
        if let Some(known) = self.0.get_mut(place.0).and_then(|drives| drives.get_mut(place.1)) {
            *known = free;
        }
    }

    /// Puts a logical disk onto these drives; none if there is no room.
    fn with(&self, disk: &Wanted, places: &[Place]) -> Option<Self> {
        let frees: Vec<Free> = places.iter().map(|place| self.at(*place)).collect();
        if !disk.share && frees.iter().any(|free| !free.untouched) {
            return None;
        }
        let least = frees.iter().map(|free| free.bytes).min()?;
        let used = match disk.bytes {
            Some(bytes) => bytes.div_ceil(disk.level.data_drives(places.len())),
            None => least,
        };
        if least == 0 || used > least {
            return None;
        }
        let mut after = self.clone();
        for (place, free) in places.iter().zip(frees) {
            let bytes = if disk.share { free.bytes - used } else { 0 };
            after.set(*place, Free { bytes, untouched: false });
        }
        Some(after)
    }
}

impl Search<'_> {
    /// Places the logical disks, the first first. The error tells of the one that found no place
    /// when the most of the others had found theirs.
    fn place(&mut self, asked: &[Asked<'_>], space: &Space) -> Result<Vec<Vec<Place>>, String> {
        let mut deepest = (0, None);
        let found = self.next(asked, space, 0, &mut deepest);
        found.ok_or_else(|| deepest.1.unwrap_or_else(|| "there is nothing to place".to_owned()))
    }

    fn next(
        &mut self,
        asked: &[Asked<'_>],
        space: &Space,
        depth: usize,
        deepest: &mut (usize, Option<String>),
    ) -> Option<Vec<Vec<Place>>> {
        let Some(((disk, chosen), rest)) = asked.split_first() else { return Some(Vec::new()) };
        let candidates = match chosen {
            Some(places) => vec![places.to_vec()],
            None => self.candidates(disk, space),
        };
        for places in candidates {
            self.tries += 1;
            if self.tries > MOST_TRIES {
                return None;
            }
            let Some(after) = space.with(disk, &places) else { continue };
            if let Some(mut others) = self.next(rest, &after, depth + 1, deepest) {
                others.insert(0, places);
                return Some(others);
            }
        }
        if deepest.1.is_none() || depth > deepest.0 {
            *deepest = (depth, Some(self.why_not(disk, *chosen, space)));
        }
        None
    }

    /// The sets of drives that a logical disk could go onto, the best first.
    fn candidates(&self, disk: &Wanted, space: &Space) -> Vec<Vec<Place>> {
        let mut candidates = Vec::new();
        for group in self.groups(disk, space) {
            let counts: Vec<usize> = match disk.count {
                Some(count) => vec![count],
                None => disk.level.counts(group.len()).collect(),
            };
            let fits = |count: &usize| disk.level.takes(*count) && *count <= group.len();
            for count in counts.into_iter().filter(fits) {
                candidates.push(group[..count].to_vec());
            }
        }
        candidates
    }

    /// Drives that are alike and free, spare ones last and otherwise the smallest first; within a
    /// group, the ones with the least room.
    fn groups(&self, disk: &Wanted, space: &Space) -> Vec<Vec<Place>> {
        let mut groups: Vec<(Likeness<'_>, Vec<Place>)> = Vec::new();
        for (number, controller) in self.controllers.iter().enumerate() {
            if !may_use(disk, controller) {
                continue;
            }
            for (index, drive) in controller.drives.iter().enumerate() {
                let place = (number, index);
                let free = space.at(place);
                let open = if disk.share { free.bytes > 0 } else { free.untouched };
                if drive.problem.is_some()
                    || !disk.fits(drive)
                    || !open
                    || self.named.contains(&place)
                {
                    continue;
                }
                let likeness = Likeness {
                    spare: drive.spare,
                    bytes: drive.bytes,
                    controller: number,
                    media: &drive.media,
                    protocol: &drive.protocol,
                };
                match groups.iter_mut().find(|(known, _)| *known == likeness) {
                    Some((_, places)) => places.push(place),
                    None => groups.push((likeness, vec![place])),
                }
            }
        }
        groups.sort_by_key(|(likeness, _)| (likeness.spare, likeness.bytes));
        for (_, places) in &mut groups {
            places.sort_by_key(|place| space.at(*place).bytes);
        }
        groups.into_iter().map(|(_, places)| places).collect()
    }

    /// Why a logical disk finds no place, in words.
    fn why_not(&self, disk: &Wanted, chosen: Option<&[Place]>, space: &Space) -> String {
        let what = disk.words();
        if let Some(places) = chosen {
            let names: Vec<_> = places.iter().map(|place| self.drive(*place)).collect();
            let used = places.iter().any(|place| !space.at(*place).untouched);
            let least = places.iter().map(|place| space.at(*place).bytes).min().unwrap_or(0);
            let room = least.saturating_mul(disk.level.data_drives(places.len())) / GIB;
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
            if controller.shelf.is_none() {
                reasons.push(format!("controller {} cannot have volumes", controller.id));
            } else if !controller.can(disk.level) {
                let known = controller.raid_types.as_deref().unwrap_or_default().join(", ");
                let known = if known.is_empty() { "no RAID at all" } else { &known };
                reasons.push(format!("controller {} can do {known}", controller.id));
            }
        }
        let fitting = self.controllers.iter().filter(|controller| may_use(disk, controller));
        for drive in fitting.flat_map(|c| &c.drives).filter(|d| disk.fits(d)).take(MOST_TOLD) {
            if let Some(problem) = &drive.problem {
                reasons.push(format!("drive {} cannot be used: {problem}", drive.id));
            }
        }
        let groups = self.groups(disk, space);
        if groups.is_empty() {
            reasons.push("no drive of that kind is free".to_owned());
        }
        for places in groups {
            let Some(first) = places.first() else { continue };
            let Some((controller, drive)) = self.find(*first) else { continue };
            reasons.push(format!(
                "controller {} has {} free {} {} drive(s) of {} GiB",
                controller.id,
                places.len(),
                drive.protocol,
                drive.media,
                drive.bytes / GIB
            ));
        }
        let count = disk.count.map_or_else(String::new, |count| format!(", asked for on {count}"));
        format!(
            "no drives for {what}, which takes {}{count}: {}",
            disk.level.needs(),
            reasons.join("; ")
        )
    }

    fn find(&self, place: Place) -> Option<(&Controller, &Drive)> {
        let controller = self.controllers.get(place.0)?;
        Some((controller, controller.drives.get(place.1)?))
    }

    fn drive(&self, place: Place) -> &str {
        self.find(place).map_or("?", |(_, drive)| drive.id.as_str())
    }
}

/// Whether a logical disk may be on this controller at all.
fn may_use(disk: &Wanted, controller: &Controller) -> bool {
    controller.shelf.is_some()
        && controller.can(disk.level)
        && disk.controller.as_ref().is_none_or(|name| controller.is_called(name))
}

/// The drives that an operator chose for a logical disk.
fn choose(
    controllers: &[Controller],
    disk: &Wanted,
    choice: &Choice,
) -> Result<Vec<Place>, String> {
    let what = disk.words();
    let wanted = disk.controller.as_deref();
    let found = controllers
        .iter()
        .enumerate()
        .find(|(_, controller)| wanted.is_none_or(|name| controller.is_called(name)));
    let Some((number, controller)) = found else {
        let known: Vec<_> = controllers.iter().map(|controller| controller.id.as_str()).collect();
        return Err(format!(
            "{what} names the controller '{}', which is not there; there are {}",
            wanted.unwrap_or_default(),
            known.join(", ")
        ));
    };
    if controller.shelf.is_none() || !controller.can(disk.level) {
        return Err(format!("{what}: controller {} cannot do that level", controller.id));
    }
    let mut indices: Vec<usize> = Vec::new();
    match choice {
        Choice::Named(names) => {
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
        Choice::Like(hints) => {
            for hint in hints {
                let mut index = None;
                for (candidate, drive) in controller.drives.iter().enumerate() {
                    let free = !indices.contains(&candidate) && drive.problem.is_none();
                    if free && is_like(drive, hint).map_err(|why| format!("{what}: {why}"))? {
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
    if !disk.level.takes(indices.len()) || disk.count.is_some_and(|count| count != indices.len()) {
        return Err(format!(
            "{what} names {} drive(s) and takes {}{}",
            indices.len(),
            disk.level.needs(),
            disk.count.map_or_else(String::new, |count| format!(
                "; number_of_physical_disks says {count}"
            ))
        ));
    }
    Ok(indices.into_iter().map(|index| (number, index)).collect())
}

/// Level, size and number of drives of the volumes that are on a drive.
fn volumes_on<'a>(
    controller: &'a Controller,
    drive: &'a Drive,
) -> impl Iterator<Item = (&'a Level, u64, usize)> {
    controller.volumes.iter().filter_map(|volume| {
        let is_on = volume.drives.iter().any(|path| same_path(path, &drive.path))
            || drive.volumes.iter().any(|path| same_path(path, &volume.path));
        // A drive that is passed through as it is counts as free: that is how it becomes part of a
        // volume.
        is_on.then_some((volume.level?, volume.bytes, volume.drives.len()))
    })
}

pub(super) fn same_path(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

fn planned(controllers: &[Controller], disk: &Wanted, places: &[Place]) -> Planned {
    let drive = |place: &Place| {
        let controller = controllers.get(place.0)?;
        Some((controller, controller.drives.get(place.1)?))
    };
    let controller = places.first().and_then(drive).map(|(controller, _)| controller.id.clone());
    Planned {
        controller: controller.unwrap_or_default(),
        level: disk.level.name.to_owned(),
        drives: places.iter().filter_map(drive).map(|(_, drive)| drive.path.clone()).collect(),
        bytes: disk.bytes,
        name: disk.name.clone(),
        root: disk.root,
    }
}

#[cfg(test)]
mod tests;
