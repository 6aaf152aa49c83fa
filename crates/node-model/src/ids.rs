// SPDX-License-Identifier: Apache-2.0
//! One type per kind of id, so that the id of a node cannot be used to find a port.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new random id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::from_str(text).map(Self)
            }
        }
    )*};
}

ids! {
    /// A log of the ramdisk.
    AgentLogId
    /// An allocation.
    AllocationId
    /// An API token.
    ApiTokenId
    /// An entry of the audit log.
    AuditEntryId
    /// A chassis.
    ChassisId
    /// A deploy template.
    DeployTemplateId
    /// A deployment.
    DeploymentId
    /// A flavour.
    FlavourId
    /// An entry of a node's history.
    HistoryId
    /// A node.
    NodeId
    /// A port.
    PortId
    /// A portgroup.
    PortgroupId
    /// A project.
    ProjectId
    /// A quota of a project.
    QuotaId
    /// A report of an unknown machine.
    ReportId
    /// An inspection rule.
    RuleId
    /// A runbook.
    RunbookId
    /// A session of the web UI.
    SessionId
    /// A user or a service account.
    UserId
    /// A volume connector.
    VolumeConnectorId
    /// A volume target.
    VolumeTargetId
}
