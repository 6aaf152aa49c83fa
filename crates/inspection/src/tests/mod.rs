// SPDX-License-Identifier: Apache-2.0
//! Tests that process complete reports from the samples.

mod flavours;
mod hooks;
mod inventory_summary;
mod rules;
mod untrusted_input;

use std::fmt::Write as _;

use error_chain::error_chain;
use node_model::{
    Flavour, InspectionRule, Inventory, JsonArray, JsonObject, Node, NodeId, Port, PortId, RuleId,
    Sensitive, Timestamp,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    FlavourSet, HardwareReport, InspectionResult, InspectionSettings, PortChange, ProcessError,
    ReportContext, RuleSet, parse_hooks, process_report,
};

const SERVER: &str = include_str!("../../samples/server.json");
const BENCH: &str = include_str!("../../samples/bench.json");
const NOW: Timestamp = Timestamp(1_795_001_049_000_000);

/// The input of an inspection, for a test to modify.
struct InspectionCase {
    node: Node,
    ports: Vec<Port>,
    report: Value,
    previous: Option<Inventory>,
    settings: InspectionSettings,
    rules: Vec<InspectionRule>,
    flavours: Vec<Flavour>,
}

impl InspectionCase {
    fn new(report: &str, hooks: &str) -> Self {
        Self {
            node: Node::new(NodeId(Uuid::from_u128(1)), "ipmi", Timestamp(0)),
            ports: Vec::new(),
            report: serde_json::from_str(report).unwrap(),
            previous: None,
            settings: InspectionSettings {
                hooks: parse_hooks(hooks).unwrap(),
                ..InspectionSettings::default()
            },
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

    fn process(&self) -> Result<InspectionResult, ProcessError> {
        let report = HardwareReport::from_value(self.report.clone()).unwrap();
        let rules = RuleSet::compile(&self.rules).unwrap();
        let context = ReportContext {
            node: &self.node,
            ports: &self.ports,
            report: &report,
            previous: self.previous.as_ref(),
            settings: &self.settings,
            rules: &rules,
            flavours: &FlavourSet::compile(&self.flavours).0,
            now: NOW,
        };
        process_report(&context)
    }

    /// Returns the changes and the log, or the error, as lines of text.
    fn outcome_text(&self) -> String {
        let result = match self.process() {
            Ok(result) => result,
            Err(error) => return format!("failed: {}\n", error_chain(&error)),
        };
        let mut text = changes_text(&result);
        for entry in &result.log {
            writeln!(text, "{:?}: {}", entry.level, entry.text).unwrap();
        }
        text
    }
}

fn changes_text(result: &InspectionResult) -> String {
    let mut text = String::new();
    for (field, members) in &result.node.objects {
        for (key, value) in members {
            let value = value.as_ref().map_or_else(|| "(removed)".to_owned(), Value::to_string);
            writeln!(text, "{}/{key} = {value}", field.as_str()).unwrap();
        }
    }
    for (name, value) in &result.node.fields {
        writeln!(text, "{name} = {value}").unwrap();
    }
    if let Some(traits) = &result.node.traits {
        writeln!(text, "traits = {traits:?}").unwrap();
    }
    for change in &result.ports {
        let (operation, port) = match change {
            PortChange::Create(port) => ("create", port.clone().into_port(PortId(Uuid::nil()))),
            PortChange::Update(port) => ("update", (**port).clone()),
            PortChange::Delete(_, address) => {
                writeln!(text, "delete port {address}").unwrap();
                continue;
            }
        };
        writeln!(
            text,
            "{operation} port {} pxe={} link={:?} physical={:?} extra={:?} name={:?}",
            port.address,
            port.pxe_enabled,
            port.local_link_connection,
            port.physical_network,
            port.extra,
            port.name,
        )
        .unwrap();
    }
    text
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
        derived: JsonObject::empty(),
    }
}
