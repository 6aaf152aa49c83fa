// SPDX-License-Identifier: Apache-2.0
//! The disks of the machines: sparse files, told apart by what a root device hint can ask for.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::filled_in;
use crate::test::process::give_away;

/// Nothing is kept beyond the run, so nothing is waited for. What is erased with zeros takes no room
/// on the disk below.
const SCSI: &str = "<disk type='file' device='disk'>\
     <driver name='qemu' type='raw' cache='unsafe' discard='unmap' detect_zeroes='unmap'/>\
     <source file='@file@'/><target dev='@name@' bus='scsi' rotation_rate='@rotation@'/>\
     <serial>@serial@</serial><wwn>@wwn@</wwn><vendor>FERRITE</vendor>\
     <product>@model@</product><boot order='@order@'/></disk>";
/// libvirt has no words for an NVMe disk that is emulated. It is no boot device for the BMCs, and in a
/// slot that libvirt gives to nobody.
const NVME: &str = "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
     <qemu:arg value='-drive'/><qemu:arg value='file=@file@,if=none,id=nvme,format=raw,\
cache=unsafe,discard=unmap,detect-zeroes=unmap'/>\
     <qemu:arg value='-device'/>\
     <qemu:arg value='nvme,drive=nvme,serial=@serial@,bus=pcie.0,addr=0x10'/>\
     </qemu:commandline>";

const GIB: u64 = 1 << 30;

/// One disk.
pub(super) struct Disk {
    pub(super) serial: &'static str,
    pub(super) gib: u64,
    pub(super) kind: DiskKind,
}

/// How it is attached and what it says it is. A machine has at most one for NVMe.
#[derive(Clone, Copy)]
pub(super) enum DiskKind {
    Flash,
    /// It says that it turns.
    Magnetic,
    Nvme,
}

/// What a machine has unless it is about disks: nothing is written there but a small system.
pub(super) const ONE_DISK: &[Disk] = &[Disk { serial: "FLASH-1", gib: 4, kind: DiskKind::Flash }];

/// The disks of the machine with this name and number.
pub(super) struct Disks {
    pub(super) machine: &'static str,
    pub(super) number: u8,
    pub(super) disks: &'static [Disk],
}

impl Disks {
    /// Makes the files, in `pool`.
    pub(super) fn make(&self, pool: &Path) -> Result<()> {
        for disk in self.disks {
            let path = self.path(pool, disk);
            File::create(&path)
                .and_then(|file| file.set_len(disk.gib * GIB))
                .with_context(|| format!("cannot make {}", path.display()))?;
            give_away(&path)?;
        }
        Ok(())
    }

    /// What libvirt is told of the devices it has words for.
    pub(super) fn definition(&self, pool: &Path) -> String {
        let mut order = 0;
        let definitions = self.disks.iter().enumerate().filter_map(|(index, disk)| {
            let (rotation, model) = match disk.kind {
                DiskKind::Flash => ("1", "FLASH"),
                DiskKind::Magnetic => ("7200", "MAGNETIC"),
                DiskKind::Nvme => return None,
            };
            order += 1;
            let values = [
                ("file", self.path(pool, disk).to_string_lossy().into_owned()),
                ("name", scsi_name(order)),
                ("rotation", rotation.to_owned()),
                ("serial", disk.serial.to_owned()),
                ("wwn", self.wwn(index)),
                ("model", model.to_owned()),
                ("order", order.to_string()),
            ];
            Some(filled_in(SCSI, &values.each_ref().map(|(name, value)| (*name, value.as_str()))))
        });
        definitions.collect()
    }

    /// What QEMU is told of the others.
    pub(super) fn more_definition(&self, pool: &Path) -> String {
        let disks = self.disks.iter().filter(|disk| match disk.kind {
            DiskKind::Nvme => true,
            DiskKind::Flash | DiskKind::Magnetic => false,
        });
        disks
            .map(|disk| {
                let path = self.path(pool, disk);
                filled_in(NVME, &[("file", &path.to_string_lossy()), ("serial", disk.serial)])
            })
            .collect()
    }

    /// How many of them libvirt gives a place in the boot order.
    pub(super) fn in_boot_order(&self) -> usize {
        let kinds = self.disks.iter().map(|disk| match disk.kind {
            DiskKind::Flash | DiskKind::Magnetic => 1,
            DiskKind::Nvme => 0,
        });
        kinds.sum()
    }

    /// For the inventory.
    pub(super) fn described(&self, pool: &Path) -> Value {
        let disks = self.disks.iter().enumerate().map(|(index, disk)| {
            let mut described = json!({
                "serial": disk.serial,
                "bytes": disk.gib * GIB,
                "file": self.path(pool, disk),
            });
            match disk.kind {
                DiskKind::Flash => described["rotational"] = json!(false),
                DiskKind::Magnetic => described["rotational"] = json!(true),
                DiskKind::Nvme => described["nvme"] = json!(true),
            }
            match disk.kind {
                DiskKind::Flash | DiskKind::Magnetic => {
                    described["wwn"] = json!(format!("0x{}", self.wwn(index)));
                }
                DiskKind::Nvme => {}
            }
            described
        });
        disks.collect()
    }

    fn path(&self, pool: &Path, disk: &Disk) -> PathBuf {
        pool.join(format!("{}.{}.raw", self.machine, disk.serial))
    }

    fn wwn(&self, index: usize) -> String {
        format!("5000c5001ab0{:02x}{index:02x}", self.number)
    }
}

/// `sda` for the first.
fn scsi_name(order: u8) -> String {
    format!("sd{}", char::from(b'a' + order - 1))
}
