// SPDX-License-Identifier: Apache-2.0
//! The fake storage interface.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{DriverError, DriverTarget, NodeChanges, StorageInterface};
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake storage interface.
pub(crate) struct FakeStorage(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeStorage, Storage, STORAGE);

#[async_trait]
impl StorageInterface for FakeStorage {
    async fn attach_volumes(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Storage, target, "attach_volumes").await?;
        Ok(NodeChanges::none())
    }

    async fn detach_volumes(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Storage, target, "detach_volumes").await?;
        Ok(NodeChanges::none())
    }
}
