// SPDX-License-Identifier: Apache-2.0
//! Calling home: finds the server, asks which node this is, and lets it know that the agent lives.

mod certificate;
mod server;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, LookupReply};
use tokio::time::Instant;

pub use certificate::{CERTIFICATE_FILE, CertificateError, OwnCertificate};
pub use server::{CallError, Server, host_of, in_url};

use crate::agent::{Agent, Phase};
use crate::network::{Network, dns, hardware_addresses, mdns, source_towards};
use crate::parameters::Settings;
use crate::{VERSION, chance};

/// The longest pause between two lookups.
const LONGEST_LOOKUP_PAUSE: Duration = Duration::from_secs(60);
/// The pauses after the server said that it is busy with the node.
const BUSY_PAUSES: [u64; 3] = [5, 10, 30];
/// Between this and twice as long after a heartbeat that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// A step that ends within moments may end while the server still holds the node, and a heartbeat
/// that comes then says nothing to it. So it is said once more, unless the server went on.
const ONCE_MORE: Duration = Duration::from_secs(5);

/// Where the server is, as the machine was told; `mdns` is looked for on the network.
///
/// # Errors
/// If nobody was found there.
pub async fn find_server(settings: &mut Settings, network: &Network) -> std::io::Result<()> {
    if settings.api_urls != ["mdns"] {
        return Ok(());
    }
    settings.api_urls.clear();
    network.wait_for_address(settings.lookup_timeout).await;
    let found = mdns::find(&["baremetal"], settings.lookup_timeout).await?;
    tracing::info!(url = found.url, "found a server by mDNS");
    // Nobody proves who they are there, so that only these are taken, as ironic-python-agent does.
    if let Some(ntp) = found.settings.get("ipa_ntp_server") {
        settings.ntp_server.get_or_insert_with(|| ntp.clone());
    }
    if let Some(url) = found.settings.get("ipa_inspection_callback_url")
        && settings.inspection_urls.is_empty()
    {
        settings.inspection_urls.push(url.clone());
    }
    settings.api_urls.push(found.url);
    Ok(())
}

/// Asks until a server knows the machine, or until it took too long.
///
/// # Errors
/// The last failure, if it took too long.
pub async fn look_up(
    server: &Server,
    settings: &Settings,
    network: &Network,
    node: Option<&str>,
) -> Result<LookupReply, CallError> {
    let begun = Instant::now();
    let mut changes = network.changes();
    let mut attempt = 0_u32;
    let mut busy = 0;
    loop {
        changes.mark_unchanged();
        let macs = hardware_addresses();
        let failure = match server.look_up(&macs, node).await {
            Ok(reply) => return Ok(reply),
            Err(failure) => failure,
        };
        tracing::warn!(error = %failure, addresses = macs.join(","), "this machine is not known yet");
        if begun.elapsed() > settings.lookup_timeout {
            return Err(failure);
        }
        let pause = match failure {
            CallError::Busy { .. } => {
                let pause = Duration::from_secs(BUSY_PAUSES[busy]);
                busy = (busy + 1).min(BUSY_PAUSES.len() - 1);
                pause
            }
            CallError::Unreachable { .. }
            | CallError::Refused { .. }
            | CallError::Unreadable { .. } => {
                let most = (settings.lookup_interval * 2_u32.saturating_pow(attempt))
                    .min(LONGEST_LOOKUP_PAUSE);
                attempt += 1;
                most.mul_f64(chance::between(0.0, 1.0)).max(settings.lookup_interval)
            }
        };
        // An address that just came is reason enough to try again.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = changes.changed() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The address the server is told: the one packets to it are sent from.
pub async fn own_address(
    server: &Server,
    settings: &Settings,
    network: &Network,
) -> Option<IpAddr> {
    if let Some(address) = settings.advertise_host.as_deref().and_then(|text| text.parse().ok()) {
        return Some(address);
    }
    for url in server.urls() {
        let Some(host) = host_of(&url) else { continue };
        let Ok(addresses) = dns::resolve(network, &host).await else { continue };
        if let Some(source) = addresses.into_iter().find_map(source_towards) {
            return Some(source);
        }
    }
    None
}

/// Sends heartbeats until the agent stops serving.
pub async fn beat(
    agent: Arc<Agent>,
    server: Arc<Server>,
    callback_url: String,
    certificate: Option<String>,
) {
    let mut phase = agent.phase();
    loop {
        let Some(node) = agent.node_uuid() else { return };
        let heartbeat = Heartbeat {
            callback_url: callback_url.clone(),
            agent_token: agent.token().unwrap_or_default(),
            agent_version: VERSION.to_owned(),
            agent_verify_ca: certificate.clone(),
        };
        let told_before = agent.journal.count();
        let pause = match server.heartbeat(&node, &heartbeat).await {
            Ok(()) => {
                let timeout =
                    agent.server_settings().map_or(300, |settings| settings.heartbeat_timeout);
                let pause = Duration::from_secs(timeout).mul_f64(chance::between(0.3, 0.6));
                tracing::info!(next = pause.as_secs(), "the server heard the heartbeat");
                pause
            }
            Err(error) => {
                tracing::warn!(%error, "the server did not take the heartbeat");
                match error {
                    CallError::Busy { .. } => AFTER_FAILURE.mul_f64(chance::between(0.4, 0.8)),
                    CallError::Unreachable { .. }
                    | CallError::Refused { .. }
                    | CallError::Unreadable { .. } => {
                        AFTER_FAILURE.mul_f64(chance::between(1.0, 2.0))
                    }
                }
            }
        };
        // After a command that ended, the next one comes sooner, unless the server says more.
        let again = async {
            if agent.journal.take_just_ended() {
                tokio::time::sleep(ONCE_MORE).await;
                if agent.journal.count() > told_before {
                    std::future::pending::<()>().await;
                }
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // A command that ended during the heartbeat is told at once, and told again afterwards:
            // whoever is asked first must not take the second call for the first.
            biased;
            () = agent.beat.notified() => {}
            () = again => {}
            () = tokio::time::sleep(pause) => {}
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
        }
    }
}
