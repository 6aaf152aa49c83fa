// SPDX-License-Identifier: Apache-2.0
//! The network interface: the networks a machine is attached to.

use async_trait::async_trait;

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges, VifInfo};

/// The purpose of a network attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkPurpose {
    /// Deployment.
    Provisioning,
    /// Cleaning.
    Cleaning,
    /// The rescue system.
    Rescuing,
    /// Inspection.
    Inspection,
    /// Service steps.
    Servicing,
    /// The instance's own networks.
    Tenant,
}

/// Attaches a machine to networks.
#[async_trait]
pub trait NetworkInterface: BaseInterface {
    /// The attached virtual interfaces.
    async fn vifs(&self, target: &DriverTarget<'_>) -> Result<Vec<VifInfo>, DriverError>;

    /// Attaches a virtual interface.
    async fn attach_vif(
        &self,
        target: &DriverTarget<'_>,
        vif: &VifInfo,
    ) -> Result<NodeChanges, DriverError>;

    /// Detaches a virtual interface.
    async fn detach_vif(
        &self,
        target: &DriverTarget<'_>,
        id: &str,
    ) -> Result<NodeChanges, DriverError>;

    /// Attaches the machine to the network for `purpose`.
    async fn join(
        &self,
        target: &DriverTarget<'_>,
        purpose: NetworkPurpose,
    ) -> Result<NodeChanges, DriverError>;

    /// Detaches the machine from the network for `purpose`.
    async fn leave(
        &self,
        target: &DriverTarget<'_>,
        purpose: NetworkPurpose,
    ) -> Result<NodeChanges, DriverError>;
}
