// SPDX-License-Identifier: Apache-2.0
//! The agent's life, from the start to the end of its machine's stay in the ramdisk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use machine_inventory::lldp;

use crate::agent::{Agent, Phase};
use crate::commands::{self, Listener};
use crate::home::{self, CERTIFICATE_FILE, OwnCertificate, Server};
use crate::http_client::{Reach, ReachError};
use crate::init::Devices;
use crate::managers::{HardwareManager, Managers};
use crate::network::static_setup::StaticSetup;
use crate::network::{self, Network, dns, sntp, vlans};
use crate::parameters::{Parameters, Settings};
use crate::{VERSION, chance, inspection, logs, virtual_media};

/// Where programs lie that are hardware managers.
const MANAGERS: &str = "/usr/lib/ferrite/managers";
/// What a clock that was never set shows at most: the year this was written.
const NEVER_SET: u64 = 1_700_000_000;

/// Why the agent cannot go on. The supervisor starts it again.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no way to reach anybody.
    #[error("the server cannot be reached")]
    Reach(#[from] ReachError),
    /// Nobody said that they are the server.
    #[error(
        "no server was found by mDNS; check that the conductor offers one (boot.mdns_interfaces), or say ipa-api-url=http://…"
    )]
    NoServer(#[source] std::io::Error),
    /// The server does not know this machine.
    #[error(
        "no server told which node this machine is; check that it is enrolled with a port for one of its network cards, and that the server expects it"
    )]
    LookUp(#[source] home::CallError),
    /// Nobody could reach the agent.
    #[error(
        "this machine has no address the server could reach; check its cables and DHCP, or say ipa-advertise-host"
    )]
    NoAddress,
    /// The port is taken.
    #[error("commands cannot be taken on port {port}")]
    Listen {
        /// Which.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no certificate.
    #[error("commands cannot be taken securely; ipa-enable-auto-tls=false does without")]
    Certificate(#[from] home::CertificateError),
}

/// Whose machine it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// The agent's own: it runs in its ramdisk, takes care of the network and may turn it off.
    Own,
    /// Somebody else's.
    Others,
}

/// Lives. Returns only if it cannot go on, or on somebody else's machine after it was rescued or
/// locked down.
///
/// # Errors
/// If it cannot go on.
pub async fn run(
    mut parameters: Parameters,
    machine: Machine,
    devices: Devices,
    managers: Vec<Arc<dyn HardwareManager>>,
) -> Result<(), RunError> {
    let own = machine == Machine::Own;
    let mut setup = None;
    if own && Settings::new(&parameters).virtual_media {
        setup = virtual_media::take_over(&mut parameters, &devices).await;
    }
    let mut settings = Settings::new(&parameters);
    tracing::info!(version = VERSION, urls = ?settings.api_urls, "the agent starts");
    for module in setup.iter().flat_map(StaticSetup::modules) {
        devices.load_module(module);
    }
    if !settings.vlan_interfaces.is_empty() {
        devices.load_module("8021q");
    }
    // What a medium brings is all there is.
    let vlans = if own && setup.is_none() { settings.vlan_interfaces.clone() } else { Vec::new() };
    let network = if own {
        Network::start(settings.boot_mac(), vlans.clone(), setup)
    } else {
        Network::of_others()
    };
    // While the network comes up, the managers say what they are.
    let managers = Managers::load(managers, Path::new(MANAGERS)).await;
    let lldp_wanted = settings.collect_lldp
        || settings.collectors.iter().any(|name| name == "lldp")
        || vlans::ask_lldp(&vlans);
    let listening = lldp_wanted.then(|| {
        let (network, time) = (network.clone(), settings.lldp_timeout);
        tokio::spawn(async move {
            let heard = listen_to_lldp(&network, time).await;
            Network::make_vlans(&vlans::heard(&vlans, &heard));
            heard
        })
    });
    if !settings.hardware_delay.is_zero() {
        tokio::time::sleep(settings.hardware_delay).await;
    }
    if let Err(error) = home::find_server(&mut settings, &network).await {
        if settings.inspection_urls.is_empty() {
            return Err(RunError::NoServer(error));
        }
        tracing::error!(%error, "no server was found by mDNS; the machine is only inspected");
    }
    set_clock(&settings, &network, own).await;
    chance::ready().await;
    let reach = Reach::new(&settings, &network)?;
    let agent = Agent::new(settings, network, reach, devices, managers, own);
    let mut node = None;
    if inspection::is_wanted(&agent) {
        if let Some(heard) = listening
            && let Ok(heard) = heard.await
        {
            agent.remember_lldp(heard);
        }
        match inspection::inspect(&agent).await {
            Ok(uuid) => {
                tracing::info!(node = uuid, "inspection is finished");
                node = uuid;
            }
            Err(error) => tracing::error!(error = logs::causes(&error), "inspection failed"),
        }
    }
    if agent.settings.api_urls.is_empty() {
        tracing::info!(
            "no ipa-api-url was given: nothing more to do until the machine is turned off"
        );
        return wait(&agent).await;
    }
    serve(&agent, node.as_deref()).await?;
    wait(&agent).await
}

/// Finds out which node this is, takes commands and calls home.
async fn serve(agent: &Arc<Agent>, node: Option<&str>) -> Result<(), RunError> {
    let settings = &agent.settings;
    let server = Arc::new(Server::new(
        agent.reach.client.clone(),
        settings.api_urls.clone(),
        settings.api_version.as_deref(),
        settings.request_id.clone(),
    ));
    agent.network.wait_for_address(settings.lookup_timeout).await;
    let reply =
        home::look_up(&server, settings, &agent.network, node).await.map_err(RunError::LookUp)?;
    tracing::info!(node = %reply.node.uuid, "this machine is known");
    if let Err(error) = agent.learn(reply) {
        tracing::error!(%error, "the agent shuts itself off");
        agent.enter(Phase::LockedDown);
        return Ok(());
    }
    if let Some(url) = settings.log_url.clone() {
        tokio::spawn(logs::stream_home(Arc::clone(agent), url));
    }
    let address =
        home::own_address(&server, settings, &agent.network).await.ok_or(RunError::NoAddress)?;
    let secure = settings.tls && server.takes_certificates().await;
    let certificate = if secure {
        let file = agent.own_machine.then(|| Path::new(CERTIFICATE_FILE));
        let (name, curve) = (Agent::hostname(), &settings.certificate_curve);
        Some(OwnCertificate::kept_or_made(file, &name, address, curve)?)
    } else {
        tracing::warn!("commands are taken without TLS");
        None
    };
    let least = agent.server_settings().and_then(|settings| settings.tls_min_version);
    let tls = certificate.as_ref().map(|own| own.serving(least.as_deref())).transpose()?;
    let host = settings.listen_host.as_deref().and_then(|host| host.parse().ok());
    let port = settings.listen_port;
    let listener =
        Listener::open(host, port, tls).map_err(|source| RunError::Listen { port, source })?;
    let scheme = if secure { "https" } else { "http" };
    let port = settings.advertise_port.unwrap_or_else(|| listener.port());
    let callback = format!("{scheme}://{}:{port}", home::in_url(address));
    tracing::info!(callback, "commands are taken");
    tokio::spawn(commands::serve(Arc::clone(agent), listener));
    let pem = certificate.map(|certificate| certificate.pem);
    tokio::spawn(home::beat(Arc::clone(agent), server, callback, pem));
    Ok(())
}

/// Waits for the end, and then keeps the machine as it is.
async fn wait(agent: &Arc<Agent>) -> Result<(), RunError> {
    let mut phase = agent.phase();
    let ended = phase.wait_for(|phase| *phase != Phase::Serving).await.map(|phase| *phase);
    match ended {
        Ok(Phase::LockedDown) => {
            // The last answer is still on its way.
            tokio::time::sleep(Duration::from_secs(1)).await;
            tracing::info!("the machine is locked down");
            if agent.own_machine {
                Network::shut_down();
            }
        }
        Ok(Phase::Rescued) => {
            tracing::info!("the machine is open for rescue; no commands are taken any more")
        }
        Ok(Phase::Serving) | Err(_) => {}
    }
    if agent.own_machine {
        return std::future::pending().await;
    }
    Ok(())
}

async fn listen_to_lldp(network: &Network, time: Duration) -> lldp::Heard {
    // Cards are switched on by now or soon; without a cable there is nothing to hear.
    network.wait_for_address(Duration::from_secs(5)).await;
    let names: Vec<String> =
        network::cards().into_iter().filter(|card| card.physical).map(|card| card.name).collect();
    tokio::task::spawn_blocking(move || lldp::listen(&names, time)).await.unwrap_or_default()
}

/// Sets the clock if a time server was named, or if it was never set and DHCP names one.
async fn set_clock(settings: &Settings, network: &Network, own: bool) {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let wanted = match &settings.ntp_server {
        Some(server) => server.clone(),
        None if own && now < NEVER_SET => {
            network.wait_for_address(settings.lookup_timeout).await;
            let leases = network.leases();
            match leases.values().find_map(|lease| lease.time_servers.first()) {
                Some(server) => server.to_string(),
                None => return,
            }
        }
        None => return,
    };
    if !own {
        return;
    }
    network.wait_for_address(settings.lookup_timeout).await;
    let server = match dns::resolve(network, &wanted).await {
        Ok(addresses) => addresses[0],
        Err(error) => return tracing::warn!(%error, "the time server was not found"),
    };
    match sntp::set_clock(server).await {
        Ok(difference) => tracing::info!(difference, server = wanted, "the clock was set"),
        Err(error) => tracing::warn!(%error, server = wanted, "the clock could not be set"),
    }
}
