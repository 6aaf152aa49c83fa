// SPDX-License-Identifier: Apache-2.0
//! The inspect interface `agent`: boots the agent, which sends what it finds.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;

use super::InBand;
use super::ready::{FAST_TRACK, boot_ramdisk_next, leave_ramdisk_networks, power_off, start};
use crate::driver::Shelves;
use crate::interfaces::{Inspect, Inspection, Interface, NetworkUse, Property};
use crate::{Error, NodeChanges, RamdiskMode, Target};

/// Puts this implementation on its shelf.
pub(super) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>) {
    let inspect = AgentInspect(Arc::clone(in_band));
    shelves.inspect.push((inspect.name(), Arc::new(inspect)));
}

struct AgentInspect(Arc<InBand>);

#[async_trait]
impl Interface for AgentInspect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Inspect
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    fn properties(&self) -> &[Property] {
        &[FAST_TRACK]
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        target.driver.boot().validate(target).await
    }
}

#[async_trait]
impl Inspect for AgentInspect {
    async fn inspect(&self, target: &Target<'_>) -> Result<Inspection, Error> {
        let changes =
            boot_ramdisk_next(target, RamdiskMode::Inspection, NetworkUse::Inspection).await?;
        Ok(Inspection::WaitForAgent(Box::new(changes.and(start(target).await?))))
    }

    async fn abort(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        put_back(target).await
    }

    /// Where agents may stay, the one that sent the data does: it says where it listens after that,
    /// so there is nobody to ask yet.
    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if self.0.stays(target) { Ok(NodeChanges::none()) } else { put_back(target).await }
    }
}

async fn put_back(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let changes = power_off(target).await?;
    let boot = target.driver.boot();
    let changes = changes.and(boot.clean_up_ramdisk(target, RamdiskMode::Inspection).await?);
    let left = leave_ramdisk_networks(target).await?;
    Ok(NodeChanges { agent_is_gone: true, ..changes.and(left) })
}
