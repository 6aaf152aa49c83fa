// SPDX-License-Identifier: Apache-2.0
//! The kernel's own file systems, which nobody else mounts in a ramdisk.

use std::path::Path;

use rustix::mount::{MountFlags, mount};

/// Type, place, options, and whether the machine may be without it.
const FILE_SYSTEMS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=0755"),
    ("devpts", "/dev/pts", "gid=5,mode=0620,ptmxmode=0666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/run", "mode=0755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("efivarfs", "/sys/firmware/efi/efivars", ""),
    ("pstore", "/sys/fs/pstore", ""),
];

/// Mounts what is not mounted, and says what could not be.
pub fn mount_all() -> Vec<String> {
    FILE_SYSTEMS
        .iter()
        .filter_map(|(kind, place, options)| try_mount(kind, place, options))
        .collect()
}

/// Mounts what only a module makes possible, after the modules are loaded.
pub fn mount_late() {
    for (kind, place, options) in FILE_SYSTEMS {
        if matches!(*kind, "efivarfs" | "pstore") {
            let _ = try_mount(kind, place, options);
        }
    }
}

fn try_mount(kind: &str, place: &str, options: &str) -> Option<String> {
    let path = Path::new(place);
    // The kernel offers these places only on machines that have what is behind them.
    let in_sysfs = place.starts_with("/sys/");
    if !path.exists() && (in_sysfs || std::fs::create_dir_all(path).is_err()) {
        return None;
    }
    if is_mounted(place) {
        return None;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let flags = if place == "/tmp" || place == "/run" { MountFlags::NOSUID } else { flags };
    let options = std::ffi::CString::new(options).ok()?;
    match mount(kind, path, kind, flags, options.as_c_str()) {
        Ok(()) => None,
        Err(_) if in_sysfs => None,
        Err(error) => Some(format!("could not mount {kind} on {place}: {error}")),
    }
}

fn is_mounted(place: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    // `rootfs` itself is on `/`; nothing else of a fresh ramdisk is mounted.
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(place))
}
