// SPDX-License-Identifier: Apache-2.0
//! The state of the agent, shared by all of its tasks.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use agent_protocol::{
    InventoryDisk, LookupAgentConfig, LookupReply, MIN_TOKEN_LENGTH, PartitionUuids,
};
use serde_json::{Map, Value};
use tokio::sync::{Notify, OnceCell, watch};

use crate::commands::CommandLog;
use crate::http_client::HttpContext;
use crate::init::DeviceMonitor;
use crate::logs;
use crate::managers::HardwareManagers;
use crate::network::AgentNetwork;
use crate::parameters::AgentOptions;

/// Keeps the token across restarts of the worker: the server sends it only once.
const TOKEN_FILE: &str = "/run/ferrite-agent.token";
/// Modules for the file systems of installed systems, and their dependencies.
const FILE_SYSTEM_MODULES: &[&str] = &[
    "nls_cp437",
    "nls_iso8859_1",
    "nls_ascii",
    "nls_utf8",
    "vfat",
    "ext4",
    "xfs",
    "btrfs",
    "isofs",
    "dm_mod",
];
/// Sent by servers in place of a token that was already issued.
const MASKED_TOKEN: &str = "******";

/// The phase of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentPhase {
    /// Executes commands.
    Serving,
    /// Rescue: users can log in, commands are no longer accepted.
    Rescued,
    /// Locked down: disconnected from the network.
    LockedDown,
}

/// The state of the agent.
pub struct RamdiskAgent {
    /// The boot parameters.
    pub options: AgentOptions,
    /// The machine's network.
    pub network: AgentNetwork,
    /// The HTTP client and its parts.
    pub http: HttpContext,
    /// Reports new devices and loads modules.
    pub devices: DeviceMonitor,
    /// The hardware managers, which execute steps.
    pub managers: HardwareManagers,
    /// All commands since the start.
    pub command_log: CommandLog,
    /// Whether the agent runs in its ramdisk and may power the machine off.
    pub in_ramdisk: bool,
    /// The start time.
    pub started_at: SystemTime,
    /// Triggers a heartbeat.
    pub heartbeat_now: Notify,
    /// Set once the RAID arrays on the disks are assembled.
    pub arrays_assembled: OnceCell<()>,
    phase: watch::Sender<AgentPhase>,
    state: Mutex<AgentRuntimeState>,
}

/// State that is set after the start.
#[derive(Default)]
struct AgentRuntimeState {
    node: Map<String, Value>,
    server_config: Option<LookupAgentConfig>,
    token: Option<String>,
    partitions: PartitionUuids,
    written: Option<InventoryDisk>,
    lldp: Option<std::collections::BTreeMap<String, Vec<(u8, String)>>>,
}

/// The server sent a masked token, and this agent does not have the token.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has already issued the token of this node, to another agent or before this one \
     restarted; power the node off and on through the server to get a new one"
)]
pub struct TokenAlreadyIssued;

impl RamdiskAgent {
    /// Creates the state. In a ramdisk, a stored token is loaded.
    #[must_use]
    pub fn new(
        options: AgentOptions,
        network: AgentNetwork,
        http: HttpContext,
        devices: DeviceMonitor,
        managers: HardwareManagers,
        in_ramdisk: bool,
    ) -> Arc<Self> {
        let saved = in_ramdisk.then(|| std::fs::read_to_string(TOKEN_FILE).ok()).flatten();
        let token = options.token.clone().or(saved).filter(|token| token.len() >= MIN_TOKEN_LENGTH);
        let url_secrets =
            options.inspection_urls.iter().filter_map(|url| url.rsplit_once("boot_secret="));
        for secret in token.as_deref().into_iter().chain(url_secrets.map(|(_, secret)| secret)) {
            logs::register_secret(secret);
        }
        Arc::new(Self {
            options,
            network,
            http,
            devices,
            managers,
            command_log: CommandLog::default(),
            in_ramdisk,
            started_at: SystemTime::now(),
            heartbeat_now: Notify::new(),
            arrays_assembled: OnceCell::new(),
            phase: watch::channel(AgentPhase::Serving).0,
            state: Mutex::new(AgentRuntimeState { token, ..AgentRuntimeState::default() }),
        })
    }

    /// Stores the node, the configuration and the token of a lookup response.
    ///
    /// # Errors
    /// If the token was already issued and this agent does not have it.
    pub fn apply_lookup(&self, reply: LookupReply) -> Result<(), TokenAlreadyIssued> {
        let node = match serde_json::to_value(&reply.node) {
            Ok(Value::Object(node)) => node,
            Ok(_) | Err(_) => Map::new(),
        };
        let mut state = self.state();
        match reply.config.agent_token.as_deref() {
            Some(MASKED_TOKEN) if state.token.is_none() => return Err(TokenAlreadyIssued),
            Some(token) if token.len() >= MIN_TOKEN_LENGTH => {
                logs::register_secret(token);
                if self.in_ramdisk {
                    store_secret(Path::new(TOKEN_FILE), token);
                }
                state.token = Some(token.to_owned());
            }
            Some(MASKED_TOKEN) | None => {}
            Some(_) => tracing::warn!("agent token from the server is too short, ignored"),
        }
        state.node = node;
        state.server_config = Some(reply.config);
        Ok(())
    }

    /// Returns the node as last received from the server.
    #[must_use]
    pub fn node(&self) -> Map<String, Value> {
        self.state().node.clone()
    }

    /// Returns the UUID of the node, if known.
    #[must_use]
    pub fn node_uuid(&self) -> Option<String> {
        Some(self.state().node.get("uuid")?.as_str()?.to_owned())
    }

    /// Stores the node. The server sends it with every list of steps and every step.
    pub fn set_node(&self, node: &Map<String, Value>) {
        if node.contains_key("uuid") {
            self.state().node = node.clone();
        }
    }

    /// Returns the agent configuration of the lookup response.
    #[must_use]
    pub fn server_config(&self) -> Option<LookupAgentConfig> {
        self.state().server_config.clone()
    }

    /// Returns the token.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.state().token.clone()
    }

    /// Returns the partitions of the written image.
    #[must_use]
    pub fn partitions(&self) -> PartitionUuids {
        self.state().partitions.clone()
    }

    /// Stores the partitions of the written image.
    pub fn set_partitions(&self, partitions: PartitionUuids) {
        self.state().partitions = partitions;
    }

    /// Returns the disk that an image was written to.
    #[must_use]
    pub fn written_disk(&self) -> Option<InventoryDisk> {
        self.state().written.clone()
    }

    /// Stores the disk that an image was written to. Later steps use the same disk.
    pub fn set_written_disk(&self, disk: InventoryDisk) {
        self.state().written = Some(disk);
    }

    /// Returns the received LLDP TLVs by interface; `None` if LLDP was not collected.
    #[must_use]
    pub fn lldp(&self) -> Option<std::collections::BTreeMap<String, Vec<(u8, String)>>> {
        self.state().lldp.clone()
    }

    /// Stores the received LLDP TLVs.
    pub fn set_lldp(&self, tlvs: std::collections::BTreeMap<String, Vec<(u8, String)>>) {
        self.state().lldp = Some(tlvs);
    }

    /// Subscribes to the phase.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<AgentPhase> {
        self.phase.subscribe()
    }

    /// Sets the phase.
    pub fn set_phase(&self, phase: AgentPhase) {
        self.phase.send_replace(phase);
    }

    /// Whether disks may be modified.
    #[must_use]
    pub fn may_modify_disks(&self) -> bool {
        self.in_ramdisk || self.options.may_modify_disks
    }

    /// Loads the modules of common file systems.
    pub fn load_file_systems(&self) {
        for name in FILE_SYSTEM_MODULES {
            self.devices.load_module(name);
        }
    }

    /// Returns the host name.
    #[must_use]
    pub fn hostname() -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if name.is_empty() || name == "(none)" { "localhost".to_owned() } else { name }
    }

    fn state(&self) -> MutexGuard<'_, AgentRuntimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores a secret for a restarted agent.
pub(crate) fn store_secret(file: &Path, secret: &str) {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let stored = options.open(file).and_then(|mut file| file.write_all(secret.as_bytes()));
    if let Err(error) = stored {
        let path = file.display();
        tracing::debug!(%error, %path, "failed to store a secret for restarts");
    }
}
