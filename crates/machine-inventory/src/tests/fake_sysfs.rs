// SPDX-License-Identifier: Apache-2.0
//! Fake machines: directories with the files of `/sys`, `/proc` and `/dev` that a kernel would provide.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::LocalMachine;
use crate::smbios::tests::structure;

/// A fake machine under construction.
pub(super) struct FakeSysfs {
    directory: TempDir,
}

impl FakeSysfs {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(super) fn machine(&self) -> LocalMachine {
        LocalMachine::with_root(self.directory.path())
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Writes attributes into one directory: one line each, name and value.
    pub(super) fn attributes(&self, directory: &str, lines: &str) -> &Self {
        fs::create_dir_all(self.root().join(directory)).unwrap();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            self.file(&format!("{directory}/{name}"), format!("{value}\n"));
        }
        self
    }

    pub(super) fn directory(&self, path: &str) -> &Self {
        fs::create_dir_all(self.root().join(path)).unwrap();
        self
    }

    /// Creates a symbolic link; both paths are relative to the root.
    pub(super) fn link(&self, path: &str, target: &str) -> &Self {
        let ups = "../".repeat(path.matches('/').count());
        let device_path = self.root().join(path);
        fs::create_dir_all(device_path.parent().unwrap()).unwrap();
        symlink(format!("{ups}{target}"), device_path).unwrap();
        self
    }

    /// Adds processors `0..count`.
    pub(super) fn processors(&self, count: u32, per_socket: u32, info: &str) -> &Self {
        self.file("proc/cpuinfo", format!("processor\t: 0\n{info}\n\n"));
        let list = format!("0-{}\n", count - 1);
        self.file("sys/devices/system/cpu/present", &list);
        self.file("sys/devices/system/cpu/online", &list);
        for cpu in 0..count {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let lines = format!("physical_package_id {}", cpu / per_socket);
            self.attributes(&directory, &lines);
        }
        self
    }

    pub(super) fn memory(&self, kibibytes: u64) -> &Self {
        self.file("proc/meminfo", format!("MemTotal:       {kibibytes} kB\nMemFree: 1 kB\n"))
    }

    /// Adds a block device below `sys/devices`, with the common attributes.
    pub(super) fn block(
        &self,
        device_path: &str,
        sectors: u64,
        rotational: bool,
        lines: &str,
    ) -> &Self {
        let device_path = format!("sys/devices/{device_path}");
        let name = device_path.rsplit('/').next().unwrap().to_owned();
        self.attributes(&device_path, &format!("size {sectors}\n{lines}"));
        self.attributes(
            &format!("{device_path}/queue"),
            &format!(
                "rotational {}\nlogical_block_size 512\nphysical_block_size 4096",
                u8::from(rotational)
            ),
        );
        self.link(&format!("sys/block/{name}"), &device_path)
    }

    /// Adds a SCSI disk; `device` ends with host, channel, target and LUN.
    pub(super) fn scsi(&self, device: &str, name: &str, gigabytes: u64, lines: &str) -> &Self {
        let address = device.rsplit('/').next().unwrap().to_owned();
        let directory = format!("sys/devices/{device}");
        self.attributes(&directory, lines);
        self.directory(&format!("{directory}/scsi_device/{address}"));
        let rotational = !lines.contains("SSD");
        self.block(&format!("{device}/block/{name}"), gigabytes * 1_953_125, rotational, "");
        self.link(&format!("{directory}/block/{name}/device"), &directory)
    }

    /// Adds a NIC on a PCI device below `sys/devices`.
    pub(super) fn nic(&self, device: &str, name: &str, driver: &str, lines: &str) -> &Self {
        let directory = format!("sys/devices/{device}/net/{name}");
        self.attributes(&directory, lines);
        self.link(&format!("{directory}/device"), &format!("sys/devices/{device}"));
        self.link(&format!("sys/class/net/{name}"), &directory);
        if !self.root().join(format!("sys/devices/{device}/driver")).exists() {
            self.directory(&format!("sys/bus/pci/drivers/{driver}"));
            let driver = format!("sys/bus/pci/drivers/{driver}");
            self.link(&format!("sys/devices/{device}/driver"), &driver);
        }
        self
    }

    pub(super) fn smbios(&self, structures: &[Vec<u8>]) -> &Self {
        self.file("sys/firmware/dmi/tables/DMI", structures.concat())
    }
}

/// Encodes a memory device (type 17) of this size in MiB.
pub(super) fn memory_device(handle: u16, mebibytes: u32) -> Vec<u8> {
    let mut fields = vec![0_u8; 0x28 - 4];
    let mut word = |at: usize, value: u16| {
        fields[at - 4..at - 2].copy_from_slice(&value.to_le_bytes());
    };
    word(0x04, 0x1000);
    word(0x06, 0xfffe);
    word(0x08, 72);
    word(0x0a, 64);
    // From 32 GiB on the size is in the extended field.
    word(0x0c, u16::try_from(mebibytes).ok().filter(|small| *small < 0x7fff).unwrap_or(0x7fff));
    word(0x13, 1 << 7 | 1 << 13);
    word(0x15, 2933);
    word(0x20, 2666);
    word(0x22, 1200);
    word(0x24, 1250);
    word(0x26, 1200);
    fields[0x1c - 4..0x20 - 4].copy_from_slice(&mebibytes.to_le_bytes());
    fields[0x0e - 4] = 9;
    fields[0x0f - 4] = 1;
    fields[0x10 - 4] = 1;
    fields[0x12 - 4] = 0x1a;
    fields[0x17 - 4] = 2;
    fields[0x18 - 4] = 3;
    fields[0x1a - 4] = 4;
    fields[0x1b - 4] = 2;
    structure(17, handle, &fields, &["A1", "Hynix Semiconductor", "2E7A1B33", "HMA82GR7CJR8N-WM"])
}

/// Encodes an on-board NIC (type 41).
pub(super) fn on_board_nic(number: u8, bus: u8, device_and_function: u8) -> Vec<u8> {
    let fields = [1, 0x85, number, 0, 0, bus, device_and_function];
    structure(41, 0x2900 + u16::from(number), &fields, &["Integrated NIC"])
}

/// Encodes an occupied slot (type 9).
pub(super) fn slot(number: u8, bus: u8) -> Vec<u8> {
    let fields = [1, 0xb6, 0x0d, 4, 4, number, 0, 4, 1, 0, 0, bus, 0];
    structure(9, 0x0900 + u16::from(number), &fields, &["PCIe Slot"])
}
