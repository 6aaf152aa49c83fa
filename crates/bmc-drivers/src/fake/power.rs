// SPDX-License-Identifier: Apache-2.0
//! Power of a simulated machine: it is what it was last set to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{InterfaceKind, PowerState, PowerTarget};

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::{Error, NodeChanges, Power, Target};

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
        Ok(target.node.power_state)
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
        Ok(NodeChanges::power(wanted.state()))
    }
}
