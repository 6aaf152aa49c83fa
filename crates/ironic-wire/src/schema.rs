// SPDX-License-Identifier: Apache-2.0
//! JSON schemas of the resources, generated from their field tables, for the OpenAPI document.

use serde_json::{Map, Value, json};

use crate::field::{FieldShape, NEVER_SHOWN, ResourceField, WireResource};

/// Schema of a resource in a response.
#[must_use]
pub fn shown_schema<R: WireResource>() -> Value {
    let properties: Map<String, Value> = R::fields()
        .iter()
        .filter(|field| field.since != NEVER_SHOWN)
        .map(|field| {
            let mut schema = field_schema(field);
            schema.insert("x-since".to_owned(), format!("1.{}", field.since).into());
            (field.name.to_owned(), Value::Object(schema))
        })
        .collect();
    json!({"type": "object", "properties": properties})
}

/// Schema of the body of a `POST`.
#[must_use]
pub fn create_schema<R: WireResource>() -> Value {
    let properties: Map<String, Value> = R::fields()
        .iter()
        .filter_map(|field| {
            let since = field.create?;
            let mut schema = field_schema(field);
            schema.insert("x-since".to_owned(), format!("1.{since}").into());
            Some((field.name.to_owned(), Value::Object(schema)))
        })
        .collect();
    let required: Vec<&str> =
        R::fields().iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Schema of a list of the resource.
#[must_use]
pub fn list_schema<R: WireResource>(item: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            R::COLLECTION: {"type": "array", "items": item},
            "next": {"type": "string", "format": "uri"},
        },
        "required": [R::COLLECTION],
    })
}

/// Schema of the body of a `PATCH`. The allowed paths are in the description.
#[must_use]
pub fn patch_schema<R: WireResource>() -> Value {
    let paths: Vec<String> = R::fields()
        .iter()
        .filter(|field| field.patch.is_some())
        .map(|field| format!("/{}", field.name))
        .collect();
    json!({
        "type": "array",
        "description": format!("Paths start with one of: {}", paths.join(", ")),
        "items": {
            "type": "object",
            "properties": {
                "op": {"enum": ["add", "replace", "remove"]},
                "path": {"type": "string", "pattern": r"^(/[\w~-]+)+$"},
                "value": {},
            },
            "required": ["op", "path"],
            "additionalProperties": false,
        },
    })
}

fn field_schema<R: WireResource>(field: &ResourceField<R>) -> Map<String, Value> {
    let (kind, more) = match field.shape {
        FieldShape::Uuid => ("string", json!({"format": "uuid"})),
        FieldShape::Text => ("string", json!({})),
        FieldShape::Boolean => ("boolean", json!({})),
        FieldShape::Integer => ("integer", json!({})),
        FieldShape::Timestamp => ("string", json!({"format": "date-time"})),
        FieldShape::Object => ("object", json!({})),
        FieldShape::TextList => ("array", json!({"items": {"type": "string"}})),
        FieldShape::ObjectList => ("array", json!({"items": {"type": "object"}})),
        FieldShape::Links => (
            "array",
            json!({"items": {
                "type": "object",
                "properties": {"href": {"type": "string"}, "rel": {"type": "string"}},
            }}),
        ),
    };
    let mut schema = Map::new();
    let type_value = if field.nullable { json!([kind, "null"]) } else { json!(kind) };
    schema.insert("type".to_owned(), type_value);
    if let Value::Object(more) = more {
        schema.extend(more);
    }
    schema
}
