// SPDX-License-Identifier: Apache-2.0
//! Out-of-band inspection: reads the hardware inventory from the BMC.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    DriverError, DriverTarget, InspectInterface, InspectedHardware, InspectionOutcome,
    bmc_interface,
};
use redfish::RedfishResource;

use super::connections::RedfishConnections;
use super::inventory::{StorageSubsystem, SystemInventory};
use super::resource_reader::ResourceReader;
use super::variant::RedfishVariant;

/// Maximum number of requests of an inspection. A machine with two dozen disks takes about sixty.
const MAX_REQUESTS: usize = 300;

/// The Redfish inspect interface.
pub(super) struct RedfishInspect(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishInspect, Inspect);

#[async_trait]
impl InspectInterface for RedfishInspect {
    async fn inspect(&self, target: &DriverTarget<'_>) -> Result<InspectionOutcome, DriverError> {
        let bmc = self.0.bmc(target, "inspect the hardware")?;
        let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
        let mut system = bmc.system().await?;
        if self.1 == RedfishVariant::Idrac {
            use_service_tag(&mut system);
        }
        let mut reader = ResourceReader::new(&bmc, &root, MAX_REQUESTS);
        let mut hardware = SystemInventory {
            processors: reader.members(&system, "/Processors").await?,
            interfaces: reader.members(&system, "/EthernetInterfaces").await?,
            ..SystemInventory::from_system(system)
        };
        read_storage(&mut reader, &mut hardware).await?;
        read_manager(&mut reader, &mut hardware).await?;
        for resource in reader.skipped() {
            tracing::debug!(node = %target.node.id, resource, "resource skipped by inspection");
        }
        Ok(InspectionOutcome::Done(Box::new(InspectedHardware {
            changes: hardware.changes(target.node),
            ports: hardware.ports(),
            inventory: Some(hardware.inventory().into()),
        })))
    }
}

/// Replaces the serial number, which on Dell machines is that of the mainboard, by the service tag.
fn use_service_tag(system: &mut RedfishResource) {
    let tag = system.text("/SKU").filter(|tag| !tag.is_empty()).map(str::to_owned);
    if let (Some(tag), Some(fields)) = (tag, system.body.as_object_mut()) {
        fields.insert("SerialNumber".to_owned(), tag.into());
    }
}

/// Reads drives and volumes. `SimpleStorage` is read as well: a machine may list some disks in one
/// and some in the other.
async fn read_storage(
    reader: &mut ResourceReader<'_>,
    hardware: &mut SystemInventory,
) -> Result<(), DriverError> {
    for unit in reader.members(&hardware.system, "/Storage").await? {
        let drives = reader.linked(&unit, "/Drives").await?;
        let volumes = reader.members(&unit, "/Volumes").await?;
        hardware.storage.push(StorageSubsystem { unit, drives, volumes });
    }
    hardware.simple_storage = reader.members(&hardware.system, "/SimpleStorage").await?;
    Ok(())
}

/// Reads the network interfaces of the BMC.
async fn read_manager(
    reader: &mut ResourceReader<'_>,
    hardware: &mut SystemInventory,
) -> Result<(), DriverError> {
    // A single manager is the BMC; a chassis may have several that manage other parts.
    let managers = hardware.system.links("/Links/ManagedBy").len();
    if managers != 1 {
        return Ok(());
    }
    if let Some(manager) = reader.follow(&hardware.system, "/Links/ManagedBy/0").await? {
        hardware.bmc_interfaces = reader.members(&manager, "/EthernetInterfaces").await?;
    }
    Ok(())
}
