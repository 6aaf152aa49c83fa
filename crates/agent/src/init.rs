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
#[must_use]
pub fn start_devices(root: &Path, consume: bool) -> Devices {
    let mut modules = Modules::of_running_kernel(root, consume);
    // Listening starts before looking, so that no device falls between the two.
    let listener = uevents::listen();
    modules.load_always();
    for alias in modules::wanted_by_devices(Path::new("/sys/devices")) {
        modules.load_for(&alias);
    }
    tracing::info!(modules = modules.count(), "devices were looked at");
    uevents::follow(listener, modules)
}
