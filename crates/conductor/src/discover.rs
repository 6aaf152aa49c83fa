// SPDX-License-Identifier: Apache-2.0
//! Machines that nobody enrolled: they enrol themselves, or are remembered until somebody does.
//!
//! Whoever reaches the API can claim to be such a machine, so a node made here gets no credentials,
//! no name, and no state but `enroll`: an operator looks at it before anything is done with it.

use inspection::lookup::{bmc_addresses, candidate_macs};
use inspection::{AutoDiscovery, Findings, PortChange, Report, boot_card, summary};
use node_model::{
    Actor, Happening, JournalEntry, JsonObject, LogKind, Mac, Node, NodeId, Port, PortId, ReportId,
    StrangerReport, StrangerSeen, Timestamp,
};
use serde_json::{Map, Value};
use store::{NodeSecrets, Writer};

use crate::agent_logs::Logs;
use crate::inspect::{InspectionReply, Known, read_ways, told, write_inventory};
use crate::{Conductor, Error};

/// Longer reports are kept without what the hooks would have made of their other data, and still
/// longer ones in short only.
const MAX_BODY_BYTES: usize = 128 << 10;

/// How a stranger is enrolled.
#[derive(Clone, Debug)]
pub struct Enrolment {
    /// Its driver.
    pub driver: String,
    /// How its BMC is reached. May hold secrets.
    pub driver_info: Map<String, Value>,
    /// Its name.
    pub name: Option<String>,
    /// Its conductor group.
    pub conductor_group: String,
    /// Its resource class.
    pub resource_class: Option<String>,
}

/// Why a stranger was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// Nobody saw a machine with this card.
    #[error("No machine with the card {0} was seen.")]
    Unknown(Mac),
    /// A node has one of its cards.
    #[error("The machine with the card {mac} is node {node} already.")]
    Enrolled {
        /// The card.
        mac: Mac,
        /// The node.
        node: NodeId,
    },
    /// The name is taken.
    #[error("A node with name {0} already exists.")]
    Name(String),
    /// The driver cannot be used.
    #[error("{0}")]
    Driver(#[from] bmc_drivers::SelectionError),
    /// The database failed, or the report cannot be used.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// A node to be, with everything that comes with it.
struct Newcomer {
    node: Node,
    cards: Vec<Mac>,
    /// The card it is known by.
    card: Mac,
    findings: Option<Findings>,
    failure: Option<String>,
    notes: Vec<String>,
    summary: JsonObject,
}

/// What became of an attempt to write one.
enum Written {
    Enrolled,
    AlreadyThere(NodeId),
}

impl Conductor {
    /// A report from a machine that nobody knows.
    pub(crate) async fn meet_stranger(
        &self,
        mut report: Report,
        request_id: String,
    ) -> Result<Option<InspectionReply>, Error> {
        let Some(card) = boot_card(&report) else {
            tracing::warn!("inspection data of an unknown machine without a valid MAC address");
            return Ok(None);
        };
        let Some(discovery) = &self.inspection.auto_discovery else {
            tracing::info!(%card, "inspection data of a machine that nobody enrolled were kept");
            self.remember(&report, card).await?;
            return Ok(None);
        };
        report.mark_auto_discovered();
        let enrolment = by_itself(discovery, &report);
        let logs = Logs::of_report(&report, LogKind::Inspection);
        let actor = Actor::Agent { request_id };
        let text = format!(
            "enrolled by itself: its ramdisk reported from {}{}",
            words(&candidate_macs(&report)),
            match bmc_addresses(&report).as_slice() {
                [] => String::new(),
                bmc => format!(", and says that its BMC is {}", bmc.join(" and ")),
            }
        );
        match self.enrol(Some(&report), card, enrolment, text, logs, actor).await {
            Ok(id) => Ok(Some(InspectionReply { node: id })),
            Err(EnrolError::Failed(error)) => Err(error),
            Err(reason) => {
                tracing::warn!(%reason, "a machine could not be enrolled by itself");
                Ok(None)
            }
        }
    }

    /// Enrols a machine that was seen on the network, with what its ramdisk told if it told
    /// something.
    pub async fn enrol_stranger(
        &self,
        mac: Mac,
        enrolment: Enrolment,
        actor: Actor,
    ) -> Result<NodeId, EnrolError> {
        let card = mac.clone();
        let (known, told) = self
            .store
            .read(move |reader| Ok((reader.sighting(&card)?, reader.stranger_report(&card)?)))
            .await
            .map_err(Error::Store)?;
        let Some(known) = known else { return Err(EnrolError::Unknown(mac)) };
        if let Some(node) = known.node_id {
            return Err(EnrolError::Enrolled { mac, node });
        }
        let body = told.map(|told| Value::Object(told.body.parse()));
        let report = body.and_then(|body| Report::from_value(body).ok());
        let text = format!("enrolled from what was seen of {mac} on the network");
        let logs = Logs::none(LogKind::Inspection);
        self.enrol(report.as_ref(), mac, enrolment, text, logs, actor).await
    }

    async fn enrol(
        &self,
        report: Option<&Report>,
        card: Mac,
        enrolment: Enrolment,
        text: String,
        logs: Logs,
        actor: Actor,
    ) -> Result<NodeId, EnrolError> {
        let mut newcomer = self.newcomer(report, card, enrolment, text).await?;
        let id = newcomer.node.id;
        let (mac, name) = (newcomer.card.clone(), newcomer.node.name.clone());
        let calls = newcomer.findings.as_mut().map(|findings| std::mem::take(&mut findings.calls));
        let calls = calls.unwrap_or_default();
        let (conductor, newcomer) = (self.clone(), std::sync::Arc::new((newcomer, logs, actor)));
        let write = || {
            let (conductor, newcomer) = (conductor.clone(), newcomer.clone());
            self.store.write(move |tx| {
                let (newcomer, logs, actor) = &*newcomer;
                let written = write_newcomer(tx, newcomer, actor)?;
                if matches!(written, Written::Enrolled) {
                    logs.keep(&conductor, tx, id, newcomer.failure.as_deref())?;
                }
                Ok::<_, store::Error>(written)
            })
        };
        let mut written = write().await;
        // Somebody else made a port with one of its cards at the same moment: look again.
        if matches!(written, Err(store::Error::Duplicate { what: "address" })) {
            written = write().await;
        }
        match written {
            Ok(Written::Enrolled) => {
                tracing::info!(node = %id, card = %mac, "a machine was enrolled");
                self.make_calls(id, calls);
                Ok(id)
            }
            Ok(Written::AlreadyThere(node)) => Err(EnrolError::Enrolled { mac, node }),
            Err(store::Error::Duplicate { what: "name" }) => {
                Err(EnrolError::Name(name.unwrap_or_default()))
            }
            Err(error) => Err(EnrolError::Failed(Error::Store(error))),
        }
    }

    /// The node, with what hooks, rules and flavours make of the report.
    async fn newcomer(
        &self,
        report: Option<&Report>,
        card: Mac,
        enrolment: Enrolment,
        text: String,
    ) -> Result<Newcomer, EnrolError> {
        let mut node = Node::new(NodeId::random(), &enrolment.driver, self.now());
        node.name = enrolment.name;
        node.conductor_group = enrolment.conductor_group;
        node.resource_class = enrolment.resource_class;
        node.driver_info = enrolment.driver_info.into();
        self.registry.resolve(&node.driver, &mut node.interfaces)?;
        let mut newcomer = Newcomer {
            node,
            cards: vec![card.clone()],
            card,
            findings: None,
            failure: None,
            notes: vec![text],
            summary: JsonObject::empty(),
        };
        let Some(report) = report else { return Ok(newcomer) };
        newcomer.cards = candidate_macs(report);
        newcomer.summary = summary(report);
        let ways = self.store.read(read_ways).await.map_err(Error::Store)?;
        let known = Known { node: newcomer.node, ports: Vec::new(), previous: None, ways };
        let judged = self.judge(&known, report);
        newcomer.node = known.node;
        match judged {
            Ok(findings) => {
                findings.node.apply_to(&mut newcomer.node);
                newcomer.findings = Some(findings);
            }
            // The machine is there all the same, and an operator should see what is wrong with it.
            Err(message) => {
                let message = format!("Failed to finish inspection: {message}");
                newcomer.node.last_error = Some(message.clone());
                newcomer.failure = Some(message);
            }
        }
        Ok(newcomer)
    }

    /// Keeps what a stranger told, for whoever enrols it.
    async fn remember(&self, report: &Report, card: Mac) -> Result<(), Error> {
        let (now, cards) = (self.now(), candidate_macs(report));
        let told = StrangerReport {
            id: ReportId::random(),
            reported_at: now,
            node_id: None,
            summary: summary(report),
            body: bounded_body(report),
        };
        let seen = seen_by_report(card, now);
        self.store.write(move |tx| tx.keep_stranger_report(&told, &seen, &cards)).await?;
        Ok(())
    }
}

/// How a machine is enrolled by itself. Where its BMC is, is its word only: before an operator adds
/// credentials, the address should be looked at.
fn by_itself(discovery: &AutoDiscovery, report: &Report) -> Enrolment {
    let mut driver_info = Map::new();
    if let Some(address) = bmc_addresses(report).into_iter().next() {
        let bracketed =
            if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let entry = match discovery.driver.as_str() {
            "redfish" | "idrac" => Some(("redfish_address", format!("https://{bracketed}"))),
            "ipmi" => Some(("ipmi_address", address)),
            _ => None,
        };
        driver_info.extend(entry.map(|(key, value)| (key.to_owned(), value.into())));
    }
    Enrolment {
        driver: discovery.driver.clone(),
        driver_info,
        name: None,
        conductor_group: discovery.conductor_group.clone(),
        resource_class: discovery.resource_class.clone(),
    }
}

fn write_newcomer(
    tx: &mut Writer<'_>,
    newcomer: &Newcomer,
    actor: &Actor,
) -> Result<Written, store::Error> {
    if let Some(node) = tx.nodes_by_macs(&newcomer.cards)?.first() {
        return Ok(Written::AlreadyThere(*node));
    }
    let now = tx.now();
    let mut node = newcomer.node.clone();
    let id = node.id;
    let secrets = NodeSecrets {
        driver_info: node.driver_info.parse(),
        instance_info: node.instance_info.parse(),
        driver_internal_info: node.driver_internal_info.parse(),
        agent_token: None,
    };
    tx.seal_node(&mut node, secrets)?;
    tx.insert(&node)?;
    write_ports(tx, newcomer, now)?;
    if let Some(findings) = &newcomer.findings {
        write_inventory(tx, id, findings)?;
    }
    let told_by = newcomer.findings.iter().flat_map(told);
    let notes = newcomer.notes.iter().cloned();
    let notes = notes.chain(newcomer.failure.clone());
    let notes = notes.map(|text| Happening::Noted { by: "discovery".to_owned(), text });
    for what in std::iter::once(Happening::Enrolled).chain(notes).chain(told_by) {
        tx.append(JournalEntry { at: now, node_id: id, actor: actor.clone(), what });
    }
    let told = StrangerReport {
        id: ReportId::random(),
        reported_at: now,
        node_id: Some(id),
        summary: newcomer.summary.clone(),
        body: JsonObject::empty(),
    };
    tx.keep_stranger_report(&told, &seen_by_report(newcomer.card.clone(), now), &newcomer.cards)?;
    Ok(Written::Enrolled)
}

/// The ports that the hooks want, and in any case one for the card the machine is known by: without
/// it the machine would be a stranger again tomorrow.
fn write_ports(
    tx: &mut Writer<'_>,
    newcomer: &Newcomer,
    now: Timestamp,
) -> Result<(), store::Error> {
    let id = newcomer.node.id;
    let mut has_port = false;
    for change in newcomer.findings.iter().flat_map(|findings| &findings.ports) {
        if let PortChange::Create(port) = change {
            tx.insert(&port.clone().into_port(PortId::random()))?;
            has_port = true;
        }
    }
    if !has_port {
        tx.insert(&Port::new(PortId::random(), id, newcomer.card.clone(), now))?;
    }
    Ok(())
}

fn seen_by_report(address: Mac, now: Timestamp) -> StrangerSeen {
    StrangerSeen {
        address,
        first_seen_at: now,
        last_seen_at: now,
        times: 1,
        ip_address: None,
        interface: String::new(),
        architecture: None,
        last: "its ramdisk told what it is".to_owned(),
    }
}

/// The report, or as much of it as may be kept of a stranger.
fn bounded_body(report: &Report) -> JsonObject {
    let whole: JsonObject = report.body().into();
    if whole.as_str().len() <= MAX_BODY_BYTES {
        return whole;
    }
    let hardware = Value::Object(report.inventory().clone());
    let hardware: JsonObject = Map::from_iter([("inventory".to_owned(), hardware)]).into();
    if hardware.as_str().len() <= MAX_BODY_BYTES { hardware } else { JsonObject::empty() }
}

fn words(macs: &[Mac]) -> String {
    const MOST: usize = 8;
    let mut text = macs.iter().take(MOST).map(|mac| mac.as_str()).collect::<Vec<_>>().join(", ");
    if macs.len() > MOST {
        text.push_str(" and others");
    }
    text
}
