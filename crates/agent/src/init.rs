// SPDX-License-Identifier: Apache-2.0
//! Tasks of process 1 before the agent can run.
//!
//! Process 1 mounts the kernel's file systems and then only supervises: it starts the program again as
//! a worker, reaps processes, and prints to the console why the worker ended. A crash of the worker
//! therefore never causes a kernel panic.

pub mod modules;
mod mounts;
pub mod power;
pub mod supervisor;
mod uevents;

use std::path::Path;

use modules::ModuleLoader;

pub use mounts::{mount_early, mount_late};
pub use uevents::DeviceMonitor;

/// Loads the modules for the machine's devices, and keeps loading them for new devices.
///
/// Disk controllers come last, after the network: loading the module of a controller with forty disks
/// blocks until all disks are detected. Steps that use disks wait for
/// [`DeviceMonitor::wait_settled`].
#[must_use]
pub fn start_devices(root: &Path, consume: bool) -> DeviceMonitor {
    let mut modules = ModuleLoader::for_running_kernel(root, consume);
    // The socket is opened before the scan, so that no device is missed in between.
    let listener = uevents::open_socket();
    modules.load_first();
    let mut disk_aliases = Vec::new();
    let mut aliases = modules::device_aliases(Path::new("/sys/devices"));
    // Loading bus drivers reveals more devices.
    while !aliases.is_empty() {
        for alias in aliases {
            if modules.is_for_disks(&alias) {
                disk_aliases.push(alias);
            } else {
                modules.load_for_alias(&alias);
            }
        }
        aliases = listener.as_ref().map(uevents::pending_aliases).unwrap_or_default();
    }
    // Needed for the late mounts, before disks are detected.
    modules.load("efivarfs");
    tracing::debug!(
        modules = modules.count(),
        disk_controllers = disk_aliases.len(),
        "modules loaded except for disk controllers"
    );
    uevents::start_monitor(listener, modules, disk_aliases)
}
