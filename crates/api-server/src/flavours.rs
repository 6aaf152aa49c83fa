// SPDX-License-Identifier: Apache-2.0
//! Flavours: kinds of machines, told apart by what inspection finds.

use ::inspection::{Context, FlavourSet, Report, RuleSet, validate_flavour};
use http::{Method, StatusCode};
use ironic_wire::{WireError, parse_object};
use node_model::{Flavour, FlavourId, JsonArray, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::{FlavourColumn, Query, Reader};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

const ALL: &str = "/v1/ferrite/flavours";
const ONE: &str = "/v1/ferrite/flavours/{flavour}";

/// More flavours are a mistake: each is compared with every report.
const MOST: usize = 1_000;

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List flavours", handler!(list)).since(UNVERSIONED),
    Route::get(ONE, "Show a flavour", handler!(show)).since(UNVERSIONED),
    Route::new(Method::PUT, ONE, "Create or replace a flavour", handler!(put)).since(UNVERSIONED),
    Route::new(Method::DELETE, ONE, "Remove a flavour", handler!(delete)).since(UNVERSIONED),
    Route::get(
        "/v1/ferrite/flavours/{flavour}/matches",
        "List the inspected nodes that a flavour fits",
        handler!(matches),
    )
    .since(UNVERSIONED),
];

/// A flavour as operators write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    description: Option<String>,
    priority: i64,
    conditions: Vec<Value>,
    resource_class: Option<String>,
    traits: Vec<String>,
    properties: Map<String, Value>,
    capabilities: Map<String, Value>,
    overwrite: bool,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            description: None,
            priority: 0,
            conditions: Vec::new(),
            resource_class: None,
            traits: Vec::new(),
            properties: Map::new(),
            capabilities: Map::new(),
            overwrite: false,
        }
    }
}

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mut all =
        call.app.store.read(|reader| reader.collect(&Query::<Flavour>::default())).await?;
    all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    let rows: Vec<Value> = all.iter().map(shown).collect();
    Ok(Reply::ok(json!({"flavours": rows}).to_string().into_bytes()))
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let name = call.param("flavour").to_owned();
    let found = call.app.store.read(move |reader| find(reader, &name)).await?;
    Ok(Reply::ok(shown(&found).to_string().into_bytes()))
}

async fn put(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let flavour = parsed(&call)?;
    validate_flavour(&flavour).map_err(|error| WireError::invalid(error.to_string()))?;
    let (status, flavour) = call
        .app
        .store
        .write(move |writer| {
            let mut flavour = flavour.clone();
            match writer.find::<Flavour>(FlavourColumn::Name, &flavour.name)? {
                Some(before) => {
                    flavour.id = before.id;
                    flavour.created_at = before.created_at;
                    writer.save(&mut flavour)?;
                    Ok::<_, Refusal>((StatusCode::OK, flavour))
                }
                None => {
                    let count = writer.count::<Flavour>(&store::FlavourFilter)?;
                    if count >= MOST as u64 {
                        let problem = format!("There are {MOST} flavours already; remove some.");
                        return Err(WireError::conflict(problem).into());
                    }
                    writer.insert(&flavour)?;
                    Ok((StatusCode::CREATED, flavour))
                }
            }
        })
        .await?;
    Ok(Reply::json(status, shown(&flavour).to_string().into_bytes()))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let name = call.param("flavour").to_owned();
    call.app
        .store
        .write(move |writer| {
            let flavour = find(writer, &name)?;
            writer.delete(flavour.id)?;
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

/// Compares every stored inventory with all flavours: which of them decides about the class depends
/// on the others.
async fn matches(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let name = call.param("flavour").to_owned();
    let (settings, now) = (::inspection::Settings::default(), call.now());
    let body = call
        .app
        .store
        .scan(move |reader| {
            find(reader, &name)?;
            let all: Vec<Flavour> = reader.collect(&Query::default())?;
            let (set, _) = FlavourSet::compile(&all);
            let gives_class = |name: &str| {
                all.iter().any(|other| other.name == name && other.resource_class.is_some())
            };
            let mut rows = Vec::new();
            let owners = reader.inventory_owners()?;
            let inspected = owners.len();
            for id in owners {
                let (Some(node), Some(found)) = (reader.get(id)?, reader.inventory(id)?) else {
                    continue;
                };
                let fitting = set.matching(&Context {
                    node: &node,
                    ports: &[],
                    report: &Report::stored(&found),
                    previous: None,
                    settings: &settings,
                    rules: &RuleSet::default(),
                    flavours: &set,
                    now,
                });
                if fitting.contains(&name.as_str()) {
                    let decides = fitting.iter().find(|name| gives_class(name));
                    rows.push(json!({
                        "node_uuid": id,
                        "node_name": node.name,
                        "resource_class": node.resource_class,
                        "decides_class": decides == Some(&name.as_str()),
                        "inspected_at": found.created_at.to_string(),
                    }));
                }
            }
            let body = json!({"flavour": name, "inspected": inspected, "matches": rows});
            Ok::<_, Refusal>(body.to_string().into_bytes())
        })
        .await?;
    Ok(Reply::ok(body))
}

fn find(reader: &mut Reader<'_>, name: &str) -> Result<Flavour, Refusal> {
    let found = reader.find::<Flavour>(FlavourColumn::Name, name)?;
    found.ok_or_else(|| WireError::not_found("Flavour", name).into())
}

fn parsed(call: &Call) -> Result<Flavour, WireError> {
    let body = Value::Object(parse_object(&call.body, "flavour")?);
    let written: Written =
        serde_json::from_value(body).map_err(|error| WireError::invalid(error.to_string()))?;
    let mut traits = written.traits;
    traits.sort_unstable();
    traits.dedup();
    Ok(Flavour {
        id: FlavourId::random(),
        name: call.param("flavour").to_owned(),
        created_at: call.now(),
        updated_at: None,
        description: written.description,
        priority: written.priority,
        conditions: JsonArray::from(written.conditions),
        resource_class: written.resource_class,
        traits,
        properties: JsonObject::from(written.properties),
        capabilities: JsonObject::from(written.capabilities),
        overwrite: written.overwrite,
    })
}

fn shown(flavour: &Flavour) -> Value {
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
