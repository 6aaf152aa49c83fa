// SPDX-License-Identifier: Apache-2.0
//! A simulated process: store, conductor and API of Ferrite on a runtime of its own.
//!
//! The time of the runtime is paused; [`SimulatedProcess::run_until`] advances it. A process that is not run is
//! suspended. Dropping the runtime ends the process between two instructions.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use access_policy::{AuthMethod, Caller, Policy};
use anyhow::{Context as _, Result, anyhow};
use api_server::{ApiConfig, App, AppParts, Metrics, ResponseBody};
use authentication::Authenticator;
use bytes::Bytes;
use conductor::{Conductor, ConductorParts, ConductorSettings, RunningConductor};
use inspection::InspectionSettings;
use lifecycle::LifecycleSettings;
use node_model::{NodeId, Timestamp};
use serde_json::Value;
use store::{
    DatabaseLink, DatabaseLinkState, HostClocks, MonotonicClock, SimulatedCommit, SimulatedServer,
    StorageMonitor, Store, StoreSettings,
};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::driver;
use crate::machine::{CommandSender, MachineCommand, MachineReply};
use crate::world::World;

/// The newest microversion, so that responses have all fields.
const API_VERSION: &str = "1.95";

/// What the parts of a process need to know about it.
pub(crate) struct ProcessContext {
    pub(crate) replica: usize,
    pub(crate) hostname: String,
    world: Arc<World>,
    /// The simulated time.
    time: MonotonicClock,
    run: OnceLock<Uuid>,
}

/// A started process.
pub(crate) struct SimulatedProcess {
    runtime: Runtime,
    began: Instant,
    started_at: Duration,
    ran_until: Duration,
    state: Arc<Mutex<ProcessState>>,
    context: Arc<ProcessContext>,
}

/// How far the start of a process is.
enum ProcessState {
    Starting,
    Serving { app: Arc<App>, _conductor: RunningConductor },
    Failed(String),
}

/// The response to a request of a client; `None` if the connection broke.
pub(crate) type ClientResponse = Receiver<(u16, Value)>;

/// What differs between the processes of a simulation.
pub(crate) struct ProcessOptions {
    pub(crate) replica: usize,
    pub(crate) data_dir: PathBuf,
    pub(crate) database: PathBuf,
    /// The run that used the same data directory before, if that is known.
    pub(crate) previous_run: Option<Uuid>,
    pub(crate) max_concurrent_jobs: u64,
    /// The monotonic clock of the host is nine times too slow: a test of the checks.
    pub(crate) has_slow_clock: bool,
}

impl ProcessContext {
    fn now(&self) -> Duration {
        (self.time)()
    }

    pub(crate) fn send_command(
        &self,
        node: NodeId,
        command: MachineCommand,
    ) -> oneshot::Receiver<MachineReply> {
        let run = self.run.get().copied().unwrap_or_default();
        let sender = CommandSender { replica: self.replica, run };
        self.world.lock().send_command(sender, &self.hostname, node, command)
    }
}

impl SimulatedProcess {
    /// Starts a process at the time `now`.
    pub(crate) fn start(
        world: &Arc<World>,
        options: ProcessOptions,
        now: Duration,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .context("cannot start a runtime")?;
        let began = runtime.block_on(async { Instant::now() });
        let time: MonotonicClock =
            Arc::new(move || now + Instant::now().saturating_duration_since(began));
        let context = Arc::new(ProcessContext {
            replica: options.replica,
            hostname: format!("replica-{}", options.replica),
            world: Arc::clone(world),
            time,
            run: OnceLock::new(),
        });
        let state = Arc::new(Mutex::new(ProcessState::Starting));
        let (started, process) = (Arc::clone(&state), Arc::clone(&context));
        runtime.spawn(async move {
            let result = match serve(process, &options).await {
                Ok((app, conductor)) => ProcessState::Serving { app, _conductor: conductor },
                Err(error) => ProcessState::Failed(format!("{error:#}")),
            };
            *started.lock().unwrap_or_else(PoisonError::into_inner) = result;
        });
        Ok(Self { runtime, began, started_at: now, ran_until: now, state, context })
    }

    /// Runs the process until `time`. If it was suspended, its clocks jump first.
    pub(crate) fn run_until(&mut self, time: Duration, was_suspended: bool) {
        let gap = time.saturating_sub(self.ran_until);
        self.ran_until = time;
        let until = self.began + time.saturating_sub(self.started_at);
        self.runtime.block_on(async {
            if was_suspended {
                tokio::time::advance(gap).await;
            }
            tokio::time::sleep_until(until).await;
        });
    }

    /// Why the process did not start.
    pub(crate) fn start_error(&self) -> Option<String> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            ProcessState::Failed(error) => Some(error.clone()),
            ProcessState::Starting | ProcessState::Serving { .. } => None,
        }
    }

    /// The id of this run.
    pub(crate) fn run_id(&self) -> Option<Uuid> {
        self.context.run.get().copied()
    }

    /// Sends a request of a client. Returns `None` if the process does not serve requests.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        delays: (Duration, Duration),
    ) -> Option<ClientResponse> {
        let app = match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            ProcessState::Serving { app, .. } => Arc::clone(app),
            ProcessState::Starting | ProcessState::Failed(_) => return None,
        };
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("x-openstack-ironic-api-version", API_VERSION)
            .header("content-type", "application/json")
            .body(body)
            .ok()?;
        let (send, response) = channel();
        self.runtime.spawn(async move {
            tokio::time::sleep(delays.0).await;
            let caller = Caller::unrestricted("simulation", AuthMethod::InProcess);
            let response = app.serve(caller, request).await;
            let status = response.status().as_u16();
            let body = match response.into_body() {
                ResponseBody::Complete(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
                ResponseBody::Events(_) => Value::Null,
            };
            tokio::time::sleep(delays.1).await;
            // The client may have given up.
            let _ = send.send((status, body));
        });
        Some(response)
    }
}

/// Opens the store and starts conductor and API, as the program does.
async fn serve(
    process: Arc<ProcessContext>,
    options: &ProcessOptions,
) -> Result<(Arc<App>, RunningConductor)> {
    let settings = StoreSettings {
        connections: 3,
        key_source: None,
        ..StoreSettings::in_dir(&options.data_dir)
    };
    let wall = {
        let process = Arc::clone(&process);
        Arc::new(move || {
            let now = process.now();
            Timestamp(process.world.lock().host_clock(process.replica, now))
        })
    };
    let slowness = if options.has_slow_clock { 9 } else { 1 };
    let monotonic = {
        let time = Arc::clone(&process.time);
        Arc::new(move || time() / slowness)
    };
    let server = SimulatedServer {
        path: options.database.clone(),
        link: Arc::new(ProcessLink(Arc::clone(&process))),
        clocks: HostClocks { monotonic, wall },
    };
    let store = Store::open_simulated(&settings, server)?;
    let clock = store.clock();
    let conductor = Conductor::new(ConductorParts {
        store: store.clone(),
        registry: driver::registry(&process)?,
        hostname: process.hostname.clone(),
        settings: ConductorSettings {
            sync_power_state_interval: 20,
            ..ConductorSettings::default()
        },
        rules: LifecycleSettings {
            max_concurrent_deploy: options.max_concurrent_jobs,
            max_concurrent_clean: options.max_concurrent_jobs,
            ..LifecycleSettings::default()
        },
        inspection: InspectionSettings::default(),
        clock: clock.clone(),
    });
    process.run.set(conductor.run_id()).map_err(|_| anyhow!("a process has one run"))?;
    let config = ApiConfig::default();
    let (authenticator, _) =
        Authenticator::open(&config.auth, store.clone(), clock.clone()).await?;
    let app = App::new(AppParts {
        config,
        store: store.clone(),
        storage: StorageMonitor::new(store, options.data_dir.clone()),
        conductor: conductor.clone(),
        clock,
        authenticator,
        policy: Policy::with_overrides(None)?,
        metrics: Metrics::new(),
        boot: None,
        more_routes: Vec::new(),
    })?;
    let running = conductor.start_after(options.previous_run).await?;
    Ok((app, running))
}

/// The connection of a process to the database.
struct ProcessLink(Arc<ProcessContext>);

impl DatabaseLink for ProcessLink {
    fn state(&self) -> DatabaseLinkState {
        let state = self.0.world.at(self.0.now());
        match state.replicas[self.0.replica].database_lost {
            Some((until, is_silent)) if state.now < until => {
                if is_silent {
                    DatabaseLinkState::Silent
                } else {
                    DatabaseLinkState::Refused
                }
            }
            Some(_) | None => DatabaseLinkState::Up,
        }
    }

    fn response_time(&self) -> Duration {
        let mut state = self.0.world.at(self.0.now());
        let is_slow = state.now < state.database.slow_until;
        let random = &mut state.random;
        if is_slow {
            random.millis(50, 1500)
        } else if random.happens(10) {
            random.millis(20, 300)
        } else {
            random.millis(0, 4)
        }
    }

    fn next_commit(&self) -> SimulatedCommit {
        let mut state = self.0.world.at(self.0.now());
        if state.database.forgets_commits && state.random.happens(50) {
            return SimulatedCommit::Forgotten;
        }
        if !state.loses_messages || !state.random.happens(15) {
            return SimulatedCommit::Confirmed;
        }
        let commit = if state.random.happens(500) {
            SimulatedCommit::LostBefore
        } else {
            SimulatedCommit::LostAfter
        };
        let host = &self.0.hostname;
        let text = format!("COMMIT of {host}: {commit:?}");
        state.record(&text);
        commit
    }

    fn committed(&self) {
        self.0.world.at(self.0.now()).observe_nodes(&self.0.hostname);
    }

    fn server_clock(&self) -> i64 {
        self.0.world.at(self.0.now()).database_clock()
    }
}
