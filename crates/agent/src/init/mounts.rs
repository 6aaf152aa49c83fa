// SPDX-License-Identifier: Apache-2.0
//! Mounts the kernel's file systems.

use std::path::Path;

use rustix::mount::{MountFlags, mount};

/// Type, mount point and options.
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

/// Mounts what is not mounted yet. Returns error messages.
pub fn mount_early() -> Vec<String> {
    FILE_SYSTEMS
        .iter()
        .filter_map(|(fs_type, mount_point, options)| try_mount(fs_type, mount_point, options))
        .collect()
}

/// Mounts the file systems that need a module, after modules are loaded.
pub fn mount_late() {
    for (fs_type, mount_point, options) in FILE_SYSTEMS {
        if matches!(*fs_type, "efivarfs" | "pstore") {
            let _ = try_mount(fs_type, mount_point, options);
        }
    }
}

fn try_mount(fs_type: &str, mount_point: &str, options: &str) -> Option<String> {
    let path = Path::new(mount_point);
    // sysfs has these directories only on machines that support the file system.
    let in_sysfs = mount_point.starts_with("/sys/");
    if !path.exists() && (in_sysfs || std::fs::create_dir_all(path).is_err()) {
        return None;
    }
    if is_mounted(mount_point) {
        return None;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let flags =
        if mount_point == "/tmp" || mount_point == "/run" { MountFlags::NOSUID } else { flags };
    let options = std::ffi::CString::new(options).ok()?;
    match mount(fs_type, path, fs_type, flags, options.as_c_str()) {
        Ok(()) => None,
        Err(_) if in_sysfs => None,
        Err(error) => Some(format!("cannot mount {fs_type} on {mount_point}: {error}")),
    }
}

fn is_mounted(mount_point: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    // In a new ramdisk only `rootfs` on `/` is mounted.
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(mount_point))
}
