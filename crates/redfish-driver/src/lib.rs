// SPDX-License-Identifier: Apache-2.0
//! The hardware types `redfish` and `idrac`: machines whose BMC implements Redfish.
//!
//! All interfaces reach a BMC through [`RedfishConnections`], which keeps one session per BMC and
//! limits concurrent requests. [`bmc::RedfishBmc`] is such a connection for one call on one machine.
//! Any field of a Redfish resource may be missing. Deviations of single vendors are data files, see
//! [`quirks`], not code. Only the extensions of Dell iDRACs are code: the implementations of `idrac`
//! are those of `redfish` with another [`RedfishVariant`], which use the module `idrac`.

mod access;
mod bios;
mod bmc;
mod boot_settings;
mod clock;
mod connections;
mod firmware;
mod firmware_setup;
mod hardware_type;
mod https_boot;
mod idrac;
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
mod variant;
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
use variant::RedfishVariant;

/// Name of all standard implementations except the boot interfaces.
const NAME: &str = "redfish";

/// Registers the hardware types `redfish` and `idrac` and their implementations.
pub fn register(
    registry: &mut RegistryBuilder,
    settings: &RedfishSettings,
) -> Result<(), QuirksError> {
    let quirks = QuirkCatalog::load(settings.quirks_dir.as_deref())?;
    let connections =
        Arc::new(RedfishConnections::new(settings.clone(), quirks, registry.bmc_limits()));
    for hardware_type in [hardware_type::REDFISH, hardware_type::IDRAC] {
        registry.add_hardware_type(hardware_type);
    }
    let boot_service = registry.boot_service();
    let https_boot = https_boot::HttpsBootInterface::new(Arc::clone(&connections), boot_service);
    registry.implementations.add_boot(Arc::new(https_boot));
    let firmware = firmware::RedfishFirmware(Arc::clone(&connections));
    registry.implementations.add_firmware(Arc::new(firmware));
    for variant in [RedfishVariant::Standard, RedfishVariant::Idrac] {
        register_variant(registry, &connections, variant);
    }
    registry.add_sessions(connections);
    Ok(())
}

/// Registers the implementations that exist in two variants.
fn register_variant(
    registry: &mut RegistryBuilder,
    connections: &Arc<RedfishConnections>,
    variant: RedfishVariant,
) {
    registry.add_boot_method(Arc::new(virtual_media_boot::VirtualMediaBootInterface::new(
        Arc::clone(connections),
        registry.boot_service(),
        variant,
    )));
    let connections = || Arc::clone(connections);
    let implementations = &mut registry.implementations;
    implementations.add_bios(Arc::new(bios::RedfishBios(connections(), variant)));
    implementations.add_raid(Arc::new(raid::RedfishRaid(connections(), variant)));
    implementations.add_inspect(Arc::new(inspect::RedfishInspect(connections(), variant)));
    implementations.add_vendor(Arc::new(vendor::RedfishVendor(connections(), variant)));
    implementations.add_management(Arc::new(management::RedfishManagement(connections(), variant)));
    implementations.add_power(Arc::new(power::RedfishPower(connections(), variant)));
}
