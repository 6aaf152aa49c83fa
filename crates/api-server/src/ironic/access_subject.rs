// SPDX-License-Identifier: Apache-2.0
//! Which projects a resource belongs to, and whether the caller may see it.

use access_policy::PolicyTarget;
use node_model::{
    Allocation, Node, NodeId, Port, Portgroup, Runbook, VolumeConnector, VolumeTarget,
};
use store::{StoreError, StoreReader};

use crate::server::access::CallerAccess;

/// Seeing a node.
pub(crate) const SEE_NODE: &str = "baremetal:node:get";
const SEE_ALLOCATION: &str = "baremetal:allocation:get";
const SEE_RUNBOOK: &str = "baremetal:runbook:get";

/// The projects of a resource.
pub(crate) enum AccessSubject {
    /// A node, or a resource that belongs to a node.
    Node { owner: Option<String>, lessee: Option<String> },
    /// An allocation.
    Allocation { owner: Option<String> },
    /// A runbook. Every caller may see a public one.
    Runbook { owner: Option<String>, is_public: bool },
    /// A resource of the whole system. The dispatcher checks its rule.
    System,
}

/// Whether a request on a resource is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessDecision {
    /// The request is allowed.
    Allowed,
    /// The caller may see the resource, but does not match this rule.
    Denied(&'static str),
    /// The caller may not even see the resource: to it, the resource does not exist.
    Hidden,
}

impl AccessSubject {
    /// Checks that the caller may see the resource and matches `rule`.
    pub(crate) fn check(
        &self,
        access: &CallerAccess,
        rule: Option<&'static str>,
    ) -> AccessDecision {
        let decide = |sees: bool, target: &PolicyTarget<'_>| match rule {
            _ if !sees => AccessDecision::Hidden,
            Some(rule) if !access.allows(rule, target) => AccessDecision::Denied(rule),
            Some(_) | None => AccessDecision::Allowed,
        };
        match self {
            Self::Node { owner, lessee } => {
                let target = PolicyTarget::node(owner.as_deref(), lessee.as_deref());
                decide(access.allows(SEE_NODE, &target), &target)
            }
            Self::Allocation { owner } => {
                let target = PolicyTarget::allocation(owner.as_deref());
                decide(access.allows(SEE_ALLOCATION, &target), &target)
            }
            Self::Runbook { owner, is_public } => {
                let target = PolicyTarget::runbook(owner.as_deref());
                let rule = rule.unwrap_or(SEE_RUNBOOK);
                // As in Ironic, the existence of runbooks is not concealed.
                if access.allows(rule, &target) || (*is_public && rule == SEE_RUNBOOK) {
                    AccessDecision::Allowed
                } else {
                    AccessDecision::Denied(rule)
                }
            }
            Self::System => decide(true, &PolicyTarget::NONE),
        }
    }

    pub(crate) fn of_node(node: &Node, _: &mut StoreReader<'_>) -> Result<Self, StoreError> {
        Ok(Self::Node { owner: node.owner.clone(), lessee: node.lessee.clone() })
    }

    pub(crate) fn of_port(port: &Port, reader: &mut StoreReader<'_>) -> Result<Self, StoreError> {
        Self::of_node_id(port.node_id, reader)
    }

    pub(crate) fn of_portgroup(
        portgroup: &Portgroup,
        reader: &mut StoreReader<'_>,
    ) -> Result<Self, StoreError> {
        Self::of_node_id(portgroup.node_id, reader)
    }

    pub(crate) fn of_connector(
        connector: &VolumeConnector,
        reader: &mut StoreReader<'_>,
    ) -> Result<Self, StoreError> {
        Self::of_node_id(connector.node_id, reader)
    }

    pub(crate) fn of_target(
        target: &VolumeTarget,
        reader: &mut StoreReader<'_>,
    ) -> Result<Self, StoreError> {
        Self::of_node_id(target.node_id, reader)
    }

    pub(crate) fn of_allocation(
        allocation: &Allocation,
        _: &mut StoreReader<'_>,
    ) -> Result<Self, StoreError> {
        Ok(Self::Allocation { owner: allocation.owner.clone() })
    }

    pub(crate) fn of_runbook(
        runbook: &Runbook,
        _: &mut StoreReader<'_>,
    ) -> Result<Self, StoreError> {
        Ok(Self::Runbook { owner: runbook.owner.clone(), is_public: runbook.public })
    }

    pub(crate) fn of_none<R>(_: &R, _: &mut StoreReader<'_>) -> Result<Self, StoreError> {
        Ok(Self::System)
    }

    /// The projects of a node; none if it is being deleted.
    fn of_node_id(node: NodeId, reader: &mut StoreReader<'_>) -> Result<Self, StoreError> {
        let node = reader.get(node)?;
        let (owner, lessee) = node.map_or((None, None), |node| (node.owner, node.lessee));
        Ok(Self::Node { owner, lessee })
    }
}
