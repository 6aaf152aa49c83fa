// SPDX-License-Identifier: Apache-2.0
//! Warming a machine up: a machine that nobody uses is booted into the agent, which stays until a
//! job needs it.

use std::time::Duration;

use bmc_drivers::{NodeChanges, warm_up};
use lifecycle::{WARMING, fast_track};
use node_model::{Actor, NodeId, ProvisionState};

use crate::{Conductor, Error};

/// Booting is told to the BMC and no more: the agent calls when it is up.
const LONGEST: Duration = Duration::from_secs(600);

impl Conductor {
    /// Boots a machine into the agent. When it has called, the next job uses it as it is; if it does
    /// not, whoever looks at the machine's power says so.
    pub async fn warm(&self, id: NodeId, actor: &Actor) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let node = &held.sight.node;
        let refusal = if !matches!(
            node.provision_state,
            ProvisionState::Available | ProvisionState::Manageable
        ) {
            Some(format!(
                "it is {}, and only machines that are available or manageable can be booted into \
                 the agent",
                node.provision_state
            ))
        } else if node.maintenance {
            Some("it is in maintenance; take it out first".to_owned())
        } else if !fast_track(node, &self.rules) {
            Some(
                "running agents are not used on it; set driver_info/fast_track, or \
                 lifecycle.fast_track for all machines"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(why) = refusal {
            let node = node.label();
            held.give_back(self).await;
            return Err(Error::Invalid { node, why });
        }
        held.announce(self, "boot the agent").await?;
        let target = held.target(self);
        let work = async {
            held.driver.boot().validate(&target).await?;
            let warmed = tokio::time::timeout(LONGEST, warm_up(&target)).await;
            match warmed {
                Ok(changes) => Ok(((), changes?.and(NodeChanges::remember(WARMING, true)))),
                Err(_) => Err(bmc_drivers::Error::Failed {
                    what: "boot the agent".to_owned(),
                    why: format!("the BMC took longer than {} s", LONGEST.as_secs()),
                }),
            }
        };
        held.carry_out(self, actor, "boot the agent", work).await
    }
}
