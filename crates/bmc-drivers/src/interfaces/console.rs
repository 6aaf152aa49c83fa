// SPDX-License-Identifier: Apache-2.0
//! Serial or graphical console.

use async_trait::async_trait;
use node_model::NodeId;

use super::Interface;
use crate::console_feed::ConsoleFeed;
use crate::{Error, NodeChanges, Target};

/// How a user reaches a console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleInfo {
    /// `socat`, `vnc`, …
    pub kind: &'static str,
    /// Where it is.
    pub url: String,
}

/// Serves a machine's console. Whether it is wanted is `Node::console_enabled`.
#[async_trait]
pub trait Console: Interface {
    /// Makes the console reachable.
    async fn start(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Makes it unreachable.
    async fn stop(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// How to reach it while it is started.
    async fn info(&self, target: &Target<'_>) -> Result<ConsoleInfo, Error>;

    /// What a node's console says and takes; none if this process does not serve it, or not as text.
    fn feed(&self, _node: NodeId) -> Option<ConsoleFeed> {
        None
    }

    /// The nodes whose consoles this process serves.
    fn served(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// Leaves a node's console to another process.
    async fn leave(&self, _node: NodeId) {}
}
