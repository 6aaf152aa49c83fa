// SPDX-License-Identifier: Apache-2.0
//! The tables of users, projects, role assignments, API tokens, sessions and failed sign-ins.

use node_model::{
    AccessScope, ApiToken, ApiTokenId, IdentitySource, Project, ProjectId, RoleAssignment,
    SessionId, SignInFailure, Timestamp, UserAccount, UserId, UserKind, UserSession,
};
use uuid::Uuid;

use super::optional_param;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::record::{ResourceFilter, ResourceId, StoredResource, columns, resource};
use crate::value::{ColumnType, CorruptValue, SqlParam, SqlValue};
use crate::writer::StoreWriter;

/// Maximum number of stored rows of failed sign-ins; the oldest are deleted first.
const MAX_SIGN_IN_FAILURES: i64 = 10_000;

columns!(UserAccount, UserColumn, "users", blank_user(), {
    Uuid "uuid" id;
    Name "name" name;
    Kind "kind" kind;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    Enabled "enabled" enabled;
    PasswordHash "password_hash" password_hash;
    DefaultProject "default_project" default_project;
});
resource!(UserAccount, UserId, UserFilter);

columns!(Project, ProjectColumn, "projects", blank_project(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    Enabled "enabled" enabled;
});
resource!(Project, ProjectId, ProjectFilter);

columns!(ApiToken, ApiTokenColumn, "api_tokens", blank_token(), {
    Uuid "uuid" id;
    Lookup "lookup" lookup;
    Digest "digest" digest;
    UserUuid "user_uuid" user_id;
    Description "description" description;
    CreatedAt "created_at" created_at;
    ExpiresAt "expires_at" expires_at;
    LastUsedAt "last_used_at" last_used_at;
    Role "role" role;
    Scope "scope" scope;
});

columns!(UserSession, SessionColumn, "sessions", blank_session(), {
    Uuid "uuid" id;
    Digest "digest" digest;
    Source "source" source;
    UserUuid "user_uuid" user_id;
    UserName "user_name" user_name;
    Credential "credential" credential;
    Scope "scope" scope;
    CreatedAt "created_at" created_at;
    ExpiresAt "expires_at" expires_at;
    Address "address" address;
});

/// Filter for lists of users; there are no conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserFilter;

impl ResourceFilter for UserFilter {
    fn add_conditions<'a>(&'a self, _: &mut SqlBuilder<'a>) {}
}

/// Filter for lists of projects; there are no conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectFilter;

impl ResourceFilter for ProjectFilter {
    fn add_conditions<'a>(&'a self, _: &mut SqlBuilder<'a>) {}
}

/// Filter for lists of API tokens and sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnedByUserFilter {
    /// Of this user.
    pub user: Option<UserId>,
}

impl ResourceFilter for OwnedByUserFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("user_uuid", optional_param(&self.user));
    }
}

/// Implements a resource without a time of change.
macro_rules! resource_without_change_time {
    ($($record:ident $id:ident)*) => {$(
        impl StoredResource for $record {
            type Id = $id;
            type Filter = OwnedByUserFilter;

            fn uuid(&self) -> Uuid {
                self.id.0
            }

            fn touch(&mut self, _now: Timestamp) {}
        }

        impl ResourceId for $id {
            type Resource = $record;

            fn uuid(self) -> Uuid {
                self.0
            }
        }
    )*};
}
resource_without_change_time! { ApiToken ApiTokenId UserSession SessionId }

impl ColumnType for AccessScope {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Text(self.as_str())
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.text().map(Self::named)
    }
}

impl StoreReader<'_> {
    /// The roles of a user, sorted by scope and role.
    pub fn role_assignments(&mut self, user: UserId) -> Result<Vec<RoleAssignment>, StoreError> {
        self.query_roles(
            "SELECT role, scope FROM role_assignments WHERE user_uuid = ? ORDER BY scope, role",
            user,
        )
    }

    /// The roles of a user in the system scope and in enabled projects.
    pub fn valid_role_assignments(
        &mut self,
        user: UserId,
    ) -> Result<Vec<RoleAssignment>, StoreError> {
        self.query_roles(
            "SELECT role, scope FROM role_assignments WHERE user_uuid = ? AND (scope = 'system'
             OR scope IN (SELECT name FROM projects WHERE enabled = 1)) ORDER BY scope, role",
            user,
        )
    }

    fn query_roles(&mut self, sql: &str, user: UserId) -> Result<Vec<RoleAssignment>, StoreError> {
        let mut found = Vec::new();
        self.session.query(sql, &[user.bind()], &mut |row| {
            found.push(RoleAssignment {
                role: decode_field(row, 0, "role_assignments", "role")?,
                scope: decode_field(row, 1, "role_assignments", "scope")?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// The roles of all users, sorted by scope and role.
    pub fn all_role_assignments(&mut self) -> Result<Vec<(UserId, RoleAssignment)>, StoreError> {
        let mut found = Vec::new();
        self.session.query(
            "SELECT user_uuid, role, scope FROM role_assignments ORDER BY scope, role, id",
            &[],
            &mut |row| {
                let assignment = RoleAssignment {
                    role: decode_field(row, 1, "role_assignments", "role")?,
                    scope: decode_field(row, 2, "role_assignments", "scope")?,
                };
                found.push((decode_field(row, 0, "role_assignments", "user_uuid")?, assignment));
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// The names of the disabled projects.
    pub fn disabled_projects(&mut self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        self.session.query("SELECT name FROM projects WHERE enabled = 0", &[], &mut |row| {
            found.push(decode_field(row, 0, "projects", "name")?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether an enabled user other than `except` has the role `admin` in the system scope.
    pub fn has_system_admin(&mut self, except: Option<UserId>) -> Result<bool, StoreError> {
        let mut found = false;
        self.session.query(
            "SELECT users.uuid FROM users JOIN role_assignments
             ON role_assignments.user_uuid = users.uuid
             WHERE users.enabled = 1 AND role = 'admin' AND scope = 'system'",
            &[],
            &mut |row| {
                let user: UserId = decode_field(row, 0, "users", "uuid")?;
                found |= Some(user) != except;
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// Whether a project owns at least half of the nodes of a small fleet, so that it is faster to read all
    /// nodes than to use an index.
    pub fn owns_most_nodes(&mut self, project: &str) -> Result<bool, StoreError> {
        /// In larger fleets a wrong guess costs too much.
        const SMALL_FLEET: i64 = 4000;
        /// A sample is enough, because both ways find the same nodes.
        const SAMPLES: i64 = 16;
        let mut newest = 0_i64;
        self.session.query("SELECT COALESCE(MAX(id), 0) FROM nodes", &[], &mut |row| {
            newest = decode_field(row, 0, "nodes", "MAX(id)")?;
            Ok(())
        })?;
        // Ids of deleted nodes are not used again, so this is at least the number of nodes.
        if newest > SMALL_FLEET {
            return Ok(false);
        }
        let sql = "SELECT COUNT(*), COUNT(CASE WHEN owner = ? THEN 1 END) FROM nodes WHERE id";
        let mut sample = SqlBuilder::new(self.session.dialect(), sql.to_owned());
        sample.params.push(SqlParam::Text(project));
        sample.push_in_list((1..=SAMPLES).map(|number| SqlParam::Int(newest * number / SAMPLES)));
        let (mut found, mut owned) = (0_i64, 0_i64);
        self.session.query(&sample.sql, &sample.params, &mut |row| {
            found = decode_field(row, 0, "nodes", "COUNT(*)")?;
            owned = decode_field(row, 1, "nodes", "COUNT(owner)")?;
            Ok(())
        })?;
        Ok(owned > 0 && owned * 2 >= found)
    }

    /// Number of nodes that a project owns or leases.
    pub fn nodes_of_project(&mut self, project: &str) -> Result<u64, StoreError> {
        let mut count = 0_i64;
        self.session.query(
            "SELECT COUNT(*) FROM nodes WHERE owner = ? OR lessee = ?",
            &[SqlParam::Text(project), SqlParam::Text(project)],
            &mut |row| {
                count = decode_field(row, 0, "nodes", "COUNT(*)")?;
                Ok(())
            },
        )?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Failed sign-ins, latest first.
    pub fn sign_in_failures(&mut self, limit: u32) -> Result<Vec<SignInFailure>, StoreError> {
        const TABLE: &str = "sign_in_failures";
        let mut found = Vec::new();
        self.session.query(
            "SELECT user_name, address, credential, first_at, last_at, attempts
             FROM sign_in_failures ORDER BY id DESC LIMIT ?",
            &[SqlParam::Int(i64::from(limit))],
            &mut |row| {
                found.push(SignInFailure {
                    user_name: decode_field(row, 0, TABLE, "user_name")?,
                    address: decode_field(row, 1, TABLE, "address")?,
                    credential: decode_field(row, 2, TABLE, "credential")?,
                    first_at: decode_field(row, 3, TABLE, "first_at")?,
                    last_at: decode_field(row, 4, TABLE, "last_at")?,
                    attempts: decode_field(row, 5, TABLE, "attempts")?,
                });
                Ok(())
            },
        )?;
        Ok(found)
    }
}

impl StoreWriter<'_> {
    /// Replaces the roles of a user. Duplicates are ignored.
    pub fn set_role_assignments(
        &mut self,
        user: UserId,
        assignments: &[RoleAssignment],
    ) -> Result<(), StoreError> {
        let mut assignments = assignments.to_vec();
        assignments.sort_unstable();
        assignments.dedup();
        self.session.execute("DELETE FROM role_assignments WHERE user_uuid = ?", &[user.bind()])?;
        for RoleAssignment { role, scope } in &assignments {
            self.session.execute(
                "INSERT INTO role_assignments (user_uuid, role, scope) VALUES (?, ?, ?)",
                &[user.bind(), role.bind(), scope.bind()],
            )?;
        }
        Ok(())
    }

    /// Deletes everything that refers to a project: role assignments, tokens and sessions restricted
    /// to it, and default projects.
    pub fn delete_project_references(&mut self, project: &str) -> Result<(), StoreError> {
        for table in ["role_assignments", "api_tokens", "sessions"] {
            let sql = format!("DELETE FROM {table} WHERE scope = ?");
            self.session.execute(&sql, &[SqlParam::Text(project)])?;
        }
        self.session
            .execute(
                "UPDATE users SET default_project = NULL WHERE default_project = ?",
                &[SqlParam::Text(project)],
            )
            .map(drop)
    }

    /// Records the use of a token, unless a later use is recorded.
    pub fn record_token_use(&mut self, token: ApiTokenId, at: Timestamp) -> Result<(), StoreError> {
        self.session
            .execute(
                "UPDATE api_tokens SET last_used_at = ?
                 WHERE uuid = ? AND (last_used_at IS NULL OR last_used_at < ?)",
                &[at.bind(), token.bind(), at.bind()],
            )
            .map(drop)
    }

    /// Ends a session. Returns whether it existed.
    pub fn delete_session(&mut self, digest: &str) -> Result<bool, StoreError> {
        let deleted = self
            .session
            .execute("DELETE FROM sessions WHERE digest = ?", &[SqlParam::Text(digest)])?;
        Ok(deleted > 0)
    }

    /// Ends all sessions of a user of the store. Returns their number.
    pub fn delete_sessions_of(&mut self, user: UserId) -> Result<u64, StoreError> {
        self.session.execute("DELETE FROM sessions WHERE user_uuid = ?", &[user.bind()])
    }

    /// Deletes sessions that have expired.
    pub fn delete_expired_sessions(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.session.execute("DELETE FROM sessions WHERE expires_at <= ?", &[now.bind()]).map(drop)
    }

    /// Stores failed sign-ins, and deletes the oldest ones beyond the limit.
    pub fn record_sign_in_failures(
        &mut self,
        failures: &[SignInFailure],
    ) -> Result<(), StoreError> {
        for failure in failures {
            self.session.execute(
                "INSERT INTO sign_in_failures
                 (user_name, address, credential, first_at, last_at, attempts)
                 VALUES (?, ?, ?, ?, ?, ?)",
                &[
                    failure.user_name.bind(),
                    failure.address.bind(),
                    failure.credential.bind(),
                    failure.first_at.bind(),
                    failure.last_at.bind(),
                    failure.attempts.bind(),
                ],
            )?;
        }
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session
            .execute(
                "DELETE FROM sign_in_failures WHERE id <= (SELECT id FROM
                 (SELECT id FROM sign_in_failures ORDER BY id DESC LIMIT 1 OFFSET ?) AS oldest)",
                &[SqlParam::Int(MAX_SIGN_IN_FAILURES)],
            )
            .map(drop)
    }
}

fn blank_user() -> UserAccount {
    UserAccount {
        id: UserId(Uuid::nil()),
        name: String::new(),
        kind: UserKind::Human,
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        enabled: false,
        password_hash: None,
        default_project: None,
    }
}

fn blank_project() -> Project {
    Project {
        id: ProjectId(Uuid::nil()),
        name: String::new(),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        enabled: false,
    }
}

fn blank_token() -> ApiToken {
    ApiToken {
        id: ApiTokenId(Uuid::nil()),
        lookup: String::new(),
        digest: String::new(),
        user_id: UserId(Uuid::nil()),
        description: String::new(),
        created_at: Timestamp(0),
        expires_at: None,
        last_used_at: None,
        role: None,
        scope: None,
    }
}

fn blank_session() -> UserSession {
    UserSession {
        id: SessionId(Uuid::nil()),
        digest: String::new(),
        source: IdentitySource::Local,
        user_id: None,
        user_name: String::new(),
        credential: String::new(),
        scope: None,
        created_at: Timestamp(0),
        expires_at: Timestamp(0),
        address: None,
    }
}
