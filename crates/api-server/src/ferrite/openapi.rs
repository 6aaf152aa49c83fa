// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document, generated from the route table and the field tables.
//!
//! It is checked in as `docs/openapi.json`; a test fails if that file is out of date.

use http::Method;
use ironic_wire::{ApiVersion, create_schema, list_schema, patch_schema, shown_schema};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup, Runbook,
    VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value, json};

use crate::handler;
use crate::server::routes::api_routes;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/ferrite/openapi", "Show the OpenAPI document", handler!(show))
        .access(RouteAccess::Authenticated)
        .since(UNVERSIONED)];

/// The OpenAPI document of the API's own routes.
#[must_use]
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in api_routes() {
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(methods) = path {
            methods.insert(route.method.as_str().to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ferrite",
            "description": "Bare metal provisioning with the OpenStack Ironic API. `x-since` is the \
                            first microversion of an element.",
            "version": ApiVersion::MAX.to_string(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "parameters": {"version": version_parameter()},
            "responses": {"error": error_response()},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
            },
        },
    })
}

async fn show(_request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok_value(&openapi()))
}

/// A resource type in the document.
struct ResourceSchema {
    /// Path of its collection: the end of a route's path.
    path: &'static str,
    name: &'static str,
    shown: fn() -> Value,
    create: Option<fn() -> Value>,
    patch: Option<fn() -> Value>,
    list: fn(&Value) -> Value,
}

macro_rules! resource_schemas {
    ($($resource:ty, $name:literal $(, $writable:tt)?;)*) => {
        &[$(ResourceSchema {
            path: <$resource as ironic_wire::WireResource>::PATH,
            name: $name,
            shown: shown_schema::<$resource>,
            create: resource_schemas!(@create $resource $(, $writable)?),
            patch: resource_schemas!(@patch $resource $(, $writable)?),
            list: list_schema::<$resource>,
        }),*]
    };
    (@create $resource:ty) => { None };
    (@create $resource:ty, writable) => { Some(create_schema::<$resource>) };
    (@patch $resource:ty) => { None };
    (@patch $resource:ty, writable) => { Some(patch_schema::<$resource>) };
}

const RESOURCES: &[ResourceSchema] = resource_schemas! {
    Node, "Node", writable;
    Port, "Port", writable;
    Portgroup, "Portgroup", writable;
    Chassis, "Chassis", writable;
    Allocation, "Allocation", writable;
    DeployTemplate, "DeployTemplate", writable;
    Runbook, "Runbook", writable;
    InspectionRule, "InspectionRule", writable;
    VolumeConnector, "VolumeConnector", writable;
    VolumeTarget, "VolumeTarget", writable;
    ironic_wire::ConductorView, "Conductor";
    ironic_wire::DriverView, "Driver";
};

fn schemas() -> Value {
    let mut schemas = Map::new();
    for resource in RESOURCES {
        let name = |suffix: &str| format!("{}{suffix}", resource.name);
        schemas.insert(name(""), (resource.shown)());
        schemas.insert(name("List"), (resource.list)(&reference(resource.name, "")));
        if let Some(create) = resource.create {
            schemas.insert(name("Create"), create());
        }
        if let Some(patch) = resource.patch {
            schemas.insert(name("Patch"), patch());
        }
    }
    Value::Object(schemas)
}

fn operation(route: &ApiRoute) -> Value {
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
        operation["responses"]["default"] = json!({"$ref": "#/components/responses/error"});
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = body(route) {
        operation["requestBody"] = json!({"content": {"application/json": {"schema": body}}});
    }
    operation["security"] = match route.access {
        RouteAccess::Public => json!([]),
        RouteAccess::Metrics => json!([{}, {"basic": []}, {"bearer": []}, {"token": []}]),
        RouteAccess::Authenticated
        | RouteAccess::Rule(_)
        | RouteAccess::Resource(_)
        | RouteAccess::List { .. }
        | RouteAccess::CheckedByHandler(_)
        | RouteAccess::Unassigned => json!([{"basic": []}, {"bearer": []}, {"token": []}]),
    };
    let rules = route.access.rules();
    if !rules.is_empty() {
        operation["x-policy-rules"] = json!(rules);
    }
    operation
}

/// The resource type of a path, and whether the path is a collection or one item.
fn resource_of_path(path: &str) -> Option<(&'static ResourceSchema, PathTarget)> {
    let (path, target) = match path.rsplit_once('/') {
        Some((before, "detail")) => (before, PathTarget::List),
        Some((before, last)) if last.starts_with('{') => (before, PathTarget::One),
        Some(_) | None => (path, PathTarget::List),
    };
    let resource = RESOURCES.iter().find(|resource| {
        path.strip_suffix(resource.path).is_some_and(|before| before.ends_with('/'))
    })?;
    Some((resource, target))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathTarget {
    List,
    One,
}

fn success(route: &ApiRoute) -> Value {
    let suffix = match (resource_of_path(route.path), &route.method) {
        (Some((resource, PathTarget::List)), &Method::GET) => Some((resource, "List")),
        (Some((resource, PathTarget::List)), &Method::POST) => Some((resource, "")),
        (Some((resource, PathTarget::One)), &Method::GET | &Method::PATCH) => Some((resource, "")),
        (Some(_) | None, _) => None,
    };
    match suffix {
        None => json!({"description": "Success"}),
        Some((resource, suffix)) => json!({
            "description": "Success",
            "content": {"application/json": {"schema": reference(resource.name, suffix)}},
        }),
    }
}

fn body(route: &ApiRoute) -> Option<Value> {
    let (resource, target) = resource_of_path(route.path)?;
    match (target, &route.method) {
        (PathTarget::List, &Method::POST) => {
            resource.create.map(|_| reference(resource.name, "Create"))
        }
        (PathTarget::One, &Method::PATCH) => {
            resource.patch.map(|_| reference(resource.name, "Patch"))
        }
        (PathTarget::List | PathTarget::One, _) => None,
    }
}

fn reference(name: &str, suffix: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}{suffix}")})
}

fn version_parameter() -> Value {
    json!({
        "name": "X-OpenStack-Ironic-API-Version",
        "in": "header",
        "description": "The requested microversion: 1.N or latest; 1.1 if absent.",
        "schema": {"type": "string", "default": ApiVersion::MIN.to_string()},
    })
}

fn error_response() -> Value {
    json!({
        "description": "Error. `error_message` is a JSON text with `faultstring`, or with `code`, \
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

    /// `UPDATE=1` writes the document.
    #[test]
    fn checked_in_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let mut current = serde_json::to_string_pretty(&openapi()).unwrap();
        current.push('\n');
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            checked_in == current,
            "docs/openapi.json is out of date; run UPDATE=1 cargo test -p api-server openapi"
        );
    }

    #[test]
    fn all_references_resolve() {
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
        let has_body = document.pointer("/paths/~1v1~1ports/post/requestBody").is_some();
        assert!(has_body, "POST /v1/ports has a request body");
    }
}
