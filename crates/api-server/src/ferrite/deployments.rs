// SPDX-License-Identifier: Apache-2.0
//! Deployments: request a machine with an instance on it, extend its lease, remove it.
//!
//! A request stores the deployment and its allocation in one transaction, which also checks the quotas of
//! the project. The conductor does the rest.

use std::time::Duration;

use access_policy::PolicyTarget;
use http::{Method, StatusCode};
use ironic_wire::WireError;
use node_model::{Deployment, DeploymentId, DeploymentState, Flavour, Node, NodeId};
use serde_json::{Value, json};
use store::{
    Columns, DeploymentColumn, DeploymentFilter, FlavourColumn, NodeColumn, NodeFilter,
    ResourcePage, ResourceQuery, StoreReader, StoreWriter,
};
use uuid::Uuid;

use super::deployment_request::{DeploymentLeaseChange, DeploymentRequest, LeaseTerms};
use super::events::parse_limit;
use super::journal_search::parse_text;
use crate::handler;
use crate::ironic::allocations::check_quota;
use crate::ironic::node_resources::find_referenced_node;
use crate::ironic::redaction::HiddenFields;
use crate::ironic::resource::ResourceIdent;
use crate::server::access::{CallerAccess, denied};
use crate::server::{
    ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, ReplaceDuplicate, UNVERSIONED,
};

const ALL: &str = "/v1/ferrite/deployments";
const ONE: &str = "/v1/ferrite/deployments/{deployment}";
const LIST_QUERY: &[&str] = &["project", "user", "state", "node", "limit", "marker"];
const GET: &str = "ferrite:deployment:get";
const CREATE: &str = "ferrite:deployment:create";
const UPDATE: &str = "ferrite:deployment:update";
const DELETE: &str = "ferrite:deployment:delete";
const DEFAULT_LIMIT: u32 = 1000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List deployments", handler!(list))
        .list("ferrite:deployment:list_all", "ferrite:deployment:list")
        .since(UNVERSIONED)
        .query(LIST_QUERY),
    ApiRoute::new(Method::POST, ALL, "Deploy an image on a machine", handler!(create))
        .rule(CREATE)
        .since(UNVERSIONED)
        .body_limit(BodyLimit::Provision),
    ApiRoute::get(ONE, "Show a deployment", handler!(show))
        .checked_by_handler(&[GET])
        .since(UNVERSIONED),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Extend or change the lease of a deployment",
        handler!(update),
    )
    .checked_by_handler(&[GET, UPDATE])
    .since(UNVERSIONED),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove the instance and release the machine",
        handler!(delete),
    )
    .checked_by_handler(&[GET, DELETE])
    .since(UNVERSIONED),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(LIST_QUERY)?;
    let requested = parse_text(&request, "project")?;
    let visible_to = request.access.list_project(None)?;
    let states = match request.query_value("state") {
        None => None,
        Some(text) => Some(vec![text.parse().map_err(|()| {
            let known: Vec<&str> =
                DeploymentState::ALL.iter().map(|state| state.as_str()).collect();
            WireError::invalid_field("state", &format!("it must be one of {}", known.join(", ")))
        })?]),
    };
    let node = parse_text(&request, "node")?.map(|text| ResourceIdent::from_text(&request, &text));
    let user = parse_text(&request, "user")?;
    let limit = parse_limit(&request, "limit")?.unwrap_or(DEFAULT_LIMIT);
    let marker =
        request.query_value("marker").map(Uuid::try_parse).transpose().map_err(|_| {
            WireError::invalid_field("marker", "it must be the UUID of a deployment")
        })?;
    let access = request.access.clone();
    let rows = request
        .app
        .store
        .scan(move |reader| {
            let node = match node {
                None => None,
                Some(ident) => Some(find_referenced_node(reader, &ident)?.id),
            };
            let filter = DeploymentFilter {
                project: requested,
                visible_to,
                user,
                states,
                node,
                due_at: None,
            };
            let page =
                ResourcePage { limit: Some(limit + 1), marker, sort: None, descending: false };
            let found: Vec<Deployment> =
                reader.collect(&ResourceQuery { filter, page, ..ResourceQuery::default() })?;
            render(reader, &found, &access)
        })
        .await?;
    let mut rows = rows;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| has_more).map(|row| row["uuid"].clone());
    Ok(ApiResponse::ok_value(&json!({"deployments": rows, "next": next})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = request.param("deployment").to_owned();
    let access = request.access.clone();
    let row = request
        .app
        .store
        .read(move |reader| {
            let (deployment, _) = find(reader, &ident, &access, GET)?;
            render(reader, std::slice::from_ref(&deployment), &access)
        })
        .await?;
    Ok(ApiResponse::ok_value(&Value::Array(row)[0]))
}

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = DeploymentRequest::parse(&request.body)?;
    let now = request.now();
    let lease = body.lease(now).limited(max_lease(&request), now)?;
    let id = body.uuid.map_or_else(DeploymentId::random, DeploymentId);
    let deployment = Deployment {
        name: body.name.clone(),
        project: project_of(&request.access, body.project.as_deref())?,
        user: request.caller.name().map(str::to_owned),
        request_id: request.request_id.to_string(),
        flavour: body.flavour.clone(),
        resource_class: body.resource_class.clone(),
        traits: body.traits.clone(),
        node_owner: body.owner.clone(),
        expires_at: lease.expires_at,
        warn_seconds: lease.warn_seconds,
        expiry_action: lease.action,
        ..Deployment::new(id, now)
    };
    let instance = body.instance()?;
    let nodes: Vec<ResourceIdent> =
        body.nodes.iter().map(|text| ResourceIdent::from_text(&request, text)).collect();
    let access = request.access.clone();
    let row = request
        .app
        .store
        .write(move |writer| {
            let mut deployment = deployment.clone();
            writer.seal_deployment(&mut deployment, instance.clone())?;
            insert(writer, &mut deployment, &nodes)?;
            render(writer, std::slice::from_ref(&deployment), &access)
        })
        .await?;
    request.app.conductor.wake_deployments();
    let row = &Value::Array(row)[0];
    let location =
        request.link(&format!("ferrite/deployments/{}", row["uuid"].as_str().unwrap_or("")));
    let response = ApiResponse::json(StatusCode::ACCEPTED, row.to_string().into_bytes());
    Ok(response.with_location(&location))
}

/// The longest lease of the caller; `None` if it is not limited.
fn max_lease(request: &ApiRequest) -> Option<Duration> {
    request.app.config.max_lease.filter(|_| !request.access.is_system())
}

/// The project of a new deployment: the caller's. Callers with system scope may choose one.
fn project_of(access: &CallerAccess, requested: Option<&str>) -> Result<Option<String>, WireError> {
    match (requested, access.project()) {
        (None, Some(own)) => Ok(Some(own.to_owned())),
        (None, None) if access.is_system() => Ok(None),
        (Some(requested), Some(own)) if requested == own => Ok(Some(own.to_owned())),
        (Some(requested), None) if access.is_system() => Ok(Some(requested.to_owned())),
        // A deployment without a project may get any machine.
        (Some(_), _) | (None, None) => Err(denied(CREATE)),
    }
}

/// Stores a new deployment with its allocation.
fn insert(
    writer: &mut StoreWriter<'_>,
    deployment: &mut Deployment,
    nodes: &[ResourceIdent],
) -> Result<(), ApiError> {
    if let Some(name) = &deployment.flavour {
        let Some(flavour) = writer.find::<Flavour>(FlavourColumn::Name, name)? else {
            let name: String = name.chars().take(80).collect();
            return Err(WireError::invalid(format!("There is no flavour {name}.")).into());
        };
        merge_flavour(deployment, &flavour)?;
    }
    deployment.traits.sort_unstable();
    deployment.traits.dedup();
    for ident in nodes {
        let node = find_referenced_node(writer, ident)?.id;
        if !deployment.candidate_nodes.contains(&node) {
            deployment.candidate_nodes.push(node);
        }
    }
    let allocation = deployment.allocation();
    check_quota(writer, &allocation, deployment.flavour.as_deref())?;
    let exists = |field: &'static str| {
        let value = if field == "name" { deployment.label() } else { deployment.id.to_string() };
        WireError::conflict(format!(
            "A deployment or allocation with {field} {value} already exists."
        ))
    };
    writer.insert(&allocation).on_duplicate(exists)?;
    writer.insert(&*deployment).on_duplicate(exists)
}

/// Adds the resource class and the traits of a flavour.
fn merge_flavour(deployment: &mut Deployment, flavour: &Flavour) -> Result<(), WireError> {
    match (&deployment.resource_class, &flavour.resource_class) {
        (Some(requested), Some(class)) if requested != class => {
            return Err(WireError::invalid(format!(
                "The flavour {} has the resource class {class}, not {requested}.",
                flavour.name
            )));
        }
        (None, None) if flavour.traits.is_empty() => {
            return Err(WireError::invalid(format!(
                "The flavour {} has neither a resource class nor traits, by which machines could be found.",
                flavour.name
            )));
        }
        (_, class) => {
            if let Some(class) = class {
                deployment.resource_class = Some(class.clone());
            }
        }
    }
    deployment.traits.extend(flavour.traits.iter().cloned());
    Ok(())
}

async fn update(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let change = DeploymentLeaseChange::parse(&request.body)?;
    let ident = request.param("deployment").to_owned();
    let (access, now) = (request.access.clone(), request.now());
    let max_lease = max_lease(&request);
    let row = request
        .app
        .store
        .write(move |writer| {
            let (mut deployment, _) = find(writer, &ident, &access, UPDATE)?;
            if deployment.state == DeploymentState::Deleting {
                let problem = "The deployment is being removed; its lease cannot be changed.";
                return Err(WireError::conflict(problem).into());
            }
            let before = LeaseTerms {
                expires_at: deployment.expires_at,
                warn_seconds: deployment.warn_seconds,
                action: deployment.expiry_action,
            };
            let after = change.apply(before, max_lease, now)?;
            deployment.expires_at = after.expires_at;
            deployment.warn_seconds = after.warn_seconds;
            deployment.expiry_action = after.action;
            if before.expires_at != after.expires_at {
                deployment.warned_at = None;
                deployment.expired_at = None;
            }
            deployment.due_at = Some(now);
            writer.save(&mut deployment)?;
            render(writer, std::slice::from_ref(&deployment), &access)
        })
        .await?;
    request.app.conductor.wake_deployments();
    Ok(ApiResponse::ok_value(&Value::Array(row)[0]))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = request.param("deployment").to_owned();
    let (access, now) = (request.access.clone(), request.now());
    let actor_request = request.request_id.to_string();
    let actor = request.caller.name().map(str::to_owned);
    let id = request
        .app
        .store
        .write(move |writer| {
            let (mut deployment, _) = find(writer, &ident, &access, DELETE)?;
            deployment.state = DeploymentState::Deleting;
            deployment.due_at = Some(now);
            deployment.last_error = None;
            writer.save(&mut deployment)?;
            Ok::<_, ApiError>(deployment.id)
        })
        .await?;
    tracing::info!(deployment = %id, user = actor, request_id = actor_request, "removal of a deployment requested");
    request.app.conductor.wake_deployments();
    Ok(ApiResponse::accepted())
}

/// Finds a deployment by UUID or name, with its machine. Fails with 404 if the caller may not see it, with
/// 403 if `rule` does not match.
fn find(
    reader: &mut StoreReader<'_>,
    ident: &str,
    access: &CallerAccess,
    rule: &'static str,
) -> Result<(Deployment, Option<Node>), ApiError> {
    // Evaluated even if there is no such deployment, because the dispatcher expects it.
    let _ = access.allows(rule, &PolicyTarget::NONE);
    let not_found = || WireError::not_found("Deployment", ident);
    let found = match Uuid::try_parse(ident) {
        Ok(uuid) => reader.get(DeploymentId(uuid))?,
        Err(_) => reader.find(DeploymentColumn::Name, ident)?,
    };
    let deployment: Deployment = found.ok_or_else(not_found)?;
    let node = match deployment.node_id {
        Some(node) => reader.get(node)?.filter(|node| deployment.runs_on(node)),
        None => None,
    };
    let target = target_of(&deployment, node.as_ref());
    if !access.allows(GET, &target) {
        access.mark_hidden();
        return Err(not_found().into());
    }
    access.require(rule, &target)?;
    Ok((deployment, node))
}

/// The projects of a deployment. While it has no machine, its project counts as the owner of the machine.
fn target_of<'a>(deployment: &'a Deployment, node: Option<&'a Node>) -> PolicyTarget<'a> {
    let project = deployment.project.as_deref();
    let (owner, lessee) = match node {
        Some(node) => (node.owner.as_deref(), node.lessee.as_deref()),
        None => (project, None),
    };
    PolicyTarget { allocation_owner: project, ..PolicyTarget::node(owner, lessee) }
}

/// The JSON of deployments, with the current state of their machines.
fn render(
    reader: &mut StoreReader<'_>,
    deployments: &[Deployment],
    access: &CallerAccess,
) -> Result<Vec<Value>, ApiError> {
    let ids: Vec<NodeId> = deployments.iter().filter_map(|deployment| deployment.node_id).collect();
    let mut nodes: std::collections::HashMap<NodeId, Node> = std::collections::HashMap::new();
    if !ids.is_empty() {
        let filter = NodeFilter { ids: Some(ids), ..NodeFilter::default() };
        let select = Columns::<Node>::only(&[
            NodeColumn::Uuid,
            NodeColumn::Name,
            NodeColumn::InstanceUuid,
            NodeColumn::Owner,
            NodeColumn::Lessee,
            NodeColumn::ProvisionState,
            NodeColumn::PowerState,
        ]);
        let query = ResourceQuery { filter, page: ResourcePage::default(), select };
        reader.list(&query, |node| {
            nodes.insert(node.id, node.clone());
        })?;
    }
    let row = |deployment: &Deployment| {
        let assigned = deployment.node_id.and_then(|id| nodes.get(&id));
        deployment_json(deployment, assigned, access)
    };
    Ok(deployments.iter().map(row).collect())
}

/// `assigned` is the node that the deployment got, which may have another instance by now.
fn deployment_json(
    deployment: &Deployment,
    assigned: Option<&Node>,
    access: &CallerAccess,
) -> Value {
    // The error may be that of the node, which lessees do not see, also after the deployment lost it.
    let hides_error = match assigned {
        Some(node) => HiddenFields::of(node, access).last_error,
        None => deployment.node_id.is_some() && !access.is_system(),
    };
    let node = assigned.filter(|node| deployment.runs_on(node));
    let last_error = match &deployment.last_error {
        Some(_) if hides_error => Some("the owner of the machine can see the reason"),
        error => error.as_deref(),
    };
    let target = target_of(deployment, node);
    let permissions: Vec<&str> =
        [UPDATE, DELETE].into_iter().filter(|rule| access.allows(rule, &target)).collect();
    let text = |at: Option<node_model::Timestamp>| at.map(|at| at.to_string());
    json!({
        "uuid": deployment.id.to_string(),
        "name": deployment.name,
        "state": deployment.state.as_str(),
        "project": deployment.project,
        "deployed_by": {
            "user": deployment.user,
            "project": deployment.project,
            "request_id": deployment.request_id,
        },
        "flavour": deployment.flavour,
        "resource_class": deployment.resource_class,
        "traits": deployment.traits,
        "owner": deployment.node_owner,
        "candidate_nodes": deployment.candidate_nodes,
        "node": node.map(|node| json!({
            "uuid": node.id.to_string(),
            "name": node.name,
            "provision_state": node.provision_state.as_str(),
            "power_state": node.power_state.map(|state| state.as_str()),
        })),
        "instance": deployment.instance,
        "last_error": last_error,
        "lease": {
            "expires_at": text(deployment.expires_at),
            "warn_before": deployment.warn_seconds,
            "at_end": deployment.expiry_action.as_str(),
            "warned_at": text(deployment.warned_at),
            "ended_at": text(deployment.expired_at),
        },
        "created_at": deployment.created_at.to_string(),
        "updated_at": text(deployment.updated_at),
        "permissions": permissions,
    })
}
