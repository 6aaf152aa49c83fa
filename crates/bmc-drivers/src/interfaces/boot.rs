// SPDX-License-Identifier: Apache-2.0
//! How the ramdisk and the instance are booted.

use async_trait::async_trait;

use super::Interface;
use crate::{Error, NodeChanges, RamdiskMode, Target};

/// Makes a machine boot what it should. Nothing here switches it on.
#[async_trait]
pub trait Boot: Interface {
    /// What it can boot: `ipxe_boot`, `ramdisk_boot`, `iscsi_volume_boot`, …
    fn capabilities(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the node has what booting the ramdisk of `mode` needs. Looks at its fields only.
    async fn validate_ramdisk(&self, target: &Target<'_>, _mode: RamdiskMode) -> Result<(), Error> {
        self.validate(target).await
    }

    /// Whether the machine asks for what it boots over the network, where it is known by its ports.
    fn is_by_network(&self) -> bool {
        false
    }

    /// Makes the next boot start the ramdisk of `mode`.
    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error>;

    /// Makes the next boot start the ramdisk of `mode` after one that did not bring the agent up:
    /// by another way, if the implementation has one.
    async fn prepare_again(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.prepare_ramdisk(target, mode).await
    }

    /// Removes what was laid out for the ramdisk of `mode`.
    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error>;

    /// Makes the next boots start the instance.
    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Removes what was laid out for the instance.
    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;
}
