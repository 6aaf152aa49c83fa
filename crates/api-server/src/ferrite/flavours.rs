// SPDX-License-Identifier: Apache-2.0
//! Flavours: classes of machines, defined by conditions over the inventory.

use ::inspection::{FlavourSet, HardwareReport, ReportContext, RuleSet, validate_flavour};
use http::{Method, StatusCode};
use ironic_wire::{WireError, parse_fields, parse_object};
use node_model::{Flavour, FlavourId, JsonArray, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::{FlavourColumn, ResourceQuery, StoreReader};

use super::visible_nodes::allows_node;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

const ALL: &str = "/v1/ferrite/flavours";
const ONE: &str = "/v1/ferrite/flavours/{flavour}";

/// Maximum number of flavours. Each is compared with every inspection report.
const MAX_FLAVOURS: usize = 1_000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List flavours", handler!(list))
        .rule("ferrite:flavour:get")
        .since(UNVERSIONED),
    ApiRoute::get(ONE, "Show a flavour", handler!(show))
        .rule("ferrite:flavour:get")
        .since(UNVERSIONED),
    ApiRoute::new(Method::PUT, ONE, "Create or replace a flavour", handler!(put))
        .rule("ferrite:flavour:update")
        .since(UNVERSIONED),
    ApiRoute::new(Method::DELETE, ONE, "Remove a flavour", handler!(delete))
        .rule("ferrite:flavour:update")
        .since(UNVERSIONED),
    ApiRoute::get(
        "/v1/ferrite/flavours/{flavour}/matches",
        "List the inspected nodes that match a flavour",
        handler!(matches),
    )
    .list("baremetal:node:list_all", "baremetal:node:list")
    .since(UNVERSIONED),
];

/// The body of a flavour.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FlavourBody {
    description: Option<String>,
    priority: i64,
    conditions: Vec<Value>,
    resource_class: Option<String>,
    traits: Vec<String>,
    properties: Map<String, Value>,
    capabilities: Map<String, Value>,
    overwrite: bool,
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mut all = request
        .app
        .store
        .read(|reader| reader.collect(&ResourceQuery::<Flavour>::default()))
        .await?;
    all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    let rows: Vec<Value> = all.iter().map(flavour_json).collect();
    Ok(ApiResponse::ok_value(&json!({"flavours": rows})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("flavour").to_owned();
    let flavour = request.app.store.read(move |reader| find_flavour(reader, &name)).await?;
    Ok(ApiResponse::ok(flavour_json(&flavour).to_string().into_bytes()))
}

async fn put(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let flavour = parse_flavour(&request)?;
    validate_flavour(&flavour).map_err(|error| WireError::invalid(error.to_string()))?;
    let (status, flavour) = request
        .app
        .store
        .write(move |writer| {
            let mut flavour = flavour.clone();
            match writer.find::<Flavour>(FlavourColumn::Name, &flavour.name)? {
                Some(before) => {
                    flavour.id = before.id;
                    flavour.created_at = before.created_at;
                    writer.save(&mut flavour)?;
                    Ok::<_, ApiError>((StatusCode::OK, flavour))
                }
                None => {
                    let count = writer.count::<Flavour>(&store::FlavourFilter)?;
                    if count >= MAX_FLAVOURS as u64 {
                        let problem =
                            format!("There are {MAX_FLAVOURS} flavours already; remove some.");
                        return Err(WireError::conflict(problem).into());
                    }
                    writer.insert(&flavour)?;
                    Ok((StatusCode::CREATED, flavour))
                }
            }
        })
        .await?;
    Ok(ApiResponse::json(status, flavour_json(&flavour).to_string().into_bytes()))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("flavour").to_owned();
    request
        .app
        .store
        .write(move |writer| {
            let flavour = find_flavour(writer, &name)?;
            writer.delete(flavour.id)?;
            Ok::<_, ApiError>(())
        })
        .await?;
    Ok(ApiResponse::no_content())
}

/// Compares all stored inventories with all flavours: which flavour sets the resource class depends on
/// the others.
async fn matches(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("flavour").to_owned();
    request.access.list_project(None)?;
    let access = request.access.clone();
    let (settings, now) = (::inspection::InspectionSettings::default(), request.now());
    let body = request
        .app
        .store
        .scan(move |reader| {
            find_flavour(reader, &name)?;
            let all: Vec<Flavour> = reader.collect(&ResourceQuery::default())?;
            let (set, _) = FlavourSet::compile(&all);
            let sets_class = |name: &str| {
                all.iter().any(|other| other.name == name && other.resource_class.is_some())
            };
            let mut rows = Vec::new();
            let node_ids = reader.nodes_with_inventory()?;
            let mut inspected = 0;
            for id in node_ids {
                let (Some(node), Some(inventory)) = (reader.get(id)?, reader.inventory(id)?) else {
                    continue;
                };
                if !allows_node(&access, "baremetal:node:inventory:get", &node) {
                    continue;
                }
                inspected += 1;
                let matching = set.matching(&ReportContext {
                    node: &node,
                    ports: &[],
                    report: &HardwareReport::from_inventory(&inventory),
                    previous: None,
                    settings: &settings,
                    rules: &RuleSet::default(),
                    flavours: &set,
                    now,
                });
                if matching.contains(&name.as_str()) {
                    let deciding = matching.iter().find(|name| sets_class(name));
                    rows.push(json!({
                        "node_uuid": id,
                        "node_name": node.name,
                        "resource_class": node.resource_class,
                        "decides_class": deciding == Some(&name.as_str()),
                        "inspected_at": inventory.created_at.to_string(),
                    }));
                }
            }
            let body = json!({"flavour": name, "inspected": inspected, "matches": rows});
            Ok::<_, ApiError>(body.to_string().into_bytes())
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

fn find_flavour(reader: &mut StoreReader<'_>, name: &str) -> Result<Flavour, ApiError> {
    let found = reader.find::<Flavour>(FlavourColumn::Name, name)?;
    found.ok_or_else(|| WireError::not_found("Flavour", name).into())
}

fn parse_flavour(request: &ApiRequest) -> Result<Flavour, WireError> {
    let body = Value::Object(parse_object(&request.body, "flavour")?);
    let fields: FlavourBody = parse_fields(body)?;
    let mut traits = fields.traits;
    traits.sort_unstable();
    traits.dedup();
    Ok(Flavour {
        id: FlavourId::random(),
        name: request.param("flavour").to_owned(),
        created_at: request.now(),
        updated_at: None,
        description: fields.description,
        priority: fields.priority,
        conditions: JsonArray::from(fields.conditions),
        resource_class: fields.resource_class,
        traits,
        properties: JsonObject::from(fields.properties),
        capabilities: JsonObject::from(fields.capabilities),
        overwrite: fields.overwrite,
    })
}

fn flavour_json(flavour: &Flavour) -> Value {
    json!({
        "name": flavour.name,
        "description": flavour.description,
        "priority": flavour.priority,
        "conditions": flavour.conditions,
        "resource_class": flavour.resource_class,
        "traits": flavour.traits,
        "properties": flavour.properties,
        "capabilities": flavour.capabilities,
        "overwrite": flavour.overwrite,
        "created_at": flavour.created_at.to_string(),
        "updated_at": flavour.updated_at.map(|at| at.to_string()),
    })
}
