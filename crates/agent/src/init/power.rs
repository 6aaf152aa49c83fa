// SPDX-License-Identifier: Apache-2.0
//! Powers the machine off or restarts it, after writing cached data to the disks.

use rustix::system::{RebootCommand, reboot};

/// A power action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerAction {
    /// Power off.
    Off,
    /// Restart.
    Restart,
}

/// Writes all cached data to the disks.
pub fn sync() {
    rustix::fs::sync();
    // Best effort: dropping the caches frees memory only after they are written.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

/// Executes a power action in the ramdisk. A host process exits instead.
pub fn execute(action: PowerAction, in_ramdisk: bool) {
    sync();
    tracing::info!(?action, "power action started");
    if in_ramdisk {
        let command = match action {
            PowerAction::Off => RebootCommand::PowerOff,
            PowerAction::Restart => RebootCommand::Restart,
        };
        if let Err(error) = reboot(command) {
            tracing::error!(%error, ?action, "power action rejected by the kernel");
        }
    } else {
        std::process::exit(0);
    }
}
