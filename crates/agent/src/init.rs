// SPDX-License-Identifier: Apache-2.0
//! What the first process of a machine has to do before anything else can be done.
//!
//! Process 1 mounts the kernel's file systems and then only watches: it starts the program again as
//! a worker, collects processes that ended, and says on the console why the worker ended if it did.
//! A mistake in the worker thus never becomes a kernel panic.

pub mod modules;
mod mounts;
pub mod power;
pub mod supervisor;
mod uevents;

use std::path::Path;

use modules::Modules;

pub use mounts::{mount_all, mount_late};
pub use uevents::Devices;

/// Loads the modules the machine's devices ask for, and goes on doing so for devices that turn up
/// later.
///
/// Those of disks come last, while the network comes up already: a controller with forty disks keeps
/// whoever loads its module for as long as it takes to find them. Who works with disks waits for
/// [`Devices::settled`].
#[must_use]
pub fn start_devices(root: &Path, consume: bool) -> Devices {
    let mut modules = Modules::of_running_kernel(root, consume);
    // Listening starts before looking, so that no device falls between the two.
    let listener = uevents::listen();
    modules.load_first();
    let mut later = Vec::new();
    let mut wanted = modules::wanted_by_devices(Path::new("/sys/devices"));
    // What hangs on buses that come up with the modules is told while they are loaded.
    while !wanted.is_empty() {
        for alias in wanted {
            if modules.is_for_disks(&alias) {
                later.push(alias);
            } else {
                modules.load_for(&alias);
            }
        }
        wanted = listener.as_ref().map(uevents::pending).unwrap_or_default();
    }
    // Whoever starts the agent needs it before disks are there.
    modules.load("efivarfs");
    tracing::debug!(modules = modules.count(), later = later.len(), "the network's devices are up");
    uevents::follow(listener, modules, later)
}
