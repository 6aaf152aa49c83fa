// SPDX-License-Identifier: Apache-2.0
//! The storage interface: remote volumes.

use async_trait::async_trait;

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges};

/// Connects a machine to its remote volumes.
#[async_trait]
pub trait StorageInterface: BaseInterface {
    /// Attaches the node's volumes.
    async fn attach_volumes(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Detaches the node's volumes.
    async fn detach_volumes(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;
}
