// SPDX-License-Identifier: Apache-2.0
//! What an interface is given to work with.

use std::fmt;
use std::sync::Arc;

use node_model::{
    JsonObject, Node, Port, Portgroup, Secret, Timestamp, VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value};

use crate::{CallLog, Driver};

/// A machine, with everything a driver may need to know to act on it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The machine's other interfaces: deploying needs power, booting needs management.
    pub driver: &'a Driver,
    /// The machine. Its free-form fields are masked; use the two below.
    pub node: &'a Node,
    /// `driver_info` with its secrets.
    pub driver_info: &'a Map<String, Value>,
    /// `instance_info` with its secrets.
    pub instance_info: &'a Map<String, Value>,
    /// What its agent is to be shown with every command.
    pub agent_token: Option<&'a Secret<String>>,
    /// Its network cards.
    pub ports: &'a [Port],
    /// Its bonds.
    pub portgroups: &'a [Portgroup],
    /// Its ends of storage networks.
    pub volume_connectors: &'a [VolumeConnector],
    /// Its remote volumes.
    pub volume_targets: &'a [VolumeTarget],
    /// What time it is.
    pub now: Timestamp,
    /// What the driver noted at an earlier attempt at the same stage or step.
    pub notes: &'a JsonObject,
    /// Where to tell what was said to the BMC, if somebody wants to know.
    pub calls: Option<&'a Arc<CallLog>>,
}

impl<'a> Target<'a> {
    /// A target without ports, volumes and notes; set those fields where they are at hand.
    #[must_use]
    pub const fn new(
        driver: &'a Driver,
        node: &'a Node,
        driver_info: &'a Map<String, Value>,
        instance_info: &'a Map<String, Value>,
        now: Timestamp,
    ) -> Self {
        const NO_NOTES: &JsonObject = &JsonObject::empty();
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
            notes: NO_NOTES,
            calls: None,
        }
    }
}

impl fmt::Debug for Target<'_> {
    /// Only the identity: a target holds secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("node", &self.node.id).finish_non_exhaustive()
    }
}
