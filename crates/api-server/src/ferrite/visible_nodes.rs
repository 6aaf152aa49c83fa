// SPDX-License-Identifier: Apache-2.0
//! Which of many nodes the caller may see.

use std::collections::HashSet;

use access_policy::PolicyTarget;
use node_model::{Node, NodeId};
use store::{Columns, NodeColumn, NodeFilter, ResourcePage, ResourceQuery, StoreReader};

use crate::ironic::access_subject::SEE_NODE;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest};

/// Whether the caller may see the node and matches `rule` for it.
pub(crate) fn allows_node(access: &CallerAccess, rule: &str, node: &Node) -> bool {
    let target = PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref());
    access.allows(SEE_NODE, &target) && access.allows(rule, &target)
}

/// Those of the nodes that exist, that the caller may see, and for which `rule` matches.
pub(crate) fn allowed_nodes(
    reader: &mut StoreReader<'_>,
    access: &CallerAccess,
    rule: &str,
    mut ids: Vec<NodeId>,
) -> Result<HashSet<NodeId>, store::StoreError> {
    ids.sort_unstable();
    ids.dedup();
    let mut allowed = HashSet::new();
    if ids.is_empty() {
        return Ok(allowed);
    }
    let select = Columns::only(&[NodeColumn::Uuid, NodeColumn::Owner, NodeColumn::Lessee]);
    let filter = NodeFilter { ids: Some(ids), ..NodeFilter::default() };
    reader.list(&ResourceQuery { filter, page: ResourcePage::default(), select }, |node| {
        if allows_node(access, rule, node) {
            allowed.insert(node.id);
        }
    })?;
    Ok(allowed)
}

/// As [`allowed_nodes`], in the order given. All nodes if policy does not apply to the caller.
pub(crate) async fn allowed_nodes_of(
    request: &ApiRequest,
    rule: &'static str,
    ids: Vec<NodeId>,
) -> Result<Vec<NodeId>, ApiError> {
    if !request.access.is_restricted() {
        return Ok(ids);
    }
    let access = request.access.clone();
    // Evaluated even for an empty list, because the dispatcher expects it.
    let _ = access.allows(rule, &PolicyTarget::NONE);
    request
        .app
        .store
        .scan(move |reader| {
            let allowed = allowed_nodes(reader, &access, rule, ids.clone())?;
            Ok(ids.into_iter().filter(|id| allowed.contains(id)).collect())
        })
        .await
}
