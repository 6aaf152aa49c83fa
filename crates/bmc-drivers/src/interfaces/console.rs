// SPDX-License-Identifier: Apache-2.0
//! Serial or graphical console.

use async_trait::async_trait;

use super::Interface;
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
}
