// SPDX-License-Identifier: Apache-2.0
//! Agents on simulated machines: what a machine runs that booted a ramdisk.
//!
//! Nothing is really loaded, but the agent is a real peer over real sockets: it asks the API who it
//! is, calls home, and takes commands over HTTP as ironic-python-agent does ([`life`], [`serve`],
//! [`work`]). All agents of a fleet share one listener, with a path for each machine, and one
//! client, so that a machine without an agent costs a sleeping task and nothing else.

mod calls;
mod inventory;
mod life;
mod serve;
mod steps;
mod work;
mod write;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use agent_protocol::{CommandReport, CommandStatus};
use node_model::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::bmc::Bmc;

pub(crate) use life::run;
pub(crate) use serve::{Agents, handle};

/// The version that agents say they have.
const VERSION: &str = "13.0.0";

/// What the agents of a fleet are to be.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The API they call: `http://127.0.0.1:6385`.
    pub api: String,
    /// Whether they speak HTTPS, with a certificate that they send with their calls.
    pub tls: bool,
    /// Seconds from the firmware's end until the agent speaks. Divided by the fleet's speed.
    pub boot: f64,
    /// Seconds that a step takes. Divided by the fleet's speed.
    pub step: f64,
    /// Whether they send inspection data at every boot, before they ask who they are: without
    /// kernel parameters they cannot know what they were booted for. A server that waits for none
    /// answers 404, and they go on.
    pub inspects: bool,
    /// Whether they fetch images and compare checksums; otherwise they only say they did.
    pub downloads: bool,
    /// Whether they are Ferrite's own, which start instances themselves.
    pub is_ours: bool,
}

impl AgentConfig {
    /// Agents that call this API.
    #[must_use]
    pub fn calling(api: &str) -> Self {
        Self {
            api: api.to_owned(),
            tls: false,
            boot: 30.0,
            step: 0.1,
            inspects: true,
            downloads: false,
            is_ours: false,
        }
    }
}

/// What all agents of a fleet share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: AgentConfig,
    api: RwLock<Arc<str>>,
    client: reqwest::Client,
    /// Where they listen.
    address: SocketAddr,
    /// The certificate they show, if they speak HTTPS.
    certificate: Option<String>,
}

impl Site {
    pub(crate) fn new(
        config: AgentConfig,
        address: SocketAddr,
        certificate: Option<String>,
    ) -> Result<Self, reqwest::Error> {
        let api = RwLock::new(config.api.trim_end_matches('/').into());
        Ok(Self { api, client: calls::client()?, config, address, certificate })
    }

    /// The API they call.
    fn api(&self) -> Arc<str> {
        Arc::clone(&self.api.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they call another.
    pub(crate) fn set_api(&self, api: &str) {
        *self.api.write().unwrap_or_else(PoisonError::into_inner) =
            api.trim_end_matches('/').into();
    }

    /// Where the agent of a machine says it listens.
    fn callback_url(&self, bmc: &Bmc) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/{}", self.address, bmc.index)
    }
}

/// An agent that runs on a machine.
#[derive(Debug)]
pub(crate) struct Agent {
    memory: Mutex<Memory>,
    /// Told when a command that took its time is over: it calls home at once.
    call_now: Notify,
    news: watch::Sender<News>,
}

/// What it remembers until the next boot.
#[derive(Debug)]
struct Memory {
    node: Option<Uuid>,
    token: Option<String>,
    commands: Vec<CommandReport>,
    managers: Map<String, Value>,
    heartbeats: u64,
    /// Until when its network is away.
    away_until: Option<Timestamp>,
}

/// What those who wait for a command hear about.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// How many commands are over.
    finished: u64,
    /// Whether the agent ended.
    ended: bool,
}

impl Agent {
    fn new(is_ours: bool) -> Self {
        let memory = Memory {
            node: None,
            token: None,
            commands: Vec::new(),
            managers: steps::managers(is_ours),
            heartbeats: 0,
            away_until: None,
        };
        Self {
            memory: Mutex::new(memory),
            call_now: Notify::new(),
            news: watch::Sender::new(News::default()),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing that is done under the lock leaves it half changed.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of it goes on.
    fn end(&self) {
        self.news.send_modify(|news| news.ended = true);
    }

    async fn ended(&self) {
        let mut news = self.news.subscribe();
        // An error means that nobody could end it any more, and it is being dropped.
        let _ = news.wait_for(|news| news.ended).await;
    }

    /// How long its network stays away; none if it is there.
    fn away(&self, now: Timestamp) -> Option<Duration> {
        let until = self.memory().away_until?;
        Some(until.since(now)).filter(|left| !left.is_zero())
    }
}

/// An agent as it is now, to look at and to meddle with.
#[derive(Clone, Debug)]
pub struct AgentView(Arc<Agent>);

impl AgentView {
    pub(crate) fn new(agent: Arc<Agent>) -> Self {
        Self(agent)
    }

    /// The node it was told it runs on.
    #[must_use]
    pub fn node(&self) -> Option<Uuid> {
        self.0.memory().node
    }

    /// How often it called home.
    #[must_use]
    pub fn heartbeats(&self) -> u64 {
        self.0.memory().heartbeats
    }

    /// Everything it was told to do, oldest first.
    #[must_use]
    pub fn commands(&self) -> Vec<CommandReport> {
        self.0.memory().commands.clone()
    }

    /// Whether it is at work.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let memory = self.0.memory();
        memory.commands.last().is_some_and(|last| last.command_status == CommandStatus::Running)
    }

    /// Loads other hardware managers, whose steps must be asked for again.
    pub fn set_managers(&self, managers: Map<String, Value>) {
        self.0.memory().managers = managers;
    }
}
