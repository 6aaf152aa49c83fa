// SPDX-License-Identifier: Apache-2.0
//! How hardware is discovered.

use async_trait::async_trait;
use node_model::{JsonObject, Mac};

use super::Interface;
use crate::{Error, NodeChanges, Target};

/// How far an inspection came.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Inspection {
    /// All is known.
    Done(Box<Findings>),
    /// A ramdisk was started; its data arrives through `continue_inspection`.
    WaitForAgent(Box<NodeChanges>),
}

/// What an inspection found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// What to write on the node; `properties` among it.
    pub changes: NodeChanges,
    /// Network cards: the caller creates ports for those it does not know.
    pub ports: Vec<Mac>,
    /// CPUs, disks and the rest in the shape an agent sends, if the implementation makes one.
    pub inventory: Option<JsonObject>,
}

/// Looks at a machine's hardware.
#[async_trait]
pub trait Inspect: Interface {
    /// Looks, or starts the ramdisk that looks.
    async fn inspect(&self, target: &Target<'_>) -> Result<Inspection, Error>;

    /// Stops an inspection that waits.
    async fn abort(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Err(self.cannot("abort an inspection"))
    }

    /// Puts things back after the ramdisk's data arrived or the wait ended.
    async fn clean_up(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}
