// SPDX-License-Identifier: Apache-2.0
//! Booting of a simulated machine: always ready.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::{Boot, Error, NodeChanges, RamdiskMode, Target};

/// The fake boot interface.
pub(crate) struct FakeBoot(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeBoot, Boot, BOOT);

impl FakeBoot {
    async fn act(&self, target: &Target<'_>, operation: &str) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Boot, target, operation).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl Boot for FakeBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ipxe_boot", "pxe_boot"]
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.act(target, "prepare_ramdisk").await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.act(target, "clean_up_ramdisk").await
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "prepare_instance").await
    }

    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "clean_up_instance").await
    }
}
