// SPDX-License-Identifier: Apache-2.0
//! Requests of the ramdisk agent: lookup, which issues the token once if the kernel parameters did not
//! contain it, and heartbeat.

use std::net::IpAddr;

use agent_protocol::Heartbeat;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lifecycle::{
    PendingEntries, awaits_boot_confirmation, confirm_boot, fast_track, heartbeat_received,
    job_accepts_heartbeats, lookup_allowed,
};
use node_model::{BootProof, BootPurpose, JournalEvent, Mac, Node, NodeId, Secret};
use reqwest::Url;
use store::{StoreReader, StoreWriter};

use crate::agent_proof::AgentCaller;
use crate::hash_ring::alive_conductors;
use crate::pending_entries::write_pending_entries;
use crate::provision::get_node;
use crate::{Conductor, ConductorError};

/// The number of characters of an installer's status message in the journal. The node has all of it.
const MAX_JOURNAL_MESSAGE: usize = 500;

/// A lookup request.
#[derive(Clone, Debug)]
pub struct AgentLookup {
    /// The id of the node, if the agent knows it.
    pub node: Option<NodeId>,
    /// The MAC addresses of the machine.
    pub macs: Vec<Mac>,
    /// The sender.
    pub caller: AgentCaller,
}

/// The response to a lookup.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node.
    pub node: Node,
    /// The token; only in the first response.
    pub token: Option<Secret<String>>,
    /// Seconds within which the agent has to send the next heartbeat.
    pub heartbeat_timeout: u64,
    /// Whether the address of the BMC is known, so that the agent need not detect it.
    pub skip_bmc_detect: bool,
}

impl Conductor {
    /// Finds the node that an agent runs on. Returns `None` if there is none, if no agent is expected on
    /// it, or if the agent needs a token and has not proved its boot: the response is the same in all
    /// cases.
    pub async fn lookup(&self, lookup: AgentLookup) -> Result<Option<AgentConfig>, ConductorError> {
        let conductor = self.clone();
        let query = lookup.clone();
        let found = self.store.read(move |reader| find_node(&conductor, reader, &query)).await?;
        let Some(FoundNode { node, token, is_proved }) = found else { return Ok(None) };
        let may_write = match token {
            // The response has no secret. The heartbeat proves that the agent has the token.
            TokenStatus::Issued => is_proved && awaits_boot_confirmation(&node),
            TokenStatus::NotIssued | TokenStatus::IssuedByOther if !is_proved => {
                self.record_refusal(node.id, "lookup", &lookup.caller).await?;
                return Ok(None);
            }
            TokenStatus::IssuedByOther => return Err(token_pending(&node)),
            TokenStatus::NotIssued => true,
        };
        if !may_write {
            return Ok(Some(self.agent_config(node, None)));
        }
        let (id, conductor) = (node.id, self.clone());
        self.store.write(move |tx| write_lookup(&conductor, tx, id, &lookup)).await
    }

    fn agent_config(&self, node: Node, token: Option<Secret<String>>) -> AgentConfig {
        let management = node.interfaces.get(node_model::InterfaceKind::Management);
        let skip_bmc_detect = matches!(management, Some("redfish" | "idrac-redfish"));
        let heartbeat_timeout = self.settings.ramdisk_heartbeat_timeout;
        AgentConfig { node, token, heartbeat_timeout, skip_bmc_detect }
    }

    /// Processes a heartbeat. Fails if the token or the callback URL is wrong.
    pub async fn heartbeat(
        &self,
        id: NodeId,
        heartbeat: Heartbeat,
        caller: AgentCaller,
    ) -> Result<(), ConductorError> {
        let conductor = self.clone();
        self.store.write(move |tx| write_heartbeat(&conductor, tx, id, &heartbeat, &caller)).await
    }
}

/// The node of a lookup.
struct FoundNode {
    node: Node,
    token: TokenStatus,
    /// Whether the lookup has the required boot proof.
    is_proved: bool,
}

/// Whether the running agent has its token.
enum TokenStatus {
    /// It has none, or the response with the token was lost.
    NotIssued,
    /// It has its token.
    Issued,
    /// Another process has just issued it, and no heartbeat has arrived since.
    IssuedByOther,
}

/// Finds the node of a lookup, and whether its agent has a token.
fn find_node(
    conductor: &Conductor,
    reader: &mut StoreReader<'_>,
    lookup: &AgentLookup,
) -> Result<Option<FoundNode>, ConductorError> {
    let id = match lookup.node {
        Some(id) => id,
        None => match reader.nodes_by_macs(&lookup.macs)?.as_slice() {
            [one] => *one,
            _ => return Ok(None),
        },
    };
    let Some(node) = reader.get(id)? else { return Ok(None) };
    let is_expected = !conductor.settings.restrict_lookup
        || lookup_allowed(node.provision_state, fast_track(&node, &conductor.rules));
    if !is_expected {
        return Ok(None);
    }
    let token = token_status(conductor, reader, &node)?;
    let proof = conductor.lookup_proof(reader, &node, &lookup.caller)?;
    let is_proved = is_accepted(conductor, &node, proof, &lookup.caller);
    Ok(Some(FoundNode { node, token, is_proved }))
}

/// Whether the sender of a lookup may get the token. A token that was issued before is issued again only
/// to the same address, unless the sender has a better proof.
fn is_accepted(conductor: &Conductor, node: &Node, proof: BootProof, caller: &AgentCaller) -> bool {
    let issued_to = node.agent.address.filter(|_| node.agent.has_token);
    let is_same_sender = issued_to.is_none() || issued_to == caller.address;
    proof >= conductor.settings.agent_boot_proof
        && (is_same_sender || Some(proof) > node.agent.proof)
}

/// Whether the running agent has its token.
///
/// If a process issued the token and ended, the response may be lost; only a heartbeat proves the
/// opposite. A token in kernel parameters is known only to the agent that was booted with them; an
/// installer has it from its kickstart file.
fn token_status(
    conductor: &Conductor,
    reader: &mut StoreReader<'_>,
    node: &Node,
) -> Result<TokenStatus, store::StoreError> {
    let agent = &node.agent;
    if !agent.has_token {
        return Ok(TokenStatus::NotIssued);
    }
    if agent.token_pregenerated {
        let token = reader.reveal(node)?.agent_token;
        let is_known = reader.boot_plan(node.id)?.is_none_or(|plan| {
            let token = token.as_ref().map(|token| token.reveal().as_str());
            plan.purpose == BootPurpose::Installer
                || (plan.token().is_some() && plan.token() == token)
        });
        return Ok(if is_known { TokenStatus::Issued } else { TokenStatus::NotIssued });
    }
    match agent.token_from {
        Some(run) if run != conductor.owner.run && agent.url.is_none() => {
            let alive = alive_conductors(reader, &conductor.settings)?;
            let is_alive = alive.iter().any(|process| process.run == Some(run));
            Ok(if is_alive { TokenStatus::IssuedByOther } else { TokenStatus::NotIssued })
        }
        Some(_) | None => Ok(TokenStatus::Issued),
    }
}

/// The error while it is unknown whether the agent received its token. Agents repeat the lookup; by
/// then a heartbeat has arrived, or the other process counts as dead. A response without a token
/// would make them give up.
fn token_pending(node: &Node) -> ConductorError {
    ConductorError::Conflict(format!(
        "Another process has just issued the token for the agent of node {}; retry later.",
        node.id
    ))
}

/// Records a lookup, and issues a token if the agent has none. Returns `None` if the sender has not
/// proved its boot.
fn write_lookup(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    lookup: &AgentLookup,
) -> Result<Option<AgentConfig>, ConductorError> {
    let mut node = get_node(tx, id)?;
    // The node may have changed since it was read.
    let proof = conductor.lookup_proof(tx, &node, &lookup.caller)?;
    if !is_accepted(conductor, &node, proof, &lookup.caller) {
        return Ok(None);
    }
    let mut entries = PendingEntries::default();
    let is_first = confirm_boot(&mut node, &mut entries);
    let has_token = match token_status(conductor, tx, &node)? {
        TokenStatus::IssuedByOther => return Err(token_pending(&node)),
        TokenStatus::Issued => true,
        TokenStatus::NotIssued => false,
    };
    let token = if has_token {
        if !is_first {
            return Ok(Some(conductor.agent_config(node, None)));
        }
        None
    } else {
        let mut secrets = tx.reveal(&node)?;
        // The same token again, if the first response may be lost: the agent may have received it.
        let issued_before = node.agent.has_token && !node.agent.token_pregenerated;
        let token = match secrets.agent_token.take().filter(|_| issued_before) {
            Some(token) => token,
            None => Secret::new(new_token()?),
        };
        secrets.agent_token = Some(token.clone());
        tx.seal_node(&mut node, secrets)?;
        node.agent.token_from = Some(conductor.owner.run);
        node.agent.token_pregenerated = false;
        node.agent.proof = Some(proof);
        node.agent.address = lookup.caller.address;
        Some(token)
    };
    entries.events.push(JournalEvent::AgentCall { call: "lookup".to_owned() });
    write_pending_entries(tx, &mut node, entries, &lookup.caller.actor(), conductor.hostname())?;
    tx.save(&mut node)?;
    Ok(Some(conductor.agent_config(node, token)))
}

fn new_token() -> Result<String, ConductorError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|_| {
        ConductorError::Agent("the operating system provides no random numbers".to_owned())
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn write_heartbeat(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    heartbeat: &Heartbeat,
    caller: &AgentCaller,
) -> Result<(), ConductorError> {
    let mut node = get_node(tx, id)?;
    let proof = check_heartbeat(conductor, tx, &node, heartbeat, caller)?;
    let now = tx.now();
    if !job_accepts_heartbeats(node.provision_state) && !fast_track(&node, &conductor.rules) {
        tracing::debug!(node = %id, state = %node.provision_state, "heartbeat ignored in this state");
        return Ok(());
    }
    let is_first = node.agent.url.is_none();
    // An installer sends status reports and has no command API.
    node.agent.url = Some(heartbeat.callback_url.clone()).filter(|url| !url.is_empty());
    node.agent.version.clone_from(&heartbeat.agent_version);
    node.agent.verify_ca.clone_from(&heartbeat.agent_verify_ca);
    node.agent.status.clone_from(&heartbeat.agent_status);
    node.agent.status_message.clone_from(&heartbeat.agent_status_message);
    node.agent.last_heartbeat = Some(now);
    node.agent.proof = Some(proof);
    let mut entries = PendingEntries::default();
    let confirms_boot = confirm_boot(&mut node, &mut entries);
    let is_due = heartbeat_received(&mut node, now);
    if !is_first && !is_due && !confirms_boot {
        // The most frequent write: only the columns that change with every heartbeat.
        tx.update_agent(id, &node.agent, node.provision_updated_at)?;
        return Ok(());
    }
    entries.events.push(JournalEvent::AgentCall { call: describe(heartbeat) });
    write_pending_entries(tx, &mut node, entries, &caller.actor(), conductor.hostname())?;
    tx.save(&mut node)?;
    if is_due {
        tx.wake(id);
    }
    Ok(())
}

/// A heartbeat for the journal, with the status of an installer.
fn describe(heartbeat: &Heartbeat) -> String {
    let mut text = "heartbeat".to_owned();
    let status = [&heartbeat.agent_status, &heartbeat.agent_status_message];
    for part in status.into_iter().flatten() {
        text.push_str(": ");
        text.extend(part.chars().take(MAX_JOURNAL_MESSAGE));
    }
    text
}

/// Checks a heartbeat, the token first. Returns how the agent proved its boot.
fn check_heartbeat(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    node: &Node,
    heartbeat: &Heartbeat,
    caller: &AgentCaller,
) -> Result<BootProof, ConductorError> {
    let token = tx.reveal(node)?.agent_token;
    let is_valid = token
        .is_some_and(|token| is_equal(token.reveal().as_bytes(), heartbeat.agent_token.as_bytes()));
    if !is_valid {
        return Err(ConductorError::Agent("Invalid or missing agent token received.".to_owned()));
    }
    let proof = if node.agent.token_pregenerated {
        BootProof::Secret
    } else {
        node.agent.proof.unwrap_or(BootProof::None)
    };
    let required = conductor.settings.agent_boot_proof;
    if proof < required {
        return Err(ConductorError::Agent(format!(
            "the agent of node {} got its token with the boot proof '{proof}', but \
             conductor.agent_boot_proof is '{required}'; boot the machine again",
            node.id
        )));
    }
    check_lengths(heartbeat)?;
    if heartbeat.agent_version.is_none() && heartbeat.agent_status.is_none() {
        return Err(ConductorError::Agent("agent_version is missing".to_owned()));
    }
    check_callback_url(conductor, node, &heartbeat.callback_url, caller)?;
    let has_other_certificate = node.agent.url.is_some()
        && node.agent.verify_ca.is_some()
        && node.agent.verify_ca != heartbeat.agent_verify_ca;
    if has_other_certificate {
        return Err(ConductorError::Agent(format!(
            "the agent of node {} presents another certificate than before",
            node.id
        )));
    }
    Ok(proof)
}

/// Checks the URL to which commands are sent, with the token and the config drive: scheme, address and
/// port of the sender, and nothing else.
fn check_callback_url(
    conductor: &Conductor,
    node: &Node,
    given: &str,
    caller: &AgentCaller,
) -> Result<(), ConductorError> {
    if node.agent.url.as_ref().is_some_and(|known| known != given) {
        return Err(ConductorError::Agent(format!(
            "Detected change in ramdisk provided \"callback_url\" for node {}; only the first URL \
             is accepted until the machine is powered off",
            node.id
        )));
    }
    // Installers have no command API.
    if given.is_empty() || node.agent.url.is_some() {
        return Ok(());
    }
    let invalid = |why: &str| {
        Err(ConductorError::Agent(format!(
            "the callback_url of node {} is invalid: {why}",
            node.id
        )))
    };
    let Ok(url) = Url::parse(given) else { return invalid("it is not a URL") };
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    let is_plain =
        matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    if has_credentials || !is_plain || given.contains(['@', '?', '#', '\\']) {
        return invalid(
            "it must have no user, path, query and fragment, as in https://10.0.0.7:9999",
        );
    }
    match url.scheme() {
        "https" => {}
        "http" if !conductor.settings.require_agent_tls => {}
        "http" => {
            return invalid(
                "the agent must use TLS, or conductor.require_agent_tls must be disabled",
            );
        }
        _ => return invalid("its scheme must be http or https"),
    }
    if !conductor.settings.check_agent_address {
        return Ok(());
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).parse::<IpAddr>();
    let host = host.map(|address| address.to_canonical()).ok();
    let is_sender = host.is_some() && (host == caller.address || host == node.agent.address);
    if is_sender {
        return Ok(());
    }
    let sender = caller.address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    invalid(&format!(
        "its host must be the address that the agent sends from, which is {sender}; behind NAT or a \
         proxy set api.trust_forwarded_headers, or disable conductor.check_agent_address"
    ))
}

/// Limits the size of the agent's data, because they are part of every list of nodes.
fn check_lengths(heartbeat: &Heartbeat) -> Result<(), ConductorError> {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    for (name, length, limit) in [
        ("callback_url", heartbeat.callback_url.len(), 2 << 10),
        ("agent_version", length(&heartbeat.agent_version), 255),
        ("agent_verify_ca", length(&heartbeat.agent_verify_ca), 64 << 10),
        ("agent_status", length(&heartbeat.agent_status), 255),
        ("agent_status_message", length(&heartbeat.agent_status_message), 16 << 10),
    ] {
        if length > limit {
            return Err(ConductorError::Agent(format!("{name} is longer than {limit} bytes")));
        }
    }
    Ok(())
}

/// Compares in constant time for equal lengths.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0_u8, |differences, (a, b)| differences | (a ^ b));
    one.len() == other.len() && differences == 0
}
