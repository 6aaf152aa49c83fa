// SPDX-License-Identifier: Apache-2.0
//! The fake console interface. Its URL is not served; it only shows that the console is enabled.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{ConsoleInfo, ConsoleInterface, DriverError, DriverTarget, NodeChanges};
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake console interface.
pub(crate) struct FakeConsole(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeConsole, Console, CONSOLE);

#[async_trait]
impl ConsoleInterface for FakeConsole {
    async fn start(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Console, target, "start").await?;
        Ok(NodeChanges::none())
    }

    async fn stop(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Console, target, "stop").await?;
        Ok(NodeChanges::none())
    }

    async fn info(&self, target: &DriverTarget<'_>) -> Result<Option<ConsoleInfo>, DriverError> {
        self.0.begin_call(InterfaceKind::Console, target, "info").await?;
        let url = format!("fake://console/{}", target.node.id);
        Ok(Some(ConsoleInfo { kind: "fake", url }))
    }
}
