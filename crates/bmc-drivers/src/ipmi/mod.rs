// SPDX-License-Identifier: Apache-2.0
//! The `ipmi` hardware type: machines whose BMC speaks IPMI 2.0.
//!
//! The implementations are called `ipmitool` because nodes know them by that name; nothing runs
//! that program. All of them reach a BMC through [`Connections`], which keeps one session per BMC
//! and lets one request at a time through. A [`Bmc`](bmc::Bmc) is such a connection for one call on
//! one machine.

mod access;
mod bmc;
mod boot_device;
mod connections;
mod console;
mod makers;
mod management;
mod power;
mod quirks;
mod sensors;
mod settings;
mod terminal;
#[cfg(test)]
mod tests;
mod vendor;

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::ConfigError;
use crate::console_text::ConsoleText;
use crate::driver::Shelves;
use crate::turns::Turns;

pub use settings::{ConsoleSettings, IpmiSettings};

use connections::Connections;

/// What nodes call power, management and vendor.
const NAME: &str = "ipmitool";
/// What nodes call the console.
const CONSOLE_NAME: &str = "ipmitool-socat";

/// Puts these implementations on their shelves.
pub(crate) fn add_to(
    shelves: &mut Shelves,
    settings: &IpmiSettings,
    console: &ConsoleSettings,
    turns: &Arc<Turns>,
    texts: mpsc::Sender<ConsoleText>,
) -> Result<(), ConfigError> {
    if console.ports().is_none() {
        return Err(ConfigError::PortRange { found: console.port_range.clone() });
    }
    let connections = Arc::new(Connections::new(settings.clone(), Arc::clone(turns)));
    shelves.power.push((NAME, Arc::new(power::IpmiPower(Arc::clone(&connections)))));
    let management = management::IpmiManagement(Arc::clone(&connections));
    shelves.management.push((NAME, Arc::new(management)));
    shelves.vendor.push((NAME, Arc::new(vendor::IpmiVendor(Arc::clone(&connections)))));
    let console = console::IpmiConsole::new(connections, console.clone(), texts);
    shelves.console.push((CONSOLE_NAME, Arc::new(console)));
    Ok(())
}
