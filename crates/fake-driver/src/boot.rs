// SPDX-License-Identifier: Apache-2.0
//! The fake boot interface: always ready.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{BootInterface, DriverError, DriverTarget, NodeChanges, RamdiskMode};
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake boot interface.
pub(crate) struct FakeBoot(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeBoot, Boot, BOOT);

impl FakeBoot {
    async fn begin_call(
        &self,
        target: &DriverTarget<'_>,
        operation: &str,
    ) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Boot, target, operation).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl BootInterface for FakeBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ipxe_boot", "pxe_boot"]
    }

    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "prepare_ramdisk").await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "clean_up_ramdisk").await
    }

    async fn prepare_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "prepare_instance").await
    }

    async fn clean_up_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "clean_up_instance").await
    }
}
