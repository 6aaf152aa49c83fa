// SPDX-License-Identifier: Apache-2.0
//! Simulated agents, which run on machines that booted a ramdisk.
//!
//! No ramdisk is really loaded, but the agent is a real HTTP peer: like ironic-python-agent it does
//! a lookup, sends heartbeats ([`lifecycle`]) and accepts commands ([`server`], [`commands`]). All
//! agents of a fleet share one listener and one HTTP client, so that a machine without an agent costs
//! only a sleeping task.

mod api_client;
mod commands;
mod inventory;
mod lifecycle;
mod server;
mod steps;
mod write_image;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use agent_protocol::{CommandReport, CommandStatus};
use node_model::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

pub(crate) use lifecycle::run;
pub(crate) use server::{AgentDirectory, handle};

/// The version that agents report.
const AGENT_VERSION: &str = "13.0.0";

/// Configuration of the agents of a fleet.
#[derive(Clone, Debug)]
pub struct SimulatedAgentConfig {
    /// URL of the API they call, such as `http://127.0.0.1:6385`.
    pub api_url: String,
    /// Whether they serve HTTPS, with a certificate that they send with each heartbeat.
    pub tls: bool,
    /// Seconds from the end of POST to the first call of the agent. Divided by the fleet's speed.
    pub boot_seconds: f64,
    /// Duration of a step in seconds. Divided by the fleet's speed.
    pub step_seconds: f64,
    /// Whether they send inspection data at every boot, before the lookup. Without kernel
    /// parameters they do not know whether they were booted for inspection. A server that expects
    /// no data returns 404, which they ignore.
    pub sends_inspection_data: bool,
    /// Whether they download images and verify checksums; otherwise they only report success.
    pub downloads_images: bool,
    /// Whether they imitate Ferrite's agent, which starts instances by kexec.
    pub is_ferrite_agent: bool,
}

impl SimulatedAgentConfig {
    /// Creates the default configuration for agents that call this API.
    #[must_use]
    pub fn for_api(api_url: &str) -> Self {
        Self {
            api_url: api_url.to_owned(),
            tls: false,
            boot_seconds: 30.0,
            step_seconds: 0.1,
            sends_inspection_data: true,
            downloads_images: false,
            is_ferrite_agent: false,
        }
    }
}

/// Data shared by all agents of a fleet.
#[derive(Debug)]
pub(crate) struct AgentContext {
    pub(crate) config: SimulatedAgentConfig,
    api_url: RwLock<Arc<str>>,
    client: reqwest::Client,
    /// The address of their listener.
    address: SocketAddr,
    /// Their certificate, if they serve HTTPS.
    certificate: Option<String>,
    tokens: Mutex<AgentTokens>,
}

/// The last token of each machine, by which requests to the common listener find their machine.
#[derive(Debug, Default)]
struct AgentTokens {
    machines: HashMap<String, u32>,
    tokens: HashMap<u32, String>,
}

impl AgentContext {
    pub(crate) fn new(
        config: SimulatedAgentConfig,
        address: SocketAddr,
        certificate: Option<String>,
    ) -> Result<Self, reqwest::Error> {
        let api_url = RwLock::new(config.api_url.trim_end_matches('/').into());
        let client = api_client::build_client()?;
        Ok(Self { api_url, client, config, address, certificate, tokens: Mutex::default() })
    }

    /// Records the token of a machine's agent.
    fn set_token(&self, machine: u32, token: &str) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = tokens.tokens.insert(machine, token.to_owned()) {
            tokens.machines.remove(&old);
        }
        tokens.machines.insert(token.to_owned(), machine);
    }

    /// Returns the machine whose agent has this token.
    fn machine_with_token(&self, token: &str) -> Option<u32> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).machines.get(token).copied()
    }

    /// Returns the URL of the API, without a trailing slash.
    fn api_url(&self) -> Arc<str> {
        Arc::clone(&self.api_url.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the URL of the API for all further calls.
    pub(crate) fn set_api_url(&self, api_url: &str) {
        *self.api_url.write().unwrap_or_else(PoisonError::into_inner) =
            api_url.trim_end_matches('/').into();
    }

    /// Returns the callback URL of all agents.
    fn callback_url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

/// An agent running on a machine.
#[derive(Debug)]
pub(crate) struct SimulatedAgent {
    state: Mutex<AgentState>,
    /// Notified when an asynchronous command finishes; triggers an immediate heartbeat.
    heartbeat_now: Notify,
    progress: watch::Sender<AgentProgress>,
}

/// State of an agent until the next boot.
#[derive(Debug)]
struct AgentState {
    node: Option<Uuid>,
    token: Option<String>,
    commands: Vec<CommandReport>,
    hardware_managers: Map<String, Value>,
    heartbeat_count: u64,
    /// End of a simulated network loss.
    network_down_until: Option<Timestamp>,
}

/// Progress that requests with `wait=true` watch.
#[derive(Clone, Copy, Debug, Default)]
struct AgentProgress {
    /// Number of finished commands.
    finished_commands: u64,
    /// Whether the agent has stopped.
    ended: bool,
}

impl SimulatedAgent {
    fn new(is_ferrite_agent: bool) -> Self {
        let state = AgentState {
            node: None,
            token: None,
            commands: Vec::new(),
            hardware_managers: steps::hardware_managers(is_ferrite_agent),
            heartbeat_count: 0,
            network_down_until: None,
        };
        Self {
            state: Mutex::new(state),
            heartbeat_now: Notify::new(),
            progress: watch::Sender::new(AgentProgress::default()),
        }
    }

    fn state(&self) -> MutexGuard<'_, AgentState> {
        // Code under the lock leaves no partial changes, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the agent and its commands.
    fn mark_ended(&self) {
        self.progress.send_modify(|progress| progress.ended = true);
    }

    async fn wait_for_end(&self) {
        let mut progress = self.progress.subscribe();
        // An error means that the sender is gone, so the agent has ended.
        let _ = progress.wait_for(|progress| progress.ended).await;
    }

    /// Returns the rest of a simulated network loss, or `None` if the network works.
    fn network_down_for(&self, now: Timestamp) -> Option<Duration> {
        let until = self.state().network_down_until?;
        Some(until.since(now)).filter(|remaining| !remaining.is_zero())
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Handle to a running agent, to inspect and change it.
#[derive(Clone, Debug)]
pub struct SimulatedAgentHandle(Arc<SimulatedAgent>);

impl SimulatedAgentHandle {
    pub(crate) fn new(agent: Arc<SimulatedAgent>) -> Self {
        Self(agent)
    }

    /// Returns the node UUID from the lookup.
    #[must_use]
    pub fn node(&self) -> Option<Uuid> {
        self.0.state().node
    }

    /// Returns the number of successful heartbeats.
    #[must_use]
    pub fn heartbeat_count(&self) -> u64 {
        self.0.state().heartbeat_count
    }

    /// Returns all commands, oldest first.
    #[must_use]
    pub fn commands(&self) -> Vec<CommandReport> {
        self.0.state().commands.clone()
    }

    /// Whether a command is running.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let state = self.0.state();
        state.commands.last().is_some_and(|last| last.command_status == CommandStatus::Running)
    }

    /// Replaces the hardware managers, which invalidates the step list that the server has.
    pub fn set_hardware_managers(&self, managers: Map<String, Value>) {
        self.0.state().hardware_managers = managers;
    }
}
