// SPDX-License-Identifier: Apache-2.0
//! The `redfish` hardware type: machines whose BMC implements Redfish.
//!
//! All interfaces reach a BMC through [`RedfishConnections`], which keeps one session per BMC and
//! limits concurrent requests. [`bmc::RedfishBmc`] is such a connection for one call on one machine.
//! Any field of a Redfish resource may be missing. Deviations of single vendors are data files, see
//! [`quirks`], not code.

mod access;
mod bios;
mod bmc;
mod boot_settings;
mod clock;
mod connections;
mod firmware;
mod firmware_setup;
mod hardware_type;
mod indicators;
mod inspect;
mod inventory;
mod management;
mod power;
mod probe;
mod quirks;
mod raid;
mod reset;
mod resource_id;
mod resource_reader;
mod retries;
mod sensors;
mod settings;
mod subscription;
mod tasks;
mod vendor;
mod virtual_drive;
mod virtual_media;
mod virtual_media_boot;

use std::sync::Arc;

use connections::RedfishConnections;
use drivers::RegistryBuilder;
use quirks::QuirkCatalog;
pub use quirks::QuirksError;
pub use settings::RedfishSettings;

/// Name of all implementations except the boot interface.
const NAME: &str = "redfish";

/// Registers the hardware type `redfish` and its implementations.
pub fn register(
    registry: &mut RegistryBuilder,
    settings: &RedfishSettings,
) -> Result<(), QuirksError> {
    let quirks = QuirkCatalog::load(settings.quirks_dir.as_deref())?;
    let connections =
        Arc::new(RedfishConnections::new(settings.clone(), quirks, registry.bmc_limits()));
    registry.add_hardware_type(hardware_type::HARDWARE_TYPE);
    registry.add_boot_method(Arc::new(virtual_media_boot::VirtualMediaBootInterface::new(
        Arc::clone(&connections),
        registry.boot_service(),
    )));
    let implementations = &mut registry.implementations;
    implementations.add_bios(Arc::new(bios::RedfishBios(Arc::clone(&connections))));
    implementations.add_firmware(Arc::new(firmware::RedfishFirmware(Arc::clone(&connections))));
    implementations.add_raid(Arc::new(raid::RedfishRaid(Arc::clone(&connections))));
    implementations.add_inspect(Arc::new(inspect::RedfishInspect(Arc::clone(&connections))));
    implementations.add_vendor(Arc::new(vendor::RedfishVendor(Arc::clone(&connections))));
    implementations
        .add_management(Arc::new(management::RedfishManagement(Arc::clone(&connections))));
    implementations.add_power(Arc::new(power::RedfishPower(Arc::clone(&connections))));
    registry.add_sessions(connections);
    Ok(())
}
