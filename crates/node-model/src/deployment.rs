// SPDX-License-Identifier: Apache-2.0
//! Deployments: requests for a machine with an instance on it, for a limited or unlimited time; and the
//! quotas of projects.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{
    Actor, Allocation, AllocationId, AllocationState, DeploymentId, JsonObject, Node, NodeId,
    QuotaId, Timestamp, named_enum,
};

named_enum! {
    /// The state of a deployment.
    DeploymentState {
        /// A machine is being searched.
        Allocating = "allocating",
        /// A machine is reserved; its deployment is not requested yet.
        Reserved = "reserved",
        /// The image is being deployed.
        Deploying = "deploying",
        /// The instance runs.
        Active = "active",
        /// No machine was found, or the deployment failed. A reserved machine stays reserved.
        Failed = "failed",
        /// The instance is being removed; the deployment is deleted afterwards.
        Deleting = "deleting",
    }
    /// What happens when the lease of a deployment ends.
    LeaseEndAction {
        /// The instance is removed and the machine released.
        Undeploy = "undeploy",
        /// Only the journal and the log mention it.
        Notify = "notify",
    }
}

/// A request for a machine with an instance, and its fulfilment.
///
/// The allocation that reserves the machine, and the instance, have the same UUID as the deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// The id.
    pub id: DeploymentId,
    /// Unique name; also the host name of the instance.
    pub name: Option<String>,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The state.
    pub state: DeploymentState,
    /// The project it belongs to, which owns or leases the machine; `None` for the operators'.
    pub project: Option<String>,
    /// The user who requested it.
    pub user: Option<String>,
    /// The id of the API request that created it.
    pub request_id: String,
    /// The requested flavour.
    pub flavour: Option<String>,
    /// The requested resource class, or that of the flavour.
    pub resource_class: Option<String>,
    /// The requested traits, including those of the flavour.
    pub traits: Vec<String>,
    /// The machine must be owned by this project.
    pub node_owner: Option<String>,
    /// The machine must be one of these; empty means any.
    pub candidate_nodes: Vec<NodeId>,
    /// The reserved machine.
    pub node_id: Option<NodeId>,
    /// `instance_info`, `ssh_keys`, `user_data` and `network_data` of the instance. Secrets are masked.
    pub instance: JsonObject,
    /// The secrets of `instance`, encrypted by the store.
    pub sealed: Vec<u8>,
    /// Why it failed, or why its removal is delayed.
    pub last_error: Option<String>,
    /// When the lease ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// How many seconds before the end of the lease to warn.
    pub warn_seconds: i64,
    /// What happens at the end of the lease.
    pub expiry_action: LeaseEndAction,
    /// When the warning was given for the current end of the lease.
    pub warned_at: Option<Timestamp>,
    /// When the end of the lease was handled.
    pub expired_at: Option<Timestamp>,
    /// When to look at it next; `None` if only a request can change it.
    pub due_at: Option<Timestamp>,
}

impl Deployment {
    /// Whether the instance on a node is that of this deployment. A node can be released and used for
    /// another instance before the deployment is updated.
    #[must_use]
    pub fn runs_on(&self, node: &Node) -> bool {
        node.instance_uuid == Some(self.id.0)
    }

    /// A request without a machine, a project or a lease, which is due at once.
    #[must_use]
    pub const fn new(id: DeploymentId, created_at: Timestamp) -> Self {
        Self {
            id,
            name: None,
            created_at,
            updated_at: None,
            state: DeploymentState::Allocating,
            project: None,
            user: None,
            request_id: String::new(),
            flavour: None,
            resource_class: None,
            traits: Vec::new(),
            node_owner: None,
            candidate_nodes: Vec::new(),
            node_id: None,
            instance: JsonObject::empty(),
            sealed: Vec::new(),
            last_error: None,
            expires_at: None,
            warn_seconds: 0,
            expiry_action: LeaseEndAction::Undeploy,
            warned_at: None,
            expired_at: None,
            due_at: Some(created_at),
        }
    }

    /// The allocation that searches a machine for the deployment.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        Allocation {
            id: self.allocation_id(),
            created_at: self.created_at,
            updated_at: None,
            name: self.name.clone(),
            state: AllocationState::Allocating,
            node_id: None,
            resource_class: self.resource_class.clone(),
            traits: self.traits.clone(),
            candidate_nodes: self.candidate_nodes.clone(),
            last_error: None,
            owner: self.project.clone(),
            extra: JsonObject::empty(),
        }
    }

    /// The id of the allocation that reserves the machine.
    #[must_use]
    pub const fn allocation_id(&self) -> AllocationId {
        AllocationId(self.id.0)
    }

    /// Who requested it, as the actor of everything that is done for it.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor::User {
            name: self.user.clone(),
            project: self.project.clone(),
            request_id: self.request_id.clone(),
        }
    }

    /// Its name, or its id.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// When to warn about the end of the lease.
    #[must_use]
    pub fn warn_at(&self) -> Option<Timestamp> {
        let before = Duration::from_secs(u64::try_from(self.warn_seconds).unwrap_or(0));
        let micros = i64::try_from(before.as_micros()).unwrap_or(i64::MAX);
        self.expires_at.filter(|_| micros > 0).map(|end| Timestamp(end.0.saturating_sub(micros)))
    }
}

/// What a quota limits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaSubject {
    /// Machines in total.
    Machines,
    /// Machines of one resource class.
    ResourceClass(String),
    /// Machines of one flavour.
    Flavour(String),
}

/// A limit of a project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectQuota {
    /// The id of the record.
    pub id: QuotaId,
    /// The project.
    pub project: String,
    /// What is limited.
    pub subject: QuotaSubject,
    /// The maximum number of machines.
    pub machines: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

/// The text is not the subject of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not machines, resource_class:NAME or flavour:NAME")]
pub struct ParseQuotaSubjectError;

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines => f.write_str("machines"),
            Self::ResourceClass(name) => write!(f, "resource_class:{name}"),
            Self::Flavour(name) => write!(f, "flavour:{name}"),
        }
    }
}

impl FromStr for QuotaSubject {
    type Err = ParseQuotaSubjectError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaSubjectError> {
        let named = |name: &str| {
            if name.is_empty() { Err(ParseQuotaSubjectError) } else { Ok(name.to_owned()) }
        };
        match text.split_once(':') {
            None if text == "machines" => Ok(Self::Machines),
            Some(("resource_class", name)) => named(name).map(Self::ResourceClass),
            Some(("flavour", name)) => named(name).map(Self::Flavour),
            None | Some(_) => Err(ParseQuotaSubjectError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_quota_subjects() {
        for text in ["machines", "resource_class:big", "flavour:a:b"] {
            let subject: QuotaSubject = text.parse().unwrap();
            assert_eq!(subject.to_string(), text);
        }
        for text in ["", "machine", "resource_class", "resource_class:", "class:x"] {
            assert_eq!(text.parse::<QuotaSubject>(), Err(ParseQuotaSubjectError), "{text}");
        }
    }
}
