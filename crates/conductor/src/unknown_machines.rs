// SPDX-License-Identifier: Apache-2.0
//! Unknown machines: enrols them automatically, or records them until an operator enrols them.
//!
//! Any client of the API can claim to be an unknown machine. So an automatically enrolled node gets no
//! credentials, no name, and the state `enroll`: an operator checks it before it is used.

use std::sync::Arc;

use inspection::lookup::{bmc_addresses, candidate_macs};
use inspection::{
    AutoDiscovery, HardwareReport, InspectionResult, PortChange, boot_mac, inventory_summary,
};
use node_model::{
    Actor, AgentLogKind, JournalEntry, JournalEvent, JsonObject, Mac, MachineSighting, Node,
    NodeId, Port, PortId, ReportId, Timestamp, UnknownMachineReport,
};
use serde_json::{Map, Value};
use store::{NodeSecrets, StoreWriter};

use crate::agent_logs::AgentLogArchive;
use crate::inspect::{
    InspectionContext, InspectionReply, note_events, read_rules, write_inventory,
};
use crate::{Conductor, ConductorError};

/// The size limit of stored reports in bytes. Of longer reports only the inventory is stored, or only
/// the summary.
const MAX_BODY_BYTES: usize = 128 << 10;

/// The settings of a new node.
#[derive(Clone, Debug)]
pub struct NewNodeSettings {
    /// The hardware type.
    pub driver: String,
    /// The address and credentials of the BMC.
    pub driver_info: Map<String, Value>,
    /// The name.
    pub name: Option<String>,
    /// The conductor group.
    pub conductor_group: String,
    /// The resource class.
    pub resource_class: Option<String>,
}

/// Why a machine was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No machine with this MAC address was seen.
    #[error("No machine with the MAC address {0} was seen.")]
    Unknown(Mac),
    /// A node has one of the machine's MAC addresses.
    #[error("The machine with the MAC address {mac} is node {node} already.")]
    Enrolled {
        /// The MAC address.
        mac: Mac,
        /// The node.
        node: NodeId,
    },
    /// The name is taken.
    #[error("A node with name {0} already exists.")]
    Name(String),
    /// The driver is not usable.
    #[error("{0}")]
    Driver(#[from] drivers::DriverSelectionError),
    /// The database failed, or the report is not usable.
    #[error(transparent)]
    Failed(#[from] ConductorError),
}

/// A machine to be enrolled.
struct EnrolRequest<'a> {
    /// The MAC address by which the machine is identified.
    mac: Mac,
    settings: NewNodeSettings,
    /// The inspection data, if the machine sent any.
    report: Option<&'a HardwareReport>,
    logs: AgentLogArchive,
    /// Why the machine is enrolled, for the journal.
    reason: String,
    actor: Actor,
}

/// A new node with everything that is stored with it.
struct NewNode {
    node: Node,
    macs: Vec<Mac>,
    /// The MAC address by which the machine is identified.
    mac: Mac,
    findings: Option<InspectionResult>,
    failure: Option<String>,
    reason: String,
    summary: JsonObject,
    logs: AgentLogArchive,
    actor: Actor,
}

/// The result of storing a new node.
enum StoreResult {
    Enrolled,
    AlreadyEnrolled(NodeId),
}

impl Conductor {
    /// Processes a report of an unknown machine: enrols it if automatic discovery is on, else stores
    /// the report.
    pub(crate) async fn process_unknown_machine(
        &self,
        mut report: HardwareReport,
        request_id: String,
    ) -> Result<Option<InspectionReply>, ConductorError> {
        let Some(mac) = boot_mac(&report) else {
            tracing::warn!("inspection data of an unknown machine have no valid MAC address");
            return Ok(None);
        };
        let Some(discovery) = &self.inspection.auto_discovery else {
            tracing::info!(%mac, "inspection data of an unknown machine stored");
            self.store_report(&report, mac).await?;
            return Ok(None);
        };
        report.mark_auto_discovered();
        let request = EnrolRequest {
            mac,
            settings: discovered_node_settings(discovery, &report),
            report: Some(&report),
            logs: AgentLogArchive::from_report(&report, AgentLogKind::Inspection),
            reason: discovery_reason(&report),
            actor: Actor::Agent { request_id },
        };
        match self.enrol(request).await {
            Ok(id) => Ok(Some(InspectionReply { node: id })),
            Err(EnrolError::Failed(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "unknown machine could not be enrolled");
                Ok(None)
            }
        }
    }

    /// Enrols a machine that was seen on the network, with its inspection data if it sent any.
    pub async fn enrol_unknown_machine(
        &self,
        mac: Mac,
        settings: NewNodeSettings,
        actor: Actor,
    ) -> Result<NodeId, EnrolError> {
        let address = mac.clone();
        let (machine, report) = self
            .store
            .read(move |reader| {
                Ok((reader.sighting(&address)?, reader.unknown_machine_report(&address)?))
            })
            .await
            .map_err(ConductorError::Store)?;
        let Some(machine) = machine else { return Err(EnrolError::Unknown(mac)) };
        if let Some(node) = machine.node_id {
            return Err(EnrolError::Enrolled { mac, node });
        }
        let body = report.map(|report| Value::Object(report.body.parse()));
        let report = body.and_then(|body| HardwareReport::from_value(body).ok());
        let request = EnrolRequest {
            settings,
            report: report.as_ref(),
            logs: AgentLogArchive::none(AgentLogKind::Inspection),
            reason: format!("enrolled from the sighting of {mac} on the network"),
            mac,
            actor,
        };
        self.enrol(request).await
    }

    async fn enrol(&self, request: EnrolRequest<'_>) -> Result<NodeId, EnrolError> {
        let mut new_node = self.prepare_node(request).await?;
        let id = new_node.node.id;
        let (mac, name) = (new_node.mac.clone(), new_node.node.name.clone());
        let requests =
            new_node.findings.as_mut().map(|findings| std::mem::take(&mut findings.api_calls));
        let (conductor, new_node) = (self.clone(), Arc::new(new_node));
        let write = || {
            let (conductor, new_node) = (conductor.clone(), Arc::clone(&new_node));
            self.store.write(move |tx| {
                let result = write_node(tx, &new_node)?;
                if matches!(result, StoreResult::Enrolled) {
                    new_node.logs.write(&conductor, tx, id, new_node.failure.as_deref())?;
                }
                Ok::<_, store::StoreError>(result)
            })
        };
        let mut written = write().await;
        // A port with the same MAC address was created concurrently: check again.
        if matches!(written, Err(store::StoreError::Duplicate { what: "address" })) {
            written = write().await;
        }
        match written {
            Ok(StoreResult::Enrolled) => {
                tracing::info!(node = %id, %mac, "machine enrolled");
                self.send_rule_requests(id, requests.unwrap_or_default());
                Ok(id)
            }
            Ok(StoreResult::AlreadyEnrolled(node)) => Err(EnrolError::Enrolled { mac, node }),
            Err(store::StoreError::Duplicate { what: "name" }) => {
                Err(EnrolError::Name(name.unwrap_or_default()))
            }
            Err(error) => Err(EnrolError::Failed(ConductorError::Store(error))),
        }
    }

    /// Creates the node, with the result of hooks, rules and flavours.
    async fn prepare_node(&self, request: EnrolRequest<'_>) -> Result<NewNode, EnrolError> {
        let EnrolRequest { mac, settings, report, logs, reason, actor } = request;
        let mut node = Node::new(NodeId::random(), &settings.driver, self.now());
        node.name = settings.name;
        node.conductor_group = settings.conductor_group.to_lowercase();
        node.resource_class = settings.resource_class;
        node.driver_info = settings.driver_info.into();
        self.resolve_interfaces(&mut node)?;
        let mut new_node = NewNode {
            node,
            macs: vec![mac.clone()],
            mac,
            findings: None,
            failure: None,
            reason,
            summary: JsonObject::empty(),
            logs,
            actor,
        };
        let Some(report) = report else { return Ok(new_node) };
        new_node.macs = candidate_macs(report);
        new_node.summary = inventory_summary(report);
        let rules = self.store.read(read_rules).await.map_err(ConductorError::Store)?;
        let context =
            InspectionContext { node: new_node.node, ports: Vec::new(), previous: None, rules };
        let findings = self.process_report(&context, report);
        new_node.node = context.node;
        match findings {
            Ok(findings) => {
                findings.node.apply_to(&mut new_node.node);
                new_node.findings = Some(findings);
            }
            // The node is enrolled nevertheless, so that an operator sees the error.
            Err(error) => {
                let message = format!("Failed to finish inspection: {error}");
                new_node.node.last_error = Some(message.clone());
                new_node.failure = Some(message);
            }
        }
        Ok(new_node)
    }

    /// Stores the report of an unknown machine until it is enrolled.
    async fn store_report(&self, report: &HardwareReport, mac: Mac) -> Result<(), ConductorError> {
        let (now, macs) = (self.now(), candidate_macs(report));
        let stored = UnknownMachineReport {
            id: ReportId::random(),
            reported_at: now,
            node_id: None,
            summary: inventory_summary(report),
            body: limited_body(report),
        };
        let sighting = sighting_by_report(mac, now);
        self.store
            .write(move |tx| tx.store_unknown_machine_report(&stored, &sighting, &macs))
            .await?;
        Ok(())
    }
}

/// The journal message of an automatic enrolment.
fn discovery_reason(report: &HardwareReport) -> String {
    let bmc = match bmc_addresses(report).as_slice() {
        [] => String::new(),
        addresses => format!(", reported BMC: {}", addresses.join(" and ")),
    };
    format!(
        "enrolled automatically: inspection data from {}{bmc}",
        mac_list(&candidate_macs(report))
    )
}

/// The settings of an automatically enrolled node. The address of the BMC is reported by the machine
/// and not verified: an operator must check it before adding credentials.
fn discovered_node_settings(discovery: &AutoDiscovery, report: &HardwareReport) -> NewNodeSettings {
    let mut driver_info = Map::new();
    if let Some(address) = bmc_addresses(report).into_iter().next() {
        let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let entry = match discovery.driver.as_str() {
            "redfish" | "idrac" => Some(("redfish_address", format!("https://{host}"))),
            "ipmi" => Some(("ipmi_address", address)),
            _ => None,
        };
        driver_info.extend(entry.map(|(key, value)| (key.to_owned(), value.into())));
    }
    NewNodeSettings {
        driver: discovery.driver.clone(),
        driver_info,
        name: None,
        conductor_group: discovery.conductor_group.clone(),
        resource_class: discovery.resource_class.clone(),
    }
}

fn write_node(
    tx: &mut StoreWriter<'_>,
    new_node: &NewNode,
) -> Result<StoreResult, store::StoreError> {
    if let Some(node) = tx.nodes_by_macs(&new_node.macs)?.first() {
        return Ok(StoreResult::AlreadyEnrolled(*node));
    }
    let now = tx.now();
    let mut node = new_node.node.clone();
    let id = node.id;
    let secrets = NodeSecrets {
        driver_info: node.driver_info.parse(),
        instance_info: node.instance_info.parse(),
        driver_internal_info: node.driver_internal_info.parse(),
        agent_token: None,
    };
    tx.seal_node(&mut node, secrets)?;
    tx.insert(&node)?;
    write_ports(tx, new_node, now)?;
    if let Some(findings) = &new_node.findings {
        write_inventory(tx, id, findings)?;
    }
    let notes = std::iter::once(new_node.reason.clone()).chain(new_node.failure.clone());
    let notes = notes.map(|text| JournalEvent::Note { by: "discovery".to_owned(), text });
    let events = std::iter::once(JournalEvent::Enrolled).chain(notes);
    for event in events.chain(new_node.findings.iter().flat_map(note_events)) {
        let actor = new_node.actor.clone();
        tx.append(JournalEntry { at: now, node_id: id, actor, event });
    }
    let report = UnknownMachineReport {
        id: ReportId::random(),
        reported_at: now,
        node_id: Some(id),
        summary: new_node.summary.clone(),
        body: JsonObject::empty(),
    };
    let sighting = sighting_by_report(new_node.mac.clone(), now);
    tx.store_unknown_machine_report(&report, &sighting, &new_node.macs)?;
    Ok(StoreResult::Enrolled)
}

/// Creates the ports of the hooks; if there are none, a port for the MAC address by which the machine
/// is identified, so that it is recognised next time.
fn write_ports(
    tx: &mut StoreWriter<'_>,
    new_node: &NewNode,
    now: Timestamp,
) -> Result<(), store::StoreError> {
    let id = new_node.node.id;
    let mut has_port = false;
    for change in new_node.findings.iter().flat_map(|findings| &findings.ports) {
        if let PortChange::Create(port) = change {
            tx.insert(&port.clone().into_port(PortId::random()))?;
            has_port = true;
        }
    }
    if !has_port {
        tx.insert(&Port::new(PortId::random(), id, new_node.mac.clone(), now))?;
    }
    Ok(())
}

fn sighting_by_report(mac: Mac, now: Timestamp) -> MachineSighting {
    MachineSighting {
        mac,
        first_seen_at: now,
        last_seen_at: now,
        times: 1,
        ip_address: None,
        interface: String::new(),
        architecture: None,
        last_activity: "sent inspection data".to_owned(),
    }
}

/// The report, or the part of it that is within [`MAX_BODY_BYTES`].
fn limited_body(report: &HardwareReport) -> JsonObject {
    let whole: JsonObject = report.body().into();
    if whole.as_str().len() <= MAX_BODY_BYTES {
        return whole;
    }
    let inventory = Value::Object(report.inventory().clone());
    let inventory: JsonObject = Map::from_iter([("inventory".to_owned(), inventory)]).into();
    if inventory.as_str().len() <= MAX_BODY_BYTES { inventory } else { JsonObject::empty() }
}

fn mac_list(macs: &[Mac]) -> String {
    const MAX_LISTED: usize = 8;
    let listed = macs.iter().take(MAX_LISTED).map(Mac::as_str);
    let mut text = listed.collect::<Vec<_>>().join(", ");
    if macs.len() > MAX_LISTED {
        text.push_str(" and others");
    }
    text
}
