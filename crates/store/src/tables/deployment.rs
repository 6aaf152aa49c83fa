// SPDX-License-Identifier: Apache-2.0
//! The tables of deployments and quotas.

use node_model::{
    Deployment, DeploymentId, DeploymentState, NodeId, ProjectQuota, QuotaId, QuotaSubject,
    Timestamp,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::optional_param;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::record::{ResourceFilter, StoredRecord as _, columns, resource};
use crate::secrets;
use crate::value::{ColumnType, CorruptValue, SqlParam, SqlValue};

columns!(Deployment, DeploymentColumn, "deployments", blank_deployment(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    State "state" state;
    Project "project" project;
    UserName "user_name" user;
    RequestId "request_id" request_id;
    Flavour "flavour" flavour;
    ResourceClass "resource_class" resource_class;
    Traits "traits" traits;
    NodeOwner "node_owner" node_owner;
    CandidateNodes "candidate_nodes" candidate_nodes;
    NodeUuid "node_uuid" node_id;
    Instance "instance" instance;
    Sealed "sealed" sealed;
    LastError "last_error" last_error;
    ExpiresAt "expires_at" expires_at;
    WarnSeconds "warn_seconds" warn_seconds;
    ExpiryAction "expiry_action" expiry_action;
    WarnedAt "warned_at" warned_at;
    ExpiredAt "expired_at" expired_at;
    DueAt "due_at" due_at;
});
resource!(Deployment, DeploymentId, DeploymentFilter);

columns!(ProjectQuota, QuotaColumn, "quotas", blank_quota(), {
    Uuid "uuid" id;
    Project "project" project;
    Subject "subject" subject;
    Machines "machines" machines;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
});
resource!(ProjectQuota, QuotaId, QuotaFilter);

/// Filter for lists of deployments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeploymentFilter {
    /// Of this project.
    pub project: Option<String>,
    /// Of this project, or with an instance on a machine that it owns.
    pub visible_to: Option<String>,
    /// Requested by this user.
    pub user: Option<String>,
    /// In one of these states.
    pub states: Option<Vec<DeploymentState>>,
    /// On this node.
    pub node: Option<NodeId>,
    /// Due at this time.
    pub due_at: Option<Timestamp>,
}

impl ResourceFilter for DeploymentFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("project", optional_param(&self.project));
        if let Some(project) = &self.visible_to {
            to.and(
                "(project = ? OR node_uuid IN (SELECT nodes.uuid FROM nodes
                 WHERE nodes.owner = ? AND nodes.instance_uuid = deployments.uuid))",
            );
            to.params.extend([project.bind(), project.bind()]);
        }
        to.equals("user_name", optional_param(&self.user));
        to.equals("node_uuid", optional_param(&self.node));
        if let Some(states) = &self.states {
            to.in_list("state", states.iter().map(ColumnType::bind));
        }
        if let Some(now) = &self.due_at {
            to.and("due_at <= ?").params.push(now.bind());
        }
    }
}

/// Filter for lists of quotas.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaFilter {
    /// Of this project.
    pub project: Option<String>,
}

impl ResourceFilter for QuotaFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("project", optional_param(&self.project));
    }
}

impl ColumnType for QuotaSubject {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Owned(self.to_string())
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.text()?.parse().map_err(|_| CorruptValue)
    }
}

impl StoreReader<'_> {
    /// When the next deployment becomes due, of those that are not due yet.
    pub fn next_deployment_after(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT due_at FROM deployments WHERE due_at > ? ORDER BY due_at LIMIT 1";
        let found: Vec<Timestamp> =
            self.query_column(sql, &[now.bind()], "deployments", "due_at")?;
        Ok(found.first().copied())
    }

    /// `instance` of a deployment with its secrets, for the machine only.
    pub fn reveal_deployment(
        &self,
        deployment: &Deployment,
    ) -> Result<Map<String, Value>, StoreError> {
        secrets::reveal_deployment(&self.shared.keys, deployment)
    }

    /// Stores `instance` in a deployment: masked in its field, encrypted in `sealed`.
    pub fn seal_deployment(
        &self,
        deployment: &mut Deployment,
        instance: Map<String, Value>,
    ) -> Result<(), StoreError> {
        secrets::seal_deployment(&self.shared.keys, deployment, instance)
    }

    /// The quotas of a project. Inside a write their rows are locked, so that concurrent requests of the
    /// same project are counted one after the other.
    pub fn quotas_of(&mut self, project: &str) -> Result<Vec<ProjectQuota>, StoreError> {
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let select = &ProjectQuota::statements().select;
        let sql = format!("{select} WHERE project = ? ORDER BY subject{lock}");
        let mut found = Vec::new();
        self.session.query(&sql, &[SqlParam::Text(project)], &mut |row| {
            let mut quota = blank_quota();
            crate::record::decode_row(&mut quota, ProjectQuota::COLUMNS.iter(), row, 0)?;
            found.push(quota);
            Ok(())
        })?;
        Ok(found)
    }

    /// Number of machines that a project holds or waits for. Every deployment has an allocation, except
    /// while its machine is being cleaned; other allocations of the project count as well.
    pub fn quota_usage(
        &mut self,
        project: &str,
        subject: &QuotaSubject,
    ) -> Result<i64, StoreError> {
        let of_project = SqlParam::Text(project);
        let (sql, params) = match subject {
            QuotaSubject::Machines => (
                "SELECT COUNT(*) FROM allocations WHERE owner = ? AND state <> 'error'",
                vec![of_project],
            ),
            QuotaSubject::ResourceClass(class) => (
                "SELECT COUNT(*) FROM allocations WHERE owner = ? AND state <> 'error'
                 AND resource_class = ?",
                vec![of_project, class.bind()],
            ),
            QuotaSubject::Flavour(flavour) => (
                "SELECT COUNT(*) FROM deployments WHERE project = ? AND flavour = ?
                 AND (state <> 'failed' OR node_uuid IS NOT NULL)",
                vec![of_project, flavour.bind()],
            ),
        };
        let mut count = 0_i64;
        self.session.query(sql, &params, &mut |row| {
            count = decode_field(row, 0, "allocations", "COUNT(*)")?;
            Ok(())
        })?;
        Ok(count)
    }

    /// The first quota of a project that another machine would exceed.
    pub fn exceeded_quota(
        &mut self,
        project: &str,
        resource_class: Option<&str>,
        flavour: Option<&str>,
    ) -> Result<Option<ProjectQuota>, StoreError> {
        for quota in self.quotas_of(project)? {
            let applies = match &quota.subject {
                QuotaSubject::Machines => true,
                QuotaSubject::ResourceClass(class) => resource_class == Some(class),
                QuotaSubject::Flavour(name) => flavour == Some(name),
            };
            if applies && self.quota_usage(project, &quota.subject)? >= quota.machines {
                return Ok(Some(quota));
            }
        }
        Ok(None)
    }
}

fn blank_deployment() -> Deployment {
    Deployment::new(DeploymentId(Uuid::nil()), Timestamp(0))
}

fn blank_quota() -> ProjectQuota {
    ProjectQuota {
        id: QuotaId(Uuid::nil()),
        project: String::new(),
        subject: QuotaSubject::Machines,
        machines: 0,
        created_at: Timestamp(0),
        updated_at: None,
    }
}
