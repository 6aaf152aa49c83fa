// SPDX-License-Identifier: Apache-2.0
//! Finds a machine for an allocation.

use node_model::{
    Allocation, AllocationId, AllocationState, Happening, JournalEntry, Node, NodeId,
    ProvisionState,
};
use serde_json::Value;
use store::{AllocationFilter, Columns, NodeColumn, NodeFilter, Query, Reader, Writer};

use crate::Conductor;

/// Why no machine was found.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// None is free.
    #[error(
        "no node of resource class {resource_class} is available, unassociated, with known power \
         and out of maintenance{candidates}"
    )]
    NoneFree {
        /// The class asked for.
        resource_class: String,
        /// The candidates, if there were any.
        candidates: String,
    },
    /// Those that are free lack traits.
    #[error(
        "none of {free} free nodes of resource class {resource_class} has all traits: {traits}"
    )]
    NoneWithTraits {
        /// How many are free.
        free: usize,
        /// The class asked for.
        resource_class: String,
        /// The traits asked for.
        traits: String,
    },
}

impl Conductor {
    /// Finds a machine for an allocation, in the background. One that could not be served yet is
    /// tried again every few seconds, by whichever process lives.
    pub fn allocate(&self, id: AllocationId) {
        let conductor = self.clone();
        tokio::spawn(async move {
            if let Err(error) = conductor.allocate_now(id).await {
                tracing::warn!(allocation = %id, %error, "could not look for a node; trying again");
            }
        });
    }

    /// Looks at what is free first, then takes one in a transaction of its own, so that a large
    /// fleet is never read while others wait to write.
    pub(crate) async fn allocate_now(&self, id: AllocationId) -> Result<(), store::Error> {
        let Some(found) = self.store.read(move |reader| candidates(reader, id)).await? else {
            return Ok(());
        };
        let conductor = self.clone();
        self.store.write(move |tx| take(&conductor, tx, id, &found)).await
    }

    /// Takes up the allocations that still look for a machine.
    pub(crate) async fn take_up_allocations(&self) -> Result<(), store::Error> {
        let waiting = self
            .store
            .read(|reader| {
                let states = Some(vec![AllocationState::Allocating]);
                reader.collect(&Query::<Allocation> {
                    filter: AllocationFilter { states, ..AllocationFilter::default() },
                    ..Query::default()
                })
            })
            .await?;
        for allocation in waiting {
            self.allocate(allocation.id);
        }
        Ok(())
    }
}

/// The nodes an allocation may take, best first, or why there is none.
struct Candidates {
    fitting: Vec<NodeId>,
    none: Option<AllocationError>,
}

/// Reads which nodes would do. None if the allocation is no longer looking for one.
fn candidates(
    reader: &mut Reader<'_>,
    id: AllocationId,
) -> Result<Option<Candidates>, store::Error> {
    let Some(allocation) = reader.get(id)? else { return Ok(None) };
    if allocation.state != AllocationState::Allocating {
        return Ok(None);
    }
    let mut free = 0;
    let mut fitting = Vec::new();
    let mut namesake = None;
    let query = Query::<Node> {
        filter: free_nodes(&allocation),
        select: Columns::of(&[NodeColumn::Uuid, NodeColumn::Name, NodeColumn::Traits]),
        ..Query::default()
    };
    reader.list(&query, |node| {
        free += 1;
        if allocation.traits.iter().all(|wanted| node.traits.contains(wanted)) {
            if node.name.is_some() && node.name == allocation.name {
                namesake = Some(node.id);
            } else {
                fitting.push(node.id);
            }
        }
    })?;
    // Allocations begin at different places, so that they seldom want the same node.
    if !fitting.is_empty() {
        let start = allocation.id.0.as_u128() % fitting.len() as u128;
        fitting.rotate_left(usize::try_from(start).unwrap_or(0));
    }
    fitting.extend(namesake);
    if namesake.is_some() {
        fitting.rotate_right(1);
    }
    let none = fitting.is_empty().then(|| nothing_fits(&allocation, free));
    Ok(Some(Candidates { fitting, none }))
}

/// What an allocation may take, whether or not somebody is working on it right now.
fn free_nodes(allocation: &Allocation) -> NodeFilter {
    let candidates = &allocation.candidate_nodes;
    NodeFilter {
        ids: (!candidates.is_empty()).then(|| candidates.clone()),
        resource_class: allocation.resource_class.clone(),
        provision_states: Some(vec![ProvisionState::Available]),
        associated: Some(false),
        maintenance: Some(false),
        power_known: Some(true),
        project: allocation.owner.clone(),
        ..NodeFilter::default()
    }
}

fn nothing_fits(allocation: &Allocation, free: usize) -> AllocationError {
    let resource_class = allocation.resource_class.clone().unwrap_or_default();
    if free > 0 {
        let traits = allocation.traits.join(", ");
        return AllocationError::NoneWithTraits { free, resource_class, traits };
    }
    let names: Vec<String> = allocation.candidate_nodes.iter().map(NodeId::to_string).collect();
    let candidates = if names.is_empty() {
        String::new()
    } else {
        format!(", among the candidates {}", names.join(", "))
    };
    AllocationError::NoneFree { resource_class, candidates }
}

/// How many candidates one transaction looks at; if all were taken meanwhile, the next try looks
/// anew.
const TRIES: usize = 16;

/// Takes the first candidate that is still free. Loading a node locks it, so two allocations
/// cannot take the same one.
fn take(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: AllocationId,
    found: &Candidates,
) -> Result<(), store::Error> {
    let Some(mut allocation) = tx.get(id)? else { return Ok(()) };
    if allocation.state != AllocationState::Allocating {
        return Ok(());
    }
    if let Some(reason) = &found.none {
        allocation.state = AllocationState::Error;
        allocation.last_error = Some(format!("Failed to process allocation {id}: {reason}"));
        return tx.save(&mut allocation);
    }
    for candidate in found.fitting.iter().take(TRIES) {
        let Some(mut node) = tx.get(*candidate)? else { continue };
        if !is_free(&node) {
            continue;
        }
        hold(conductor, tx, &mut node, &allocation)?;
        allocation.node_id = Some(node.id);
        allocation.state = AllocationState::Active;
        allocation.last_error = None;
        return tx.save(&mut allocation);
    }
    Ok(())
}

fn is_free(node: &Node) -> bool {
    node.provision_state == ProvisionState::Available
        && node.instance_uuid.is_none()
        && node.reservation.is_none()
        && !node.maintenance
}

fn hold(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    node: &mut Node,
    allocation: &Allocation,
) -> Result<(), store::Error> {
    node.instance_uuid = Some(allocation.id.0);
    node.allocation_id = Some(allocation.id);
    let traits: Vec<Value> = allocation.traits.iter().map(|name| name.as_str().into()).collect();
    node.instance_info.set("traits", Value::Array(traits));
    tx.append(JournalEntry {
        at: tx.now(),
        node_id: node.id,
        actor: conductor.actor(),
        what: Happening::Changed {
            fields: vec!["instance_uuid".to_owned(), "allocation_uuid".to_owned()],
        },
    });
    tx.save(node)
}
