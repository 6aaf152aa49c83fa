// SPDX-License-Identifier: Apache-2.0
//! Boot proof: whether a request of an agent comes from the agent that was booted on the machine.
//!
//! The strongest proof is the secret of the boot, which only the reader of the kernel parameters has. A
//! weaker one is the source address, if this process leased it to a NIC of the node. See
//! `docs/agent-security.md`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use node_model::{
    Actor, BootProof, JournalEntry, JournalEvent, Mac, Node, NodeId, Port, Secret, Timestamp,
};
use store::{Columns, PortColumn, PortFilter, ResourceQuery, StoreReader};

use crate::agent::is_equal;
use crate::{Conductor, ConductorError};

/// The interval of journal entries about refused requests for the same node.
const NOTE_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of nodes whose last entry is kept.
const MAX_NOTED: usize = 4096;

/// The sender of a request that an agent sent.
#[derive(Clone, Debug)]
pub struct AgentCaller {
    /// The source address; `None` for a local client without one.
    pub address: Option<IpAddr>,
    /// The boot secret, if the request contains one.
    pub secret: Option<Secret<String>>,
    /// The id of the API request, for the journal.
    pub request_id: String,
}

/// The times of the last journal entries about refused requests, by node.
#[derive(Default)]
pub(crate) struct RefusalNotes(Mutex<HashMap<NodeId, Timestamp>>);

impl RefusalNotes {
    /// Whether a refusal may be recorded now: clients without authentication cause them.
    fn is_due(&self, node: NodeId, now: Timestamp) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(&node).is_some_and(|at| now.since(*at) < NOTE_INTERVAL) {
            return false;
        }
        if noted.len() >= MAX_NOTED {
            noted.clear();
        }
        noted.insert(node, now);
        true
    }
}

impl AgentCaller {
    pub(crate) fn actor(&self) -> Actor {
        Actor::Agent { request_id: self.request_id.clone() }
    }

    /// Whether the request contains this secret.
    pub(crate) fn has_secret(&self, secret: &str) -> bool {
        let given = self.secret.as_ref();
        given.is_some_and(|given| is_equal(given.reveal().as_bytes(), secret.as_bytes()))
    }

    fn shown_address(&self) -> String {
        self.address.map_or_else(|| "a local client".to_owned(), |address| address.to_string())
    }
}

impl Conductor {
    /// What the source address of a request proves: that of the agent as recorded, or a lease.
    pub(crate) fn address_proof(
        &self,
        reader: &mut StoreReader<'_>,
        node: &Node,
        caller: &AgentCaller,
    ) -> Result<BootProof, store::StoreError> {
        let Some(address) = caller.address else { return Ok(BootProof::None) };
        let recorded = node.agent.proof.filter(|_| node.agent.address == Some(address));
        if recorded >= Some(BootProof::Lease) {
            return Ok(BootProof::Lease);
        }
        let mut macs: Vec<Mac> = Vec::new();
        let query = ResourceQuery::<Port> {
            filter: PortFilter { node: Some(node.id), ..PortFilter::default() },
            select: Columns::only(&[PortColumn::Address]),
            ..ResourceQuery::default()
        };
        reader.list(&query, |port| macs.push(port.address.clone()))?;
        let now = (self.clock)();
        let stored = reader.dhcp_lease(address.to_canonical())?;
        let stored = stored.filter(|lease| lease.expires_at > now).map(|lease| lease.client);
        let is_leased =
            self.registry.boot_service().is_leased_to(address, stored.as_deref(), &macs);
        Ok(if is_leased { BootProof::Lease } else { BootProof::None })
    }

    /// What a lookup proves: the token of the boot, or the source address.
    pub(crate) fn lookup_proof(
        &self,
        reader: &mut StoreReader<'_>,
        node: &Node,
        caller: &AgentCaller,
    ) -> Result<BootProof, store::StoreError> {
        if caller.secret.is_some() && node.agent.has_token {
            let token = reader.reveal(node)?.agent_token;
            if token.is_some_and(|token| caller.has_secret(token.reveal())) {
                return Ok(BootProof::Secret);
            }
        }
        self.address_proof(reader, node, caller)
    }

    /// What inspection data prove: the secret in the URL of the kernel parameters, the token of the boot,
    /// or the source address.
    pub(crate) fn inspection_proof(
        &self,
        reader: &mut StoreReader<'_>,
        node: &Node,
        caller: &AgentCaller,
    ) -> Result<BootProof, store::StoreError> {
        if caller.secret.is_some() {
            let plan = reader.boot_plan(node.id)?;
            let secret = plan.as_ref().and_then(|plan| plan.inspection_proof());
            if secret.is_some_and(|secret| caller.has_secret(secret)) {
                return Ok(BootProof::Secret);
            }
        }
        self.lookup_proof(reader, node, caller)
    }

    /// Logs a refused request and records it in the journal of the node, at most once a minute.
    pub(crate) async fn record_refusal(
        &self,
        node: NodeId,
        what: &str,
        caller: &AgentCaller,
    ) -> Result<(), ConductorError> {
        let (address, now) = (caller.shown_address(), self.now());
        let required = self.settings.agent_boot_proof;
        tracing::warn!(%node, address, what, %required, "request refused: no boot proof");
        if !self.refusal_notes.is_due(node, now) {
            return Ok(());
        }
        let text = format!(
            "{what} from {address} refused: the sender has not proved that it runs on this machine. \
             conductor.agent_boot_proof is {required}"
        );
        let (actor, by) = (caller.actor(), "agent".to_owned());
        let event = JournalEvent::Note { by, text };
        self.store
            .write(move |tx| {
                let (actor, event) = (actor.clone(), event.clone());
                tx.append(JournalEntry { at: now, node_id: node, actor, event });
                Ok::<_, ConductorError>(())
            })
            .await
    }
}
