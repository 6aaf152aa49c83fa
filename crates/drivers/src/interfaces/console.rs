// SPDX-License-Identifier: Apache-2.0
//! The console interface: serial or graphical consoles.

use async_trait::async_trait;
use node_model::NodeId;

use super::BaseInterface;
use crate::console_feed::ConsoleFeed;
use crate::{ConsoleInfo, DriverError, DriverTarget, NodeChanges};

/// Serves a machine's console. `Node::console_enabled` records whether it is enabled.
#[async_trait]
pub trait ConsoleInterface: BaseInterface {
    /// Makes the console reachable.
    async fn start(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Stops serving the console.
    async fn stop(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Type and address of the console; `None` if it is not started.
    async fn info(&self, target: &DriverTarget<'_>) -> Result<Option<ConsoleInfo>, DriverError>;

    /// Input and output of a node's console. `None` if this process does not serve it, or not as text.
    fn feed(&self, _node: NodeId) -> Option<ConsoleFeed> {
        None
    }

    /// The nodes whose consoles this process serves.
    fn served_nodes(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// Stops serving a node's console because another process serves it.
    async fn release(&self, _node: NodeId) {}
}
