// SPDX-License-Identifier: Apache-2.0
//! On and off.

use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};

use super::Interface;
use crate::{Error, NodeChanges, Target};

/// Switches a machine.
#[async_trait]
pub trait Power: Interface {
    /// What may be asked of it.
    fn supported(&self) -> &'static [PowerTarget];

    /// Whether the machine is on; none if nobody can say yet.
    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error>;

    /// Brings the machine to `wanted` and returns when it is there. Each part of it, such as going
    /// off and coming on, is given up after `timeout`, or after the implementation's own patience if
    /// none is given. What failed with a transient error may be asked for again; a reboot whose
    /// machine may be starting already fails with another.
    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error>;

    /// Whether the BMC lets us in with what the node says about it. Asks it, briefly; there is
    /// nothing to ask where there is no BMC.
    async fn check_access(&self, _target: &Target<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the caller may switch the machine back when it finds it in another state than
    /// expected.
    fn supports_sync(&self) -> bool {
        true
    }
}
