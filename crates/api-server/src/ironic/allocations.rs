// SPDX-License-Identifier: Apache-2.0
//! Allocations: requests for a node with given properties, and the nodes reserved by them.

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::{AllocationDraft, ListQuery, Patch, RenderContext, WireError, params};
use lifecycle::update_allowed;
use node_model::{
    Actor, Allocation, AllocationId, AllocationState, JournalEntry, JournalEvent, Node, NodeId,
    ProvisionState, Timestamp,
};
use serde_json::Value;
use store::{AllocationFilter, StoreReader, StoreWriter};

use super::node_resources::find_referenced_node;
use super::resource::{self, ListDetail, ResourceIdent};
use crate::handler;
use crate::server::access::{CallerAccess, denied};
use crate::server::{
    ApiError, ApiRequest, ApiResponse, ApiRoute, ReplaceDuplicate, TooOld, run_to_completion,
};

const SINCE: u16 = 52;
const PATCH_SINCE: u16 = 57;
const ALL: &str = "/v1/allocations";
const ONE: &str = "/v1/allocations/{allocation}";
const OF_NODE: &str = "/v1/nodes/{node}/allocation";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List allocations", handler!(list))
        .list("baremetal:allocation:list_all", "baremetal:allocation:list")
        .since(SINCE)
        .query(&[
            "node",
            "resource_class",
            "state",
            "owner",
            "fields",
            "limit",
            "marker",
            "sort_key",
            "sort_dir",
        ]),
    ApiRoute::new(
        Method::POST,
        ALL,
        "Create an allocation: reserve a node with given properties",
        handler!(create),
    )
    .checked_by_handler(&["baremetal:allocation:create", "baremetal:allocation:create_restricted"])
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(ONE, "Show an allocation", handler!(show))
        .resource("baremetal:allocation:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(Method::PATCH, ONE, "Change an allocation", handler!(patch))
        .resource("baremetal:allocation:update")
        .since(PATCH_SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Delete an allocation and release its node",
        handler!(delete),
    )
    .resource("baremetal:allocation:delete")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(OF_NODE, "Show the allocation of a node", handler!(show_of_node))
        .checked_by_handler(&["baremetal:allocation:get"])
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(
        Method::DELETE,
        OF_NODE,
        "Delete the allocation of a node",
        handler!(delete_of_node),
    )
    .checked_by_handler(&["baremetal:allocation:delete"])
    .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = request.query_value("node").map(|text| ResourceIdent::from_text(&request, text));
    let path = "allocations".into();
    let owner = request.access.list_project(request.query_value("owner"))?;
    resource::list::<Allocation>(
        request,
        params::ALLOCATIONS,
        ListDetail::OnRequest,
        path,
        |reader, query| filter(reader, query, node, owner),
    )
    .await
}

fn filter(
    reader: &mut StoreReader<'_>,
    query: &ListQuery<Allocation>,
    node: Option<ResourceIdent>,
    owner: Option<String>,
) -> Result<AllocationFilter, ApiError> {
    let owned = |name: &str| query.text(name).map(str::to_owned);
    Ok(AllocationFilter {
        node: match node {
            None => None,
            Some(ident) => Some(find_referenced_node(reader, &ident)?.id),
        },
        resource_class: owned("resource_class"),
        // An unknown state matches nothing.
        states: query.text("state").map(|state| state.parse().into_iter().collect()),
        owner,
    })
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    resource::show::<Allocation>(request, "allocation", params::ONE_WITH_FIELDS).await
}

async fn show_of_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = ListQuery::<Allocation>::parse(
        params::ONE_WITH_FIELDS,
        &request.query,
        request.version,
        1,
        true,
    )?;
    let ident = ResourceIdent::from_path(&request, "node");
    let access = request.access.clone();
    let allocation = request
        .app
        .store
        .read(move |reader| {
            // As in Ironic, 400 if the node does not exist. Ironic returns 404 for a node that the caller
            // may not see, which reveals that it exists; here such callers get 404 in both cases.
            let node = match access.is_restricted() {
                true => ident.find(reader)?,
                false => find_referenced_node(reader, &ident)?,
            };
            allocation_of_node(reader, &node, &access, "baremetal:allocation:get")
        })
        .await?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(query.selection.body(&allocation, &context)))
}

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (now, actor) = (request.now(), request.actor());
    let drafted = ironic_wire::create::<Allocation>(&request.body, request.version, now)?;
    let mut allocation = drafted.draft.allocation.clone();
    set_owner(&request.access, &mut allocation)?;
    let ident = |text: &String| ResourceIdent::from_text(&request, text);
    let candidates = drafted.draft.candidate_nodes.iter().map(ident).collect();
    let node = drafted.draft.node.as_ref().map(ident);
    let new = NewAllocation { has_uuid: drafted.has("uuid"), allocation, candidates, node };
    let app = request.app.clone();
    // In its own task: if the client disconnected after the insert, the search for a node would
    // otherwise only start with the next process start.
    let allocation = run_to_completion(async move {
        let allocation = app.store.write(move |writer| new.insert(writer, now, &actor)).await?;
        if allocation.state == AllocationState::Allocating {
            app.conductor.allocate(allocation.id);
        }
        Ok::<_, ApiError>(allocation)
    })
    .await?;
    Ok(resource::created(&request, &allocation))
}

/// Checks that the caller may create the allocation. An allocation of a caller of a project belongs to
/// that project, unless the caller may create allocations for others.
fn set_owner(access: &CallerAccess, allocation: &mut Allocation) -> Result<(), WireError> {
    const CREATE: &str = "baremetal:allocation:create";
    const CREATE_FOR_OTHERS: &str = "baremetal:allocation:create_restricted";
    let creates_for_others = access.allows(CREATE_FOR_OTHERS, &PolicyTarget::NONE);
    if !creates_for_others {
        access.require(CREATE, &PolicyTarget::NONE)?;
    }
    if access.is_system() {
        return Ok(());
    }
    let requested = allocation.owner.as_deref().filter(|owner| !owner.is_empty());
    match (requested, access.project()) {
        (Some(_), _) if creates_for_others => Ok(()),
        (Some(owner), Some(project)) if owner != project => Err(denied(CREATE_FOR_OTHERS)),
        (_, Some(project)) => {
            allocation.owner = Some(project.to_owned());
            Ok(())
        }
        (_, None) => Err(denied(CREATE_FOR_OTHERS)),
    }
}

/// A candidate node of an allocation. The error message is Ironic's.
fn candidate(writer: &mut StoreWriter<'_>, ident: &ResourceIdent) -> Result<NodeId, ApiError> {
    find_referenced_node(writer, ident).map(|node| node.id).map_err(|error| match error {
        ApiError::Wire(_) => {
            WireError::invalid(format!("Nodes cannot be found: {}", ident.excerpt())).into()
        }
        store @ ApiError::Store(_) => store,
    })
}

/// An allocation to be inserted, with the nodes that the request references.
struct NewAllocation {
    allocation: Allocation,
    has_uuid: bool,
    candidates: Vec<ResourceIdent>,
    node: Option<ResourceIdent>,
}

impl NewAllocation {
    /// Inserts it. A backfill reserves its node at once.
    fn insert(
        &self,
        writer: &mut StoreWriter<'_>,
        now: Timestamp,
        actor: &Actor,
    ) -> Result<Allocation, ApiError> {
        let mut allocation = self.allocation.clone();
        for ident in &self.candidates {
            let candidate = candidate(writer, ident)?;
            if !allocation.candidate_nodes.contains(&candidate) {
                allocation.candidate_nodes.push(candidate);
            }
        }
        check_quota(writer, &allocation, None)?;
        match &self.node {
            None => {
                writer
                    .insert(&allocation)
                    .on_duplicate(|field| already_exists(&allocation, field))?;
            }
            Some(ident) => {
                let node = find_referenced_node(writer, ident)?;
                self.backfill(writer, &mut allocation, node, now, actor)?;
            }
        }
        Ok(allocation)
    }

    fn backfill(
        &self,
        writer: &mut StoreWriter<'_>,
        allocation: &mut Allocation,
        mut node: Node,
        now: Timestamp,
        actor: &Actor,
    ) -> Result<(), ApiError> {
        // The allocation stands for the instance that the node already has.
        if let (Some(instance), false) = (node.instance_uuid, self.has_uuid) {
            allocation.id = AllocationId(instance);
        }
        if allocation.resource_class.is_none() {
            allocation.resource_class.clone_from(&node.resource_class);
        }
        // "Already exists" takes precedence over mismatches.
        if writer.get(allocation.id)?.is_some() {
            return Err(already_exists(allocation, "uuid").into());
        }
        check_backfill(allocation, &node)?;
        allocation.state = AllocationState::Active;
        allocation.node_id = Some(node.id);
        allocation.updated_at = Some(now);
        writer.insert(&*allocation).on_duplicate(|field| already_exists(allocation, field))?;
        let traits: Vec<Value> =
            allocation.traits.iter().map(|name| name.as_str().into()).collect();
        node.instance_info.set("traits", Value::Array(traits));
        assign_node(writer, &mut node, Some(allocation.id), now, actor)
    }
}

/// Fails with 403 if the project of the allocation may not have another machine.
pub(crate) fn check_quota(
    writer: &mut StoreWriter<'_>,
    allocation: &Allocation,
    flavour: Option<&str>,
) -> Result<(), ApiError> {
    let Some(project) = allocation.owner.as_deref() else { return Ok(()) };
    let exceeded = writer.exceeded_quota(project, allocation.resource_class.as_deref(), flavour)?;
    let Some(quota) = exceeded else { return Ok(()) };
    Err(WireError::forbidden(format!(
        "The project {project} already has {} of {} ({}); release a machine, or contact an administrator for \
         a higher quota.",
        writer.quota_usage(project, &quota.subject)?,
        quota.machines,
        quota.subject
    ))
    .into())
}

/// A backfill is for nodes in use without an allocation: the allocation must match the node.
fn check_backfill(allocation: &Allocation, node: &Node) -> Result<(), WireError> {
    let label = node.label();
    if node.provision_state != ProvisionState::Active {
        return Err(WireError::conflict(format!(
            "Cannot backfill an allocation for node {label}: it must be in state active, and is in \
             state {}.",
            node.provision_state
        )));
    }
    if let Some(instance) = node.instance_uuid.filter(|instance| *instance != allocation.id.0) {
        return Err(WireError::node_associated(&node.id.to_string(), &instance.to_string()));
    }
    let missing: Vec<&str> = allocation
        .traits
        .iter()
        .filter(|name| !node.traits.contains(name))
        .map(String::as_str)
        .collect();
    let problem = if allocation.resource_class != node.resource_class {
        format!("its resource class is {}", node.resource_class.as_deref().unwrap_or("not set"))
    } else if !missing.is_empty() {
        format!("it lacks the traits {}", missing.join(", "))
    } else if !allocation.candidate_nodes.is_empty()
        && !allocation.candidate_nodes.contains(&node.id)
    {
        "it is not among the candidate nodes".to_owned()
    } else {
        return Ok(());
    };
    Err(WireError::invalid(format!("Cannot backfill an allocation for node {label}: {problem}.")))
}

async fn patch(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let patch = Patch::parse(&request.body)?;
    patch.check::<Allocation>(request.version)?;
    let ident = ResourceIdent::from_path(&request, "allocation");
    let version = request.version;
    let allocation = request
        .app
        .store
        .write(move |writer| {
            let current = AllocationDraft::new(ident.find(writer)?);
            let mut allocation = patch.apply::<Allocation>(current, version)?.draft.allocation;
            writer
                .save(&mut allocation)
                .on_duplicate(|field| already_exists(&allocation, field))?;
            Ok::<_, ApiError>(allocation)
        })
        .await?;
    Ok(resource::changed(&request, &allocation))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "allocation");
    let (now, actor) = (request.now(), request.actor());
    request
        .app
        .store
        .write(move |writer| {
            let allocation: Allocation = ident.find(writer)?;
            release(writer, &allocation, now, &actor)
        })
        .await?;
    Ok(ApiResponse::no_content())
}

async fn delete_of_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    const DELETE_RULE: &str = "baremetal:allocation:delete";
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let access = request.access.clone();
    let (now, actor) = (request.now(), request.actor());
    request
        .app
        .store
        .write(move |writer| {
            let node: Node = ident.find(writer)?;
            let allocation = allocation_of_node(writer, &node, &access, DELETE_RULE)?;
            release(writer, &allocation, now, &actor)
        })
        .await?;
    Ok(ApiResponse::no_content())
}

/// Deletes an allocation and releases its node. Fails with 409 while the node is in use.
fn release(
    writer: &mut StoreWriter<'_>,
    allocation: &Allocation,
    now: Timestamp,
    actor: &Actor,
) -> Result<(), ApiError> {
    let node = match allocation.node_id {
        Some(node) => writer.get(node)?,
        None => None,
    };
    if let Some(mut node) = node {
        check_release(&node, allocation)?;
        assign_node(writer, &mut node, None, now, actor)?;
    }
    writer.delete(allocation.id)?;
    Ok(())
}

fn check_release(node: &Node, allocation: &Allocation) -> Result<(), WireError> {
    let in_transition =
        node.target_provision_state.is_some() && !update_allowed(node.provision_state);
    if node.maintenance || !(in_transition || node.provision_state == ProvisionState::Active) {
        return Ok(());
    }
    Err(WireError::conflict(format!(
        "Cannot remove allocation {} while its node {} is in state {}; tear it down, or set \
         maintenance first.",
        allocation.id,
        node.label(),
        node.provision_state
    )))
}

/// Sets or clears the allocation of a node.
fn assign_node(
    writer: &mut StoreWriter<'_>,
    node: &mut Node,
    allocation: Option<AllocationId>,
    now: Timestamp,
    actor: &Actor,
) -> Result<(), ApiError> {
    node.allocation_id = allocation;
    node.instance_uuid = allocation.map(|id| id.0);
    let fields = ["allocation_uuid", "instance_uuid"].map(str::to_owned).to_vec();
    let event = JournalEvent::Changed { fields };
    writer.append(JournalEntry { at: now, node_id: node.id, actor: actor.clone(), event });
    let (id, instance) = (node.id, node.instance_uuid.unwrap_or_default());
    writer.save(node).on_duplicate(|_| {
        WireError::conflict(format!("{instance} is an instance on another node than {id} already."))
    })
}

/// The allocation of a node. The caller must see the node, and `rule` must match the allocation.
fn allocation_of_node(
    reader: &mut StoreReader<'_>,
    node: &Node,
    access: &CallerAccess,
    rule: &'static str,
) -> Result<Allocation, ApiError> {
    let allocation = match node.allocation_id {
        Some(id) => reader.get(id)?,
        None => None,
    };
    let allocation =
        allocation.ok_or_else(|| WireError::not_found("Allocation for node", &node.label()))?;
    access.require(rule, &PolicyTarget::allocation(allocation.owner.as_deref()))?;
    Ok(allocation)
}

fn already_exists(allocation: &Allocation, field: &str) -> WireError {
    WireError::conflict(match (field, &allocation.name) {
        ("name", Some(name)) => format!("An allocation with name {name} already exists."),
        _ => format!("An allocation with UUID {} already exists.", allocation.id),
    })
}
