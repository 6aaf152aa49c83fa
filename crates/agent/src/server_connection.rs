// SPDX-License-Identifier: Apache-2.0
//! The connection to the server: discovery, node lookup and heartbeats.

mod certificate;
mod client;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, LookupReply};
use tokio::time::Instant;

pub use certificate::{AgentCertificate, CERTIFICATE_FILE, CertificateError};
pub use client::{ServerCallError, ServerClient, url_address, url_host};

use crate::agent::{AgentPhase, RamdiskAgent};
use crate::network::{AgentNetwork, dns, mac_addresses, mdns, source_address_for};
use crate::parameters::AgentOptions;
use crate::{VERSION, entropy};

/// The maximum delay between two lookups.
const MAX_LOOKUP_DELAY: Duration = Duration::from_secs(60);
/// The delays, in seconds, after the server reported that the node is locked.
const BUSY_DELAYS: [u64; 3] = [5, 10, 30];
/// A failed heartbeat is repeated after one to two times this delay.
const HEARTBEAT_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A short command may end while the server still holds the lock on the node, and the server then
/// ignores the heartbeat. So the heartbeat is repeated, unless the server sent another command.
const REPEAT_DELAY: Duration = Duration::from_secs(5);

/// Resolves the API URL `mdns` by discovery on the network; other URLs stay.
///
/// # Errors
/// If no server was server.
pub async fn discover_server(
    options: &mut AgentOptions,
    network: &AgentNetwork,
) -> std::io::Result<()> {
    if options.api_urls != ["mdns"] {
        return Ok(());
    }
    options.api_urls.clear();
    network.wait_for_address(options.lookup_timeout).await;
    let server = mdns::discover(&["baremetal"], options.lookup_timeout).await?;
    tracing::info!(url = server.url, "server found by mDNS");
    // mDNS is not authenticated, so only these options are accepted, as in ironic-python-agent.
    if let Some(ntp) = server.settings.get("ipa_ntp_server") {
        options.ntp_server.get_or_insert_with(|| ntp.clone());
    }
    if let Some(url) = server.settings.get("ipa_inspection_callback_url")
        && options.inspection_urls.is_empty()
    {
        options.inspection_urls.push(url.clone());
    }
    options.api_urls.push(server.url);
    Ok(())
}

/// Repeats the lookup until it succeeds or `ipa-lookup-timeout` has passed. `secret` is the token of the
/// boot, if known.
///
/// # Errors
/// The last failure after the timeout.
pub async fn lookup_node(
    server: &ServerClient,
    options: &AgentOptions,
    network: &AgentNetwork,
    node: Option<&str>,
    secret: Option<&str>,
) -> Result<LookupReply, ServerCallError> {
    let started = Instant::now();
    let mut changes = network.changes();
    let mut attempt = 0_u32;
    let mut busy = 0;
    loop {
        changes.mark_unchanged();
        let macs = mac_addresses();
        let failure = match server.lookup(&macs, node, secret).await {
            Ok(reply) => return Ok(reply),
            Err(failure) => failure,
        };
        tracing::warn!(error = %failure, mac = macs.join(","), "node lookup failed, will retry");
        if started.elapsed() > options.lookup_timeout {
            return Err(failure);
        }
        let pause = match failure {
            ServerCallError::Busy { .. } => {
                let pause = Duration::from_secs(BUSY_DELAYS[busy]);
                busy = (busy + 1).min(BUSY_DELAYS.len() - 1);
                pause
            }
            ServerCallError::Unreachable { .. }
            | ServerCallError::Rejected { .. }
            | ServerCallError::InvalidResponse { .. } => {
                let most =
                    (options.lookup_interval * 2_u32.saturating_pow(attempt)).min(MAX_LOOKUP_DELAY);
                attempt += 1;
                most.mul_f64(entropy::random_between(0.0, 1.0)).max(options.lookup_interval)
            }
        };
        // A new address may change the result, so do not wait for the delay.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = changes.changed() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Returns the address for the callback URL: the source address of packets to the server.
pub async fn callback_address(
    server: &ServerClient,
    options: &AgentOptions,
    network: &AgentNetwork,
) -> Option<IpAddr> {
    if let Some(address) = options.advertise_host.as_deref().and_then(|text| text.parse().ok()) {
        return Some(address);
    }
    for url in server.urls() {
        let Some(host) = url_host(&url) else { continue };
        let Ok(addresses) = dns::resolve(network, &host).await else { continue };
        if let Some(source) = addresses.into_iter().find_map(source_address_for) {
            return Some(source);
        }
    }
    None
}

/// Sends heartbeats until the agent stops serving.
pub async fn send_heartbeats(
    agent: Arc<RamdiskAgent>,
    server: Arc<ServerClient>,
    callback_url: String,
    certificate: Option<String>,
) {
    let mut phase = agent.phase();
    loop {
        let Some(node) = agent.node_uuid() else { return };
        let heartbeat = Heartbeat {
            callback_url: callback_url.clone(),
            agent_token: agent.token().unwrap_or_default(),
            agent_version: Some(VERSION.to_owned()),
            agent_verify_ca: certificate.clone(),
            ..Heartbeat::default()
        };
        let commands_before = agent.command_log.count();
        let pause = match server.heartbeat(&node, &heartbeat).await {
            Ok(()) => {
                let timeout =
                    agent.server_config().map_or(300, |options| options.heartbeat_timeout);
                let pause = Duration::from_secs(timeout).mul_f64(entropy::random_between(0.3, 0.6));
                tracing::info!(next_in = ?pause, "heartbeat sent");
                pause
            }
            Err(error) => {
                tracing::warn!(%error, "heartbeat failed, will retry");
                match error {
                    ServerCallError::Busy { .. } => {
                        HEARTBEAT_RETRY_DELAY.mul_f64(entropy::random_between(0.4, 0.8))
                    }
                    ServerCallError::Unreachable { .. }
                    | ServerCallError::Rejected { .. }
                    | ServerCallError::InvalidResponse { .. } => {
                        HEARTBEAT_RETRY_DELAY.mul_f64(entropy::random_between(1.0, 2.0))
                    }
                }
            }
        };
        // Repeats the heartbeat after an asynchronous command ended, unless a new command arrives.
        let again = async {
            if agent.command_log.take_async_end() {
                tokio::time::sleep(REPEAT_DELAY).await;
                if agent.command_log.count() > commands_before {
                    std::future::pending::<()>().await;
                }
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // A command that ended during the heartbeat triggers one immediately and repeats it
            // later, so the notification has to be polled first.
            biased;
            () = agent.heartbeat_now.notified() => {}
            () = again => {}
            () = tokio::time::sleep(pause) => {}
            _ = phase.wait_for(|phase| *phase != AgentPhase::Serving) => return,
        }
    }
}
