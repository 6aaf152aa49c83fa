// SPDX-License-Identifier: Apache-2.0
//! Building resource documents: common properties, links, collections, statuses.

use serde_json::{Map, Value, json};

use crate::machine::Health;

/// A resource document under construction.
#[derive(Debug)]
pub(super) struct ResourceDocument(Map<String, Value>);

impl ResourceDocument {
    /// Creates a document with the properties that every resource has.
    pub(super) fn new(path: &str, schema: &'static str, id: &str, name: &str) -> Self {
        let mut fields = Map::new();
        fields.insert("@odata.id".to_owned(), path.into());
        fields.insert("@odata.type".to_owned(), schema.into());
        fields.insert("Id".to_owned(), id.into());
        fields.insert("Name".to_owned(), name.into());
        Self(fields)
    }

    /// Sets a property.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Sets all properties of an object.
    pub(super) fn extend(&mut self, fields: Value) -> &mut Self {
        if let Value::Object(fields) = fields {
            self.0.extend(fields);
        }
        self
    }

    /// Sets all properties of an object; objects are merged with those that exist.
    pub(super) fn merge(&mut self, fields: Value) -> &mut Self {
        if let Value::Object(fields) = fields {
            merge_into(&mut self.0, fields);
        }
        self
    }

    /// Sets a property that links to another resource.
    pub(super) fn link(&mut self, name: &str, path: String) -> &mut Self {
        self.set(name, link(path))
    }

    /// Returns the document as JSON.
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn merge_into(target: &mut Map<String, Value>, fields: Map<String, Value>) {
    for (name, value) in fields {
        match (target.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(fields)) => merge_into(known, fields),
            (_, value) => drop(target.insert(name, value)),
        }
    }
}

/// Returns a link to another resource.
pub(super) fn link(path: impl Into<String>) -> Value {
    let path: String = path.into();
    let mut fields = Map::new();
    fields.insert("@odata.id".to_owned(), path.into());
    Value::Object(fields)
}

/// Returns a collection resource.
pub(super) fn collection(
    path: &str,
    schema: &'static str,
    name: &str,
    members: impl Iterator<Item = String>,
) -> Value {
    let members: Vec<Value> = members.map(link).collect();
    json!({
        "@odata.id": path,
        "@odata.type": schema,
        "Name": name,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

/// Returns the status of an enabled resource.
pub(super) fn status(health: Health) -> Value {
    json!({"State": "Enabled", "Health": health.name()})
}

/// Removes the property at a JSON pointer.
pub(super) fn remove(document: &mut Value, pointer: &str) {
    if let Some((parent, last)) = pointer.rsplit_once('/')
        && let Some(Value::Object(fields)) = document.pointer_mut(parent)
    {
        fields.remove(last);
    }
}

/// Adds a trailing slash to every link, as some vendors do.
pub(super) fn end_links_with_slash(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(path)) = fields.get_mut("@odata.id")
                && !path.contains('#')
                && !path.ends_with('/')
            {
                path.push('/');
            }
            fields.values_mut().for_each(end_links_with_slash);
        }
        Value::Array(values) => values.iter_mut().for_each(end_links_with_slash),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
