// SPDX-License-Identifier: Apache-2.0
//! The main task of the agent: network, inspection, lookup, command API and heartbeats.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use error_chain::error_chain;
use machine_inventory::lldp;

use crate::agent::{AgentPhase, RamdiskAgent};
use crate::commands::{self, CommandListener};
use crate::http_client::{HttpClientError, HttpContext};
use crate::init::DeviceMonitor;
use crate::managers::{HardwareManager, HardwareManagers};
use crate::network::network_data::NetworkData;
use crate::network::{self, AgentNetwork, dns, sntp, vlans};
use crate::parameters::{AgentOptions, BootParameters};
use crate::server_connection::{self, AgentCertificate, CERTIFICATE_FILE, ServerClient};
use crate::{VERSION, entropy, inspection, logs, virtual_media};

/// External hardware managers.
const MANAGERS_DIR: &str = "/usr/lib/ferrite/managers";
/// An earlier system time (Unix seconds, November 2023) means that the clock was never set.
const UNSET_CLOCK_LIMIT: u64 = 1_700_000_000;

/// The agent cannot continue. The supervisor restarts it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The HTTP client cannot be created.
    #[error("cannot connect to the server")]
    Http(#[from] HttpClientError),
    /// mDNS found no server.
    #[error(
        "no server found by mDNS; check that the conductor announces one (boot.mdns_interfaces), or set ipa-api-url=http://…"
    )]
    NoServer(#[source] std::io::Error),
    /// The lookup failed until its timeout.
    #[error(
        "node lookup failed; check that the machine is enrolled with a port for one of its NICs, and that the node is in a state in which the server expects an agent"
    )]
    Lookup(#[source] server_connection::ServerCallError),
    /// There is no address for the callback URL.
    #[error(
        "this machine has no address that the server can reach; check cables and DHCP, or set ipa-advertise-host"
    )]
    NoAddress,
    /// The port is in use.
    #[error("cannot listen for commands on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The certificate of the command API cannot be generated.
    #[error("cannot serve commands over TLS; set ipa-enable-auto-tls=false to use plain HTTP")]
    Certificate(#[from] server_connection::CertificateError),
}

/// Where the agent runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnvironment {
    /// In its ramdisk: it configures the network and may power the machine off.
    Ramdisk,
    /// As a process of an installed system.
    HostProcess,
}

/// Runs the agent. Returns an error, or `Ok` for a host process after rescue or lockdown.
///
/// # Errors
/// If the agent cannot continue.
pub async fn run(
    mut parameters: BootParameters,
    environment: RunEnvironment,
    devices: DeviceMonitor,
    managers: Vec<Arc<dyn HardwareManager>>,
) -> Result<(), RunError> {
    let in_ramdisk = environment == RunEnvironment::Ramdisk;
    let mut setup = None;
    if in_ramdisk && AgentOptions::new(&parameters).virtual_media {
        setup = virtual_media::apply_virtual_media(&mut parameters, &devices).await;
    }
    let mut options = AgentOptions::new(&parameters);
    tracing::info!(version = VERSION, urls = ?options.api_urls, "agent started");
    for module in setup.iter().flat_map(NetworkData::modules) {
        devices.load_module(module);
    }
    if !options.vlan_interfaces.is_empty() {
        devices.load_module("8021q");
    }
    // Network data on virtual media replaces all other network configuration.
    let vlans =
        if in_ramdisk && setup.is_none() { options.vlan_interfaces.clone() } else { Vec::new() };
    let network = if in_ramdisk {
        AgentNetwork::start(options.boot_mac(), vlans.clone(), setup)
    } else {
        AgentNetwork::unmanaged()
    };
    // Loaded while the network comes up, because external managers may be slow.
    let managers = HardwareManagers::load(managers, Path::new(MANAGERS_DIR)).await;
    let needs_lldp = options.collect_lldp
        || options.collectors.iter().any(|name| name == "lldp")
        || vlans::needs_lldp(&vlans);
    let lldp_task = needs_lldp.then(|| {
        let (network, time) = (network.clone(), options.lldp_timeout);
        tokio::spawn(async move {
            let received = collect_lldp(&network, time).await;
            AgentNetwork::create_vlans(&vlans::from_lldp(&vlans, &received));
            received
        })
    });
    if !options.hardware_delay.is_zero() {
        tokio::time::sleep(options.hardware_delay).await;
    }
    if let Err(error) = server_connection::discover_server(&mut options, &network).await {
        if options.inspection_urls.is_empty() {
            return Err(RunError::NoServer(error));
        }
        tracing::error!(%error, "no server found by mDNS, continuing with inspection only");
    }
    set_clock(&options, &network, in_ramdisk).await;
    entropy::wait_until_ready().await;
    let http = HttpContext::new(&options, &network)?;
    let agent = RamdiskAgent::new(options, network, http, devices, managers, in_ramdisk);
    let mut node = None;
    if inspection::is_requested(&agent) {
        if let Some(task) = lldp_task
            && let Ok(received) = task.await
        {
            agent.set_lldp(received);
        }
        match inspection::inspect(&agent).await {
            Ok(uuid) => {
                tracing::info!(node = uuid, "inspection finished");
                node = uuid;
            }
            Err(error) => tracing::error!(error = error_chain(&error), "inspection failed"),
        }
    }
    if agent.options.api_urls.is_empty() {
        tracing::info!("no ipa-api-url given, waiting for the machine to be powered off");
        return wait_for_end(&agent).await;
    }
    serve(&agent, node.as_deref()).await?;
    wait_for_end(&agent).await
}

/// Looks up the node, serves commands and sends heartbeats.
async fn serve(agent: &Arc<RamdiskAgent>, node: Option<&str>) -> Result<(), RunError> {
    let options = &agent.options;
    let server = Arc::new(ServerClient::new(
        agent.http.client.clone(),
        options.api_urls.clone(),
        options.api_version.as_deref(),
        options.request_id.clone(),
    ));
    agent.network.wait_for_address(options.lookup_timeout).await;
    let token = agent.token();
    let lookup =
        server_connection::lookup_node(&server, options, &agent.network, node, token.as_deref());
    let reply = lookup.await.map_err(RunError::Lookup)?;
    tracing::info!(node = %reply.node.uuid, "node lookup succeeded");
    if let Err(error) = agent.apply_lookup(reply) {
        tracing::error!(%error, "agent locked down");
        agent.set_phase(AgentPhase::LockedDown);
        return Ok(());
    }
    if let Some(url) = options.log_url.clone() {
        tokio::spawn(logs::stream_to_server(Arc::clone(agent), url));
    }
    let address = server_connection::callback_address(&server, options, &agent.network)
        .await
        .ok_or(RunError::NoAddress)?;
    let secure = options.tls && server.accepts_certificates().await;
    let certificate = if secure {
        let file = agent.in_ramdisk.then(|| Path::new(CERTIFICATE_FILE));
        let (name, curve) = (RamdiskAgent::hostname(), &options.certificate_curve);
        Some(AgentCertificate::load_or_generate(file, &name, address, curve)?)
    } else {
        tracing::warn!("command API uses plain HTTP");
        None
    };
    let min_version = agent.server_config().and_then(|options| options.tls_min_version);
    let tls = certificate
        .as_ref()
        .map(|certificate| certificate.server_config(min_version.as_deref()))
        .transpose()?;
    let host = options.listen_host.as_deref().and_then(|host| host.parse().ok());
    let port = options.listen_port;
    let listener = CommandListener::open(host, port, tls)
        .map_err(|source| RunError::Listen { port, source })?;
    let scheme = if secure { "https" } else { "http" };
    let port = options.advertise_port.unwrap_or_else(|| listener.port());
    let callback = format!("{scheme}://{}:{port}", server_connection::url_address(address));
    tracing::info!(url = callback, "command API started");
    tokio::spawn(commands::serve(Arc::clone(agent), listener));
    let pem = certificate.map(|certificate| certificate.pem);
    tokio::spawn(server_connection::send_heartbeats(Arc::clone(agent), server, callback, pem));
    Ok(())
}

/// Waits for the end of the serving phase. In a ramdisk, never returns.
async fn wait_for_end(agent: &Arc<RamdiskAgent>) -> Result<(), RunError> {
    let mut phase = agent.phase();
    let ended = phase.wait_for(|phase| *phase != AgentPhase::Serving).await.map(|phase| *phase);
    match ended {
        Ok(AgentPhase::LockedDown) => {
            // The last response may still be in transit.
            tokio::time::sleep(Duration::from_secs(1)).await;
            tracing::info!("machine locked down");
            if agent.in_ramdisk {
                AgentNetwork::disable_all();
            }
        }
        Ok(AgentPhase::Rescued) => {
            tracing::info!("rescue mode entered, command API stopped")
        }
        Ok(AgentPhase::Serving) | Err(_) => {}
    }
    if agent.in_ramdisk {
        return std::future::pending().await;
    }
    Ok(())
}

async fn collect_lldp(network: &AgentNetwork, time: Duration) -> lldp::LldpNeighbours {
    // Wait until links are up: before that, no LLDP frames are received.
    network.wait_for_address(Duration::from_secs(5)).await;
    let names: Vec<String> = network::interfaces()
        .into_iter()
        .filter(|interface| interface.physical)
        .map(|interface| interface.name)
        .collect();
    tokio::task::spawn_blocking(move || lldp::listen(&names, time)).await.unwrap_or_default()
}

/// Sets the clock if an NTP server is configured, or if it was never set and DHCP provides one; before that
/// to the time of the boot, if it is very wrong.
async fn set_clock(options: &AgentOptions, network: &AgentNetwork, in_ramdisk: bool) {
    if let Some(boot_time) = options.boot_time.filter(|_| in_ramdisk) {
        match sntp::correct_clock(boot_time) {
            Ok(false) => {}
            Ok(true) => tracing::warn!(boot_time, "clock was wrong, set to the time of the boot"),
            Err(error) => tracing::warn!(%error, "failed to set the clock"),
        }
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let ntp_server = match &options.ntp_server {
        Some(server) => server.clone(),
        None if in_ramdisk && now < UNSET_CLOCK_LIMIT => {
            network.wait_for_address(options.lookup_timeout).await;
            let leases = network.leases();
            match leases.values().find_map(|lease| lease.time_servers.first()) {
                Some(server) => server.to_string(),
                None => return,
            }
        }
        None => return,
    };
    if !in_ramdisk {
        return;
    }
    network.wait_for_address(options.lookup_timeout).await;
    let server = match dns::resolve(network, &ntp_server).await {
        Ok(addresses) => addresses[0],
        Err(error) => return tracing::warn!(%error, server = ntp_server, "NTP server not found"),
    };
    match sntp::set_clock(server).await {
        Ok(difference) => tracing::info!(difference, server = ntp_server, "clock set"),
        Err(error) => tracing::warn!(%error, server = ntp_server, "failed to set the clock"),
    }
}
