// SPDX-License-Identifier: Apache-2.0
//! Settings of the conductor.

use node_model::BootProof;
use serde::{Deserialize, Serialize};

/// Settings of the conductor. Those of decisions are in `lifecycle::LifecycleSettings`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConductorSettings {
    /// The name of this process, unique among those that share a database; by default the host name.
    pub host: Option<String>,
    /// Seconds between two power and health polls of the same machine; 0 disables them.
    pub sync_power_state_interval: u64,
    /// Timeout of such a poll in seconds.
    pub power_state_timeout: u64,
    /// Timeout of the BMC request when a node is validated, in seconds.
    pub validate_timeout: u64,
    /// Seconds between two runs of maintenance: resuming allocations, restarting consoles, deleting old
    /// journal entries.
    pub heartbeat_interval: u64,
    /// Seconds without a renewal after which the API shows another process as dead. A dead process loses its
    /// machines earlier.
    pub heartbeat_timeout: u64,
    /// Seconds after which processes of earlier versions may take over a node of this one. It is extended
    /// while this process works on the node.
    pub lease_seconds: u64,
    /// Seconds a direct call waits for a leased node before it fails.
    pub node_locked_timeout: u64,
    /// Maximum seconds between two searches for due nodes.
    pub due_interval: u64,
    /// The conductor group whose nodes this process manages; empty for nodes without a group.
    pub conductor_group: String,
    /// Whether agents with a plain HTTP command API are rejected.
    pub require_agent_tls: bool,
    /// The weakest proof that an agent runs on the machine of its node: `secret`, the token in its
    /// kernel parameters; `lease`, also the source address of a DHCP lease that Ferrite gave to a NIC of
    /// the node; `none`, any client that knows a MAC address. Use `none` only if machines boot or get
    /// addresses from other servers, and every client on their network is trusted.
    pub agent_boot_proof: BootProof,
    /// Whether the callback URL of an agent must have the source address of its requests. Disable it if
    /// a proxy or NAT changes the addresses of agents.
    pub check_agent_address: bool,
    /// Seconds within which agents have to send the next heartbeat. With fast track, an agent whose
    /// last heartbeat is more recent counts as running.
    pub ramdisk_heartbeat_timeout: u64,
    /// Whether agents can look up only nodes with a running job.
    pub restrict_lookup: bool,
    /// Days after which journal entries are deleted; 0 keeps them.
    pub journal_days: u64,
    /// Days after which entries of the audit log are deleted; 0 keeps them.
    pub audit_days: u64,
}

impl Default for ConductorSettings {
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
            agent_boot_proof: BootProof::Lease,
            check_agent_address: true,
            ramdisk_heartbeat_timeout: 300,
            restrict_lookup: true,
            journal_days: 90,
            audit_days: 365,
        }
    }
}
