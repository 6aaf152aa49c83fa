// SPDX-License-Identifier: Apache-2.0
//! Software RAID with mdadm.
//!
//! Each array has one partition on each of its disks. The first array must be RAID-1, so that the machine
//! can boot from it. Space is reserved in front of it on each disk for an EFI system partition or a BIOS
//! boot partition.

mod arrays;
mod plan;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_protocol::RootDeviceHintError;
use serde_json::Value;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path, wait_for_device};
use crate::filesystem::identify;
use crate::gpt::{Gpt, partition_type};
use crate::mbr::Mbr;
use crate::partitions;
pub use arrays::{ExistingArray, assemble, devices_to_keep, list_arrays};
pub use plan::{PlannedArray, RaidOptions, RaidPlan, validate, volumes};

/// Creating or deleting arrays failed.
#[derive(Debug, thiserror::Error)]
pub enum SoftwareRaidError {
    /// The configuration is invalid.
    #[error("the software RAID configuration is invalid: {}", problems.join("; "))]
    Invalid {
        /// All problems found.
        problems: Vec<String>,
    },
    /// The hints for a disk are invalid.
    #[error("the hints for a disk of an array are invalid")]
    Hints(#[from] RootDeviceHintError),
    /// A disk has not enough space.
    #[error(
        "{disk} has no space for a partition of {gib} GiB: use smaller arrays, or exclude the disk (physical_disks)"
    )]
    NoFreeSpace {
        /// Path of the disk.
        disk: String,
        /// Requested size in GiB.
        gib: u64,
    },
    /// There are arrays that are not to be kept.
    #[error(
        "arrays exist already: {}; delete them with delete_configuration, or keep them by listing their volume_name in skip_block_devices",
        arrays.join(", ")
    )]
    UnexpectedArrays {
        /// Devices and names of the arrays.
        arrays: Vec<String>,
    },
    /// Disks for the new arrays are not empty.
    #[error(
        "disks of the new arrays are not empty: {}; erase them with erase_devices_metadata, or exclude them (physical_disks)",
        disks.join(", ")
    )]
    NotEmpty {
        /// Paths of the disks and their contents.
        disks: Vec<String>,
    },
    /// A command failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command.
        command: String,
        /// Its error output.
        output: String,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Creates the partitions and arrays of a plan on empty disks; `existing` arrays are kept. Returns the
/// new `raid_config` of the node.
///
/// # Errors
/// Fails if a disk is not empty or has not enough space, or mdadm fails.
pub fn create(plan: &RaidPlan, existing: &[ExistingArray]) -> Result<Value, SoftwareRaidError> {
    check_empty(&plan.disks)?;
    for disk in &plan.disks {
        partition(disk, plan)?;
    }
    let mut taken: Vec<PathBuf> = existing.iter().map(|array| array.device.clone()).collect();
    for array in &plan.arrays {
        for member in &array.members {
            wait_for_device(member)?;
        }
        let array = PlannedArray { device: free_device(&array.device, &taken), ..array.clone() };
        taken.push(PathBuf::from(&array.device));
        run("mdadm", &create_command(&array))?;
        // Wipe old signatures at the start of the array.
        let device = Device::exclusive(Path::new(&array.device))?;
        device.zero(0, 1 << 20)?;
        device.sync()?;
    }
    Ok(plan.target.clone())
}

/// Whether all arrays of a configuration exist already and are to be kept by their names.
///
/// # Errors
/// Fails if there are other arrays, or only some of the configured ones.
pub fn arrays_exist(
    target: &Value,
    keep: &[String],
    existing: &[ExistingArray],
) -> Result<bool, SoftwareRaidError> {
    let to_keep = devices_to_keep(existing, keep, &[]);
    let unexpected: Vec<String> = existing
        .iter()
        .filter(|array| !to_keep.contains(&array.device))
        .map(|array| {
            let name = array.name.as_deref().unwrap_or("without a name");
            format!("{} ({name})", array.device.display())
        })
        .collect();
    if !unexpected.is_empty() {
        return Err(SoftwareRaidError::UnexpectedArrays { arrays: unexpected });
    }
    let requested = volumes(target);
    let exists = |name: &str| existing.iter().any(|other| other.name.as_deref() == Some(name));
    let count = requested.iter().filter(|(name, _)| exists(name)).count();
    if count > 0 && count < requested.len() {
        let problem = "some of the arrays exist already and some do not: delete them first";
        return Err(SoftwareRaidError::Invalid { problems: vec![problem.to_owned()] });
    }
    Ok(count > 0)
}

/// Fails if a disk is not empty.
fn check_empty(disks: &[String]) -> Result<(), SoftwareRaidError> {
    let mut used = Vec::new();
    for name in disks {
        let path = Path::new(name);
        let partitions = partitions::list(path)?.len();
        let found = identify(&Device::read_only(path)?)?;
        match (partitions, found) {
            (0, None) => {}
            (0, Some(identity)) => used.push(format!("{name} ({})", identity.fs_type)),
            (count, _) => used.push(format!("{name} ({count} partitions)")),
        }
    }
    if used.is_empty() { Ok(()) } else { Err(SoftwareRaidError::NotEmpty { disks: used }) }
}

/// Returns the device for a new array: the planned one, or the next free one.
fn free_device(planned: &str, taken: &[PathBuf]) -> String {
    let is_free = |device: &String| taken.iter().all(|it| it != Path::new(device));
    let others = (10..128).map(|number| format!("/dev/md{number}"));
    let found = std::iter::once(planned.to_owned()).chain(others).find(is_free);
    found.unwrap_or_else(|| planned.to_owned())
}

/// Deletes all arrays except those with the given volume names, and wipes their disks. An array that
/// shares disks with a kept one is only wiped. Returns the devices of the deleted arrays.
///
/// # Errors
/// Fails if an array cannot be stopped, or a disk fails.
pub fn delete(sys: &Path, keep: &[String]) -> Result<Vec<String>, SoftwareRaidError> {
    let mut deleted = Vec::new();
    // Members of an array may be arrays themselves.
    for _ in 0..3 {
        assemble(sys);
        let newly_deleted = delete_existing(sys, keep)?;
        if newly_deleted.is_empty() {
            return Ok(deleted);
        }
        deleted.extend(newly_deleted);
    }
    Err(SoftwareRaidError::UnexpectedArrays { arrays: deleted })
}

fn delete_existing(sys: &Path, keep: &[String]) -> Result<Vec<String>, SoftwareRaidError> {
    let mut arrays = list_arrays(sys);
    // Volumes must be stopped before their container.
    arrays.sort_by_key(|array| array.level == "container");
    let to_keep = devices_to_keep(&arrays, keep, &[]);
    let mut deleted: Vec<&ExistingArray> = Vec::new();
    for array in arrays.iter().filter(|array| !to_keep.contains(&array.device)) {
        if array.level != "container" {
            let device = Device::writable(&array.device)?;
            device.zero(0, 1 << 20)?;
            device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
            device.sync()?;
        }
        if array.disks.iter().any(|disk| to_keep.contains(disk)) {
            continue;
        }
        run("mdadm", &["--stop".to_owned(), array.device.display().to_string()])?;
        deleted.push(array);
    }
    let all = |what: fn(&ExistingArray) -> &Vec<PathBuf>| -> BTreeSet<&PathBuf> {
        deleted.iter().flat_map(|array| what(array)).collect()
    };
    for member in all(|array| &array.members) {
        run("mdadm", &["--zero-superblock".to_owned(), member.display().to_string()])?;
    }
    for disk in all(|array| &array.disks) {
        // A disk that is an array itself is handled in the next round.
        if !arrays.iter().any(|array| array.device == *disk) {
            wipe(disk)?;
        }
    }
    Ok(deleted.iter().map(|array| array.device.display().to_string()).collect())
}

/// Volume name of the array of EFI system partitions.
pub(crate) const ESP_NAME: &str = "esp";

/// Returns the arguments of `mdadm --create`.
pub(crate) fn create_command(array: &PlannedArray) -> Vec<String> {
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

pub(crate) fn run(program: &str, arguments: &[String]) -> Result<String, SoftwareRaidError> {
    let command = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(SoftwareRaidError::Command { command, output })
        }
        Err(error) => {
            let output = format!("it cannot be started ({error}); check that it is in the ramdisk");
            Err(SoftwareRaidError::Command { command, output })
        }
    }
}

/// Creates a partition on a disk for each array it belongs to.
fn partition(disk: &str, plan: &RaidPlan) -> Result<(), SoftwareRaidError> {
    let device = Device::exclusive(Path::new(disk))?;
    device.zero(0, 1 << 20)?;
    device.zero(device.size().saturating_sub(1 << 20), 1 << 20)?;
    let member_of = plan.arrays.iter().filter(|array| array.disks.iter().any(|it| it == disk));
    let sizes: Vec<Option<u64>> = member_of.map(|array| array.gib).collect();
    let written =
        if plan.gpt { write_gpt(&device, plan, &sizes)? } else { write_mbr(&device, &sizes)? };
    if let Err(gib) = written {
        return Err(SoftwareRaidError::NoFreeSpace { disk: disk.to_owned(), gib });
    }
    device.sync()?;
    Ok(device.reread_partitions()?)
}

fn write_gpt(
    device: &Device,
    plan: &RaidPlan,
    sizes: &[Option<u64>],
) -> Result<Result<(), u64>, DeviceError> {
    let mut table = Gpt::new(device, Uuid::new_v4());
    // Reserve the space in front while the array partitions are added.
    let reserved =
        table.add(Some(plan.reserved), partition_type::BIOS_BOOT, Uuid::new_v4(), "reserved");
    if reserved.is_err() {
        return Ok(Err(0));
    }
    for size in sizes {
        let length = size.map(|gib| gib << 30);
        if table.add(length, partition_type::RAID, Uuid::new_v4(), "").is_err() {
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

/// Returns the path of an array's partition on a disk.
fn member_path(disk: &str, number: u32) -> PathBuf {
    partition_path(Path::new(disk), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_space_in_front_of_partitions() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 30).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let plan = RaidPlan {
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
        assert_eq!(table.primary[1].unwrap().type_code, 0xfd);
    }

    #[test]
    fn detects_existing_and_unexpected_arrays() {
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
        assert!(matches!(arrays_exist(&target, &none, &[]), Ok(false)));
        // Same name, but disks and level may differ.
        for other in [array("/dev/md0", Some("root")), array("/dev/md127", None)] {
            let error = arrays_exist(&target, &none, &[other]).unwrap_err().to_string();
            assert!(error.contains("delete_configuration"), "{error}");
        }
        let existing = [array("/dev/md0", Some("root")), array("/dev/md1", Some(ESP_NAME))];
        assert!(matches!(arrays_exist(&target, &root, &existing), Ok(true)));
        let newly_deleted = [array("/dev/md0", Some("root")), array("/dev/md5", Some("data"))];
        assert!(arrays_exist(&target, &root, &newly_deleted).is_err());
        let taken = [PathBuf::from("/dev/md0"), PathBuf::from("/dev/md10")];
        assert_eq!(free_device("/dev/md0", &taken), "/dev/md11");
        assert_eq!(free_device("/dev/md2", &taken), "/dev/md2");
    }

    #[test]
    fn refuses_disks_that_are_not_empty() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        empty.as_file().set_len(16 << 20).unwrap();
        let paths = |files: &[&tempfile::NamedTempFile]| -> Vec<String> {
            files.iter().map(|file| file.path().to_str().unwrap().to_owned()).collect()
        };
        check_empty(&paths(&[&empty])).unwrap();
        let used = tempfile::NamedTempFile::new().unwrap();
        used.as_file().set_len(16 << 20).unwrap();
        let device = Device::writable(used.path()).unwrap();
        device.write(0x438, &[0x53, 0xef]).unwrap();
        let error = check_empty(&paths(&[&empty, &used])).unwrap_err().to_string();
        assert!(error.contains("(ext4)") && error.contains("erase_devices_metadata"), "{error}");
        assert!(!error.contains(&paths(&[&empty])[0]), "{error}");
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(None, partition_type::LINUX, Uuid::from_u128(2), "").unwrap();
        table.write(&device).unwrap();
        let error = check_empty(&paths(&[&used])).unwrap_err().to_string();
        assert!(error.contains("(1 partitions)"), "{error}");
    }
}
