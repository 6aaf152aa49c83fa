// SPDX-License-Identifier: Apache-2.0
//! The memory: what the kernel can use, and what is plugged in.

use agent_protocol::Memory;

use crate::smbios::Smbios;
use crate::tree::Tree;

const MEBIBYTE: u64 = 1024 * 1024;

/// What is installed comes from the firmware's list of modules; a machine without one (a small virtual
/// machine) has the kernel's blocks of memory, and failing those what the kernel can use.
pub(crate) fn read(tree: &Tree, smbios: &Smbios) -> Memory {
    let total = total(tree);
    let physical_mb =
        smbios.memory_mib().or_else(|| blocks_mib(tree)).or(total.map(|total| total / MEBIBYTE));
    Memory { total, physical_mb }
}

fn total(tree: &Tree) -> Option<u64> {
    let info = tree.text("proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// MiB of all blocks of memory, each of the size the kernel says in hexadecimal.
fn blocks_mib(tree: &Tree) -> Option<u64> {
    let folder = "sys/devices/system/memory";
    let size = tree.text(format!("{folder}/block_size_bytes"))?;
    let size = u64::from_str_radix(&size, 16).ok()?;
    let names = tree.names(folder);
    let is_block = |name: &&String| {
        name.strip_prefix("memory").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let blocks = u64::try_from(names.iter().filter(is_block).count()).ok()?;
    let mebibytes = size.checked_mul(blocks)? / MEBIBYTE;
    (mebibytes > 0).then_some(mebibytes)
}
