// SPDX-License-Identifier: Apache-2.0
//! Remote volumes.

use async_trait::async_trait;

use super::Interface;
use crate::{Error, NodeChanges, Target};

/// Connects a machine to its remote volumes.
#[async_trait]
pub trait Storage: Interface {
    /// Attaches the node's volumes.
    async fn attach_volumes(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Detaches the node's volumes.
    async fn detach_volumes(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;
}
