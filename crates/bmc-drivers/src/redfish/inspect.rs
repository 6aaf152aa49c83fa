// SPDX-License-Identifier: Apache-2.0
//! Inspection without a ramdisk: what the BMC knows about the machine's hardware.

use std::sync::Arc;

use async_trait::async_trait;

use super::connections::Connections;
use super::inventory::{Hardware, StorageUnit};
use super::survey::Survey;
use crate::connected::connected_interface;
use crate::{Error, Findings, Inspect, Inspection, Target};

/// How many requests an inspection may make. A machine with two dozen disks takes about sixty.
const MOST_REQUESTS: usize = 300;

/// The Redfish inspect interface.
pub(super) struct RedfishInspect(pub(super) Arc<Connections>);

connected_interface!(RedfishInspect, Inspect);

#[async_trait]
impl Inspect for RedfishInspect {
    async fn inspect(&self, target: &Target<'_>) -> Result<Inspection, Error> {
        let bmc = self.0.bmc(target, "inspect the hardware")?;
        let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
        let system = bmc.system().await?;
        let mut survey = Survey::new(&bmc, &root, MOST_REQUESTS);
        let mut hardware = Hardware {
            processors: survey.members(&system, "/Processors").await?,
            interfaces: survey.members(&system, "/EthernetInterfaces").await?,
            ..Hardware::of(system)
        };
        read_storage(&mut survey, &mut hardware).await?;
        read_manager(&mut survey, &mut hardware).await?;
        for missed in survey.missed() {
            tracing::debug!(node = %target.node.id, missed, "not found by inspection");
        }
        Ok(Inspection::Done(Box::new(Findings {
            changes: hardware.changes(target.node),
            ports: hardware.ports(),
            inventory: Some(hardware.inventory().into()),
        })))
    }
}

/// Reads disks and volumes. The simple way of showing disks is asked for too: a machine may have
/// some disks in the one and some in the other.
async fn read_storage(survey: &mut Survey<'_>, hardware: &mut Hardware) -> Result<(), Error> {
    for unit in survey.members(&hardware.system, "/Storage").await? {
        let drives = survey.linked(&unit, "/Drives").await?;
        let volumes = survey.members(&unit, "/Volumes").await?;
        hardware.storage.push(StorageUnit { unit, drives, volumes });
    }
    hardware.simple_storage = survey.members(&hardware.system, "/SimpleStorage").await?;
    Ok(())
}

/// Reads where the BMC itself is on the network.
async fn read_manager(survey: &mut Survey<'_>, hardware: &mut Hardware) -> Result<(), Error> {
    // One manager is the BMC; chassis may have more of them, which manage other things.
    let managers = hardware.system.links("/Links/ManagedBy").len();
    if managers != 1 {
        return Ok(());
    }
    if let Some(manager) = survey.follow(&hardware.system, "/Links/ManagedBy/0").await? {
        hardware.bmc_interfaces = survey.members(&manager, "/EthernetInterfaces").await?;
    }
    Ok(())
}
