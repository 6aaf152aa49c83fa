// SPDX-License-Identifier: Apache-2.0
//! Console of a simulated machine. Nothing listens there: the address only tells that it is on.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::{Console, ConsoleInfo, Error, NodeChanges, Target};

/// The fake console interface.
pub(crate) struct FakeConsole(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeConsole, Console, CONSOLE);

#[async_trait]
impl Console for FakeConsole {
    async fn start(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Console, target, "start").await?;
        Ok(NodeChanges::none())
    }

    async fn stop(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Console, target, "stop").await?;
        Ok(NodeChanges::none())
    }

    async fn info(&self, target: &Target<'_>) -> Result<ConsoleInfo, Error> {
        self.0.act(InterfaceKind::Console, target, "info").await?;
        Ok(ConsoleInfo { kind: "fake", url: format!("fake://console/{}", target.node.id) })
    }
}
