// SPDX-License-Identifier: Apache-2.0
//! Finds a machine for an allocation.

use node_model::{
    Allocation, AllocationId, AllocationState, Happening, JournalEntry, Node, NodeId,
    ProvisionState,
};
use serde_json::Value;
use store::{AllocationFilter, NodeFilter, Query, Writer};

use crate::{Conductor, Error};

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
    /// Finds a machine for an allocation, in the background. An allocation whose process dies is
    /// taken up at the next start.
    pub fn allocate(&self, id: AllocationId) {
        let conductor = self.clone();
        tokio::spawn(async move {
            let done = conductor.clone();
            let outcome = conductor.store.write(move |tx| allocate(&done, tx, id)).await;
            if let Err(error) = outcome {
                tracing::error!(allocation = %id, %error, "could not look for a node");
            }
        });
    }

    /// Takes up the allocations that were in flight when the last process ended.
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

pub(crate) fn allocate(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: AllocationId,
) -> Result<(), Error> {
    let Some(mut allocation) = tx.get(id)? else { return Ok(()) };
    if allocation.state != AllocationState::Allocating {
        return Ok(());
    }
    match choose(tx, &allocation)? {
        Ok(mut node) => {
            hold(conductor, tx, &mut node, &allocation)?;
            allocation.node_id = Some(node.id);
            allocation.state = AllocationState::Active;
            allocation.last_error = None;
        }
        Err(reason) => {
            allocation.state = AllocationState::Error;
            allocation.last_error = Some(format!("Failed to process allocation {id}: {reason}"));
        }
    }
    tx.save(&mut allocation)?;
    Ok(())
}

fn choose(
    tx: &mut Writer<'_>,
    allocation: &Allocation,
) -> Result<Result<Node, AllocationError>, store::Error> {
    let resource_class = allocation.resource_class.clone().unwrap_or_default();
    let candidates = &allocation.candidate_nodes;
    let free: Vec<Node> = tx.collect(&Query {
        filter: NodeFilter {
            ids: (!candidates.is_empty()).then(|| candidates.clone()),
            resource_class: allocation.resource_class.clone(),
            provision_states: Some(vec![ProvisionState::Available]),
            associated: Some(false),
            maintenance: Some(false),
            power_known: Some(true),
            reserved: Some(false),
            project: allocation.owner.clone(),
            ..NodeFilter::default()
        },
        ..Query::default()
    })?;
    if free.is_empty() {
        let names: Vec<String> = candidates.iter().map(NodeId::to_string).collect();
        let candidates = if names.is_empty() {
            String::new()
        } else {
            format!(", among the candidates {}", names.join(", "))
        };
        return Ok(Err(AllocationError::NoneFree { resource_class, candidates }));
    }
    let count = free.len();
    let fitting: Vec<Node> = free
        .into_iter()
        .filter(|node| allocation.traits.iter().all(|wanted| node.traits.contains(wanted)))
        .collect();
    let Some(chosen) = pick(&fitting, allocation) else {
        return Ok(Err(AllocationError::NoneWithTraits {
            free: count,
            resource_class,
            traits: allocation.traits.join(", "),
        }));
    };
    Ok(Ok(chosen.clone()))
}

/// The node with the allocation's name if there is one, else one that the allocation's random id
/// points at, so that allocations spread over the fleet.
fn pick<'a>(fitting: &'a [Node], allocation: &Allocation) -> Option<&'a Node> {
    let namesake = fitting.iter().find(|node| node.name.is_some() && node.name == allocation.name);
    namesake.or_else(|| {
        let place = allocation.id.0.as_u128() % u128::try_from(fitting.len()).ok()?.max(1);
        fitting.get(usize::try_from(place).ok()?)
    })
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
