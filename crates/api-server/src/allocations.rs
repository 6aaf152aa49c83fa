// SPDX-License-Identifier: Apache-2.0
//! Allocations: requests for any machine of a kind, and the machines they hold.

use http::Method;
use ironic_wire::{AllocationDraft, Context, ListQuery, Patch, WireError, create as draft, params};
use lifecycle::update_allowed;
use node_model::{
    Actor, Allocation, AllocationId, AllocationState, Happening, JournalEntry, Node, NodeId,
    ProvisionState, Timestamp,
};
use serde_json::Value;
use store::{AllocationFilter, Reader, Writer};

use crate::belongings::named_node;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::nodes::reach;
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const SINCE: u16 = 52;
const PATCH_SINCE: u16 = 57;
const ALL: &str = "/v1/allocations";
const ONE: &str = "/v1/allocations/{allocation}";
const OF_NODE: &str = "/v1/nodes/{node}/allocation";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List allocations", handler!(list)).since(SINCE).query(&[
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
    Route::new(Method::POST, ALL, "Ask for a machine", handler!(create))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(ONE, "Show an allocation", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change an allocation", handler!(patch))
        .since(PATCH_SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ONE, "Give a machine back", handler!(delete))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(OF_NODE, "Show the allocation that holds a node", handler!(show_of_node))
        .since(SINCE)
        .query(&["fields"]),
    Route::new(Method::DELETE, OF_NODE, "Give a node back", handler!(delete_of_node)).since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let node = call.query_value("node").map(|text| Ident::of_text(&call, text));
    let path = "allocations".into();
    kept::list::<Allocation>(call, params::ALLOCATIONS, Whole::OnDemand, path, |reader, query| {
        filter(reader, query, node)
    })
    .await
}

fn filter(
    reader: &mut Reader<'_>,
    query: &ListQuery<Allocation>,
    node: Option<Ident>,
) -> Result<AllocationFilter, Refusal> {
    let owned = |name: &str| query.text(name).map(str::to_owned);
    Ok(AllocationFilter {
        node: match node {
            None => None,
            Some(ident) => Some(named_node(reader, &ident)?.id),
        },
        resource_class: owned("resource_class"),
        // No allocation is in a state that does not exist.
        states: query.text("state").map(|state| state.parse().into_iter().collect()),
        owner: owned("owner"),
    })
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<Allocation>(call, "allocation", params::ONE_WITH_FIELDS).await
}

async fn show_of_node(call: Call) -> Result<Reply, Refusal> {
    let query = ListQuery::<Allocation>::parse(
        params::ONE_WITH_FIELDS,
        &call.query,
        call.version,
        1,
        true,
    )?;
    let ident = Ident::of_path(&call, "node");
    let allocation = call.app.store.read(move |reader| of_node(reader, &ident)).await?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(query.selection.body(&allocation, &context)))
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let (now, actor) = (call.now(), call.actor());
    let drafted = draft::<Allocation>(&call.body, call.version, now)?;
    let named = |text: &String| Ident::of_text(&call, text);
    let candidates = drafted.draft.candidate_nodes.iter().map(named).collect();
    let node = drafted.draft.node.as_ref().map(named);
    let new = New {
        names_uuid: drafted.has("uuid"),
        allocation: drafted.draft.allocation,
        candidates,
        node,
    };
    let app = call.app.clone();
    let work = async move {
        let allocation = app.store.write(move |writer| new.store(writer, now, &actor)).await?;
        if allocation.state == AllocationState::Allocating {
            app.conductor.allocate(allocation.id);
        }
        Ok::<_, Refusal>(allocation)
    };
    // A task of its own: were the client to hang up after the allocation is stored and before the
    // search for a machine begins, nothing would begin it until the next start.
    let allocation = reach::finished(tokio::spawn(work)).await?;
    Ok(kept::created(&call, &allocation))
}

/// A node the allocation may choose. Clients know the words of the refusal.
fn candidate(writer: &mut Writer<'_>, ident: &Ident) -> Result<NodeId, Refusal> {
    named_node(writer, ident).map(|node| node.id).map_err(|refusal| match refusal {
        Refusal::Wire(_) => {
            WireError::invalid(format!("Nodes cannot be found: {}", ident.excerpt())).into()
        }
        store @ Refusal::Store(_) => store,
    })
}

/// An allocation about to be stored, and the nodes it names.
struct New {
    allocation: Allocation,
    names_uuid: bool,
    candidates: Vec<Ident>,
    node: Option<Ident>,
}

impl New {
    /// Stores it; a backfill holds its node at once.
    fn store(
        &self,
        writer: &mut Writer<'_>,
        now: Timestamp,
        actor: &Actor,
    ) -> Result<Allocation, Refusal> {
        let mut allocation = self.allocation.clone();
        for ident in &self.candidates {
            let candidate = candidate(writer, ident)?;
            if !allocation.candidate_nodes.contains(&candidate) {
                allocation.candidate_nodes.push(candidate);
            }
        }
        match &self.node {
            None => {
                writer.insert(&allocation).on_duplicate(|field| already(&allocation, field))?;
            }
            Some(ident) => {
                let node = named_node(writer, ident)?;
                self.backfill(writer, &mut allocation, node, now, actor)?;
            }
        }
        Ok(allocation)
    }

    fn backfill(
        &self,
        writer: &mut Writer<'_>,
        allocation: &mut Allocation,
        mut node: Node,
        now: Timestamp,
        actor: &Actor,
    ) -> Result<(), Refusal> {
        // The instance that is there already is what the allocation stands for.
        if let (Some(instance), false) = (node.instance_uuid, self.names_uuid) {
            allocation.id = AllocationId(instance);
        }
        if allocation.resource_class.is_none() {
            allocation.resource_class.clone_from(&node.resource_class);
        }
        // What exists already says more than what does not fit.
        if writer.get(allocation.id)?.is_some() {
            return Err(already(allocation, "uuid").into());
        }
        check_backfill(allocation, &node)?;
        allocation.state = AllocationState::Active;
        allocation.node_id = Some(node.id);
        allocation.updated_at = Some(now);
        writer.insert(&*allocation).on_duplicate(|field| already(allocation, field))?;
        let traits: Vec<Value> =
            allocation.traits.iter().map(|name| name.as_str().into()).collect();
        node.instance_info.set("traits", Value::Array(traits));
        hold(writer, &mut node, Some(allocation.id), now, actor)
    }
}

/// A backfill is for machines in use that nobody allocated: it must fit what is there.
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
        .filter(|wanted| !node.traits.contains(wanted))
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

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    patch.check::<Allocation>(call.version)?;
    let ident = Ident::of_path(&call, "allocation");
    let version = call.version;
    let allocation = call
        .app
        .store
        .write(move |writer| {
            let current = AllocationDraft::new(ident.find(writer)?);
            let mut allocation = patch.apply::<Allocation>(current, version)?.draft.allocation;
            writer.save(&mut allocation).on_duplicate(|field| already(&allocation, field))?;
            Ok::<_, Refusal>(allocation)
        })
        .await?;
    Ok(kept::changed(&call, &allocation))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "allocation");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let allocation: Allocation = ident.find(writer)?;
            give_back(writer, &allocation, now, &actor)
        })
        .await?;
    Ok(Reply::no_content())
}

async fn delete_of_node(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let allocation = of_node(writer, &ident)?;
            give_back(writer, &allocation, now, &actor)
        })
        .await?;
    Ok(Reply::no_content())
}

/// Ends an allocation: its node is free again. 409 while the node is in use.
fn give_back(
    writer: &mut Writer<'_>,
    allocation: &Allocation,
    now: Timestamp,
    actor: &Actor,
) -> Result<(), Refusal> {
    let held = match allocation.node_id {
        Some(node) => writer.get(node)?,
        None => None,
    };
    if let Some(mut node) = held {
        check_release(&node, allocation)?;
        hold(writer, &mut node, None, now, actor)?;
    }
    writer.delete(allocation.id)?;
    Ok(())
}

fn check_release(node: &Node, allocation: &Allocation) -> Result<(), WireError> {
    let moving = node.target_provision_state.is_some() && !update_allowed(node.provision_state);
    if node.maintenance || !(moving || node.provision_state == ProvisionState::Active) {
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

/// Makes a node the machine of an allocation, or of none.
fn hold(
    writer: &mut Writer<'_>,
    node: &mut Node,
    allocation: Option<AllocationId>,
    now: Timestamp,
    actor: &Actor,
) -> Result<(), Refusal> {
    node.allocation_id = allocation;
    node.instance_uuid = allocation.map(|id| id.0);
    let fields = ["allocation_uuid", "instance_uuid"].map(str::to_owned).to_vec();
    let what = Happening::Changed { fields };
    writer.append(JournalEntry { at: now, node_id: node.id, actor: actor.clone(), what });
    let (id, instance) = (node.id, node.instance_uuid.unwrap_or_default());
    writer.save(node).on_duplicate(|_| {
        WireError::conflict(format!("{instance} is an instance on another node than {id} already."))
    })
}

/// The allocation that holds a node.
fn of_node(reader: &mut Reader<'_>, ident: &Ident) -> Result<Allocation, Refusal> {
    let node: Node = ident.find(reader)?;
    let allocation = match node.allocation_id {
        Some(id) => reader.get(id)?,
        None => None,
    };
    allocation.ok_or_else(|| WireError::not_found("Allocation for node", &node.label()).into())
}

fn already(allocation: &Allocation, field: &str) -> WireError {
    WireError::conflict(match (field, &allocation.name) {
        ("name", Some(name)) => format!("An allocation with name {name} already exists."),
        _ => format!("An allocation with UUID {} already exists.", allocation.id),
    })
}
