// SPDX-License-Identifier: Apache-2.0
//! Power of a simulated machine: it is what it was last set to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{InterfaceKind, PowerState, PowerTarget};

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::{Error, NodeChanges, Power, Target};

/// Where the machine keeps whether it is on.
const LAST_SET: &str = "fake_power_state";

/// The fake power interface.
pub(crate) struct FakePower(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakePower, Power, POWER);

#[async_trait]
impl Power for FakePower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error> {
        self.0.act(InterfaceKind::Power, target, "get").await?;
        // `error` is what others say of a machine that did not answer. Its own memory is what was
        // last set, and a machine nobody ever switched on is off.
        let set = target.node.driver_internal_info.get_str(LAST_SET);
        Ok(match target.node.power_state {
            Some(PowerState::Error) => {
                Some(set.and_then(|state| state.parse().ok()).unwrap_or(PowerState::Off))
            }
            known => known,
        })
    }

    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error> {
        let set = self.0.act(InterfaceKind::Power, target, "set");
        match timeout {
            None => set.await?,
            Some(limit) => {
                tokio::time::timeout(limit, set).await.map_err(|_| Error::Failed {
                    what: format!("bring the machine to '{wanted}'"),
                    why: format!(
                        "it took longer than {} seconds; allow more time or look at the machine",
                        limit.as_secs()
                    ),
                })??
            }
        }
        let state = wanted.state();
        Ok(NodeChanges::power(state).and(NodeChanges::remember(LAST_SET, state.as_str())))
    }
}
