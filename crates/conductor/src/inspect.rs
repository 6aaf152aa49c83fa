// SPDX-License-Identifier: Apache-2.0
//! The inspection ramdisk's data: which machine they are from, what they mean, and what changes.

use inspection::lookup::NoMatch;
use inspection::lookup::{Candidate, bmc_addresses, candidate_macs, choose};
use inspection::{
    ApiCall, Context, Findings, FlavourSet, HookError, Level, ObjectField, PortChange, Report,
    RuleSet,
};
use lifecycle::{Action, Failure, Ledger, Outcome, hear_inspection_data, record, see_agent};
use node_model::{
    Actor, Flavour, Happening, InspectionRule, Inventory, JournalEntry, JsonObject, LogKind, Mac,
    Node, NodeId, Port, PortId, ProvisionState,
};
use store::{Columns, NodeColumn, NodeFilter, PortColumn, PortFilter, Query, Reader, Writer};

use crate::agent_logs::Logs;
use crate::ledger::write_ledger;
use crate::provision::get;
use crate::runner::write_changes;
use crate::sight::Sight;
use crate::{Conductor, Error, bmc_names};

/// What the ramdisk is told.
#[derive(Clone, Debug)]
pub struct InspectionReply {
    /// The node its data were taken for.
    pub node: NodeId,
}

/// Everything a report is judged by, as read from the database.
pub(crate) struct Known {
    pub(crate) node: Node,
    pub(crate) ports: Vec<Port>,
    pub(crate) previous: Option<Inventory>,
    pub(crate) ways: Ways,
}

/// What operators want done with reports.
pub(crate) struct Ways {
    rules: Vec<InspectionRule>,
    flavours: Vec<Flavour>,
}

impl Conductor {
    /// Takes a report from the ramdisk. None if no node waits for it: the ramdisk is not told why,
    /// the log is. A machine that nobody knows is enrolled, or remembered, as the settings say.
    pub async fn continue_inspection(
        &self,
        report: Report,
        named: Option<NodeId>,
        request_id: String,
    ) -> Result<Option<InspectionReply>, Error> {
        let macs = candidate_macs(&report);
        let bmc = bmc_addresses(&report);
        let found = self
            .store
            .read(move |reader| {
                let chosen = find(reader, named, &macs, &bmc)?;
                let id = match chosen {
                    Ok(id) => id,
                    Err(reason) => return Ok(Err(reason)),
                };
                read_known(reader, id).map(Ok)
            })
            .await?;
        let known = match found {
            Ok(known) => known,
            Err(NoMatch::Unknown) => return self.meet_stranger(report, request_id).await,
            Err(reason) => {
                tracing::warn!(%reason, "inspection data from a machine that is not expected");
                return Ok(None);
            }
        };
        let (id, judged) = (known.node.id, self.judge(&known, &report));
        // Megabytes to decode, and mostly for nothing.
        let logs = if self.collects_logs(judged.is_err()) {
            Logs::of_report(&report, LogKind::Inspection)
        } else {
            Logs::none(LogKind::Inspection)
        };
        drop(report);
        let calls = judged.as_ref().map(|findings| findings.calls.clone()).unwrap_or_default();
        let conductor = self.clone();
        let actor = Actor::Agent { request_id };
        let kept = self
            .store
            .write(move |tx| {
                let kept = match &judged {
                    Ok(findings) => keep(&conductor, tx, id, findings, &known.ports, &actor)?,
                    Err(message) => reject(&conductor, tx, id, message, &actor)?,
                };
                if kept {
                    logs.keep(&conductor, tx, id, judged.as_ref().err().map(String::as_str))?;
                }
                Ok::<_, Error>(kept)
            })
            .await?;
        if kept {
            self.make_calls(id, calls);
        }
        Ok(kept.then_some(InspectionReply { node: id }))
    }

    /// Works out what a report changes, or why it cannot be used.
    pub(crate) fn judge(&self, known: &Known, report: &Report) -> Result<Findings, String> {
        self.judge_by(&self.inspection, known, report)
    }

    fn judge_by(
        &self,
        settings: &inspection::Settings,
        known: &Known,
        report: &Report,
    ) -> Result<Findings, String> {
        let rules = RuleSet::compile(known.ways.rules.iter().chain(&settings.built_in_rules))
            .map_err(|error| crate::act::chain(&error))?;
        let (flavours, broken) = FlavourSet::compile(&known.ways.flavours);
        for (flavour, error) in broken {
            tracing::warn!(%flavour, %error, "a flavour cannot be used");
        }
        inspection::process(&Context {
            node: &known.node,
            ports: &known.ports,
            report,
            previous: known.previous.as_ref(),
            settings,
            rules: &rules,
            flavours: &flavours,
            now: self.now(),
        })
        .map_err(|error: HookError| error.full_message())
    }
}

fn find(
    reader: &mut Reader<'_>,
    named: Option<NodeId>,
    macs: &[Mac],
    bmc: &[String],
) -> Result<Result<NodeId, NoMatch>, Error> {
    let named = match named {
        None => None,
        Some(id) => Some(match reader.get(id)? {
            Some(node) => Candidate { id, state: node.provision_state },
            None => return Ok(Err(NoMatch::NoSuchNode(id))),
        }),
    };
    let mut by_mac = Vec::new();
    let mut sole = None;
    for id in reader.nodes_by_macs(macs)? {
        if let Some(node) = reader.get(id)? {
            by_mac.push(Candidate { id, state: node.provision_state });
            sole = (by_mac.len() == 1).then_some(node);
        }
    }
    // The usual case needs no search: the node with the MAC address has the BMC address too.
    let agree = sole.is_some_and(|node| bmc_names::known(&node).iter().any(|a| bmc.contains(a)));
    let by_bmc = if bmc.is_empty() || agree { Vec::new() } else { waiting_with_bmc(reader, bmc)? };
    Ok(choose(named, &by_mac, &by_bmc))
}

/// The nodes in `inspect wait` whose BMC has one of these addresses.
fn waiting_with_bmc(reader: &mut Reader<'_>, bmc: &[String]) -> Result<Vec<Candidate>, Error> {
    let mut found = Vec::new();
    let query = Query::<Node> {
        filter: NodeFilter {
            provision_states: Some(vec![ProvisionState::InspectWait]),
            ..NodeFilter::default()
        },
        select: Columns::of(&[
            NodeColumn::Uuid,
            NodeColumn::DriverInfo,
            NodeColumn::DriverInternalInfo,
        ]),
        ..Query::default()
    };
    reader.list(&query, |node| {
        // A cheap look first: most nodes' addresses are not in the text at all.
        let texts = [node.driver_info.as_str(), node.driver_internal_info.as_str()];
        if bmc.iter().any(|address| texts.iter().any(|text| text.contains(address.as_str())))
            && bmc_names::known(node).iter().any(|address| bmc.contains(address))
        {
            found.push(Candidate { id: node.id, state: ProvisionState::InspectWait });
        }
    })?;
    Ok(found)
}

fn read_known(reader: &mut Reader<'_>, id: NodeId) -> Result<Known, Error> {
    let node = reader.get(id)?.ok_or_else(|| Error::NoSuchNode(id.to_string()))?;
    let ports = reader.collect(&Query {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..Query::default()
    })?;
    Ok(Known { node, ports, previous: reader.inventory(id)?, ways: read_ways(reader)? })
}

/// The rules and flavours there are.
pub(crate) fn read_ways(reader: &mut Reader<'_>) -> Result<Ways, store::Error> {
    Ok(Ways {
        rules: reader.collect(&Query::default())?,
        flavours: reader.collect(&Query::default())?,
    })
}

/// Writes what was found and lets the inspection end. False if the node no longer waits.
fn keep(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: NodeId,
    findings: &Findings,
    ports_before: &[Port],
    actor: &Actor,
) -> Result<bool, Error> {
    let mut node = get(tx, id)?;
    let now = tx.now();
    let mut ledger = Ledger::default();
    ledger.happened.push(Happening::Heard { what: "inspection data".to_owned() });
    ledger.happened.extend(told(findings));
    if !hear_inspection_data(&mut node, now, &mut ledger) {
        return Ok(false);
    }
    if !findings.node.is_empty() {
        ledger.happened.push(Happening::Changed { fields: findings.node.names() });
        write_node(tx, &mut node, findings)?;
    }
    for change in &findings.ports {
        write_port(tx, change, ports_before)?;
    }
    write_inventory(tx, id, findings)?;
    write_ledger(tx, &mut node, ledger, actor, conductor.hostname())?;
    tx.save(&mut node)?;
    tx.wake(id);
    Ok(true)
}

/// What a BMC told of its machine, and what is made of it.
pub(crate) struct Found {
    /// Its word.
    told: bmc_drivers::Findings,
    /// The node's ports, and those to be made for cards that have none.
    ports: Vec<Port>,
    /// What rules and flavours make of it, if there is hardware to judge; or why the machine is
    /// refused.
    pub(crate) judged: Result<Option<Findings>, String>,
}

impl Conductor {
    /// Lets rules and flavours work on what a BMC told. Hooks are for what ramdisks tell.
    pub(crate) async fn judge_told(
        &self,
        sight: &Sight,
        told: bmc_drivers::Findings,
    ) -> Result<Found, Error> {
        let (id, now) = (sight.node.id, self.now());
        let mut known = self.store.read(move |reader| read_known(reader, id)).await?;
        for card in &told.ports {
            if known.ports.iter().all(|port| port.address != *card) {
                known.ports.push(Port::new(PortId::random(), id, card.clone(), now));
            }
        }
        let Some(inventory) = &told.inventory else {
            return Ok(Found { told, ports: known.ports, judged: Ok(None) });
        };
        told.changes.apply_to(&mut known.node);
        let report = Report::stored(&Inventory {
            node_id: id,
            created_at: now,
            inventory: inventory.clone(),
            plugin_data: JsonObject::empty(),
            found: JsonObject::empty(),
        });
        let settings = inspection::Settings { hooks: Vec::new(), ..self.inspection.clone() };
        let judged = self.judge_by(&settings, &known, &report).map(Some);
        Ok(Found { told, ports: known.ports, judged })
    }
}

impl Found {
    /// The requests that rules ask for. They are made when the rest is written.
    pub(crate) fn take_calls(&mut self) -> Vec<ApiCall> {
        match &mut self.judged {
            Ok(Some(findings)) => std::mem::take(&mut findings.calls),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// Writes everything; the node is saved by the caller. Of a machine that is refused, what its
    /// BMC told is kept all the same.
    pub(crate) fn write(
        &self,
        tx: &mut Writer<'_>,
        node: &mut Node,
        actor: &Actor,
    ) -> Result<(), store::Error> {
        write_changes(tx, node, &self.told.changes)?;
        let (id, now) = (node.id, tx.now());
        let note = |tx: &mut Writer<'_>, what| {
            tx.append(JournalEntry { at: now, node_id: id, actor: actor.clone(), what });
        };
        let told_of = |port: &&Port| self.told.ports.contains(&port.address);
        for port in self.ports.iter().filter(told_of) {
            let address = &port.address;
            match tx.find::<Port>(PortColumn::Address, address.as_str())? {
                None => tx.insert(port)?,
                Some(known) if known.node_id == id => {}
                Some(known) => {
                    let text = format!(
                        "no port was made for {address}: it belongs to node {} already; is its BMC \
                         enrolled twice?",
                        known.node_id
                    );
                    tracing::warn!(node = %id, %text);
                    note(tx, Happening::Noted { by: "inspection".to_owned(), text });
                }
            }
        }
        let Some(inventory) = &self.told.inventory else { return Ok(()) };
        let Ok(Some(findings)) = &self.judged else {
            return tx.set_inventory(&Inventory {
                node_id: id,
                created_at: now,
                inventory: inventory.clone(),
                plugin_data: JsonObject::empty(),
                found: JsonObject::empty(),
            });
        };
        write_node(tx, node, findings)?;
        for change in &findings.ports {
            write_port(tx, change, &self.ports)?;
        }
        write_inventory(tx, id, findings)?;
        told(findings).for_each(|what| note(tx, what));
        Ok(())
    }
}

/// Why an inspection ended badly.
pub(crate) fn could_not_finish(why: &str) -> Failure {
    Failure::new(format!("Failed to finish inspection: {why}"))
}

/// What hooks, rules and flavours have to say, for the timeline.
pub(crate) fn told(findings: &Findings) -> impl Iterator<Item = Happening> {
    let worth = findings.notes.iter().filter(|note| note.level > Level::Debug);
    worth.map(|note| Happening::Noted { by: note.source.to_string(), text: note.text.clone() })
}

/// Writes the hardware, and what it is plugged into if the ramdisk listened.
pub(crate) fn write_inventory(
    tx: &mut Writer<'_>,
    id: NodeId,
    findings: &Findings,
) -> Result<(), store::Error> {
    let now = tx.now();
    tx.set_inventory(&Inventory {
        node_id: id,
        created_at: now,
        inventory: findings.inventory.clone(),
        plugin_data: findings.plugin_data.clone(),
        found: findings.found.clone(),
    })?;
    match &findings.neighbours {
        Some(heard) => tx.hear_neighbours(id, heard),
        // Nothing was heard because nobody listened: what was heard before may still hold.
        None => Ok(()),
    }
}

/// Members that hold secrets are masked on the node, so they are changed in what is sealed.
fn write_node(
    tx: &mut Writer<'_>,
    node: &mut Node,
    findings: &Findings,
) -> Result<(), store::Error> {
    let touches_secrets =
        [ObjectField::DriverInfo, ObjectField::InstanceInfo, ObjectField::DriverInternalInfo]
            .iter()
            .any(|field| findings.node.objects.contains_key(field));
    findings.node.apply_to(node);
    if touches_secrets {
        // The mask keeps what was sealed before; a new secret is in the clear here and is sealed.
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
    tx: &mut Writer<'_>,
    change: &PortChange,
    ports_before: &[Port],
) -> Result<(), store::Error> {
    match change {
        PortChange::Create(port) => {
            if tx.find::<Port>(PortColumn::Address, port.address().as_str())?.is_none() {
                tx.insert(&port.clone().into_port(PortId::random()))?;
            }
        }
        PortChange::Update(after) => {
            let before = ports_before.iter().find(|before| before.id == after.id);
            if let (Some(mut port), Some(before)) = (tx.get(after.id)?, before) {
                change_port(&mut port, before, after);
                tx.save(&mut port)?;
            }
        }
        PortChange::Delete(id, _) => {
            tx.delete(*id)?;
        }
    }
    Ok(())
}

/// Changes what the inspection changed and leaves what somebody else changed meanwhile.
fn change_port(port: &mut Port, before: &Port, after: &Port) {
    macro_rules! follow {
        ($($field:ident)*) => {$(
            if before.$field != after.$field {
                port.$field.clone_from(&after.$field);
            }
        )*};
    }
    follow! {
        name description pxe_enabled local_link_connection physical_network is_smartnic vendor
        category extra internal_info
    }
}

/// The data cannot be used: the inspection fails and says why.
fn reject(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: NodeId,
    message: &str,
    actor: &Actor,
) -> Result<bool, Error> {
    let mut node = get(tx, id)?;
    if node.provision_state != ProvisionState::InspectWait {
        return Ok(false);
    }
    let now = tx.now();
    let outcome = Outcome::Failed(could_not_finish(message));
    let mut ledger = Ledger::default();
    see_agent(&mut node, &mut ledger);
    ledger.append(record(&mut node, &Action::Inspect, &outcome, 0, &conductor.rules, now));
    write_ledger(tx, &mut node, ledger, actor, conductor.hostname())?;
    tx.save(&mut node)?;
    tx.wake(id);
    Ok(true)
}
