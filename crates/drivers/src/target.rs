// SPDX-License-Identifier: Apache-2.0
//! The input of an interface call.

use std::fmt;
use std::sync::Arc;

use node_model::{
    JobHints, JsonObject, Node, Port, Portgroup, Secret, Timestamp, VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value};

use crate::{BmcCallLog, Driver};

/// A node with all data that a driver call may need.
#[derive(Clone, Copy)]
pub struct DriverTarget<'a> {
    /// The node's driver, for calls of other interfaces: deploying needs power, booting needs
    /// management.
    pub driver: &'a Driver,
    /// The node. Secrets in its JSON fields are masked; use the two fields below.
    pub node: &'a Node,
    /// `driver_info` with its secrets.
    pub driver_info: &'a Map<String, Value>,
    /// `instance_info` with its secrets.
    pub instance_info: &'a Map<String, Value>,
    /// The token that authenticates commands to the agent.
    pub agent_token: Option<&'a Secret<String>>,
    /// The node's ports.
    pub ports: &'a [Port],
    /// The node's portgroups.
    pub portgroups: &'a [Portgroup],
    /// The node's volume connectors.
    pub volume_connectors: &'a [VolumeConnector],
    /// The node's volume targets.
    pub volume_targets: &'a [VolumeTarget],
    /// The current time.
    pub now: Timestamp,
    /// What the driver stored in an earlier call for the same stage or step.
    pub driver_state: &'a JsonObject,
    /// Facts about the job.
    pub job: JobHints,
    /// Records the requests to the BMC and the agent, if set.
    pub call_log: Option<&'a Arc<BmcCallLog>>,
}

impl<'a> DriverTarget<'a> {
    /// A target without ports, volumes and driver state; set those fields where they are at hand.
    #[must_use]
    pub const fn new(
        driver: &'a Driver,
        node: &'a Node,
        driver_info: &'a Map<String, Value>,
        instance_info: &'a Map<String, Value>,
        now: Timestamp,
    ) -> Self {
        const EMPTY: &JsonObject = &JsonObject::empty();
        Self {
            driver,
            node,
            driver_info,
            instance_info,
            agent_token: None,
            ports: &[],
            portgroups: &[],
            volume_connectors: &[],
            volume_targets: &[],
            now,
            driver_state: EMPTY,
            job: JobHints::NONE,
            call_log: None,
        }
    }
}

impl fmt::Debug for DriverTarget<'_> {
    /// Prints only the node ID: a target holds secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverTarget").field("node", &self.node.id).finish_non_exhaustive()
    }
}
