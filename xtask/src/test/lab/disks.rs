// SPDX-License-Identifier: Apache-2.0
//! The disks of the machines: sparse files that differ in everything a root device hint can match.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::fill_template;
use crate::test::process::chown_to_unprivileged;

/// Writes are not flushed, because nothing is needed after the run. Zeros written by an erase step
/// free the space on the host.
const SCSI: &str = "<disk type='file' device='disk'>\
     <driver name='qemu' type='raw' cache='unsafe' discard='unmap' detect_zeroes='unmap'/>\
     <source file='@file@'/><target dev='@name@' bus='scsi' rotation_rate='@rotation@'/>\
     <serial>@serial@</serial><wwn>@wwn@</wwn><vendor>FERRITE</vendor>\
     <product>@model@</product><boot order='@order@'/></disk>";
/// libvirt cannot define an emulated NVMe disk. This one is not in the boot order, and in a PCI slot
/// that libvirt does not assign.
const NVME: &str = "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
     <qemu:arg value='-drive'/><qemu:arg value='file=@file@,if=none,id=nvme,format=raw,\
cache=unsafe,discard=unmap,detect-zeroes=unmap'/>\
     <qemu:arg value='-device'/>\
     <qemu:arg value='nvme,drive=nvme,serial=@serial@,bus=pcie.0,addr=0x10'/>\
     </qemu:commandline>";

const GIB: u64 = 1 << 30;

/// One disk.
pub(super) struct LabDisk {
    pub(super) serial: &'static str,
    pub(super) gib: u64,
    pub(super) kind: DiskKind,
}

/// The bus and the reported type. A machine has at most one NVMe disk.
#[derive(Clone, Copy)]
pub(super) enum DiskKind {
    Flash,
    /// Reports a rotation rate.
    Magnetic,
    Nvme,
}

/// The disk of machines whose tests are not about disks.
pub(super) const ONE_DISK: &[LabDisk] =
    &[LabDisk { serial: "FLASH-1", gib: 4, kind: DiskKind::Flash }];

/// The disks of the machine with this name and number.
pub(super) struct LabDisks {
    pub(super) machine: &'static str,
    pub(super) number: u8,
    pub(super) disks: &'static [LabDisk],
}

impl LabDisks {
    /// Creates the files in `pool`.
    pub(super) fn make(&self, pool: &Path) -> Result<()> {
        for disk in self.disks {
            let path = self.path(pool, disk);
            File::create(&path)
                .and_then(|file| file.set_len(disk.gib * GIB))
                .with_context(|| format!("cannot create {}", path.display()))?;
            chown_to_unprivileged(&path)?;
        }
        Ok(())
    }

    /// The libvirt definition of the SCSI disks.
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
            Some(fill_template(
                SCSI,
                &values.each_ref().map(|(name, value)| (*name, value.as_str())),
            ))
        });
        definitions.collect()
    }

    /// The QEMU arguments of the NVMe disks.
    pub(super) fn qemu_arguments(&self, pool: &Path) -> String {
        let disks = self.disks.iter().filter(|disk| match disk.kind {
            DiskKind::Nvme => true,
            DiskKind::Flash | DiskKind::Magnetic => false,
        });
        disks
            .map(|disk| {
                let path = self.path(pool, disk);
                fill_template(NVME, &[("file", &path.to_string_lossy()), ("serial", disk.serial)])
            })
            .collect()
    }

    /// The number of disks in the boot order.
    pub(super) fn in_boot_order(&self) -> usize {
        let kinds = self.disks.iter().map(|disk| match disk.kind {
            DiskKind::Flash | DiskKind::Magnetic => 1,
            DiskKind::Nvme => 0,
        });
        kinds.sum()
    }

    /// The entry in the inventory of the lab.
    pub(super) fn inventory_entry(&self, pool: &Path) -> Value {
        let disks = self.disks.iter().enumerate().map(|(index, disk)| {
            let mut entry = json!({
                "serial": disk.serial,
                "bytes": disk.gib * GIB,
                "file": self.path(pool, disk),
            });
            match disk.kind {
                DiskKind::Flash => entry["rotational"] = json!(false),
                DiskKind::Magnetic => entry["rotational"] = json!(true),
                DiskKind::Nvme => entry["nvme"] = json!(true),
            }
            match disk.kind {
                DiskKind::Flash | DiskKind::Magnetic => {
                    entry["wwn"] = json!(format!("0x{}", self.wwn(index)));
                }
                DiskKind::Nvme => {}
            }
            entry
        });
        disks.collect()
    }

    fn path(&self, pool: &Path, disk: &LabDisk) -> PathBuf {
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
