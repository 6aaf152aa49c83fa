// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document, generated from the route table and the field tables.
//!
//! Nobody writes it by hand: it is checked in as `docs/openapi.json`, and a test fails when it is
//! not what the tables say.

use http::Method;
use ironic_wire::{ApiVersion, create_schema, list_schema, patch_schema, shown_schema};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup, Runbook,
    VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::handler;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, TABLES, UNVERSIONED};

pub(crate) const ROUTES: &[Route] =
    &[Route::get("/v1/ferrite/openapi", "Show this document", handler!(show)).since(UNVERSIONED)];

/// The OpenAPI document of the API's own routes.
#[must_use]
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in TABLES.iter().copied().flatten() {
        let place = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(methods) = place {
            methods.insert(route.method.as_str().to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ferrite",
            "description": "Bare metal provisioning that speaks the OpenStack Ironic API. \
                            `x-since` is the microversion that brought something.",
            "version": ApiVersion::MAX.to_string(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "parameters": {"version": version_parameter()},
            "responses": {"refusal": refusal()},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    })
}

async fn show(_call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(openapi().to_string().into_bytes()))
}

/// A kind of resource in the document.
struct Kind {
    /// The path of its collection, as the end of a route's path.
    path: &'static str,
    name: &'static str,
    shown: fn() -> Value,
    create: Option<fn() -> Value>,
    patch: Option<fn() -> Value>,
    list: fn(&Value) -> Value,
}

macro_rules! kinds {
    ($($kind:ty, $name:literal $(, $written:tt)?;)*) => {
        &[$(Kind {
            path: <$kind as ironic_wire::Resource>::PATH,
            name: $name,
            shown: shown_schema::<$kind>,
            create: kinds!(@create $kind $(, $written)?),
            patch: kinds!(@patch $kind $(, $written)?),
            list: list_schema::<$kind>,
        }),*]
    };
    (@create $kind:ty) => { None };
    (@create $kind:ty, written) => { Some(create_schema::<$kind>) };
    (@patch $kind:ty) => { None };
    (@patch $kind:ty, written) => { Some(patch_schema::<$kind>) };
}

const KINDS: &[Kind] = kinds! {
    Node, "Node", written;
    Port, "Port", written;
    Portgroup, "Portgroup", written;
    Chassis, "Chassis", written;
    Allocation, "Allocation", written;
    DeployTemplate, "DeployTemplate", written;
    Runbook, "Runbook", written;
    InspectionRule, "InspectionRule", written;
    VolumeConnector, "VolumeConnector", written;
    VolumeTarget, "VolumeTarget", written;
    ironic_wire::ConductorView, "Conductor";
    ironic_wire::DriverView, "Driver";
};

fn schemas() -> Value {
    let mut schemas = Map::new();
    for kind in KINDS {
        let name = |suffix: &str| format!("{}{suffix}", kind.name);
        schemas.insert(name(""), (kind.shown)());
        schemas.insert(name("List"), (kind.list)(&reference(kind.name, "")));
        if let Some(create) = kind.create {
            schemas.insert(name("Create"), create());
        }
        if let Some(patch) = kind.patch {
            schemas.insert(name("Patch"), patch());
        }
    }
    Value::Object(schemas)
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for segment in route.path.split('/') {
        if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            parameters.push(json!({
                "name": name, "in": "path", "required": true, "schema": {"type": "string"},
            }));
        }
    }
    for name in route.query {
        parameters.push(json!({"name": name, "in": "query", "schema": {"type": "string"}}));
    }
    let mut operation = json!({
        "summary": route.summary,
        "responses": {"2XX": success(route)},
    });
    if route.since != UNVERSIONED {
        parameters.push(json!({"$ref": "#/components/parameters/version"}));
        operation["x-since"] = json!(format!("1.{}", route.since));
        operation["responses"]["default"] = json!({"$ref": "#/components/responses/refusal"});
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = body(route) {
        operation["requestBody"] = json!({"content": {"application/json": {"schema": body}}});
    }
    operation["security"] = match route.access {
        Access::Public => json!([]),
        Access::Authenticated => json!([{"basic": []}]),
        Access::Metrics => json!([{}, {"basic": []}]),
    };
    operation
}

/// The kind of resource a path is about, and whether it is a list of them or one.
fn subject(path: &str) -> Option<(&'static Kind, Place)> {
    let (path, place) = match path.rsplit_once('/') {
        Some((before, "detail")) => (before, Place::List),
        Some((before, last)) if last.starts_with('{') => (before, Place::One),
        Some(_) | None => (path, Place::List),
    };
    let kind = KINDS
        .iter()
        .find(|kind| path.strip_suffix(kind.path).is_some_and(|before| before.ends_with('/')))?;
    Some((kind, place))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    List,
    One,
}

fn success(route: &Route) -> Value {
    let suffix = match (subject(route.path), &route.method) {
        (Some((kind, Place::List)), &Method::GET) => Some((kind, "List")),
        (Some((kind, Place::List)), &Method::POST) => Some((kind, "")),
        (Some((kind, Place::One)), &Method::GET | &Method::PATCH) => Some((kind, "")),
        (Some(_) | None, _) => None,
    };
    match suffix {
        None => json!({"description": "Done"}),
        Some((kind, suffix)) => json!({
            "description": "Done",
            "content": {"application/json": {"schema": reference(kind.name, suffix)}},
        }),
    }
}

fn body(route: &Route) -> Option<Value> {
    let (kind, place) = subject(route.path)?;
    match (place, &route.method) {
        (Place::List, &Method::POST) => kind.create.map(|_| reference(kind.name, "Create")),
        (Place::One, &Method::PATCH) => kind.patch.map(|_| reference(kind.name, "Patch")),
        (Place::List | Place::One, _) => None,
    }
}

fn reference(name: &str, suffix: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}{suffix}")})
}

fn version_parameter() -> Value {
    json!({
        "name": "X-OpenStack-Ironic-API-Version",
        "in": "header",
        "description": "The microversion asked for: 1.N or latest; 1.1 if absent.",
        "schema": {"type": "string", "default": ApiVersion::MIN.to_string()},
    })
}

fn refusal() -> Value {
    json!({
        "description": "Refused. `error_message` is a JSON text with `faultstring`, or with `code`, \
                        `title` and `description`.",
        "content": {"application/json": {"schema": {
            "type": "object",
            "properties": {"error_message": {"type": "string"}},
        }}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE=1` accepts what the tables say.
    #[test]
    fn the_checked_in_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let mut current = serde_json::to_string_pretty(&openapi()).unwrap();
        current.push('\n');
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            checked_in == current,
            "docs/openapi.json is not what the tables say; run UPDATE=1 cargo test -p api-server openapi"
        );
    }

    /// Every reference leads somewhere.
    #[test]
    fn references_resolve() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(reference)) = members.get("$ref") {
                        let pointer = reference.trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    members.values().for_each(|member| check(member, document));
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, document)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = openapi();
        check(&document, &document);
        let create = document.pointer("/paths/~1v1~1ports/post/requestBody").is_some();
        assert!(create, "the body of a new port is described");
    }
}
