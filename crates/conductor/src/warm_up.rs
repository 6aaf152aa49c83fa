// SPDX-License-Identifier: Apache-2.0
//! Warms up machines: boots the agent on a machine without a job, so that the next job finds it
//! running.

use std::time::Duration;

use drivers::ramdisk_boot::boot_standby_agent;
use drivers::{DriverError, NodeChanges};
use lifecycle::{WARM_UP_KEY, fast_track};
use node_model::{Actor, Node, NodeId, ProvisionState};

use crate::{Conductor, ConductorError};

/// The timeout of the BMC calls that boot the machine. The agent's heartbeat is not awaited.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);

const ACTION: &str = "boot the agent";

impl Conductor {
    /// Boots the agent on a machine without a job. If the agent sends no heartbeat, a later power
    /// poll reports it.
    pub async fn warm_up(&self, id: NodeId, actor: &Actor) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        if let Some(why) = self.warm_up_obstacle(&call.snapshot.node) {
            let node = call.snapshot.node.label();
            call.release(self).await;
            return Err(ConductorError::Invalid { node, why });
        }
        let call = call.record_intent(self, ACTION).await?;
        let target = call.target(self);
        let work = async {
            call.driver.boot().validate(&target).await?;
            match tokio::time::timeout(BOOT_TIMEOUT, boot_standby_agent(&target)).await {
                Ok(changes) => {
                    Ok(((), changes?.and(NodeChanges::internal_info(WARM_UP_KEY, true))))
                }
                Err(_) => Err(DriverError::Failed {
                    what: ACTION.to_owned(),
                    why: format!("the BMC took longer than {} s", BOOT_TIMEOUT.as_secs()),
                }),
            }
        };
        call.run(self, actor, ACTION, work).await
    }

    fn warm_up_obstacle(&self, node: &Node) -> Option<String> {
        let state = node.provision_state;
        if !matches!(state, ProvisionState::Available | ProvisionState::Manageable) {
            Some(format!("it is {state}, and only available or manageable nodes can be warmed up"))
        } else if node.maintenance {
            Some("it is in maintenance; clear maintenance first".to_owned())
        } else if !fast_track(node, &self.rules) {
            Some(
                "running agents are not reused on it; set driver_info/fast_track, or \
                 lifecycle.fast_track for all nodes"
                    .to_owned(),
            )
        } else {
            None
        }
    }
}
