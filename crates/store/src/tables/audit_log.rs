// SPDX-License-Identifier: Apache-2.0
//! The `audit_log` table.

use node_model::{AuditEntry, AuditEntryId, AuditOutcome, Timestamp};
use uuid::Uuid;

use super::optional_param;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, ResourceId, StoredResource, columns};
use crate::value::{ColumnType as _, SqlParam};
use crate::writer::StoreWriter;

/// Maximum number of entries deleted by one transaction.
const MAX_PRUNED: i64 = 10_000;

columns!(AuditEntry, AuditColumn, "audit_log", blank_entry(), {
    Uuid "uuid" id;
    RecordedAt "recorded_at" at;
    Outcome "outcome" outcome;
    Status "status" status;
    UserId "user_id" user_id;
    UserName "user_name" user;
    Project "project" project;
    Roles "roles" roles;
    AuthMethod "auth_method" auth_method;
    Method "method" method;
    Path "path" path;
    RequestId "request_id" request_id;
    Address "address" address;
    ResourceType "resource_type" resource_type;
    ResourceId "resource_id" resource_id;
    Message "message" message;
    Suppressed "suppressed" suppressed;
});

/// Filter for lists of audit entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// Of this user name.
    pub user: Option<String>,
    /// Of callers of this project.
    pub project: Option<String>,
    /// On resources of this type.
    pub resource_type: Option<String>,
    /// On the resource with one of these ids.
    pub resources: Option<Vec<String>>,
    /// Of this request.
    pub request_id: Option<String>,
    /// From this client.
    pub address: Option<String>,
    /// With this outcome.
    pub outcome: Option<AuditOutcome>,
    /// At this time or later.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub to: Option<Timestamp>,
}

impl ResourceFilter for AuditFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        for (column, value) in [
            ("user_name", optional_param(&self.user)),
            ("project", optional_param(&self.project)),
            ("resource_type", optional_param(&self.resource_type)),
            ("request_id", optional_param(&self.request_id)),
            ("address", optional_param(&self.address)),
            ("outcome", optional_param(&self.outcome)),
        ] {
            to.equals(column, value);
        }
        if let Some(resources) = &self.resources {
            to.in_list("resource_id", resources.iter().map(|id| id.bind()));
        }
        if let Some(from) = &self.from {
            to.and("recorded_at >= ?").params.push(from.bind());
        }
        if let Some(before) = &self.to {
            to.and("recorded_at < ?").params.push(before.bind());
        }
    }
}

impl StoredResource for AuditEntry {
    type Id = AuditEntryId;
    type Filter = AuditFilter;

    fn uuid(&self) -> Uuid {
        self.id.0
    }

    fn touch(&mut self, _now: Timestamp) {}
}

impl ResourceId for AuditEntryId {
    type Resource = AuditEntry;

    fn uuid(self) -> Uuid {
        self.0
    }
}

impl StoreWriter<'_> {
    /// Deletes a limited number of audit entries from before `before`. Returns how many.
    pub fn prune_audit_log(&mut self, before: Timestamp) -> Result<u64, StoreError> {
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session.execute(
            "DELETE FROM audit_log WHERE id IN (SELECT id FROM
             (SELECT id FROM audit_log WHERE recorded_at < ? ORDER BY id LIMIT ?) AS oldest)",
            &[before.bind(), SqlParam::Int(MAX_PRUNED)],
        )
    }
}

fn blank_entry() -> AuditEntry {
    AuditEntry {
        id: AuditEntryId(Uuid::nil()),
        at: Timestamp(0),
        outcome: AuditOutcome::Accepted,
        status: 0,
        user_id: None,
        user: None,
        project: None,
        roles: None,
        auth_method: None,
        method: String::new(),
        path: String::new(),
        request_id: String::new(),
        address: None,
        resource_type: None,
        resource_id: None,
        message: None,
        suppressed: 0,
    }
}
