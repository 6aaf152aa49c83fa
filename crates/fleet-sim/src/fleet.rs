// SPDX-License-Identifier: Apache-2.0
//! A running fleet: many simulated BMCs in one process, each on its own port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use node_model::Timestamp;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::BmcCredentials;
use crate::agent::{self, AgentContext, AgentDirectory, SimulatedAgentConfig};
use crate::faults::{FaultRule, FaultRules};
use crate::ipmi_service;
use crate::listener;
use crate::machine::{MachineIdentity, MachineModel, ResetType};
use crate::personality::{Personality, PersonalityError};
use crate::redfish_http;
use crate::simulated_bmc::{FleetClock, FleetContext, SimulatedBmc, SimulatedMachine};
use crate::tls;

const HOUR_MICROS: i64 = 3_600_000_000;

/// Configuration of a fleet.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// Number of machines.
    pub bmcs: u32,
    /// The address all BMCs listen on.
    pub listen: IpAddr,
    /// The port of the first BMC; the others use the following ones. 0 selects any free ports.
    pub port: u16,
    /// Personalities, assigned to the machines in turn. Empty: all built-in ones.
    pub personalities: Vec<Personality>,
    /// Credentials of all BMCs.
    pub credentials: BmcCredentials,
    /// Whether BMCs serve HTTPS.
    pub tls: bool,
    /// Whether BMCs also serve IPMI, on UDP ports of the same numbers.
    pub ipmi: bool,
    /// Prefix of the node names for enrolment.
    pub name: String,
    /// Determines serial numbers, UUIDs and MACs.
    pub seed: u64,
    /// Speed-up factor for all durations.
    pub speed: f64,
    /// Whether machines are on at the start.
    pub powered_on: bool,
    /// Fault rules at the start.
    pub faults: Vec<FaultRule>,
    /// The agents of machines that boot from the network or from virtual media. `None`: such
    /// machines run no agent.
    pub agents: Option<SimulatedAgentConfig>,
}

/// A running fleet. Dropping it stops it.
#[derive(Debug)]
pub struct SimulatedFleet {
    bmcs: Vec<Arc<SimulatedBmc>>,
    context: Arc<FleetContext>,
    ca_pem: Option<String>,
    agents: Option<Arc<AgentContext>>,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// The reason why a fleet cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FleetStartError {
    /// The address of a BMC cannot be bound.
    #[error(
        "simulated BMC {bmc} cannot listen on {address}; choose other ports, or allow more open files"
    )]
    Listen {
        /// The index of the BMC.
        bmc: u32,
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address of the agents cannot be bound.
    #[error("simulated agents cannot listen on {address}; allow more open files")]
    Agents {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The ports from the first one up to 65535 are too few.
    #[error("not enough ports for {bmcs} BMCs from {port} on; choose a lower port, or 0 for any")]
    TooFewPorts {
        /// Number of BMCs.
        bmcs: u32,
        /// The first port.
        port: u16,
    },
    /// A certificate cannot be generated.
    #[error("cannot prepare TLS for the simulated BMCs")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A personality is invalid.
    #[error("cannot load the personalities")]
    Personality(#[from] PersonalityError),
    /// The speed is not a positive number.
    #[error("invalid speed {speed}; use a number above 0")]
    Speed {
        /// The speed.
        speed: f64,
    },
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            bmcs: 1,
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            personalities: Vec::new(),
            credentials: BmcCredentials::default(),
            tls: false,
            ipmi: false,
            name: "sim".to_owned(),
            seed: 1,
            speed: 1.0,
            powered_on: false,
            faults: Vec::new(),
            agents: None,
        }
    }
}

impl SimulatedFleet {
    /// Starts a fleet. All BMCs are listening when this returns. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// When an address cannot be bound, or the configuration is invalid.
    pub fn start(config: FleetConfig) -> Result<Self, FleetStartError> {
        let personalities = resolve_personalities(&config)?;
        let last_port = u32::from(config.port) + config.bmcs.saturating_sub(1);
        if config.port != 0 && last_port > u32::from(u16::MAX) {
            return Err(FleetStartError::TooFewPorts { bmcs: config.bmcs, port: config.port });
        }
        let (tls, ca_pem) = if config.tls {
            let tls = tls::issue_from_new_ca(config.listen)
                .map_err(|error| FleetStartError::Tls(error.into()))?;
            (Some(tls.acceptor), Some(tls.ca_pem))
        } else {
            (None, None)
        };
        let clock = FleetClock::starting_at(wall_clock_now());
        let faults = FaultRules::default();
        faults.set(config.faults.clone(), clock.now());
        let context = Arc::new(FleetContext {
            credentials: config.credentials.clone(),
            faults,
            clock,
            is_tls: config.tls,
            is_ipmi: config.ipmi,
            name: config.name.clone(),
        });
        let (stop, stopped) = watch::channel(false);
        let mut fleet = Self {
            bmcs: Vec::with_capacity(usize::try_from(config.bmcs).unwrap_or_default()),
            context,
            ca_pem,
            agents: None,
            tasks: JoinSet::new(),
            stop,
        };
        for (index, personality) in (0..config.bmcs).zip(personalities.iter().cycle()) {
            fleet.start_bmc(&config, index, personality, tls.clone(), stopped.clone())?;
        }
        if let Some(agents) = config.agents {
            fleet.start_agents(agents, config.listen, stopped)?;
        }
        Ok(fleet)
    }

    /// Creates a machine and starts its BMC.
    fn start_bmc(
        &mut self,
        config: &FleetConfig,
        index: u32,
        personality: &Arc<Personality>,
        tls: Option<TlsAcceptor>,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), FleetStartError> {
        let port = match config.port {
            0 => 0,
            first => first.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX)),
        };
        let address = SocketAddr::new(config.listen, port);
        let failed = |source| FleetStartError::Listen { bmc: index, address, source };
        let (listener, datagrams) = bind_bmc_sockets(address, config.ipmi).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let identity = MachineIdentity { index, seed: config.seed };
        let mut machine = MachineModel::new(identity, Arc::clone(personality));
        if config.powered_on {
            // Powered on an hour ago, so that its boot is complete.
            let now = self.context.clock.now();
            machine
                .reset(ResetType::On, Timestamp(now.0 - HOUR_MICROS))
                .expect("a new machine is off and can be powered on");
            machine.advance(now);
        }
        let bmc = Arc::new(SimulatedBmc::new(machine, address, Arc::clone(&self.context)));
        self.bmcs.push(Arc::clone(&bmc));
        if let Some(datagrams) = datagrams {
            self.tasks.spawn(ipmi_service::run(datagrams, Arc::clone(&bmc)));
        }
        self.tasks.spawn(listener::run(listener, tls, stopped, move |request| {
            redfish_http::handle(Arc::clone(&bmc), request)
        }));
        Ok(())
    }

    /// Starts the agents of all machines, which share one listener.
    fn start_agents(
        &mut self,
        config: SimulatedAgentConfig,
        listen: IpAddr,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), FleetStartError> {
        let address = SocketAddr::new(listen, 0);
        let failed = |source| FleetStartError::Agents { address, source };
        let listener = listener::bind_shared(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (acceptor, certificate) = if config.tls {
            let tls = tls::issue_self_signed(listen)
                .map_err(|error| FleetStartError::Tls(error.into()))?;
            (Some(tls.acceptor), Some(tls.ca_pem))
        } else {
            (None, None)
        };
        let context = AgentContext::new(config, address, certificate)
            .map_err(|error| FleetStartError::Tls(error.into()))?;
        let context = Arc::new(context);
        for bmc in &self.bmcs {
            self.tasks.spawn(agent::run(Arc::clone(bmc), Arc::clone(&context)));
        }
        let agents =
            Arc::new(AgentDirectory { bmcs: self.bmcs.clone(), context: Arc::clone(&context) });
        self.tasks.spawn(listener::run(listener, acceptor, stopped, move |request| {
            agent::handle(Arc::clone(&agents), request)
        }));
        self.agents = Some(context);
        Ok(())
    }

    /// Sets another API URL for the agents, such as after a move of the API.
    pub fn set_agent_api(&self, api_url: &str) {
        if let Some(context) = &self.agents {
            context.set_api_url(api_url);
        }
    }

    /// Returns all machines.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = SimulatedMachine> {
        self.bmcs.iter().map(|bmc| SimulatedMachine(Arc::clone(bmc)))
    }

    /// Returns one machine by its index.
    #[must_use]
    pub fn machine(&self, index: u32) -> Option<SimulatedMachine> {
        let bmc = self.bmcs.get(usize::try_from(index).ok()?)?;
        Some(SimulatedMachine(Arc::clone(bmc)))
    }

    /// Returns the fault rules, which can be changed at any time.
    #[must_use]
    pub fn faults(&self) -> &FaultRules {
        &self.context.faults
    }

    /// Returns the fleet's time, from which the times of new fault rules count.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// Returns the CA certificate of the BMCs, if they serve HTTPS.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Stops listening and closes all connections.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.tasks.shutdown().await;
    }
}

impl Drop for SimulatedFleet {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.tasks.abort_all();
    }
}

/// Binds the sockets of a BMC: TCP for Redfish and, if requested, UDP for IPMI with the same port.
fn bind_bmc_sockets(
    address: SocketAddr,
    is_ipmi: bool,
) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    /// Attempts to find a port that is free for both TCP and UDP, if any port will do.
    const ATTEMPTS: usize = 32;
    let mut attempt = 1;
    loop {
        let listener = listener::bind(address)?;
        if !is_ipmi {
            return Ok((listener, None));
        }
        match ipmi_service::bind(listener.local_addr()?) {
            Ok(datagrams) => return Ok((listener, Some(datagrams))),
            Err(error) if address.port() != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

fn resolve_personalities(config: &FleetConfig) -> Result<Vec<Arc<Personality>>, FleetStartError> {
    if !(config.speed > 0.0 && config.speed.is_finite()) {
        return Err(FleetStartError::Speed { speed: config.speed });
    }
    let mut chosen = config.personalities.clone();
    if chosen.is_empty() {
        let all = Personality::built_in_names().into_iter().map(Personality::built_in);
        chosen = all.collect::<Result<_, _>>()?;
    }
    for personality in &mut chosen {
        personality.speed = config.speed;
    }
    Ok(chosen.into_iter().map(Arc::new).collect())
}

fn wall_clock_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
