// SPDX-License-Identifier: Apache-2.0
//! Tests of whole reports: what each hook and each rule makes of the samples.

mod flavours;
mod hooks;
mod hostile;
mod rules;
mod strangers;

use std::fmt::Write as _;

use node_model::{
    Flavour, InspectionRule, Inventory, JsonArray, JsonObject, Node, NodeId, Port, PortId, RuleId,
    Sensitive, Timestamp,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    Context, Findings, FlavourSet, HookError, PortChange, Report, RuleSet, Settings, parse_hooks,
    process,
};

const SERVER: &str = include_str!("../../samples/server.json");
const BENCH: &str = include_str!("../../samples/bench.json");
const NOW: Timestamp = Timestamp(1_795_001_049_000_000);

/// A report and everything it is judged by, to be varied.
struct Case {
    node: Node,
    ports: Vec<Port>,
    report: Value,
    previous: Option<Inventory>,
    settings: Settings,
    rules: Vec<InspectionRule>,
    flavours: Vec<Flavour>,
}

impl Case {
    fn new(report: &str, hooks: &str) -> Self {
        Self {
            node: Node::new(NodeId(Uuid::from_u128(1)), "ipmi", Timestamp(0)),
            ports: Vec::new(),
            report: serde_json::from_str(report).unwrap(),
            previous: None,
            settings: Settings { hooks: parse_hooks(hooks).unwrap(), ..Settings::default() },
            rules: Vec::new(),
            flavours: Vec::new(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn properties(self, properties: Value) -> Self {
        self.with(|case| case.node.properties = object(properties))
    }

    fn port(mut self, number: u128, address: &str) -> Self {
        let id = PortId(Uuid::from_u128(number));
        self.ports.push(Port::new(id, self.node.id, address.parse().unwrap(), Timestamp(0)));
        self
    }

    fn rule(mut self, conditions: Value, actions: Value) -> Self {
        let number = 100 + self.rules.len() as u128;
        self.rules.push(InspectionRule {
            id: RuleId(Uuid::from_u128(number)),
            created_at: Timestamp(0),
            updated_at: None,
            description: None,
            priority: 0,
            phase: Some("main".to_owned()),
            sensitive: Sensitive::No,
            conditions: array(conditions),
            actions: array(actions),
        });
        self
    }

    fn process(&self) -> Result<Findings, HookError> {
        let report = Report::from_value(self.report.clone()).unwrap();
        let rules = RuleSet::compile(&self.rules).unwrap();
        let context = Context {
            node: &self.node,
            ports: &self.ports,
            report: &report,
            previous: self.previous.as_ref(),
            settings: &self.settings,
            rules: &rules,
            flavours: &FlavourSet::compile(&self.flavours).0,
            now: NOW,
        };
        process(&context)
    }

    /// The changes and the notes, or the failure, in lines.
    fn story(&self) -> String {
        let findings = match self.process() {
            Ok(findings) => findings,
            Err(error) => return format!("failed: {}\n", error.full_message()),
        };
        let mut story = changes(&findings);
        for note in &findings.notes {
            writeln!(story, "{:?}: {}", note.level, note.text).unwrap();
        }
        story
    }
}

fn changes(findings: &Findings) -> String {
    let mut story = String::new();
    for (field, members) in &findings.node.objects {
        for (key, value) in members {
            let value = value.as_ref().map_or_else(|| "(gone)".to_owned(), Value::to_string);
            writeln!(story, "{}/{key} = {value}", field.as_str()).unwrap();
        }
    }
    for (name, value) in &findings.node.fields {
        writeln!(story, "{name} = {value}").unwrap();
    }
    if let Some(traits) = &findings.node.traits {
        writeln!(story, "traits = {traits:?}").unwrap();
    }
    for change in &findings.ports {
        let (what, port) = match change {
            PortChange::Create(port) => ("create", port.clone().into_port(PortId(Uuid::nil()))),
            PortChange::Update(port) => ("update", (**port).clone()),
            PortChange::Delete(_, address) => {
                writeln!(story, "delete port {address}").unwrap();
                continue;
            }
        };
        writeln!(
            story,
            "{what} port {} pxe={} link={:?} physical={:?} extra={:?} name={:?}",
            port.address,
            port.pxe_enabled,
            port.local_link_connection,
            port.physical_network,
            port.extra,
            port.name,
        )
        .unwrap();
    }
    story
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone().into()
}

fn array(value: Value) -> JsonArray {
    value.as_array().unwrap().clone().into()
}

fn inventory_with_serials(serials: &[&str]) -> Inventory {
    let disks: Vec<Value> = serials.iter().map(|serial| json!({"serial": serial})).collect();
    Inventory {
        node_id: NodeId(Uuid::from_u128(1)),
        created_at: Timestamp(0),
        inventory: object(json!({"disks": disks})),
        plugin_data: JsonObject::empty(),
        found: JsonObject::empty(),
    }
}
