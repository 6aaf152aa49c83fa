// SPDX-License-Identifier: Apache-2.0
//! The description of a token in Keystone's responses.

use std::sync::Arc;

use access_policy::{AuthMethod, CallerScope};
use node_model::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::roles::{DefaultCaller, Principal, RightsLimit, UserRights};

/// A valid token.
#[derive(Clone, Debug)]
pub(super) struct SubjectToken {
    pub(super) principal: Arc<Principal>,
    pub(super) expires_at: Timestamp,
}

#[derive(Deserialize)]
struct TokenDocument {
    token: TokenBody,
}

#[derive(Deserialize)]
struct TokenBody {
    expires_at: String,
    user: NamedEntity,
    #[serde(default)]
    roles: Vec<RoleName>,
    project: Option<NamedEntity>,
    /// `{"all": true}` for tokens of the system scope.
    system: Option<Value>,
}

#[derive(Deserialize)]
struct NamedEntity {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct RoleName {
    name: String,
}

impl SubjectToken {
    /// Parses the body of `GET /v3/auth/tokens`.
    ///
    /// # Errors
    /// Fails with the reason if it is not the description of a token.
    pub(super) fn parse(body: Value) -> Result<Self, String> {
        let TokenDocument { token } =
            serde_json::from_value(body).map_err(|error| error.to_string())?;
        let expires_at = token.expires_at.parse::<Timestamp>();
        let expires_at = expires_at.map_err(|error| format!("expires_at is {error}"))?;
        let is_system = token.system.as_ref().is_some_and(|system| system["all"] == true);
        let (scope, project_name) = match token.project {
            Some(project) => {
                (CallerScope::Project(Arc::from(project.id)), Some(Arc::from(project.name)))
            }
            None if is_system => (CallerScope::System, None),
            None => (CallerScope::Unscoped, None),
        };
        let roles = match scope {
            // Roles in a domain do not apply to machines.
            CallerScope::Unscoped | CallerScope::Unrestricted => Vec::new(),
            // Keystone includes the implied roles.
            CallerScope::System | CallerScope::Project(_) => {
                let mut roles: Vec<Arc<str>> = token
                    .roles
                    .iter()
                    .map(|role| Arc::from(role.name.to_ascii_lowercase()))
                    .collect();
                roles.sort_unstable();
                roles.dedup();
                roles
            }
        };
        let principal = Arc::new(Principal {
            user_id: Arc::from(token.user.id),
            user_name: Arc::from(token.user.name),
            method: AuthMethod::Keystone,
            rights: UserRights::FixedScope { scope, project_name, roles: roles.into() },
            limit: RightsLimit::default(),
            preferred_scope: None,
            default_caller: DefaultCaller::default(),
        });
        Ok(Self { principal, expires_at })
    }
}
