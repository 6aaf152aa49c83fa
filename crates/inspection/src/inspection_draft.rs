// SPDX-License-Identifier: Apache-2.0
//! The working copy of a node that hooks, rules and flavours modify.
//!
//! Each hook and rule reads the changes of those before it. The result contains only differences
//! from the stored node, so a hook that sets an unchanged value has no effect.

use std::collections::BTreeMap;

use node_model::{Inventory, JsonObject, Mac, Node, Port, PortId, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::attributes::{self, AttributeError};
use crate::capabilities::{Capabilities, CapabilitiesError};
use crate::derived_values::DerivedValues;
use crate::inspection_result::{
    ApiCall, InspectedNodeChanges, InspectionLogEntry, InspectionLogLevel, InspectionLogSource,
    InspectionResult, NewPort, ObjectField, PortChange,
};
use crate::{
    ExistingProperties, HardwareReport, InspectionSettings, ReportContext, ReportedInterface, lldp,
};

/// Longer log entries are truncated.
const MAX_LOG_TEXT_CHARS: usize = 1000;

pub(crate) struct InspectionDraft<'a> {
    pub(crate) node: &'a Node,
    pub(crate) report: &'a HardwareReport,
    pub(crate) settings: &'a InspectionSettings,
    pub(crate) previous: Option<&'a Inventory>,
    pub(crate) plugin_data: Map<String, Value>,
    /// The result of the hook `validate-interfaces`.
    pub(crate) interfaces: Vec<ValidatedInterface<'a>>,
    pub(crate) ports: Vec<DraftPort<'a>>,
    pub(crate) traits: Vec<String>,
    pub(crate) api_calls: Vec<ApiCall>,
    pub(crate) source: InspectionLogSource,
    /// Values derived by the last inspection.
    pub(crate) previously_derived: DerivedValues,
    /// Values derived by this inspection.
    pub(crate) derived: DerivedValues,
    objects: BTreeMap<ObjectField, ObjectDraft>,
    fields: BTreeMap<&'static str, Value>,
    log_entries: Vec<InspectionLogEntry>,
    now: Timestamp,
}

/// A NIC with a name and a valid MAC address.
pub(crate) struct ValidatedInterface<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: Mac,
    pub(crate) interface: ReportedInterface<'a>,
    /// True if the machine booted from it.
    pub(crate) pxe_enabled: bool,
    /// True if the setting `add_ports` selects it.
    pub(crate) selected: bool,
}

pub(crate) struct DraftPort<'a> {
    /// The stored port; `None` for a new one.
    original: Option<&'a Port>,
    pub(crate) port: Port,
    pub(crate) deleted: bool,
}

struct ObjectDraft {
    original: Map<String, Value>,
    current: Map<String, Value>,
}

impl<'a> InspectionDraft<'a> {
    pub(crate) fn new(context: &ReportContext<'a>, source: InspectionLogSource) -> Self {
        Self {
            node: context.node,
            report: context.report,
            settings: context.settings,
            previous: context.previous,
            plugin_data: context.report.plugin_data().clone(),
            interfaces: Vec::new(),
            ports: context.ports.iter().map(DraftPort::existing).collect(),
            traits: context.node.traits.clone(),
            api_calls: Vec::new(),
            source,
            previously_derived: context
                .previous
                .map(DerivedValues::from_inventory)
                .unwrap_or_default(),
            derived: DerivedValues::default(),
            objects: BTreeMap::new(),
            fields: BTreeMap::new(),
            log_entries: Vec::new(),
            now: context.now,
        }
    }

    /// Returns a free-form object of the node, with the changes so far.
    pub(crate) fn object(&mut self, field: ObjectField) -> &mut Map<String, Value> {
        let node = self.node;
        let draft = self.objects.entry(field).or_insert_with(|| {
            let original = field.get(node).parse();
            ObjectDraft { current: original.clone(), original }
        });
        &mut draft.current
    }

    /// Returns an attribute of the node, with the changes so far. Secrets are masked.
    pub(crate) fn attribute(&self, name: &str) -> Option<Value> {
        if let Some(field) = ObjectField::from_name(name) {
            return Some(match self.objects.get(&field) {
                Some(draft) => draft.current.clone().into(),
                None => field.get(self.node).parse().into(),
            });
        }
        if name == "traits" {
            return Some(self.traits.clone().into());
        }
        self.fields.get(name).cloned().or_else(|| attributes::read(self.node, name))
    }

    pub(crate) fn set_attribute(
        &mut self,
        name: &str,
        value: &Value,
    ) -> Result<(), AttributeError> {
        let (name, value) = attributes::convert(name, value)?;
        self.fields.insert(name, value);
        Ok(())
    }

    /// Returns true if hooks keep existing values.
    pub(crate) fn keeps_existing(&self) -> bool {
        self.settings.existing_properties == ExistingProperties::Keep
    }

    /// Sets a property derived by a hook, if the settings permit, and logs it.
    pub(crate) fn set_property(&mut self, key: &str, value: Value) {
        self.set_derived_property(key, value, self.keeps_existing());
    }

    /// Sets a property. With `keep_existing`, a value not derived by the last inspection is kept.
    pub(crate) fn set_derived_property(&mut self, key: &str, value: Value, keep_existing: bool) {
        let origin = self.source.value_origin();
        let previous = self.previously_derived.properties.get(key).cloned();
        self.derived.properties.insert(key.to_owned(), value.clone());
        let properties = self.object(ObjectField::Properties);
        match properties.get(key).filter(|old| !old.is_null()) {
            Some(old) if *old == value => {
                self.log(InspectionLogLevel::Debug, format!("properties/{key} is still {value}"));
            }
            Some(old) if keep_existing && previous.as_ref() != Some(old) => {
                let text = format!("kept properties/{key} = {old}; {origin} has {value}");
                self.log(InspectionLogLevel::Warning, text);
            }
            Some(_) | None => {
                let text = format!("set properties/{key} to {value}");
                properties.insert(key.to_owned(), value);
                self.log(InspectionLogLevel::Info, text);
            }
        }
    }

    /// Sets capabilities derived by a hook, each if the settings permit, and logs them.
    pub(crate) fn set_capabilities(
        &mut self,
        capabilities: &[(String, String)],
    ) -> Result<(), CapabilitiesError> {
        self.set_derived_capabilities(capabilities, self.keeps_existing())
    }

    /// Sets capabilities. With `keep_existing`, a value not derived by the last inspection is kept.
    pub(crate) fn set_derived_capabilities(
        &mut self,
        new: &[(String, String)],
        keep_existing: bool,
    ) -> Result<(), CapabilitiesError> {
        let origin = self.source.value_origin();
        let mut capabilities = self.capabilities()?;
        let mut written = Vec::new();
        for (name, value) in new {
            let previous = self.previously_derived.capabilities.get(name).and_then(Value::as_str);
            self.derived.capabilities.insert(name.clone(), value.clone().into());
            match capabilities.get(name) {
                Some(old) if old == value => {}
                Some(old) if keep_existing && previous != Some(old) => {
                    let text = format!("kept capability {name}:{old}; {origin} has {value}");
                    self.log(InspectionLogLevel::Warning, text);
                }
                Some(_) | None => {
                    capabilities.set(name, value);
                    written.push(format!("{name}:{value}"));
                }
            }
        }
        if !written.is_empty() {
            self.write_capabilities(&capabilities);
            self.log(InspectionLogLevel::Info, format!("set capabilities {}", written.join(",")));
        }
        Ok(())
    }

    pub(crate) fn capabilities(&mut self) -> Result<Capabilities, CapabilitiesError> {
        let text = self.object(ObjectField::Properties).get("capabilities").and_then(Value::as_str);
        Capabilities::parse(text.unwrap_or_default())
    }

    pub(crate) fn write_capabilities(&mut self, capabilities: &Capabilities) {
        let text = capabilities.to_property();
        self.object(ObjectField::Properties).insert("capabilities".to_owned(), text.into());
    }

    /// Returns the port with this MAC address, unless it is marked for deletion.
    pub(crate) fn port_by_mac(&mut self, mac: &Mac) -> Option<&mut Port> {
        let existing =
            self.ports.iter_mut().find(|port| !port.deleted && port.port.address == *mac);
        existing.map(|draft| &mut draft.port)
    }

    pub(crate) fn add_port(&mut self, address: Mac, pxe_enabled: bool, extra: JsonObject) {
        // The caller assigns the id, see `NewPort::into_port`.
        let id = PortId(Uuid::nil());
        let port = Port { pxe_enabled, extra, ..Port::new(id, self.node.id, address, self.now) };
        self.ports.push(DraftPort { original: None, port, deleted: false });
    }

    pub(crate) fn log(&mut self, level: InspectionLogLevel, mut text: String) {
        // The ramdisk controls parts of the text: bound its size in the timeline.
        if let Some((end, _)) = text.char_indices().nth(MAX_LOG_TEXT_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        self.log_entries.push(InspectionLogEntry { source: self.source, level, text });
    }

    /// Returns the differences from the stored node.
    pub(crate) fn into_result(self) -> InspectionResult {
        let mut fields = self.fields;
        fields.retain(|name, value| attributes::read(self.node, name).as_ref() != Some(&*value));
        let objects = self
            .objects
            .into_iter()
            .map(|(field, draft)| (field, draft.changes()))
            .filter(|(_, members)| !members.is_empty())
            .collect();
        let traits = (self.traits != self.node.traits).then_some(self.traits);
        InspectionResult {
            node: InspectedNodeChanges { objects, fields, traits },
            ports: self.ports.into_iter().filter_map(|port| port.change(self.now)).collect(),
            inventory: to_json_object(self.report.inventory()),
            plugin_data: to_json_object(&self.plugin_data),
            derived: self.derived.to_json(),
            neighbours: lldp::neighbours(self.report),
            api_calls: self.api_calls,
            log: self.log_entries,
        }
    }
}

impl<'a> DraftPort<'a> {
    fn existing(port: &'a Port) -> Self {
        Self { original: Some(port), port: port.clone(), deleted: false }
    }

    pub(crate) fn is_new(&self) -> bool {
        self.original.is_none()
    }

    fn change(mut self, now: Timestamp) -> Option<PortChange> {
        match self.original {
            None if self.deleted => None,
            None => Some(PortChange::Create(NewPort(Box::new(self.port)))),
            Some(original) if self.deleted => {
                Some(PortChange::Delete(original.id, original.address.clone()))
            }
            Some(original) if *original == self.port => None,
            Some(_) => {
                self.port.updated_at = Some(now);
                Some(PortChange::Update(Box::new(self.port)))
            }
        }
    }
}

impl ObjectDraft {
    fn changes(self) -> BTreeMap<String, Option<Value>> {
        let Self { original, current } = self;
        let removed = original.keys().filter(|key| !current.contains_key(*key));
        let mut changes: BTreeMap<_, _> = removed.map(|key| (key.clone(), None)).collect();
        for (key, value) in current {
            if original.get(&key) != Some(&value) {
                changes.insert(key, Some(value));
            }
        }
        changes
    }
}

fn to_json_object(object: &Map<String, Value>) -> JsonObject {
    // Maps with string keys always serialize.
    JsonObject::from_stored(&serde_json::to_string(object).unwrap_or_default())
}
