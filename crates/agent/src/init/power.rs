// SPDX-License-Identifier: Apache-2.0
//! Turns the machine off or around. What was written reaches the disks first.

use rustix::system::{RebootCommand, reboot};

/// What happens to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerAction {
    /// It goes off.
    Off,
    /// It starts again.
    Restart,
}

/// Writes everything out.
pub fn sync() {
    rustix::fs::sync();
    // Disks drop what is cached of them only after it is written; what matters is that it is.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

/// Does it, if this process may: in a ramdisk it is the machine's own. Elsewhere (in a test, in
/// somebody's live system) the program ends instead.
pub fn act(action: PowerAction, own_machine: bool) {
    sync();
    tracing::info!(?action, "the machine is turned off or around");
    if own_machine {
        let command = match action {
            PowerAction::Off => RebootCommand::PowerOff,
            PowerAction::Restart => RebootCommand::Restart,
        };
        if let Err(error) = reboot(command) {
            tracing::error!(%error, "the kernel refused");
        }
    } else {
        std::process::exit(0);
    }
}
