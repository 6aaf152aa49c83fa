// SPDX-License-Identifier: Apache-2.0
//! Software RAID, as Linux and mdadm have it.
//!
//! Each array has a partition on each of its disks. The first array must be a RAID-1, so that a
//! machine can boot from it; before it each disk keeps room for what boots: an EFI system partition,
//! or GRUB's.

mod existing;
mod plan;

use std::path::{Path, PathBuf};
use std::process::Command;

use agent_protocol::HintError;
use serde_json::Value;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path, wait_for};
use crate::gpt::{Gpt, kind};
use crate::mbr::Mbr;
pub use existing::{ExistingArray, existing};
pub use plan::{Array, Plan, RaidOptions, validate};

/// Why arrays are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be built.
    #[error("the software RAID configuration cannot be built: {}", problems.join("; "))]
    Invalid {
        /// All that is wrong with it.
        problems: Vec<String>,
    },
    /// A disk's hints make no sense.
    #[error("the hints for a disk of an array cannot be used")]
    Hints(#[from] HintError),
    /// A disk has no room.
    #[error(
        "{disk} has no room for a partition of {gib} GiB: make the arrays smaller, or leave the disk out (physical_disks)"
    )]
    NoRoom {
        /// Which disk.
        disk: String,
        /// How much was wanted.
        gib: u64,
    },
    /// mdadm failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// What was run.
        command: String,
        /// What it said.
        said: String,
    },
    /// A disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Makes the partitions and arrays of a plan; arrays that stayed stay. Answers what the node's `raid_config` becomes.
///
/// # Errors
/// If a disk has no room, or mdadm fails.
pub fn create(plan: &Plan) -> Result<Value, Error> {
    let there = existing(Path::new(SYS))?;
    let stays = |array: &&Array| {
        there.iter().any(|other| other.name.as_deref() == Some(array.name.as_str()))
    };
    let kept = plan.arrays.iter().filter(stays).count();
    if kept > 0 && kept < plan.arrays.len() {
        let problem = "some of the arrays are there already and some are not: delete those first";
        return Err(Error::Invalid { problems: vec![problem.to_owned()] });
    }
    if kept > 0 {
        return Ok(plan.target.clone());
    }
    for disk in &plan.disks {
        partition(disk, plan)?;
    }
    for array in &plan.arrays {
        for member in &array.members {
            wait_for(member)?;
        }
        run("mdadm", &create_command(array))?;
        // What was in the place of the array before must not shine through.
        let device = Device::exclusive(Path::new(&array.device))?;
        device.zero(0, 1 << 20)?;
        device.sync()?;
    }
    Ok(plan.target.clone())
}

/// Takes arrays apart, but for those with the given volume names, and wipes the disks they were on.
/// An array that shares disks with one that stays is only emptied. Answers the devices of the arrays
/// that are gone.
///
/// # Errors
/// If an array does not stop, or a disk fails.
pub fn delete(sys: &Path, keep: &[String]) -> Result<Vec<String>, Error> {
    let arrays = existing(sys)?;
    let is_kept =
        |array: &ExistingArray| array.name.as_ref().is_some_and(|name| keep.contains(name));
    let kept_disks: Vec<&PathBuf> =
        arrays.iter().filter(|array| is_kept(array)).flat_map(|array| &array.disks).collect();
    let mut gone = Vec::new();
    for array in arrays.iter().filter(|array| !is_kept(array)) {
        let on_kept_disk = array.disks.iter().any(|disk| kept_disks.contains(&disk));
        // The EFI system partitions of an array that stays are needed to boot from it.
        if on_kept_disk && array.name.as_deref() == Some(ESP_NAME) {
            continue;
        }
        let device = Device::writable(&array.device)?;
        device.zero(0, 1 << 20)?;
        device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
        device.sync()?;
        drop(device);
        if on_kept_disk {
            continue;
        }
        run("mdadm", &["--stop".to_owned(), array.device.display().to_string()])?;
        for member in &array.members {
            let member = member.display().to_string();
            run("mdadm", &["--zero-superblock".to_owned(), member])?;
        }
        gone.push(array.device.display().to_string());
        for disk in array.disks.iter().filter(|disk| !kept_disks.contains(disk)) {
            // A disk may be in several arrays; the last of them frees it.
            if arrays.iter().all(|other| {
                other == array
                    || !other.disks.contains(disk)
                    || gone.contains(&other.device.display().to_string())
            }) {
                wipe(disk)?;
            }
        }
    }
    Ok(gone)
}

/// Where the kernel tells about devices.
const SYS: &str = "/sys";

/// The volume name of the array of EFI system partitions.
pub(crate) const ESP_NAME: &str = "esp";

/// `mdadm --create` for an array.
pub(crate) fn create_command(array: &Array) -> Vec<String> {
    let level = if array.level == "1+0" { "10" } else { &array.level };
    let mut arguments: Vec<String> = ["--create", &array.device, "--force", "--run"]
        .into_iter()
        .chain([array.metadata, "--level", level, "--name", &array.name, "--raid-devices"])
        .map(str::to_owned)
        .collect();
    arguments.push(array.members.len().to_string());
    arguments.extend(array.members.iter().map(|member| member.display().to_string()));
    arguments
}

pub(crate) fn run(program: &str, arguments: &[String]) -> Result<String, Error> {
    let command = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::Command { command, said })
        }
        Err(error) => {
            let said = format!("it does not start ({error}); is it in the ramdisk?");
            Err(Error::Command { command, said })
        }
    }
}

/// Gives a disk a partition for each array it is in.
fn partition(disk: &str, plan: &Plan) -> Result<(), Error> {
    let device = Device::exclusive(Path::new(disk))?;
    device.zero(0, 1 << 20)?;
    device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
    let mine = plan.arrays.iter().filter(|array| array.disks.iter().any(|it| it == disk));
    let sizes: Vec<Option<u64>> = mine.map(|array| array.gib).collect();
    let written =
        if plan.gpt { write_gpt(&device, plan, &sizes)? } else { write_mbr(&device, &sizes)? };
    if let Err(gib) = written {
        return Err(Error::NoRoom { disk: disk.to_owned(), gib });
    }
    device.sync()?;
    Ok(device.reread_partitions()?)
}

fn write_gpt(
    device: &Device,
    plan: &Plan,
    sizes: &[Option<u64>],
) -> Result<Result<(), u64>, DeviceError> {
    let mut table = Gpt::new(device, Uuid::new_v4());
    // The room in front is taken while the arrays get theirs.
    let reserved = table.add(Some(plan.reserved), kind::BIOS_BOOT, Uuid::new_v4(), "reserved");
    if reserved.is_err() {
        return Ok(Err(0));
    }
    for size in sizes {
        let length = size.map(|gib| gib << 30);
        if table.add(length, kind::RAID, Uuid::new_v4(), "").is_err() {
            return Ok(Err(size.unwrap_or(0)));
        }
    }
    table.partitions.retain(|partition| partition.name != "reserved");
    for partition in &mut table.partitions {
        partition.number -= 1;
    }
    table.write(device).map(Ok)
}

fn write_mbr(device: &Device, sizes: &[Option<u64>]) -> Result<Result<(), u64>, DeviceError> {
    let mut table = Mbr::new(device, Uuid::new_v4().as_fields().0);
    for size in sizes {
        if table.add(size.map(|gib| gib << 30), 0xfd, false).is_none() {
            return Ok(Err(size.unwrap_or(0)));
        }
    }
    table.write(device).map(Ok)
}

fn wipe(disk: &Path) -> Result<(), DeviceError> {
    let device = Device::exclusive(disk)?;
    device.zero(0, 1 << 20)?;
    device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
    device.sync()?;
    device.reread_partitions()
}

/// The partition of an array on a disk.
fn member(disk: &str, number: u32) -> PathBuf {
    partition_path(Path::new(disk), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_leave_room_in_front() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 30).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let plan = Plan {
            arrays: Vec::new(),
            disks: Vec::new(),
            gpt: true,
            reserved: 550 << 20,
            target: Value::Null,
        };
        write_gpt(&device, &plan, &[Some(1), None]).unwrap().unwrap();
        let table = Gpt::read(&device).unwrap().unwrap();
        let found: Vec<_> =
            table.partitions.iter().map(|it| (it.number, table.range(it))).collect();
        assert_eq!(found[0], (1, (551 << 20, 1 << 30)));
        assert_eq!(found[1].0, 2);
        assert_eq!(found[1].1.0, (551 << 20) + (1 << 30));
        assert_eq!(write_gpt(&device, &plan, &[Some(4)]).unwrap(), Err(4));
        device.zero(0, 1 << 20).unwrap();
        write_mbr(&device, &[Some(1), None]).unwrap().unwrap();
        let table = Mbr::read(&device).unwrap().unwrap();
        assert_eq!(table.range(&table.primary[0].unwrap()), (1 << 20, 1 << 30));
        assert_eq!(table.primary[1].unwrap().kind, 0xfd);
    }
}
