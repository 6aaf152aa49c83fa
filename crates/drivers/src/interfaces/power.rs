// SPDX-License-Identifier: Apache-2.0
//! The power interface.

use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};

use super::BaseInterface;
use crate::{DriverError, DriverTarget, NodeChanges};

/// Controls the power of a machine.
#[async_trait]
pub trait PowerInterface: BaseInterface {
    /// The supported power targets.
    fn supported(&self) -> &'static [PowerTarget];

    /// The current power state; `None` if it is not known yet.
    async fn get(&self, target: &DriverTarget<'_>) -> Result<Option<PowerState>, DriverError>;

    /// Brings the machine to `power_target` and returns when it is reached. Each part of the change,
    /// such as power-off and power-on, fails after `timeout`, or after the implementation's own timeout
    /// if `None`. A call that failed with a transient error may be repeated; a reboot whose machine may
    /// already be starting fails with a permanent one.
    async fn set(
        &self,
        target: &DriverTarget<'_>,
        power_target: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, DriverError>;

    /// Fails if the BMC rejects the node's credentials. Sends one short request; implementations
    /// without a BMC always succeed.
    async fn check_access(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    /// Whether the conductor may restore the recorded power state when the machine has another one.
    fn supports_sync(&self) -> bool {
        true
    }
}
