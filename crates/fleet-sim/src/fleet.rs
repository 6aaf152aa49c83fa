// SPDX-License-Identifier: Apache-2.0
//! A fleet: many BMCs in one process, each on a port of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use node_model::Timestamp;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Credentials;
use crate::agent::{self, AgentConfig, Agents, Site};
use crate::bmc::{Bmc, Clock, Shared, SimulatedMachine};
use crate::connection;
use crate::faults::{FaultRule, Faults};
use crate::ipmi;
use crate::listener;
use crate::machine::{Identity, Machine, Reset};
use crate::personality::{Personality, PersonalityError};
use crate::tls;

const HOUR_MICROS: i64 = 3_600_000_000;

/// What a fleet is to be.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// How many machines.
    pub bmcs: u32,
    /// The address all BMCs listen on.
    pub listen: IpAddr,
    /// The port of the first BMC; the others follow. 0: any ports.
    pub port: u16,
    /// Kinds of machines, by turns. Empty: all that come with the program.
    pub personalities: Vec<Personality>,
    /// What opens the BMCs.
    pub credentials: Credentials,
    /// Whether BMCs speak HTTPS.
    pub tls: bool,
    /// Whether BMCs speak IPMI too, on UDP ports of the same numbers.
    pub ipmi: bool,
    /// What the names of nodes begin with when they are enrolled.
    pub name: String,
    /// Decides over serial numbers, UUIDs and MACs.
    pub seed: u64,
    /// How many times faster than real machines.
    pub speed: f64,
    /// Whether machines are on at first.
    pub powered_on: bool,
    /// What goes wrong from the start.
    pub faults: Vec<FaultRule>,
    /// The agents that machines run which boot from the network or from a CD. None: nothing comes
    /// of such boots.
    pub agents: Option<AgentConfig>,
}

/// A running fleet. Dropping it stops it.
#[derive(Debug)]
pub struct Fleet {
    bmcs: Vec<Arc<Bmc>>,
    shared: Arc<Shared>,
    ca_pem: Option<String>,
    agents: Option<Arc<Site>>,
    accepting: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// Why a fleet does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(
        "simulated BMC {bmc} cannot listen on {address}; choose other ports, or allow more open files"
    )]
    Listen {
        /// Which BMC.
        bmc: u32,
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no place for agents to listen.
    #[error("simulated agents cannot listen on {address}; allow more open files")]
    Agents {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There are not enough ports from the first one on.
    #[error("there are not {bmcs} ports from {port} on; choose a lower port, or 0 for any")]
    TooFewPorts {
        /// How many are needed.
        bmcs: u32,
        /// The first.
        port: u16,
    },
    /// No certificate can be made.
    #[error("cannot prepare TLS for the simulated BMCs")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A kind of machine is not understood.
    #[error("cannot use the kinds of machines")]
    Personality(#[from] PersonalityError),
    /// The speed makes no sense.
    #[error("the speed {speed} is not a number above 0")]
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
            credentials: Credentials::default(),
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

impl Fleet {
    /// Starts a fleet. All BMCs listen when this returns. To be called within a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the configuration cannot be.
    pub fn start(config: FleetConfig) -> Result<Self, StartError> {
        let personalities = personalities(&config)?;
        let last_port = u32::from(config.port) + config.bmcs.saturating_sub(1);
        if config.port != 0 && last_port > u32::from(u16::MAX) {
            return Err(StartError::TooFewPorts { bmcs: config.bmcs, port: config.port });
        }
        let (tls, ca_pem) = if config.tls {
            let tls = tls::make(config.listen).map_err(|error| StartError::Tls(error.into()))?;
            (Some(tls.acceptor), Some(tls.ca_pem))
        } else {
            (None, None)
        };
        let clock = Clock::starting_at(wall_time());
        let faults = Faults::default();
        faults.set(config.faults, clock.now());
        let shared = Arc::new(Shared {
            credentials: config.credentials,
            faults,
            clock,
            is_tls: config.tls,
            is_ipmi: config.ipmi,
            name: config.name,
        });
        let (stop, stopped) = watch::channel(false);
        let mut fleet = Self {
            bmcs: Vec::with_capacity(usize::try_from(config.bmcs).unwrap_or_default()),
            shared,
            ca_pem,
            agents: None,
            accepting: JoinSet::new(),
            stop,
        };
        for (index, personality) in (0..config.bmcs).zip(personalities.iter().cycle()) {
            let port = match config.port {
                0 => 0,
                first => first.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX)),
            };
            let address = SocketAddr::new(config.listen, port);
            let failed = |source| StartError::Listen { bmc: index, address, source };
            let (listener, datagrams) = listen(address, config.ipmi).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let identity = Identity { index, seed: config.seed };
            let mut machine = Machine::new(identity, Arc::clone(personality));
            if config.powered_on {
                // Switched on an hour ago, so that what it boots is through.
                let now = fleet.shared.clock.now();
                machine
                    .reset(Reset::On, Timestamp(now.0 - HOUR_MICROS))
                    .expect("a new machine is off and can be switched on");
                machine.advance(now);
            }
            let bmc = Arc::new(Bmc::new(machine, address, Arc::clone(&fleet.shared)));
            fleet.bmcs.push(Arc::clone(&bmc));
            if let Some(datagrams) = datagrams {
                fleet.accepting.spawn(ipmi::run(datagrams, Arc::clone(&bmc)));
            }
            fleet.accepting.spawn(listener::run(
                listener,
                tls.clone(),
                stopped.clone(),
                move |request| connection::handle(Arc::clone(&bmc), request),
            ));
        }
        if let Some(agents) = config.agents {
            fleet.start_agents(agents, config.listen, stopped)?;
        }
        Ok(fleet)
    }

    /// Lets machines run agents, which listen at one place.
    fn start_agents(
        &mut self,
        config: AgentConfig,
        listen: IpAddr,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let address = SocketAddr::new(listen, 0);
        let failed = |source| StartError::Agents { address, source };
        let listener = listener::bind_for_many(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (acceptor, certificate) = if config.tls {
            let tls =
                tls::make_self_signed(listen).map_err(|error| StartError::Tls(error.into()))?;
            (Some(tls.acceptor), Some(tls.ca_pem))
        } else {
            (None, None)
        };
        let site = Site::new(config, address, certificate)
            .map_err(|error| StartError::Tls(error.into()))?;
        let site = Arc::new(site);
        for bmc in &self.bmcs {
            self.accepting.spawn(agent::run(Arc::clone(bmc), Arc::clone(&site)));
        }
        let agents = Arc::new(Agents { bmcs: self.bmcs.clone(), site: Arc::clone(&site) });
        self.accepting.spawn(listener::run(listener, acceptor, stopped, move |request| {
            agent::handle(Arc::clone(&agents), request)
        }));
        self.agents = Some(site);
        Ok(())
    }

    /// From now on agents call another API, where the one they called has moved to.
    pub fn set_api(&self, api: &str) {
        if let Some(site) = &self.agents {
            site.set_api(api);
        }
    }

    /// All machines.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = SimulatedMachine> {
        self.bmcs.iter().map(|bmc| SimulatedMachine(Arc::clone(bmc)))
    }

    /// One machine.
    #[must_use]
    pub fn machine(&self, index: u32) -> Option<SimulatedMachine> {
        let bmc = self.bmcs.get(usize::try_from(index).ok()?)?;
        Some(SimulatedMachine(Arc::clone(bmc)))
    }

    /// What goes wrong; can be changed at any time.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The fleet's time: what rules given to [`Fleet::faults`] count from.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The certificate to verify the BMCs with, if they speak HTTPS.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Stops listening and closes all connections.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.accepting.shutdown().await;
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.accepting.abort_all();
    }
}

/// The sockets of a BMC: one for Redfish, and for IPMI one with the same number.
fn listen(address: SocketAddr, is_ipmi: bool) -> io::Result<(TcpListener, Option<UdpSocket>)> {
    /// How often another number is tried where any will do, and the one for Redfish is taken for
    /// datagrams.
    const ATTEMPTS: usize = 32;
    let mut attempt = 1;
    loop {
        let listener = listener::bind(address)?;
        if !is_ipmi {
            return Ok((listener, None));
        }
        match ipmi::bind(listener.local_addr()?) {
            Ok(datagrams) => return Ok((listener, Some(datagrams))),
            Err(error) if address.port() != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

fn personalities(config: &FleetConfig) -> Result<Vec<Arc<Personality>>, StartError> {
    if !(config.speed > 0.0 && config.speed.is_finite()) {
        return Err(StartError::Speed { speed: config.speed });
    }
    let mut chosen = config.personalities.clone();
    if chosen.is_empty() {
        let all = Personality::names().into_iter().map(Personality::named);
        chosen = all.collect::<Result<_, _>>()?;
    }
    for personality in &mut chosen {
        personality.speed = config.speed;
    }
    Ok(chosen.into_iter().map(Arc::new).collect())
}

fn wall_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
