// SPDX-License-Identifier: Apache-2.0
//! The fake power interface: the power state is the one that was set last.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::{DriverError, DriverTarget, NodeChanges, PowerInterface};
use node_model::{InterfaceKind, PowerState, PowerTarget};

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The `driver_internal_info` key with the last set power state.
const POWER_STATE_KEY: &str = "fake_power_state";

/// The fake power interface.
pub(crate) struct FakePower(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakePower, Power, POWER);

#[async_trait]
impl PowerInterface for FakePower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &DriverTarget<'_>) -> Result<Option<PowerState>, DriverError> {
        self.0.begin_call(InterfaceKind::Power, target, "get").await?;
        // `error` is the conductor's state for an unreachable machine; the machine itself has the state
        // that was set last, or is off if none was set.
        let set = target.node.driver_internal_info.get_str(POWER_STATE_KEY);
        Ok(match target.node.power_state {
            Some(PowerState::Error) => {
                Some(set.and_then(|state| state.parse().ok()).unwrap_or(PowerState::Off))
            }
            known => known,
        })
    }

    async fn set(
        &self,
        target: &DriverTarget<'_>,
        power_target: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, DriverError> {
        let set = self.0.begin_call(InterfaceKind::Power, target, "set");
        match timeout {
            None => set.await?,
            Some(limit) => {
                tokio::time::timeout(limit, set).await.map_err(|_| DriverError::Failed {
                    what: format!("bring the machine to '{power_target}'"),
                    why: format!(
                        "it took longer than {} seconds; allow more time or check the machine",
                        limit.as_secs()
                    ),
                })??
            }
        }
        let state = power_target.state();
        Ok(NodeChanges::power(state)
            .and(NodeChanges::internal_info(POWER_STATE_KEY, state.as_str())))
    }
}
