// SPDX-License-Identifier: Apache-2.0
//! The `noop` implementations: they succeed and do nothing, for machines that somebody else looks
//! after in that respect.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, Step, StepFlow, StepOffer};

use crate::driver::Shelves;
use crate::interfaces::{
    BootDeviceSetting, Deploy, Interface, Management, Network, NetworkUse, Storage, VifInfo,
};
use crate::step::{DEPLOY_AT_ONCE, offers};
use crate::{BootDevice, Error, NodeChanges, Outcome, Target};

/// Puts these implementations on their shelves.
pub(crate) fn add_to(shelves: &mut Shelves) {
    shelves.deploy.push((NAME, Arc::new(NoopDeploy)));
    shelves.management.push((NAME, Arc::new(NoopManagement)));
    shelves.network.push((NAME, Arc::new(NoopNetwork)));
    shelves.storage.push((NAME, Arc::new(NoopStorage)));
}

const NAME: &str = "noop";

/// The machine deploys itself.
struct NoopDeploy;

#[async_trait]
impl Interface for NoopDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(DEPLOY_AT_ONCE, self.kind(), flow)
    }

    async fn execute_step(
        &self,
        _target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        if flow == StepFlow::Deploy && step.step == DEPLOY_AT_ONCE[0].name {
            Ok(Outcome::Done(NodeChanges::none()))
        } else {
            Err(self.cannot(&format!("carry out the {flow} step '{}'", step.step)))
        }
    }
}

#[async_trait]
impl Deploy for NoopDeploy {
    async fn prepare(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn tear_down(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn clean_up(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn take_over(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}

/// The boot order was set by hand: network first, then disk.
struct NoopManagement;

impl Interface for NoopManagement {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Management
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl Management for NoopManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        &[BootDevice::Pxe, BootDevice::Disk]
    }

    async fn boot_device(&self, _target: &Target<'_>) -> Result<BootDeviceSetting, Error> {
        Ok(BootDeviceSetting { device: Some(BootDevice::Pxe), persistent: Some(true) })
    }

    async fn set_boot_device(
        &self,
        _target: &Target<'_>,
        device: BootDevice,
        _persistent: bool,
    ) -> Result<NodeChanges, Error> {
        if self.supported_boot_devices().contains(&device) {
            Ok(NodeChanges::none())
        } else {
            Err(Error::invalid("boot_device", format!("'{device}' is not one of pxe, disk")))
        }
    }
}

/// The machine stays on the networks it is cabled to.
struct NoopNetwork;

impl Interface for NoopNetwork {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Network
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl Network for NoopNetwork {
    async fn vifs(&self, _target: &Target<'_>) -> Result<Vec<VifInfo>, Error> {
        Ok(Vec::new())
    }

    async fn attach_vif(&self, _target: &Target<'_>, _vif: &VifInfo) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn detach_vif(&self, _target: &Target<'_>, _id: &str) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn join(&self, _target: &Target<'_>, _purpose: NetworkUse) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn leave(
        &self,
        _target: &Target<'_>,
        _purpose: NetworkUse,
    ) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}

/// There are no remote volumes.
struct NoopStorage;

impl Interface for NoopStorage {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Storage
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl Storage for NoopStorage {
    async fn attach_volumes(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn detach_volumes(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}
