// SPDX-License-Identifier: Apache-2.0
//! The inspect interface: discovering hardware.

use async_trait::async_trait;
use node_model::{JsonObject, Mac};

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges};

/// The result of an inspection call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum InspectionOutcome {
    /// The inspection is complete.
    Done(Box<InspectedHardware>),
    /// A ramdisk was started; its data arrives through `continue_inspection`.
    WaitForAgent(Box<NodeChanges>),
}

/// The result of an out-of-band inspection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InspectedHardware {
    /// Changes of the node, including `properties`.
    pub changes: NodeChanges,
    /// MAC addresses of the NICs; the caller creates missing ports.
    pub ports: Vec<Mac>,
    /// CPUs, disks and so on in the format of an agent's inventory, if the implementation provides it.
    pub inventory: Option<JsonObject>,
}

/// Inspects a machine's hardware.
#[async_trait]
pub trait InspectInterface: BaseInterface {
    /// Inspects the hardware, or boots the ramdisk that does.
    async fn inspect(&self, target: &DriverTarget<'_>) -> Result<InspectionOutcome, DriverError>;

    /// Aborts an inspection that waits for its ramdisk.
    async fn abort(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("abort an inspection"))
    }

    /// Cleans up after the ramdisk's data arrived or the wait ended.
    async fn clean_up(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }
}
