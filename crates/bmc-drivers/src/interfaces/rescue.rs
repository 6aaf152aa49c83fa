// SPDX-License-Identifier: Apache-2.0
//! The rescue system.

use async_trait::async_trait;

use super::Interface;
use crate::{Error, NodeChanges, Outcome, Target};

/// Boots a machine into a rescue system and back. The password is in `instance_info`.
#[async_trait]
pub trait Rescue: Interface {
    /// Whether the rescue system is a ramdisk that the boot interface boots.
    fn boots_ramdisk(&self) -> bool {
        false
    }

    /// Boots the rescue system.
    async fn rescue(&self, target: &Target<'_>) -> Result<Outcome, Error>;

    /// Boots the instance again.
    async fn unrescue(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Removes what was laid out for the rescue system, after abort or time-out.
    async fn clean_up(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }
}
