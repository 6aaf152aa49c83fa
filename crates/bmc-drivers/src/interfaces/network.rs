// SPDX-License-Identifier: Apache-2.0
//! Which networks a machine is attached to, when.

use async_trait::async_trait;
use node_model::{JsonObject, PortId, PortgroupId};

use super::Interface;
use crate::{Error, NodeChanges, Target};

/// What a machine is put onto a network for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkUse {
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
    /// The user's own networks.
    Tenant,
}

/// A virtual interface of the network service, attached to a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VifInfo {
    /// Its id in the network service.
    pub id: String,
    /// Only this port.
    pub port: Option<PortId>,
    /// Only this bond.
    pub portgroup: Option<PortgroupId>,
    /// Whatever else the user gave.
    pub rest: JsonObject,
}

/// Attaches a machine to networks.
#[async_trait]
pub trait Network: Interface {
    /// The virtual interfaces attached.
    async fn vifs(&self, target: &Target<'_>) -> Result<Vec<VifInfo>, Error>;

    /// Attaches a virtual interface.
    async fn attach_vif(&self, target: &Target<'_>, vif: &VifInfo) -> Result<NodeChanges, Error>;

    /// Detaches a virtual interface.
    async fn detach_vif(&self, target: &Target<'_>, id: &str) -> Result<NodeChanges, Error>;

    /// Puts the machine onto the network for `purpose`.
    async fn join(&self, target: &Target<'_>, purpose: NetworkUse) -> Result<NodeChanges, Error>;

    /// Takes it off the network for `purpose`.
    async fn leave(&self, target: &Target<'_>, purpose: NetworkUse) -> Result<NodeChanges, Error>;
}
