// SPDX-License-Identifier: Apache-2.0
//! The boot interface: booting the ramdisk and the instance.

use async_trait::async_trait;

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges, RamdiskMode};

/// Prepares what a machine boots. Does not change its power.
#[async_trait]
pub trait BootInterface: BaseInterface {
    /// Boot capabilities: `ipxe_boot`, `ramdisk_boot`, `iscsi_volume_boot`, …
    fn capabilities(&self) -> &'static [&'static str] {
        &[]
    }

    /// Fails if the node lacks data for booting the ramdisk of `mode`. Reads only the node's fields.
    async fn validate_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        _mode: RamdiskMode,
    ) -> Result<(), DriverError> {
        self.validate(target).await
    }

    /// Whether the machine boots over the network, where it is identified by its ports.
    fn boots_over_network(&self) -> bool {
        false
    }

    /// Makes the next boot start the ramdisk of `mode`.
    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError>;

    /// Makes the next boot start the ramdisk of `mode` after a boot that did not start the agent, with
    /// another boot method if the implementation has one.
    async fn prepare_ramdisk_retry(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.prepare_ramdisk(target, mode).await
    }

    /// Removes what was published for the ramdisk of `mode`.
    async fn clean_up_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError>;

    /// Makes the next boots start the instance.
    async fn prepare_instance(&self, target: &DriverTarget<'_>)
    -> Result<NodeChanges, DriverError>;

    /// Removes what was published for the instance.
    async fn clean_up_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError>;
}
