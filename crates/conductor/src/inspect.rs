// SPDX-License-Identifier: Apache-2.0
//! Processes inspection data: finds the node, applies hooks, rules and flavours, and stores the result.

use inspection::lookup::{
    LookupCandidate, LookupError, bmc_addresses, candidate_macs, choose_node,
};
use inspection::{
    ApiCall, FlavourSet, HardwareReport, InspectionLogLevel, InspectionResult, ObjectField,
    PortChange, ReportContext, RuleSet,
};
use lifecycle::{
    Action, ActionFailure, ActionOutcome, PendingEntries, confirm_boot, inspection_data_received,
    record,
};
use node_model::{
    Actor, AgentLogKind, Flavour, InspectionRule, Inventory, JournalEntry, JournalEvent,
    JsonObject, Mac, Node, NodeId, Port, PortId, ProvisionState,
};
use store::{
    Columns, NodeColumn, NodeFilter, PortColumn, PortFilter, ResourcePage, ResourceQuery,
    StoreReader, StoreWriter,
};

use crate::agent_logs::AgentLogArchive;
use crate::agent_proof::AgentCaller;
use crate::error::error_text;
use crate::node_snapshot::NodeSnapshot;
use crate::pending_entries::write_pending_entries;
use crate::provision::get_node;
use crate::runner::write_changes;
use crate::{Conductor, ConductorError, bmc_resolver};

/// The response to inspection data.
#[derive(Clone, Debug)]
pub struct InspectionReply {
    /// The node.
    pub node: NodeId,
}

/// What the processing of a report depends on, as read from the database.
pub(crate) struct InspectionContext {
    pub(crate) node: Node,
    pub(crate) ports: Vec<Port>,
    pub(crate) previous: Option<Inventory>,
    pub(crate) rules: InspectionRules,
}

/// The operator's rules and flavours.
pub(crate) struct InspectionRules {
    rules: Vec<InspectionRule>,
    flavours: Vec<Flavour>,
}

/// The states in which inspection data may arrive.
const EXPECTING_DATA: [ProvisionState; 2] =
    [ProvisionState::Inspecting, ProvisionState::InspectWait];

impl Conductor {
    /// Processes a report of the ramdisk. Returns `None` if no node waits for it: the reason is logged,
    /// not returned. An unknown machine is enrolled or recorded, depending on the settings.
    pub async fn continue_inspection(
        &self,
        report: HardwareReport,
        node: Option<NodeId>,
        caller: AgentCaller,
    ) -> Result<Option<InspectionReply>, ConductorError> {
        let macs = candidate_macs(&report);
        let bmc = bmc_addresses(&report);
        let (conductor, sender) = (self.clone(), caller.clone());
        let read = self
            .store
            .read(move |reader| {
                let id = match find(reader, node, &macs, &bmc)? {
                    Ok(id) => id,
                    Err(reason) => return Ok(Err(reason)),
                };
                let context = read_context(reader, id)?;
                let proof = conductor.inspection_proof(reader, &context.node, &sender)?;
                Ok::<_, ConductorError>(Ok((context, proof)))
            })
            .await?;
        let context = match read {
            Ok((context, proof)) if proof >= self.settings.agent_boot_proof => context,
            Ok((context, _)) => {
                self.record_refusal(context.node.id, "inspection data", &caller).await?;
                return Ok(None);
            }
            Err(LookupError::Unknown) => {
                return self.process_unknown_machine(report, caller.request_id).await;
            }
            // The machine was quicker than the BMC call that starts it. Agents repeat after a 503.
            Err(LookupError::NotWaiting { state: ProvisionState::Inspecting, .. }) => {
                let message = "The inspection is starting. Send the inspection data again.";
                return Err(ConductorError::NotYet(message.to_owned()));
            }
            Err(reason @ LookupError::NotWaiting { .. }) => {
                // Usual: some ramdisks send inspection data at each boot, also for cleaning or deployment.
                tracing::debug!(%reason, "unexpected inspection data ignored");
                return Ok(None);
            }
            Err(reason) => {
                tracing::warn!(%reason, "unexpected inspection data ignored");
                return Ok(None);
            }
        };
        let (id, findings) = (context.node.id, self.process_report(&context, &report));
        // Logs have megabytes: decode them only if they are stored.
        let logs = if self.collects_logs(findings.is_err()) {
            AgentLogArchive::from_report(&report, AgentLogKind::Inspection)
        } else {
            AgentLogArchive::none(AgentLogKind::Inspection)
        };
        drop(report);
        let requests =
            findings.as_ref().map(|findings| findings.api_calls.clone()).unwrap_or_default();
        let conductor = self.clone();
        let actor = caller.actor();
        let is_accepted = self
            .store
            .write(move |tx| {
                let is_accepted = match &findings {
                    Ok(findings) => {
                        write_findings(&conductor, tx, id, findings, &context.ports, &actor)?
                    }
                    Err(error) => fail_inspection(&conductor, tx, id, error, &actor)?,
                };
                if is_accepted {
                    let failure = findings.as_ref().err().map(String::as_str);
                    logs.write(&conductor, tx, id, failure)?;
                }
                Ok::<_, ConductorError>(is_accepted)
            })
            .await?;
        if is_accepted {
            self.send_rule_requests(id, requests);
        }
        Ok(is_accepted.then_some(InspectionReply { node: id }))
    }

    /// Returns whether inspection data may arrive now: a node waits for them or is being started, the
    /// named one if there is one, or unknown machines are enrolled automatically.
    pub async fn expects_inspection_data(
        &self,
        node: Option<NodeId>,
    ) -> Result<bool, ConductorError> {
        if self.inspection.auto_discovery.is_some() {
            return Ok(true);
        }
        let query = ResourceQuery::<Node> {
            filter: NodeFilter {
                provision_states: Some(EXPECTING_DATA.to_vec()),
                ..NodeFilter::default()
            },
            page: ResourcePage { limit: Some(1), ..ResourcePage::default() },
            select: Columns::only(&[NodeColumn::Uuid]),
        };
        self.store
            .read(move |reader| {
                if let Some(id) = node {
                    let node: Option<Node> = reader.get(id)?;
                    return Ok(node.is_some_and(|it| EXPECTING_DATA.contains(&it.provision_state)));
                }
                let mut is_waiting = false;
                reader.list(&query, |_| is_waiting = true)?;
                Ok(is_waiting)
            })
            .await
    }

    /// Runs hooks, rules and flavours on a report. Fails if the report is not usable.
    pub(crate) fn process_report(
        &self,
        context: &InspectionContext,
        report: &HardwareReport,
    ) -> Result<InspectionResult, String> {
        self.process_with(&self.inspection, context, report)
    }

    fn process_with(
        &self,
        settings: &inspection::InspectionSettings,
        context: &InspectionContext,
        report: &HardwareReport,
    ) -> Result<InspectionResult, String> {
        let rules = RuleSet::compile(context.rules.rules.iter().chain(&settings.built_in_rules))
            .map_err(|error| error_text(&error))?;
        let (flavours, invalid) = FlavourSet::compile(&context.rules.flavours);
        for (flavour, error) in invalid {
            tracing::warn!(%flavour, error = error_text(&error), "flavour is not usable");
        }
        inspection::process_report(&ReportContext {
            node: &context.node,
            ports: &context.ports,
            report,
            previous: context.previous.as_ref(),
            settings,
            rules: &rules,
            flavours: &flavours,
            now: self.now(),
        })
        .map_err(|error| error_text(&error))
    }
}

/// Finds the node of a report by its id, MAC addresses and BMC addresses.
fn find(
    reader: &mut StoreReader<'_>,
    node: Option<NodeId>,
    macs: &[Mac],
    bmc: &[String],
) -> Result<Result<NodeId, LookupError>, ConductorError> {
    let named = match node {
        None => None,
        Some(id) => Some(match reader.get(id)? {
            Some(node) => LookupCandidate { id, state: node.provision_state },
            None => return Ok(Err(LookupError::NoSuchNode(id))),
        }),
    };
    let mut by_mac = Vec::new();
    let mut only_match = None;
    for id in reader.nodes_by_macs(macs)? {
        if let Some(node) = reader.get(id)? {
            by_mac.push(LookupCandidate { id, state: node.provision_state });
            only_match = (by_mac.len() == 1).then_some(node);
        }
    }
    // Usually no search is needed: the node with the MAC address also has the BMC address.
    let has_bmc = only_match
        .is_some_and(|node| bmc_resolver::known(&node).iter().any(|address| bmc.contains(address)));
    let by_bmc =
        if bmc.is_empty() || has_bmc { Vec::new() } else { waiting_with_bmc(reader, bmc)? };
    Ok(choose_node(named, &by_mac, &by_bmc))
}

/// The nodes in `inspect wait` whose BMC has one of these addresses.
fn waiting_with_bmc(
    reader: &mut StoreReader<'_>,
    bmc: &[String],
) -> Result<Vec<LookupCandidate>, ConductorError> {
    let mut candidates = Vec::new();
    let query = ResourceQuery::<Node> {
        filter: NodeFilter {
            provision_states: Some(vec![ProvisionState::InspectWait]),
            ..NodeFilter::default()
        },
        select: Columns::only(&[
            NodeColumn::Uuid,
            NodeColumn::DriverInfo,
            NodeColumn::DriverInternalInfo,
        ]),
        ..ResourceQuery::default()
    };
    reader.list(&query, |node| {
        // Search the text before parsing it: most nodes have none of the addresses.
        let texts = [node.driver_info.as_str(), node.driver_internal_info.as_str()];
        if bmc.iter().any(|address| texts.iter().any(|text| text.contains(address.as_str())))
            && bmc_resolver::known(node).iter().any(|address| bmc.contains(address))
        {
            candidates.push(LookupCandidate { id: node.id, state: ProvisionState::InspectWait });
        }
    })?;
    Ok(candidates)
}

fn read_context(
    reader: &mut StoreReader<'_>,
    id: NodeId,
) -> Result<InspectionContext, ConductorError> {
    let node = reader.get(id)?.ok_or_else(|| ConductorError::NoSuchNode(id.to_string()))?;
    let ports = reader.collect(&ResourceQuery {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..ResourceQuery::default()
    })?;
    Ok(InspectionContext {
        node,
        ports,
        previous: reader.inventory(id)?,
        rules: read_rules(reader)?,
    })
}

/// Reads all rules and flavours.
pub(crate) fn read_rules(
    reader: &mut StoreReader<'_>,
) -> Result<InspectionRules, store::StoreError> {
    Ok(InspectionRules {
        rules: reader.collect(&ResourceQuery::default())?,
        flavours: reader.collect(&ResourceQuery::default())?,
    })
}

/// Stores the result and ends the inspection. Returns false if the node does not wait any more.
fn write_findings(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    findings: &InspectionResult,
    ports_before: &[Port],
    actor: &Actor,
) -> Result<bool, ConductorError> {
    let mut node = get_node(tx, id)?;
    let now = tx.now();
    let mut entries = PendingEntries::default();
    entries.events.push(JournalEvent::AgentCall { call: "inspection data".to_owned() });
    entries.events.extend(note_events(findings));
    if !inspection_data_received(&mut node, now, &mut entries) {
        return Ok(false);
    }
    if !findings.node.is_empty() {
        entries.events.push(JournalEvent::Changed { fields: findings.node.changed_fields() });
        write_node(tx, &mut node, findings)?;
    }
    for change in &findings.ports {
        write_port(tx, change, ports_before)?;
    }
    write_inventory(tx, id, findings)?;
    write_pending_entries(tx, &mut node, entries, actor, conductor.hostname())?;
    tx.save(&mut node)?;
    tx.wake(id);
    Ok(true)
}

/// The result of an out-of-band inspection.
pub(crate) struct OutOfBandResult {
    /// The data of the BMC.
    data: drivers::InspectedHardware,
    /// The node's ports, and new ones for NICs without a port.
    ports: Vec<Port>,
    /// The result of rules and flavours, if there is an inventory; or why the inspection failed.
    pub(crate) findings: Result<Option<InspectionResult>, String>,
}

impl Conductor {
    /// Runs rules and flavours on the data of a BMC. Hooks apply only to reports of ramdisks.
    pub(crate) async fn process_out_of_band(
        &self,
        snapshot: &NodeSnapshot,
        data: drivers::InspectedHardware,
    ) -> Result<OutOfBandResult, ConductorError> {
        let (id, now) = (snapshot.node.id, self.now());
        let mut context = self.store.read(move |reader| read_context(reader, id)).await?;
        for mac in &data.ports {
            if context.ports.iter().all(|port| port.address != *mac) {
                context.ports.push(Port::new(PortId::random(), id, mac.clone(), now));
            }
        }
        let Some(inventory) = &data.inventory else {
            return Ok(OutOfBandResult { data, ports: context.ports, findings: Ok(None) });
        };
        data.changes.apply_to(&mut context.node);
        let report = HardwareReport::from_inventory(&Inventory {
            node_id: id,
            created_at: now,
            inventory: inventory.clone(),
            plugin_data: JsonObject::empty(),
            derived: JsonObject::empty(),
        });
        let settings =
            inspection::InspectionSettings { hooks: Vec::new(), ..self.inspection.clone() };
        let findings = self.process_with(&settings, &context, &report).map(Some);
        Ok(OutOfBandResult { data, ports: context.ports, findings })
    }
}

impl OutOfBandResult {
    /// The HTTP requests of rules, to be sent when the result is stored.
    pub(crate) fn take_requests(&mut self) -> Vec<ApiCall> {
        match &mut self.findings {
            Ok(Some(findings)) => std::mem::take(&mut findings.api_calls),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// Stores the result; the caller saves the node. The data of the BMC are stored even if the
    /// inspection failed.
    pub(crate) fn write(
        &self,
        tx: &mut StoreWriter<'_>,
        node: &mut Node,
        actor: &Actor,
    ) -> Result<(), store::StoreError> {
        write_changes(tx, node, &self.data.changes)?;
        let (id, now) = (node.id, tx.now());
        let append = |tx: &mut StoreWriter<'_>, event| {
            tx.append(JournalEntry { at: now, node_id: id, actor: actor.clone(), event });
        };
        let is_reported = |port: &&Port| self.data.ports.contains(&port.address);
        for port in self.ports.iter().filter(is_reported) {
            let address = &port.address;
            match tx.find::<Port>(PortColumn::Address, address.as_str())? {
                None => tx.insert(port)?,
                Some(known) if known.node_id == id => {}
                Some(known) => {
                    let text = format!(
                        "no port was created for {address}: it belongs to node {}; check whether the BMC \
                         is enrolled twice",
                        known.node_id
                    );
                    tracing::warn!(node = %id, mac = %address, owner = %known.node_id, "MAC address belongs to another node, port not created");
                    append(tx, JournalEvent::Note { by: "inspection".to_owned(), text });
                }
            }
        }
        let Some(inventory) = &self.data.inventory else { return Ok(()) };
        let Ok(Some(findings)) = &self.findings else {
            return tx.set_inventory(&Inventory {
                node_id: id,
                created_at: now,
                inventory: inventory.clone(),
                plugin_data: JsonObject::empty(),
                derived: JsonObject::empty(),
            });
        };
        write_node(tx, node, findings)?;
        for change in &findings.ports {
            write_port(tx, change, &self.ports)?;
        }
        write_inventory(tx, id, findings)?;
        note_events(findings).for_each(|event| append(tx, event));
        Ok(())
    }
}

/// The failure of an inspection, in Ironic's words.
pub(crate) fn inspection_failure(why: &str) -> ActionFailure {
    ActionFailure::new(format!("Failed to finish inspection: {why}"))
}

/// The messages of hooks, rules and flavours for the journal.
pub(crate) fn note_events(findings: &InspectionResult) -> impl Iterator<Item = JournalEvent> {
    let notes = findings.log.iter().filter(|note| note.level > InspectionLogLevel::Debug);
    notes.map(|note| JournalEvent::Note { by: note.source.to_string(), text: note.text.clone() })
}

/// Stores the inventory, and the LLDP neighbours if the ramdisk collected them.
pub(crate) fn write_inventory(
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    findings: &InspectionResult,
) -> Result<(), store::StoreError> {
    let now = tx.now();
    tx.set_inventory(&Inventory {
        node_id: id,
        created_at: now,
        inventory: findings.inventory.clone(),
        plugin_data: findings.plugin_data.clone(),
        derived: findings.derived.clone(),
    })?;
    match &findings.neighbours {
        Some(neighbours) => tx.replace_neighbours(id, neighbours),
        // The ramdisk did not collect LLDP: keep the neighbours of the previous inspection.
        None => Ok(()),
    }
}

/// Applies changes of the node. Secrets are masked on the node, so they are changed in the sealed part.
fn write_node(
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    findings: &InspectionResult,
) -> Result<(), store::StoreError> {
    let touches_secrets =
        [ObjectField::DriverInfo, ObjectField::InstanceInfo, ObjectField::DriverInternalInfo]
            .iter()
            .any(|field| findings.node.objects.contains_key(field));
    findings.node.apply_to(node);
    if touches_secrets {
        // A mask keeps the sealed value; new secrets are in clear text here and are sealed.
        let before = tx.reveal(node)?;
        let secrets = store::NodeSecrets {
            driver_info: node.driver_info.parse(),
            instance_info: node.instance_info.parse(),
            driver_internal_info: node.driver_internal_info.parse(),
            agent_token: before.agent_token,
        };
        tx.seal_node(node, secrets)?;
    }
    Ok(())
}

fn write_port(
    tx: &mut StoreWriter<'_>,
    change: &PortChange,
    ports_before: &[Port],
) -> Result<(), store::StoreError> {
    match change {
        PortChange::Create(port) => {
            if tx.find::<Port>(PortColumn::Address, port.address().as_str())?.is_none() {
                tx.insert(&port.clone().into_port(PortId::random()))?;
            }
        }
        PortChange::Update(after) => {
            let before = ports_before.iter().find(|before| before.id == after.id);
            if let (Some(mut port), Some(before)) = (tx.get(after.id)?, before) {
                merge_port(&mut port, before, after);
                tx.save(&mut port)?;
            }
        }
        PortChange::Delete(id, _) => {
            tx.delete(*id)?;
        }
    }
    Ok(())
}

/// Applies the fields that the inspection changed, and keeps concurrent changes of others.
fn merge_port(port: &mut Port, before: &Port, after: &Port) {
    macro_rules! merge_fields {
        ($($field:ident)*) => {$(
            if before.$field != after.$field {
                port.$field.clone_from(&after.$field);
            }
        )*};
    }
    merge_fields! {
        name description pxe_enabled local_link_connection physical_network is_smartnic vendor
        category extra internal_info
    }
}

/// Fails the inspection. Returns false if the node does not wait any more.
fn fail_inspection(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    error: &str,
    actor: &Actor,
) -> Result<bool, ConductorError> {
    let mut node = get_node(tx, id)?;
    if node.provision_state != ProvisionState::InspectWait {
        return Ok(false);
    }
    let now = tx.now();
    let outcome = ActionOutcome::Failed(inspection_failure(error));
    let mut entries = PendingEntries::default();
    confirm_boot(&mut node, &mut entries);
    entries.append(record(&mut node, &Action::Inspect, &outcome, 0, &conductor.rules, now));
    write_pending_entries(tx, &mut node, entries, actor, conductor.hostname())?;
    tx.save(&mut node)?;
    tx.wake(id);
    Ok(true)
}
