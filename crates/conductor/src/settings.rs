// SPDX-License-Identifier: Apache-2.0
//! What an operator may configure about how nodes are looked after.

use serde::{Deserialize, Serialize};

/// Settings of the conductor. Decisions have their own: `lifecycle::Settings`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The name of this process, unique among those that share a database; by default the name of
    /// the machine.
    pub host: Option<String>,
    /// Seconds between two looks at the same machine's power and health; 0 switches them off.
    pub sync_power_state_interval: u64,
    /// Seconds a BMC may take to answer such a look.
    pub power_state_timeout: u64,
    /// Seconds a BMC may take to answer when a node is validated.
    pub validate_timeout: u64,
    /// Seconds between two signs of life of this process in the database.
    pub heartbeat_interval: u64,
    /// Seconds without a sign of life after which another process counts as dead.
    pub heartbeat_timeout: u64,
    /// Seconds a node stays reserved by a process that died without saying so.
    pub lease_seconds: u64,
    /// Seconds a direct call waits for a node that is reserved before it is refused.
    pub node_locked_timeout: u64,
    /// Seconds between two searches for nodes whose wake-up was lost.
    pub due_interval: u64,
    /// The group of nodes this process looks after; empty for those without one.
    pub conductor_group: String,
    /// Refuse agents that listen over plain HTTP.
    pub require_agent_tls: bool,
    /// Seconds within which agents have to call again. Where agents stay on machines between jobs,
    /// one that called within them counts as running.
    pub ramdisk_heartbeat_timeout: u64,
    /// Let agents look up only machines that a job runs on.
    pub restrict_lookup: bool,
    /// Days the journal is kept; 0 keeps it for ever.
    pub journal_days: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: None,
            sync_power_state_interval: 120,
            power_state_timeout: 60,
            validate_timeout: 15,
            heartbeat_interval: 10,
            heartbeat_timeout: 60,
            lease_seconds: 60,
            node_locked_timeout: 3,
            due_interval: 5,
            conductor_group: String::new(),
            require_agent_tls: true,
            ramdisk_heartbeat_timeout: 300,
            restrict_lookup: true,
            journal_days: 90,
        }
    }
}
