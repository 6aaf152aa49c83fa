// SPDX-License-Identifier: Apache-2.0
//! Finds nodes for allocations.

use node_model::{
    Allocation, AllocationId, AllocationState, DeploymentId, JournalEntry, JournalEvent, Node,
    NodeId, ProjectQuota, ProvisionState, QuotaSubject,
};
use serde_json::Value;
use store::{
    AllocationFilter, Columns, NodeColumn, NodeFilter, ResourceQuery, StoreReader, StoreWriter,
};

use crate::Conductor;
use crate::error::error_text;

/// Why no node was found.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// No node is free.
    #[error(
        "no node of resource class {resource_class} is available, unassociated, with known power \
         and out of maintenance{candidates}"
    )]
    NoneFree {
        /// The requested class.
        resource_class: String,
        /// The candidates, if the request has any.
        candidates: String,
    },
    /// The free nodes do not have the traits.
    #[error(
        "none of {free} free nodes of resource class {resource_class} has all traits: {traits}"
    )]
    NoneWithTraits {
        /// The number of free nodes.
        free: usize,
        /// The requested class.
        resource_class: String,
        /// The requested traits.
        traits: String,
    },
}

impl Conductor {
    /// Processes an allocation in the background. If that fails, any process retries it in its next
    /// heartbeat interval.
    pub fn allocate(&self, id: AllocationId) {
        let conductor = self.clone();
        tokio::spawn(async move {
            if let Err(error) = conductor.allocate_now(id).await {
                tracing::warn!(allocation = %id, error = error_text(&error), "allocation could not be processed, will retry");
            }
        });
    }

    /// Reads the free nodes first, then takes one in a separate transaction, so that reading a large
    /// fleet does not block writers.
    pub(crate) async fn allocate_now(&self, id: AllocationId) -> Result<(), store::StoreError> {
        let Some(candidates) = self.store.read(move |reader| read_candidates(reader, id)).await?
        else {
            return Ok(());
        };
        let conductor = self.clone();
        self.store.write(move |tx| take(&conductor, tx, id, &candidates)).await
    }

    /// Processes all unfinished allocations.
    pub(crate) async fn resume_allocations(&self) -> Result<(), store::StoreError> {
        let unfinished = self
            .store
            .read(|reader| {
                let states = Some(vec![AllocationState::Allocating]);
                reader.collect(&ResourceQuery::<Allocation> {
                    filter: AllocationFilter { states, ..AllocationFilter::default() },
                    ..ResourceQuery::default()
                })
            })
            .await?;
        for allocation in unfinished {
            self.allocate(allocation.id);
        }
        Ok(())
    }
}

/// The nodes that an allocation may take, best first, or the error if there are none.
struct AllocationCandidates {
    nodes: Vec<NodeId>,
    error: Option<AllocationError>,
}

/// Reads the matching nodes. Returns `None` if the allocation is processed already.
fn read_candidates(
    reader: &mut StoreReader<'_>,
    id: AllocationId,
) -> Result<Option<AllocationCandidates>, store::StoreError> {
    let Some(allocation) = reader.get(id)? else { return Ok(None) };
    if allocation.state != AllocationState::Allocating {
        return Ok(None);
    }
    let mut free = 0;
    let mut nodes = Vec::new();
    let mut namesake = None;
    let query = ResourceQuery::<Node> {
        filter: NodeFilter { owner: requested_owner(reader, id)?, ..free_nodes(&allocation) },
        select: Columns::only(&[NodeColumn::Uuid, NodeColumn::Name, NodeColumn::Traits]),
        ..ResourceQuery::default()
    };
    reader.list(&query, |node| {
        free += 1;
        if allocation.traits.iter().all(|name| node.traits.contains(name)) {
            if node.name.is_some() && node.name == allocation.name {
                namesake = Some(node.id);
            } else {
                nodes.push(node.id);
            }
        }
    })?;
    // Allocations start at different offsets, so that they rarely compete for a node.
    if !nodes.is_empty() {
        let start = allocation.id.0.as_u128() % nodes.len() as u128;
        nodes.rotate_left(usize::try_from(start).unwrap_or(0));
    }
    nodes.extend(namesake);
    if namesake.is_some() {
        nodes.rotate_right(1);
    }
    let error = nodes.is_empty().then(|| no_match(&allocation, free));
    Ok(Some(AllocationCandidates { nodes, error }))
}

/// The nodes that an allocation may take, including those that are leased now.
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

/// The owner that the deployment of an allocation requests for its machine.
fn requested_owner(
    reader: &mut StoreReader<'_>,
    id: AllocationId,
) -> Result<Option<String>, store::StoreError> {
    let deployment = reader.get(DeploymentId(id.0))?;
    Ok(deployment.and_then(|deployment| deployment.node_owner))
}

fn no_match(allocation: &Allocation, free: usize) -> AllocationError {
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

/// The number of candidates checked in one transaction. If all were taken meanwhile, the next attempt
/// reads them again.
const MAX_CHECKS: usize = 16;

/// Takes the first candidate that is still free. Loading a node locks it, so that two allocations
/// cannot take the same node.
fn take(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    id: AllocationId,
    candidates: &AllocationCandidates,
) -> Result<(), store::StoreError> {
    let Some(mut allocation) = tx.get(id)? else { return Ok(()) };
    if allocation.state != AllocationState::Allocating {
        return Ok(());
    }
    if let Some(error) = &candidates.error {
        allocation.state = AllocationState::Error;
        allocation.last_error = Some(format!("Failed to process allocation {id}: {error}"));
        return tx.save(&mut allocation);
    }
    for candidate in candidates.nodes.iter().take(MAX_CHECKS) {
        let Some(mut node) = tx.get(*candidate)? else { continue };
        if !is_free(&node) || !may_take(tx, &node, &allocation)? {
            continue;
        }
        if allocation.resource_class.is_none() {
            if let Some(quota) = exceeded_class_quota(tx, &allocation, &node)? {
                let (subject, machines) = (&quota.subject, quota.machines);
                allocation.state = AllocationState::Error;
                allocation.last_error = Some(format!(
                    "Failed to process allocation {id}: the project already has {machines} machines, \
                     which is its quota of {subject}"
                ));
                return tx.save(&mut allocation);
            }
            allocation.resource_class.clone_from(&node.resource_class);
        }
        assign(conductor, tx, &mut node, &allocation)?;
        allocation.node_id = Some(node.id);
        allocation.state = AllocationState::Active;
        allocation.last_error = None;
        return tx.save(&mut allocation);
    }
    Ok(())
}

/// Whether the project of the allocation still owns or leases the node, and its owner is the requested
/// one.
fn may_take(
    tx: &mut StoreWriter<'_>,
    node: &Node,
    allocation: &Allocation,
) -> Result<bool, store::StoreError> {
    let project = &allocation.owner;
    let is_own = project.is_none() || node.owner == *project || node.lessee == *project;
    let owner = requested_owner(tx, allocation.id)?;
    Ok(is_own && (owner.is_none() || node.owner == owner))
}

/// The quota for the resource class of the node, if the project has no machine of it left. The request did
/// not name the class, so it was not checked before.
fn exceeded_class_quota(
    tx: &mut StoreWriter<'_>,
    allocation: &Allocation,
    node: &Node,
) -> Result<Option<ProjectQuota>, store::StoreError> {
    let (Some(project), Some(class)) = (&allocation.owner, &node.resource_class) else {
        return Ok(None);
    };
    let subject = QuotaSubject::ResourceClass(class.clone());
    let quota = tx.quotas_of(project)?.into_iter().find(|quota| quota.subject == subject);
    let Some(quota) = quota else { return Ok(None) };
    let used = tx.quota_usage(project, &subject)?;
    Ok(Some(quota).filter(|quota| used >= quota.machines))
}

fn is_free(node: &Node) -> bool {
    node.provision_state == ProvisionState::Available
        && node.instance_uuid.is_none()
        && node.reservation.is_none()
        && !node.maintenance
}

fn assign(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    allocation: &Allocation,
) -> Result<(), store::StoreError> {
    node.instance_uuid = Some(allocation.id.0);
    node.allocation_id = Some(allocation.id);
    let traits: Vec<Value> = allocation.traits.iter().map(|name| name.as_str().into()).collect();
    node.instance_info.set("traits", Value::Array(traits));
    tx.append(JournalEntry {
        at: tx.now(),
        node_id: node.id,
        actor: conductor.actor(),
        event: JournalEvent::Changed {
            fields: vec!["instance_uuid".to_owned(), "allocation_uuid".to_owned()],
        },
    });
    tx.save(node)
}
