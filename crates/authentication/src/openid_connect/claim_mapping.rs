// SPDX-License-Identifier: Apache-2.0
//! Which user, roles and projects the claims of a token stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use access_policy::AuthMethod;
use node_model::{AccessScope, RoleAssignment, is_identity_name, is_project_name};
use serde_json::Value;

use crate::roles::{DefaultCaller, Principal, RightsLimit, UserRights};

/// Maximum number of role assignments taken from a token; further ones are ignored.
const MAX_ASSIGNMENTS: usize = 256;
/// Maximum length of a user name, in characters.
const MAX_USER_CHARS: usize = 128;

/// Which claims are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimMapping {
    /// The claim with the user name; `sub` is used if it is absent.
    pub user: String,
    /// The claim with the roles: a text or a list. Dots separate the names of nested objects, such as
    /// `realm_access.roles`.
    pub roles: String,
    /// The claim with the projects in which bare role names apply: a text or a list.
    pub projects: Option<String>,
    /// Role assignments by the value of the claim. If it is empty, the values are `role@scope`, or role
    /// names for the projects of the token.
    pub role_map: BTreeMap<String, Vec<RoleAssignment>>,
}

impl ClaimMapping {
    /// The user of a token whose claims are verified.
    pub(super) fn principal(&self, claims: &Value, method: AuthMethod) -> Principal {
        let subject = claims["sub"].as_str().unwrap_or_default();
        let name = values(claims, &self.user).into_iter().next().unwrap_or(subject);
        Principal {
            // Ids of local users are UUIDs: no subject can be one of them.
            user_id: Arc::from(format!("oidc:{subject}")),
            user_name: Arc::from(printable(name)),
            method,
            rights: UserRights::Roles {
                assignments: self.assignments(claims),
                default_project: self.default_project(claims),
            },
            limit: RightsLimit::default(),
            preferred_scope: None,
            default_caller: DefaultCaller::default(),
        }
    }

    fn assignments(&self, claims: &Value) -> Vec<RoleAssignment> {
        let roles = values(claims, &self.roles);
        let mut assignments: Vec<RoleAssignment> = if self.role_map.is_empty() {
            roles.into_iter().flat_map(|role| self.direct_assignments(role, claims)).collect()
        } else {
            roles
                .into_iter()
                .filter_map(|role| self.role_map.get(role))
                .flatten()
                .cloned()
                .collect()
        };
        assignments.sort_unstable();
        assignments.dedup();
        assignments.truncate(MAX_ASSIGNMENTS);
        assignments
    }

    /// Assignments of a value that is `role@scope` or the name of a role.
    fn direct_assignments(&self, role: &str, claims: &Value) -> Vec<RoleAssignment> {
        if let Ok(assignment) = role.parse() {
            return vec![assignment];
        }
        if !is_identity_name(role) {
            return Vec::new();
        }
        let assignment = |project: &str| RoleAssignment {
            role: role.to_ascii_lowercase(),
            scope: AccessScope::Project(project.to_owned()),
        };
        self.projects(claims).into_iter().map(assignment).collect()
    }

    /// The projects of a token. `system` is not among them: a project claim must not grant roles in the
    /// whole installation.
    fn projects<'c>(&self, claims: &'c Value) -> Vec<&'c str> {
        let projects = self.projects.as_ref().map(|claim| values(claims, claim));
        projects.unwrap_or_default().into_iter().filter(|name| is_project_name(name)).collect()
    }

    /// The first project of a token.
    fn default_project(&self, claims: &Value) -> Option<String> {
        self.projects(claims).first().map(|name| (*name).to_owned())
    }
}

/// The texts of a claim. A name that contains dots is looked up as a whole first: some providers use
/// URLs as names.
fn values<'c>(claims: &'c Value, name: &str) -> Vec<&'c str> {
    let nested = || name.split('.').try_fold(claims, |object, part| object.get(part));
    match claims.get(name).or_else(nested) {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_USER_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `user_id user_name [default project]: roles`.
    fn shown(mapping: &ClaimMapping, claims: &Value) -> String {
        let principal = mapping.principal(claims, AuthMethod::OpenIdConnect);
        let UserRights::Roles { assignments, default_project } = principal.rights else {
            panic!("not roles")
        };
        let roles: Vec<String> = assignments.iter().map(ToString::to_string).collect();
        let project = default_project.unwrap_or_default();
        format!("{} {} [{project}]: {}", principal.user_id, principal.user_name, roles.join(","))
    }

    fn mapping(roles: &str, map: &[(&str, &[&str])]) -> ClaimMapping {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        ClaimMapping {
            user: "preferred_username".to_owned(),
            roles: roles.to_owned(),
            projects: Some("projects".to_owned()),
            role_map: map.iter().map(|(name, roles)| ((*name).to_owned(), parse(roles))).collect(),
        }
    }

    #[test]
    fn maps_claims() {
        let direct = mapping("roles", &[]);
        let nested = mapping("realm_access.roles", &[]);
        let mapped =
            mapping("groups", &[("ops", &["admin@system", "member@a"]), ("dev", &["reader@a"])]);
        for (mapping, claims, expected) in [
            (&direct, json!({"sub": "1"}), "oidc:1 1 []: "),
            (
                &direct,
                json!({"sub": "1", "preferred_username": "al\nice", "roles": "Admin@system"}),
                "oidc:1 alice []: admin@system",
            ),
            (
                &direct,
                json!({"sub": "1", "roles": ["member", "reader@b", 7, "a b"], "projects": ["a", "c"]}),
                "oidc:1 1 [a]: member@a,member@c,reader@b",
            ),
            // A project claim never grants system scope.
            (
                &direct,
                json!({"sub": "1", "roles": ["admin"], "projects": ["system"]}),
                "oidc:1 1 []: ",
            ),
            (&direct, json!({"sub": "1", "roles": ["admin"]}), "oidc:1 1 []: "),
            (
                &nested,
                json!({"sub": "1", "realm_access": {"roles": ["reader@system"]}}),
                "oidc:1 1 []: reader@system",
            ),
            (&nested, json!({"sub": "1", "realm_access": "x"}), "oidc:1 1 []: "),
            (
                &mapped,
                json!({"sub": "1", "groups": ["dev", "ops", "other"]}),
                "oidc:1 1 []: admin@system,member@a,reader@a",
            ),
            // With a map, values of the token are not role assignments themselves.
            (&mapped, json!({"sub": "1", "groups": ["admin@system"]}), "oidc:1 1 []: "),
        ] {
            assert_eq!(shown(mapping, &claims), expected, "{claims}");
        }
    }

    #[test]
    fn limits_what_a_token_contains() {
        let many: Vec<String> = (0..1000).map(|number| format!("member@p{number}")).collect();
        let claims = json!({"sub": "1", "preferred_username": "x".repeat(1000), "roles": many});
        let principal = mapping("roles", &[]).principal(&claims, AuthMethod::OpenIdConnect);
        assert_eq!(principal.user_name.len(), MAX_USER_CHARS);
        let UserRights::Roles { assignments, .. } = principal.rights else { panic!("not roles") };
        assert_eq!(assignments.len(), MAX_ASSIGNMENTS);
    }
}
