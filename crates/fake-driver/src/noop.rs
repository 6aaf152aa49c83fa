// SPDX-License-Identifier: Apache-2.0
//! The `noop` implementations: they succeed and do nothing, for machines that are managed by other
//! means in that respect.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, BootDevice, BootDeviceSetting, DeployInterface, DriverError, DriverTarget,
    Implementations, ManagementInterface, NetworkInterface, NetworkPurpose, NodeChanges,
    SINGLE_DEPLOY_STEP, StepOutcome, StorageInterface, VifInfo, steps_of_flow,
};
use node_model::{AvailableStep, InterfaceKind, Step, StepFlow};

/// Registers these implementations.
pub(crate) fn register(implementations: &mut Implementations) {
    implementations.add_deploy(Arc::new(NoopDeploy));
    implementations.add_management(Arc::new(NoopManagement));
    implementations.add_network(Arc::new(NoopNetwork));
    implementations.add_storage(Arc::new(NoopStorage));
}

const NAME: &str = "noop";

/// For machines that are deployed by other means.
struct NoopDeploy;

#[async_trait]
impl BaseInterface for NoopDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(SINGLE_DEPLOY_STEP, self.kind(), flow)
    }

    async fn execute_step(
        &self,
        _target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        if flow == StepFlow::Deploy && step.step == SINGLE_DEPLOY_STEP[0].name {
            Ok(StepOutcome::done(NodeChanges::none()))
        } else {
            Err(self.unsupported(&format!("carry out the {flow} step '{}'", step.step)))
        }
    }
}

#[async_trait]
impl DeployInterface for NoopDeploy {
    async fn prepare(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn tear_down(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn clean_up(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn take_over(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }
}

/// For machines whose boot order was configured manually: network first, then disk.
struct NoopManagement;

impl BaseInterface for NoopManagement {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Management
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl ManagementInterface for NoopManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        &[BootDevice::Pxe, BootDevice::Disk]
    }

    async fn boot_device(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<BootDeviceSetting, DriverError> {
        Ok(BootDeviceSetting { device: Some(BootDevice::Pxe), persistent: Some(true) })
    }

    async fn set_boot_device(
        &self,
        _target: &DriverTarget<'_>,
        device: BootDevice,
        _persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        if self.supported_boot_devices().contains(&device) {
            Ok(NodeChanges::none())
        } else {
            Err(DriverError::invalid("boot_device", format!("'{device}' is not one of pxe, disk")))
        }
    }
}

/// For machines with static network configuration.
struct NoopNetwork;

impl BaseInterface for NoopNetwork {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Network
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl NetworkInterface for NoopNetwork {
    async fn vifs(&self, _target: &DriverTarget<'_>) -> Result<Vec<VifInfo>, DriverError> {
        Ok(Vec::new())
    }

    async fn attach_vif(
        &self,
        _target: &DriverTarget<'_>,
        _vif: &VifInfo,
    ) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn detach_vif(
        &self,
        _target: &DriverTarget<'_>,
        _id: &str,
    ) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn join(
        &self,
        _target: &DriverTarget<'_>,
        _purpose: NetworkPurpose,
    ) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn leave(
        &self,
        _target: &DriverTarget<'_>,
        _purpose: NetworkPurpose,
    ) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }
}

/// For machines without remote volumes.
struct NoopStorage;

impl BaseInterface for NoopStorage {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Storage
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl StorageInterface for NoopStorage {
    async fn attach_volumes(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn detach_volumes(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }
}
