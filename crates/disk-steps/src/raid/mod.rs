// SPDX-License-Identifier: Apache-2.0
//! Software RAID, as Linux and mdadm have it.
//!
//! Each array has a partition on each of its disks. The first array must be a RAID-1, so that a
//! machine can boot from it; before it each disk keeps room for what boots: an EFI system partition,
//! or GRUB's.

mod existing;
mod plan;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_protocol::HintError;
use serde_json::Value;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path, wait_for};
use crate::filesystem::identify;
use crate::gpt::{Gpt, kind};
use crate::mbr::Mbr;
use crate::partitions;
pub use existing::{ExistingArray, assemble, existing, kept_devices};
pub use plan::{Array, Plan, RaidOptions, validate, volumes};

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
    /// There are arrays nobody said to keep.
    #[error(
        "there are arrays already: {}; take them apart with delete_configuration, or keep them by their volume_name in skip_block_devices",
        arrays.join(", ")
    )]
    InTheWay {
        /// Which.
        arrays: Vec<String>,
    },
    /// Something is on disks of the new arrays.
    #[error(
        "there is something on disks of the new arrays: {}; erase them with erase_devices_metadata, or leave them out (physical_disks)",
        disks.join(", ")
    )]
    NotEmpty {
        /// Which, and what.
        disks: Vec<String>,
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

/// Makes the partitions and arrays of a plan, on disks that are empty, beside the arrays that are there.
/// Answers what the node's `raid_config` becomes.
///
/// # Errors
/// If something is on a disk, it has no room, or mdadm fails.
pub fn create(plan: &Plan, there: &[ExistingArray]) -> Result<Value, Error> {
    check_empty(&plan.disks)?;
    for disk in &plan.disks {
        partition(disk, plan)?;
    }
    let mut taken: Vec<PathBuf> = there.iter().map(|array| array.device.clone()).collect();
    for array in &plan.arrays {
        for member in &array.members {
            wait_for(member)?;
        }
        let array = Array { device: free_device(&array.device, &taken), ..array.clone() };
        taken.push(PathBuf::from(&array.device));
        run("mdadm", &create_command(&array))?;
        // What was in the place of the array before must not shine through.
        let device = Device::exclusive(Path::new(&array.device))?;
        device.zero(0, 1 << 20)?;
        device.sync()?;
    }
    Ok(plan.target.clone())
}

/// Whether all arrays of a configuration are there already, and are to be kept by their names.
///
/// # Errors
/// If there are others, which would be in the way, or only some of them.
pub fn is_there(target: &Value, keep: &[String], there: &[ExistingArray]) -> Result<bool, Error> {
    let kept = kept_devices(there, keep, &[]);
    let in_the_way: Vec<String> = there
        .iter()
        .filter(|array| !kept.contains(&array.device))
        .map(|array| {
            let name = array.name.as_deref().unwrap_or("without a name");
            format!("{} ({name})", array.device.display())
        })
        .collect();
    if !in_the_way.is_empty() {
        return Err(Error::InTheWay { arrays: in_the_way });
    }
    let wanted = volumes(target);
    let stays = |name: &str| there.iter().any(|other| other.name.as_deref() == Some(name));
    let count = wanted.iter().filter(|(name, _)| stays(name)).count();
    if count > 0 && count < wanted.len() {
        let problem = "some of the arrays are there already and some are not: delete those first";
        return Err(Error::Invalid { problems: vec![problem.to_owned()] });
    }
    Ok(count > 0)
}

/// Refuses disks that something is on.
fn check_empty(disks: &[String]) -> Result<(), Error> {
    let mut used = Vec::new();
    for name in disks {
        let path = Path::new(name);
        let partitions = partitions::list(path)?.len();
        let found = identify(&Device::read_only(path)?)?;
        match (partitions, found) {
            (0, None) => {}
            (0, Some(identity)) => used.push(format!("{name} ({})", identity.kind)),
            (count, _) => used.push(format!("{name} ({count} partitions)")),
        }
    }
    if used.is_empty() { Ok(()) } else { Err(Error::NotEmpty { disks: used }) }
}

/// The device for a new array: the one that was planned, or the next that no other array has.
fn free_device(planned: &str, taken: &[PathBuf]) -> String {
    let is_free = |device: &String| taken.iter().all(|it| it != Path::new(device));
    let others = (10..128).map(|number| format!("/dev/md{number}"));
    let found = std::iter::once(planned.to_owned()).chain(others).find(is_free);
    found.unwrap_or_else(|| planned.to_owned())
}

/// Takes arrays apart, but for those with the given volume names, and wipes the disks they were on.
/// An array that shares disks with one that stays is only emptied. Answers the devices of the arrays
/// that are gone.
///
/// # Errors
/// If an array does not stop, or a disk fails.
pub fn delete(sys: &Path, keep: &[String]) -> Result<Vec<String>, Error> {
    let mut gone = Vec::new();
    // What an array was made of may be arrays again.
    for _ in 0..3 {
        assemble(sys);
        let more = delete_those_there(sys, keep)?;
        if more.is_empty() {
            return Ok(gone);
        }
        gone.extend(more);
    }
    Err(Error::InTheWay { arrays: gone })
}

fn delete_those_there(sys: &Path, keep: &[String]) -> Result<Vec<String>, Error> {
    let mut arrays = existing(sys);
    // The volumes of a container go before it.
    arrays.sort_by_key(|array| array.level == "container");
    let kept = kept_devices(&arrays, keep, &[]);
    let mut gone: Vec<&ExistingArray> = Vec::new();
    for array in arrays.iter().filter(|array| !kept.contains(&array.device)) {
        if array.level != "container" {
            let device = Device::writable(&array.device)?;
            device.zero(0, 1 << 20)?;
            device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
            device.sync()?;
        }
        if array.disks.iter().any(|disk| kept.contains(disk)) {
            continue;
        }
        run("mdadm", &["--stop".to_owned(), array.device.display().to_string()])?;
        gone.push(array);
    }
    let all = |what: fn(&ExistingArray) -> &Vec<PathBuf>| -> BTreeSet<&PathBuf> {
        gone.iter().flat_map(|array| what(array)).collect()
    };
    for member in all(|array| &array.members) {
        run("mdadm", &["--zero-superblock".to_owned(), member.display().to_string()])?;
    }
    for disk in all(|array| &array.disks) {
        // One that is an array itself is next.
        if !arrays.iter().any(|array| array.device == *disk) {
            wipe(disk)?;
        }
    }
    Ok(gone.iter().map(|array| array.device.display().to_string()).collect())
}

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

    #[test]
    fn only_what_is_to_be_kept_stays() {
        let target = serde_json::json!({"logical_disks": [
            {"raid_level": "1", "size_gb": 1, "controller": "software", "volume_name": "root"},
        ]});
        let array = |device: &str, name: Option<&str>| ExistingArray {
            device: device.into(),
            level: "raid1".to_owned(),
            name: name.map(str::to_owned),
            members: Vec::new(),
            disks: vec!["/dev/nosda".into(), "/dev/nosdb".into()],
        };
        let (none, root) = ([], ["root".to_owned()]);
        assert!(matches!(is_there(&target, &none, &[]), Ok(false)));
        // Of the same name, and who knows on which disks and of which level.
        for other in [array("/dev/md0", Some("root")), array("/dev/md127", None)] {
            let error = is_there(&target, &none, &[other]).unwrap_err().to_string();
            assert!(error.contains("delete_configuration"), "{error}");
        }
        let there = [array("/dev/md0", Some("root")), array("/dev/md1", Some(ESP_NAME))];
        assert!(matches!(is_there(&target, &root, &there), Ok(true)));
        let more = [array("/dev/md0", Some("root")), array("/dev/md5", Some("data"))];
        assert!(is_there(&target, &root, &more).is_err());
        let taken = [PathBuf::from("/dev/md0"), PathBuf::from("/dev/md10")];
        assert_eq!(free_device("/dev/md0", &taken), "/dev/md11");
        assert_eq!(free_device("/dev/md2", &taken), "/dev/md2");
    }

    #[test]
    fn disks_with_something_on_them_are_refused() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        empty.as_file().set_len(16 << 20).unwrap();
        let names = |files: &[&tempfile::NamedTempFile]| -> Vec<String> {
            files.iter().map(|file| file.path().to_str().unwrap().to_owned()).collect()
        };
        check_empty(&names(&[&empty])).unwrap();
        let used = tempfile::NamedTempFile::new().unwrap();
        used.as_file().set_len(16 << 20).unwrap();
        let device = Device::writable(used.path()).unwrap();
        device.write(0x438, &[0x53, 0xef]).unwrap();
        let error = check_empty(&names(&[&empty, &used])).unwrap_err().to_string();
        assert!(error.contains("(ext4)") && error.contains("erase_devices_metadata"), "{error}");
        assert!(!error.contains(&names(&[&empty])[0]), "{error}");
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(None, kind::LINUX, Uuid::from_u128(2), "").unwrap();
        table.write(&device).unwrap();
        let error = check_empty(&names(&[&used])).unwrap_err().to_string();
        assert!(error.contains("(1 partitions)"), "{error}");
    }
}
