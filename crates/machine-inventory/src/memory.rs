// SPDX-License-Identifier: Apache-2.0
//! Memory size: usable by the kernel (`total`) and installed (`physical_mb`).

use agent_protocol::InventoryMemory;

use crate::kernel_files::KernelFiles;
use crate::smbios::Smbios;

const MEBIBYTE: u64 = 1024 * 1024;

/// The installed size comes from the SMBIOS memory devices; without them (small virtual machines) from
/// the kernel's memory blocks, and else from the usable size.
pub(crate) fn read(files: &KernelFiles, smbios: &Smbios) -> InventoryMemory {
    let total = usable_bytes(files);
    let physical_mb = smbios
        .memory_mib()
        .or_else(|| memory_blocks_mib(files))
        .or(total.map(|total| total / MEBIBYTE));
    InventoryMemory { total, physical_mb }
}

fn usable_bytes(files: &KernelFiles) -> Option<u64> {
    let info = files.text("proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Sums the kernel's memory blocks in MiB. All have the size in `block_size_bytes`, in hexadecimal.
fn memory_blocks_mib(files: &KernelFiles) -> Option<u64> {
    let directory = "sys/devices/system/memory";
    let size = files.text(format!("{directory}/block_size_bytes"))?;
    let size = u64::from_str_radix(&size, 16).ok()?;
    let names = files.file_names(directory);
    let is_block = |name: &&String| {
        name.strip_prefix("memory").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let blocks = u64::try_from(names.iter().filter(is_block).count()).ok()?;
    let mebibytes = size.checked_mul(blocks)? / MEBIBYTE;
    (mebibytes > 0).then_some(mebibytes)
}
