// SPDX-License-Identifier: Apache-2.0
//! The hardware type `ipmi`, for machines with an IPMI 2.0 BMC.
//!
//! The implementations are called `ipmitool`, as in Ironic, but do not run that program. All of them
//! use [`IpmiConnections`], which keeps one session per BMC and limits concurrent requests. An
//! [`IpmiBmc`](bmc::IpmiBmc) is such a connection for one call on one machine.

mod access;
mod bmc;
mod boot_device;
mod connections;
mod console;
mod console_session;
mod hardware_type;
mod management;
mod power;
mod quirks;
mod sensors;
mod settings;
#[cfg(test)]
mod tests;
mod vendor;
mod vendors;

use std::sync::Arc;

use connections::IpmiConnections;
use drivers::RegistryBuilder;
pub use settings::{ConsoleSettings, IpmiSettings, IpmiSettingsError};

/// Name of the power, management and vendor implementations.
const NAME: &str = "ipmitool";
/// Name of the console implementation.
const CONSOLE_NAME: &str = "ipmitool-socat";

/// Registers the hardware type `ipmi` and its implementations.
pub fn register(
    registry: &mut RegistryBuilder,
    settings: &IpmiSettings,
    console: &ConsoleSettings,
) -> Result<(), IpmiSettingsError> {
    if console.ports().is_none() {
        return Err(IpmiSettingsError { port_range: console.port_range.clone() });
    }
    let connections = Arc::new(IpmiConnections::new(settings.clone(), registry.bmc_limits()));
    let texts = registry.console_texts();
    registry.add_hardware_type(hardware_type::HARDWARE_TYPE);
    let implementations = &mut registry.implementations;
    implementations.add_power(Arc::new(power::IpmiPower(Arc::clone(&connections))));
    implementations.add_management(Arc::new(management::IpmiManagement(Arc::clone(&connections))));
    implementations.add_vendor(Arc::new(vendor::IpmiVendor(Arc::clone(&connections))));
    let console = console::IpmiConsole::new(connections, console.clone(), texts);
    implementations.add_console(Arc::new(console));
    Ok(())
}
