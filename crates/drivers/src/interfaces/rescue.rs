// SPDX-License-Identifier: Apache-2.0
//! The rescue interface.

use async_trait::async_trait;

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges, StepOutcome};

/// Boots a machine into a rescue system and back. The password is in `instance_info`.
#[async_trait]
pub trait RescueInterface: BaseInterface {
    /// Whether the rescue system is a ramdisk that the boot interface boots.
    fn boots_ramdisk(&self) -> bool {
        false
    }

    /// Boots the rescue system.
    async fn rescue(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError>;

    /// Boots the instance again.
    async fn unrescue(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Removes what was published for the rescue system, after abort or timeout.
    async fn clean_up(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }
}
