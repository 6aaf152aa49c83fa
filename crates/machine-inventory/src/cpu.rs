// SPDX-License-Identifier: Apache-2.0
//! Processors, with the values `lscpu` prints.

use std::collections::BTreeSet;

use agent_protocol::InventoryCpu;

use crate::kernel_files::{KernelFiles, collapse_whitespace};
use crate::smbios::Smbios;

/// All fields needed are in the first processor's block, which is at most a few KiB.
const CPUINFO_LIMIT: u64 = 64 * 1024;

pub(crate) fn read(files: &KernelFiles, smbios: &Smbios) -> InventoryCpu {
    let info = files.bytes("proc/cpuinfo", CPUINFO_LIMIT).unwrap_or_default();
    let info = String::from_utf8_lossy(&info);
    let field = |name: &str| field(&info, name);

    let online = cpu_list(files, "online");
    let count = match cpu_list(files, "present").len() {
        0 => info.lines().filter(|line| line.starts_with("processor")).count(),
        present => present,
    };
    InventoryCpu {
        model_name: field("model name")
            .map(|name| collapse_whitespace(&name))
            .or_else(|| arm_model(&info)),
        frequency: max_frequency(files, &online).or_else(|| field("cpu MHz")).or_else(|| {
            let speeds = smbios.structures_of_type(4).filter_map(|cpu| cpu.word(0x14));
            speeds.max().filter(|speed| *speed > 0).map(|speed| format!("{speed}.0000"))
        }),
        count: u32::try_from(count).unwrap_or(u32::MAX),
        architecture: architecture(),
        flags: field("flags")
            .or_else(|| field("Features"))
            .map(|flags| flags.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        socket_count: count_sockets(files, &online, smbios),
    }
}

/// Returns the value of the first `name` line.
fn field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

/// Parses the kernel's list of processors in a state: `0-3,8-11`.
fn cpu_list(files: &KernelFiles, state: &str) -> Vec<u32> {
    /// Upper bound on a crafted list; Linux supports fewer processors.
    const MAX_CPUS: usize = 65_536;
    let text = files.text(format!("sys/devices/system/cpu/{state}")).unwrap_or_default();
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    });
    ranges.flatten().take(MAX_CPUS).collect()
}

/// Returns the highest frequency of any processor in MHz, with four decimals as in `lscpu`.
fn max_frequency(files: &KernelFiles, online: &[u32]) -> Option<String> {
    let kilohertz = online
        .iter()
        .filter_map(|cpu| {
            files.number::<u64>(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"))
        })
        .max()
        .filter(|kilohertz| *kilohertz > 0)?;
    Some(format!("{}.{:03}0", kilohertz / 1000, kilohertz % 1000))
}

/// Counts sockets: the kernel's packages, else the populated sockets in SMBIOS.
fn count_sockets(files: &KernelFiles, online: &[u32], smbios: &Smbios) -> Option<u32> {
    let packages: BTreeSet<i64> = online
        .iter()
        .filter_map(|cpu| {
            files.number(format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"))
        })
        // ARM without a PPTT reports -1.
        .filter(|package| *package >= 0)
        .collect();
    let populated =
        || smbios.structures_of_type(4).filter(|cpu| cpu.byte(0x18).is_some_and(|s| s & 0x40 != 0));
    let count = if packages.is_empty() { populated().count() } else { packages.len() };
    u32::try_from(count).ok().filter(|count| *count > 0)
}

fn architecture() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// Maps the implementer and part numbers of an ARM processor, which has no model name, to a name.
fn arm_model(info: &str) -> Option<String> {
    /// Implementer, part and name of the cores used in servers.
    const PARTS: [(u16, u16, &str); 17] = [
        (0x41, 0xd03, "Cortex-A53"),
        (0x41, 0xd07, "Cortex-A57"),
        (0x41, 0xd08, "Cortex-A72"),
        (0x41, 0xd09, "Cortex-A73"),
        (0x41, 0xd0b, "Cortex-A76"),
        (0x41, 0xd0c, "Neoverse-N1"),
        (0x41, 0xd40, "Neoverse-V1"),
        (0x41, 0xd49, "Neoverse-N2"),
        (0x41, 0xd4a, "Neoverse-E1"),
        (0x41, 0xd4f, "Neoverse-V2"),
        (0x41, 0xd83, "Neoverse-V3"),
        (0x41, 0xd8e, "Neoverse-N3"),
        (0x43, 0x0af, "ThunderX2-99xx"),
        (0x48, 0xd01, "TaiShan-v110"),
        (0x48, 0xd02, "TaiShan-v120"),
        (0x50, 0x000, "X-Gene"),
        (0xc0, 0xac3, "Ampere-1"),
    ];
    let number = |name| u16::from_str_radix(field(info, name)?.strip_prefix("0x")?, 16).ok();
    let (implementer, part) = (number("CPU implementer")?, number("CPU part")?);
    PARTS
        .iter()
        .find(|known| (known.0, known.1) == (implementer, part))
        .map(|known| known.2.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_arm_parts() {
        let info = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(arm_model(info).as_deref(), Some("Neoverse-N1"));
        assert_eq!(arm_model("CPU part\t: 0xd0c\n"), None);
    }
}
