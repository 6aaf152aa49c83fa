// SPDX-License-Identifier: Apache-2.0
//! Remote volumes of a simulated machine.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::{Error, NodeChanges, Storage, Target};

/// The fake storage interface.
pub(crate) struct FakeStorage(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeStorage, Storage, STORAGE);

#[async_trait]
impl Storage for FakeStorage {
    async fn attach_volumes(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Storage, target, "attach_volumes").await?;
        Ok(NodeChanges::none())
    }

    async fn detach_volumes(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Storage, target, "detach_volumes").await?;
        Ok(NodeChanges::none())
    }
}
