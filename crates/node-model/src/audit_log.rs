// SPDX-License-Identifier: Apache-2.0
//! The audit log: who changed what through the API, and which requests were refused.

use crate::{AuditEntryId, Timestamp, named_enum};

named_enum! {
    /// How a request ended.
    AuditOutcome {
        /// The change was made or accepted.
        Accepted = "accepted",
        /// The request was refused: the caller may not do it, or it is not possible.
        Refused = "refused",
        /// The server failed.
        Failed = "failed",
    }
}

/// One request in the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// The id.
    pub id: AuditEntryId,
    /// When the request ended.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// HTTP status of the response.
    pub status: i64,
    /// Stable id of the user.
    pub user_id: Option<String>,
    /// Name of the user.
    pub user: Option<String>,
    /// The project of the caller.
    pub project: Option<String>,
    /// The roles of the caller, separated by commas.
    pub roles: Option<String>,
    /// How the caller was authenticated.
    pub auth_method: Option<String>,
    /// HTTP method.
    pub method: String,
    /// Path of the URL, without the query.
    pub path: String,
    /// Id of the request.
    pub request_id: String,
    /// Network address of the client.
    pub address: Option<String>,
    /// Type of the resource, such as `node`.
    pub resource_type: Option<String>,
    /// Id of the resource: its UUID, or its name.
    pub resource_id: Option<String>,
    /// The error message of a refusal.
    pub message: Option<String>,
    /// Number of refusals of unauthenticated clients that were not recorded before this one.
    pub suppressed: i64,
}
