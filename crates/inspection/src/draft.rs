// SPDX-License-Identifier: Apache-2.0
//! The node as it would be, while hooks and rules work on it.
//!
//! Hooks and rules see each other's changes here. What differs from the node in the end becomes
//! the findings, so a hook that finds what is known already changes nothing.

use std::collections::BTreeMap;

use node_model::{Inventory, JsonObject, Mac, Node, Port, PortId, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::attributes::{self, AttributeError};
use crate::capabilities::{Capabilities, MalformedCapabilities};
use crate::findings::{
    ApiCall, Findings, Level, NewPort, NodeChanges, Note, ObjectField, PortChange, Source,
};
use crate::found::Found;
use crate::{Context, ExistingProperties, Interface, Report, Settings, lldp};

/// Longer than any note worth reading.
const MAX_NOTE_CHARS: usize = 1000;

pub(crate) struct Draft<'a> {
    pub(crate) node: &'a Node,
    pub(crate) report: &'a Report,
    pub(crate) settings: &'a Settings,
    pub(crate) previous: Option<&'a Inventory>,
    pub(crate) plugin_data: Map<String, Value>,
    /// What `validate-interfaces` found.
    pub(crate) interfaces: Vec<FoundInterface<'a>>,
    pub(crate) ports: Vec<DraftPort<'a>>,
    pub(crate) traits: Vec<String>,
    pub(crate) calls: Vec<ApiCall>,
    pub(crate) source: Source,
    /// What the last inspection found.
    pub(crate) found_before: Found,
    /// What this one finds.
    pub(crate) found: Found,
    objects: BTreeMap<ObjectField, ObjectDraft>,
    fields: BTreeMap<&'static str, Value>,
    notes: Vec<Note>,
    now: Timestamp,
}

/// A network card with a name and a valid address.
pub(crate) struct FoundInterface<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: Mac,
    pub(crate) interface: Interface<'a>,
    /// Whether the machine booted from it.
    pub(crate) pxe_enabled: bool,
    /// Whether a port is wanted for it.
    pub(crate) valid: bool,
}

pub(crate) struct DraftPort<'a> {
    /// As it is in the database; none for a new one.
    original: Option<&'a Port>,
    pub(crate) port: Port,
    pub(crate) deleted: bool,
}

struct ObjectDraft {
    original: Map<String, Value>,
    current: Map<String, Value>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(context: &Context<'a>, source: Source) -> Self {
        Self {
            node: context.node,
            report: context.report,
            settings: context.settings,
            previous: context.previous,
            plugin_data: context.report.plugin_data().clone(),
            interfaces: Vec::new(),
            ports: context.ports.iter().map(DraftPort::existing).collect(),
            traits: context.node.traits.clone(),
            calls: Vec::new(),
            source,
            found_before: context.previous.map(Found::of).unwrap_or_default(),
            found: Found::default(),
            objects: BTreeMap::new(),
            fields: BTreeMap::new(),
            notes: Vec::new(),
            now: context.now,
        }
    }

    /// A free-form object of the node, with the changes so far.
    pub(crate) fn object(&mut self, field: ObjectField) -> &mut Map<String, Value> {
        let node = self.node;
        let draft = self.objects.entry(field).or_insert_with(|| {
            let original = field.of(node).parse();
            ObjectDraft { current: original.clone(), original }
        });
        &mut draft.current
    }

    /// An attribute of the node, with the changes so far. Secrets are masked, as in the node.
    pub(crate) fn attribute(&self, name: &str) -> Option<Value> {
        if let Some(field) = ObjectField::named(name) {
            return Some(match self.objects.get(&field) {
                Some(draft) => draft.current.clone().into(),
                None => field.of(self.node).parse().into(),
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
        let (name, value) = attributes::accept(name, value)?;
        self.fields.insert(name, value);
        Ok(())
    }

    /// Whether hooks leave alone what is there already.
    pub(crate) fn keeps(&self) -> bool {
        self.settings.existing_properties == ExistingProperties::Keep
    }

    /// Sets a property that a hook found, if the settings let it, and says so.
    pub(crate) fn set_property(&mut self, key: &str, value: Value) {
        self.put_property(key, value, self.keeps());
    }

    /// Sets a property. If `keep`, one that is there stays, unless the last inspection found it.
    pub(crate) fn put_property(&mut self, key: &str, value: Value, keep: bool) {
        let who = self.source.speaker();
        let ours = self.found_before.properties.get(key).cloned();
        self.found.properties.insert(key.to_owned(), value.clone());
        let properties = self.object(ObjectField::Properties);
        match properties.get(key).filter(|old| !old.is_null()) {
            Some(old) if *old == value => {
                self.note(Level::Debug, format!("properties/{key} is still {value}"));
            }
            Some(old) if keep && ours.as_ref() != Some(old) => {
                let text = format!("properties/{key} stays {old}; {who} says {value}");
                self.note(Level::Warning, text);
            }
            Some(_) | None => {
                let text = format!("set properties/{key} to {value}");
                properties.insert(key.to_owned(), value);
                self.note(Level::Info, text);
            }
        }
    }

    /// Sets capabilities that a hook found, each if the settings let it, and says so.
    pub(crate) fn set_capabilities(
        &mut self,
        found: &[(String, String)],
    ) -> Result<(), MalformedCapabilities> {
        self.put_capabilities(found, self.keeps())
    }

    /// Sets capabilities. If `keep`, one that is there stays, unless the last inspection found it.
    pub(crate) fn put_capabilities(
        &mut self,
        found: &[(String, String)],
        keep: bool,
    ) -> Result<(), MalformedCapabilities> {
        let who = self.source.speaker();
        let mut capabilities = self.capabilities()?;
        let mut written = Vec::new();
        for (name, value) in found {
            let ours = self.found_before.capabilities.get(name).and_then(Value::as_str);
            self.found.capabilities.insert(name.clone(), value.clone().into());
            match capabilities.get(name) {
                Some(old) if old == value => {}
                Some(old) if keep && ours != Some(old) => {
                    let text = format!("capability {name} stays {old}; {who} says {value}");
                    self.note(Level::Warning, text);
                }
                Some(_) | None => {
                    capabilities.set(name, value);
                    written.push(format!("{name}:{value}"));
                }
            }
        }
        if !written.is_empty() {
            self.write_capabilities(&capabilities);
            self.note(Level::Info, format!("set capabilities {}", written.join(",")));
        }
        Ok(())
    }

    pub(crate) fn capabilities(&mut self) -> Result<Capabilities, MalformedCapabilities> {
        let text = self.object(ObjectField::Properties).get("capabilities").and_then(Value::as_str);
        Capabilities::parse(text.unwrap_or_default())
    }

    pub(crate) fn write_capabilities(&mut self, capabilities: &Capabilities) {
        let text = capabilities.text();
        self.object(ObjectField::Properties).insert("capabilities".to_owned(), text.into());
    }

    /// The port with this address that is not about to be deleted.
    pub(crate) fn port_with(&mut self, address: &Mac) -> Option<&mut Port> {
        let found =
            self.ports.iter_mut().find(|port| !port.deleted && port.port.address == *address);
        found.map(|draft| &mut draft.port)
    }

    pub(crate) fn add_port(&mut self, address: Mac, pxe_enabled: bool, extra: JsonObject) {
        // The caller gives the id; see `NewPort::into_port`.
        let id = PortId(Uuid::nil());
        let port = Port { pxe_enabled, extra, ..Port::new(id, self.node.id, address, self.now) };
        self.ports.push(DraftPort { original: None, port, deleted: false });
    }

    pub(crate) fn note(&mut self, level: Level, mut text: String) {
        // A ramdisk chooses many of the words; it shall not fill the timeline with them.
        if let Some((end, _)) = text.char_indices().nth(MAX_NOTE_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        self.notes.push(Note { source: self.source, level, text });
    }

    /// What differs from the node.
    pub(crate) fn finish(self) -> Findings {
        let mut fields = self.fields;
        fields.retain(|name, value| attributes::read(self.node, name).as_ref() != Some(&*value));
        let objects = self
            .objects
            .into_iter()
            .map(|(field, draft)| (field, draft.changes()))
            .filter(|(_, members)| !members.is_empty())
            .collect();
        let traits = (self.traits != self.node.traits).then_some(self.traits);
        Findings {
            node: NodeChanges { objects, fields, traits },
            ports: self.ports.into_iter().filter_map(|port| port.change(self.now)).collect(),
            inventory: stored(self.report.inventory()),
            plugin_data: stored(&self.plugin_data),
            found: self.found.stored(),
            neighbours: lldp::neighbours(self.report),
            calls: self.calls,
            notes: self.notes,
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

fn stored(object: &Map<String, Value>) -> JsonObject {
    // Keys are strings, so writing cannot fail; were it to, the object would count as empty.
    JsonObject::from_stored(&serde_json::to_string(object).unwrap_or_default())
}
