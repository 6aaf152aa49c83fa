// SPDX-License-Identifier: Apache-2.0
//! The agent as one thing: what it knows about itself, its node and its machine, shared by all that
//! goes on in it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use agent_protocol::{AgentSettings, Disk, LookupReply, PartitionUuids, SHORTEST_TOKEN};
use serde_json::{Map, Value};
use tokio::sync::{Notify, OnceCell, watch};

use crate::commands::Journal;
use crate::http_client::Reach;
use crate::init::Devices;
use crate::logs;
use crate::managers::Managers;
use crate::network::Network;
use crate::parameters::Settings;

/// Where a token survives a restart of the worker: the server tells it only once.
const TOKEN_FILE: &str = "/run/ferrite-agent.token";
/// The modules of file systems on disks, and of what they need.
const FILE_SYSTEMS: &[&str] = &[
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
/// What a server says instead of a token it told before.
const MASKED_TOKEN: &str = "******";

/// What the agent does with itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It takes commands.
    Serving,
    /// It let somebody in and takes no commands any more.
    Rescued,
    /// It shut itself off from everybody.
    LockedDown,
}

/// The agent.
pub struct Agent {
    /// What it was told.
    pub settings: Settings,
    /// The machine's network.
    pub network: Network,
    /// How to reach others.
    pub reach: Reach,
    /// When devices turn up.
    pub devices: Devices,
    /// What does the work.
    pub managers: Managers,
    /// What it was told to do.
    pub journal: Journal,
    /// Whether the machine is its own: then it may turn it off.
    pub own_machine: bool,
    /// When it started.
    pub started_at: SystemTime,
    /// Wakes the heart.
    pub beat: Notify,
    /// Set when the arrays on the machine's disks were put together.
    pub assembled: OnceCell<()>,
    phase: watch::Sender<Phase>,
    known: Mutex<Known>,
}

/// What it has learned.
#[derive(Default)]
struct Known {
    node: Map<String, Value>,
    settings: Option<AgentSettings>,
    token: Option<String>,
    partitions: PartitionUuids,
    written: Option<Disk>,
    lldp: Option<std::collections::BTreeMap<String, Vec<(u8, String)>>>,
}

/// The server's answer makes it impossible to go on.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has told this node's token before, to somebody else or before this agent restarted; \
     power the node off and on through the server so that it makes a new one"
)]
pub struct TokenGivenAway;

impl Agent {
    /// Puts it together.
    #[must_use]
    pub fn new(
        settings: Settings,
        network: Network,
        reach: Reach,
        devices: Devices,
        managers: Managers,
        own_machine: bool,
    ) -> Arc<Self> {
        let saved = own_machine.then(|| std::fs::read_to_string(TOKEN_FILE).ok()).flatten();
        let token = settings.token.clone().or(saved).filter(|token| token.len() >= SHORTEST_TOKEN);
        if let Some(token) = &token {
            logs::conceal(token);
        }
        Arc::new(Self {
            settings,
            network,
            reach,
            devices,
            managers,
            journal: Journal::default(),
            own_machine,
            started_at: SystemTime::now(),
            beat: Notify::new(),
            assembled: OnceCell::new(),
            phase: watch::channel(Phase::Serving).0,
            known: Mutex::new(Known { token, ..Known::default() }),
        })
    }

    /// Takes over what a lookup said.
    ///
    /// # Errors
    /// If the token was given away, and this agent has none.
    pub fn learn(&self, reply: LookupReply) -> Result<(), TokenGivenAway> {
        let node = match serde_json::to_value(&reply.node) {
            Ok(Value::Object(node)) => node,
            Ok(_) | Err(_) => Map::new(),
        };
        let mut known = self.known();
        match reply.config.agent_token.as_deref() {
            Some(MASKED_TOKEN) if known.token.is_none() => return Err(TokenGivenAway),
            Some(token) if token.len() >= SHORTEST_TOKEN => {
                logs::conceal(token);
                if self.own_machine {
                    keep_secret(Path::new(TOKEN_FILE), token);
                }
                known.token = Some(token.to_owned());
            }
            Some(MASKED_TOKEN) | None => {}
            Some(_) => tracing::warn!("the server's token is too short to be used"),
        }
        known.node = node;
        known.settings = Some(reply.config);
        Ok(())
    }

    /// The node, as the server last told it.
    #[must_use]
    pub fn node(&self) -> Map<String, Value> {
        self.known().node.clone()
    }

    /// Its identity, once it is known.
    #[must_use]
    pub fn node_uuid(&self) -> Option<String> {
        Some(self.known().node.get("uuid")?.as_str()?.to_owned())
    }

    /// Remembers the node: it comes whole with every list of steps and every step.
    pub fn remember_node(&self, node: &Map<String, Value>) {
        if node.contains_key("uuid") {
            self.known().node = node.clone();
        }
    }

    /// How the server wants the agent to behave.
    #[must_use]
    pub fn server_settings(&self) -> Option<AgentSettings> {
        self.known().settings.clone()
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.known().token.clone()
    }

    /// What was found on the disk after an image was written.
    #[must_use]
    pub fn partitions(&self) -> PartitionUuids {
        self.known().partitions.clone()
    }

    /// Remembers that.
    pub fn remember_partitions(&self, partitions: PartitionUuids) {
        self.known().partitions = partitions;
    }

    /// The disk that an image was written to.
    #[must_use]
    pub fn written(&self) -> Option<Disk> {
        self.known().written.clone()
    }

    /// Remembers that, so that whatever follows is done to the same.
    pub fn remember_written(&self, disk: Disk) {
        self.known().written = Some(disk);
    }

    /// What LLDP said, if anybody listened.
    #[must_use]
    pub fn lldp(&self) -> Option<std::collections::BTreeMap<String, Vec<(u8, String)>>> {
        self.known().lldp.clone()
    }

    /// Remembers that.
    pub fn remember_lldp(&self, heard: std::collections::BTreeMap<String, Vec<(u8, String)>>) {
        self.known().lldp = Some(heard);
    }

    /// What the agent does with itself now, and later.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Changes it.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Whether it may change the machine's disks.
    #[must_use]
    pub fn may_touch_disks(&self) -> bool {
        self.own_machine || self.settings.may_touch_disks
    }

    /// Makes sure that the kernel knows the file systems there may be on a disk.
    pub fn load_file_systems(&self) {
        for name in FILE_SYSTEMS {
            self.devices.load_module(name);
        }
    }

    /// The machine's own name.
    #[must_use]
    pub fn hostname() -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if name.is_empty() || name == "(none)" { "localhost".to_owned() } else { name }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a secret for an agent that is started again on the same machine.
pub(crate) fn keep_secret(file: &Path, secret: &str) {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let kept = options.open(file).and_then(|mut file| file.write_all(secret.as_bytes()));
    if let Err(error) = kept {
        let file = file.display();
        tracing::debug!(%error, %file, "what is in it is lost if the agent restarts");
    }
}
