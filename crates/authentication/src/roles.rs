// SPDX-License-Identifier: Apache-2.0
//! Which roles a caller has in which scope.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use access_policy::{AuthMethod, Caller, CallerScope};
use node_model::{AccessScope, RoleAssignment};

use crate::error::AuthError;

/// Roles and the roles they imply, as in Keystone.
const IMPLIED_ROLES: &[(&str, &[&str])] = &[
    ("admin", &["manager", "member", "reader"]),
    ("manager", &["member", "reader"]),
    ("member", &["reader"]),
];

/// What an authenticated user may do, before a scope is selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UserRights {
    /// Everything: an entry of the htpasswd file without roles.
    Unrestricted,
    /// Roles in one scope, selected by the issuer of the token, Keystone.
    FixedScope {
        /// The scope.
        scope: CallerScope,
        /// Name of the project; the scope has its id.
        project_name: Option<Arc<str>>,
        /// The roles, with those they imply.
        roles: Arc<[Arc<str>]>,
    },
    /// The roles of the user.
    Roles {
        /// All assignments.
        assignments: Vec<RoleAssignment>,
        /// The project that applies if none is selected.
        default_project: Option<String>,
    },
}

/// A limit that the credential adds to the rights of its user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RightsLimit {
    /// The highest role.
    pub(crate) role: Option<String>,
    /// The only scope.
    pub(crate) scope: Option<AccessScope>,
}

/// An authenticated user with everything that determines its [`Caller`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Principal {
    pub(crate) user_id: Arc<str>,
    pub(crate) user_name: Arc<str>,
    pub(crate) method: AuthMethod,
    pub(crate) rights: UserRights,
    pub(crate) limit: RightsLimit,
    /// The scope that was selected at sign-in, for requests that select none.
    pub(crate) preferred_scope: Option<AccessScope>,
    pub(crate) default_caller: DefaultCaller,
}

/// The caller of requests that select no scope, computed once for the current disabled projects. It follows
/// from the other fields of a principal, so it is neither copied nor compared.
#[derive(Debug, Default)]
pub(crate) struct DefaultCaller(OnceLock<(Arc<BTreeSet<String>>, Caller)>);

impl Clone for DefaultCaller {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for DefaultCaller {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DefaultCaller {}

impl Principal {
    /// The same user without the roles in disabled projects.
    pub(crate) fn without_projects(&self, disabled: &BTreeSet<String>) -> Cow<'_, Self> {
        match &self.rights {
            UserRights::FixedScope { scope: CallerScope::Project(id), .. }
                if disabled.contains(&**id) =>
            {
                let rights = UserRights::FixedScope {
                    scope: CallerScope::Unscoped,
                    project_name: None,
                    roles: Arc::default(),
                };
                Cow::Owned(Self { rights, ..self.clone() })
            }
            UserRights::Roles { assignments, default_project }
                if assignments.iter().any(|it| is_in_project(it, disabled)) =>
            {
                let mut assignments = assignments.clone();
                assignments.retain(|assignment| !is_in_project(assignment, disabled));
                let default_project = default_project.clone();
                let rights = UserRights::Roles { assignments, default_project };
                Cow::Owned(Self { rights, ..self.clone() })
            }
            UserRights::Unrestricted | UserRights::FixedScope { .. } | UserRights::Roles { .. } => {
                Cow::Borrowed(self)
            }
        }
    }

    /// The caller in the requested scope, see [`Self::caller`], without the roles in disabled projects.
    pub(crate) fn enabled_caller(
        &self,
        requested: Option<&AccessScope>,
        disabled: &Arc<BTreeSet<String>>,
    ) -> Result<Caller, AuthError> {
        if requested.is_some() {
            return self.without_projects(disabled).caller(requested);
        }
        if let Some((projects, caller)) = self.default_caller.0.get()
            && Arc::ptr_eq(projects, disabled)
        {
            return Ok(caller.clone());
        }
        let caller = self.without_projects(disabled).caller(None)?;
        // Later disabled projects are not kept: the principal is read again every few seconds.
        let _ = self.default_caller.0.set((Arc::clone(disabled), caller.clone()));
        Ok(caller)
    }

    /// Whether a token with one scope has a role.
    pub(crate) fn has_fixed_role(&self, name: &str) -> bool {
        match &self.rights {
            UserRights::FixedScope { roles, .. } => roles.iter().any(|role| &**role == name),
            UserRights::Unrestricted | UserRights::Roles { .. } => false,
        }
    }

    /// The caller in the requested scope. Without a requested scope it is, in this order: the only scope
    /// of the credential, the scope of the sign-in, the system if the user has a role there, the default
    /// project, the only project, none.
    pub(crate) fn caller(&self, requested: Option<&AccessScope>) -> Result<Caller, AuthError> {
        let caller = |scope: CallerScope, roles| Caller {
            user_id: Some(Arc::clone(&self.user_id)),
            user_name: Some(Arc::clone(&self.user_name)),
            project_name: match &scope {
                CallerScope::Project(name) => Some(Arc::clone(name)),
                CallerScope::Unrestricted | CallerScope::System | CallerScope::Unscoped => None,
            },
            scope,
            roles,
            method: self.method,
        };
        let (assignments, default_project) = match &self.rights {
            UserRights::Unrestricted => {
                return Ok(caller(CallerScope::Unrestricted, Arc::default()));
            }
            UserRights::FixedScope { scope, project_name, roles } => {
                if let Some(requested) = requested
                    && !is_scope(requested, scope, project_name.as_deref())
                {
                    return Err(AuthError::NoRole { scope: requested.to_string() });
                }
                let project_name = project_name.clone();
                return Ok(Caller { project_name, ..caller(scope.clone(), Arc::clone(roles)) });
            }
            UserRights::Roles { assignments, default_project } => (assignments, default_project),
        };
        if let (Some(requested), Some(only)) = (requested, &self.limit.scope)
            && requested != only
        {
            return Err(AuthError::NoRole { scope: requested.to_string() });
        }
        let selected = requested.or(self.limit.scope.as_ref());
        let scope = match selected {
            Some(scope) => {
                if !assignments.iter().any(|assignment| assignment.scope == *scope) {
                    return Err(AuthError::NoRole { scope: scope.to_string() });
                }
                Some(scope.clone())
            }
            None => self
                .preferred_scope
                .clone()
                .filter(|scope| assignments.iter().any(|assignment| assignment.scope == *scope))
                .or_else(|| default_scope(assignments, default_project.as_deref())),
        };
        let Some(scope) = scope else {
            return Ok(caller(CallerScope::Unscoped, Arc::default()));
        };
        let roles = self.roles_in(&scope, assignments);
        let scope = match scope {
            AccessScope::System => CallerScope::System,
            AccessScope::Project(name) => CallerScope::Project(Arc::from(name)),
        };
        Ok(caller(scope, roles))
    }

    /// The roles in a scope with those they imply, sorted, within the limit of the credential.
    fn roles_in(&self, scope: &AccessScope, assignments: &[RoleAssignment]) -> Arc<[Arc<str>]> {
        let assigned = assignments.iter().filter(|assignment| assignment.scope == *scope);
        let mut roles: Vec<&str> =
            assigned.flat_map(|assignment| with_implied_roles(&assignment.role)).collect();
        if let Some(limit) = &self.limit.role {
            let allowed: Vec<&str> = with_implied_roles(limit).collect();
            roles.retain(|role| allowed.contains(role));
        }
        roles.sort_unstable();
        roles.dedup();
        roles.into_iter().map(Arc::from).collect()
    }
}

/// Whether a role is assigned in one of these projects.
fn is_in_project(assignment: &RoleAssignment, projects: &BTreeSet<String>) -> bool {
    matches!(&assignment.scope, AccessScope::Project(name) if projects.contains(name))
}

/// Whether `requested` is the scope of a token. Projects can be requested by id and by name.
fn is_scope(requested: &AccessScope, scope: &CallerScope, project_name: Option<&str>) -> bool {
    match (requested, scope) {
        (AccessScope::System, CallerScope::System) => true,
        (AccessScope::Project(wanted), CallerScope::Project(id)) => {
            **id == **wanted || project_name == Some(wanted)
        }
        (AccessScope::System | AccessScope::Project(_), _) => false,
    }
}

fn default_scope(
    assignments: &[RoleAssignment],
    default_project: Option<&str>,
) -> Option<AccessScope> {
    let mut scopes: Vec<&AccessScope> = assignments.iter().map(|it| &it.scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.contains(&&AccessScope::System) {
        return Some(AccessScope::System);
    }
    if let Some(name) = default_project
        && let Some(scope) = scopes.iter().find(|scope| scope.as_str() == name)
    {
        return Some((*scope).clone());
    }
    match scopes.as_slice() {
        [only] => Some((*only).clone()),
        _ => None,
    }
}

/// A role and the roles it implies.
fn with_implied_roles(role: &str) -> impl Iterator<Item = &str> {
    let implied = IMPLIED_ROLES.iter().find(|(name, _)| *name == role);
    let implied = implied.map(|(_, implied)| *implied).unwrap_or_default();
    std::iter::once(role).chain(implied.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(roles: &[&str], default_project: Option<&str>) -> Principal {
        Principal {
            user_id: Arc::from("id"),
            user_name: Arc::from("alice"),
            method: AuthMethod::Password,
            rights: UserRights::Roles {
                assignments: roles.iter().map(|text| text.parse().unwrap()).collect(),
                default_project: default_project.map(str::to_owned),
            },
            limit: RightsLimit::default(),
            preferred_scope: None,
            default_caller: DefaultCaller::default(),
        }
    }

    /// `scope: roles`, or the error.
    fn shown(principal: &Principal, requested: Option<&str>) -> String {
        match principal.caller(requested.map(AccessScope::named).as_ref()) {
            Ok(caller) => format!("{:?}: {}", caller.scope, caller.roles.join(",")),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn selects_scope_and_roles() {
        for (roles, default_project, requested, expected) in [
            (&[][..], None, None, "Unscoped: "),
            (&["admin@system"], None, None, "System: admin,manager,member,reader"),
            (&["member@a"], None, None, "Project(\"a\"): member,reader"),
            (&["member@a", "reader@b"], None, None, "Unscoped: "),
            (&["member@a", "reader@b"], Some("b"), None, "Project(\"b\"): reader"),
            (&["member@a", "reader@b"], Some("c"), None, "Unscoped: "),
            (&["member@a", "reader@b"], None, Some("a"), "Project(\"a\"): member,reader"),
            (&["member@a", "reader@system"], Some("a"), None, "System: reader"),
            (&["member@a", "reader@system"], None, Some("a"), "Project(\"a\"): member,reader"),
            (&["service@a", "observer@a"], None, None, "Project(\"a\"): observer,service"),
            (&["member@a"], None, Some("b"), "The user has no role in the scope b"),
            (&["member@a"], None, Some("system"), "The user has no role in the scope system"),
        ] {
            let principal = principal(roles, default_project);
            assert_eq!(shown(&principal, requested), expected, "{roles:?} {requested:?}");
        }
    }

    #[test]
    fn sign_in_can_select_the_scope() {
        let preferring = |scope: &str| Principal {
            preferred_scope: Some(AccessScope::named(scope)),
            ..principal(&["admin@system", "member@a"], None)
        };
        assert_eq!(shown(&preferring("a"), None), "Project(\"a\"): member,reader");
        assert_eq!(shown(&preferring("a"), Some("system")), "System: admin,manager,member,reader");
        // The role was removed after the sign-in.
        assert_eq!(shown(&preferring("b"), None), "System: admin,manager,member,reader");
    }

    #[test]
    fn disabled_projects_give_no_roles() {
        let disabled = BTreeSet::from(["a".to_owned(), "1234".to_owned()]);
        for (roles, requested, expected) in [
            (&["member@a"][..], None, "Unscoped: "),
            (&["member@a"], Some("a"), "The user has no role in the scope a"),
            (&["member@a", "reader@b"], None, "Project(\"b\"): reader"),
            (&["admin@a", "reader@system"], None, "System: reader"),
        ] {
            let principal = principal(roles, Some("a"));
            let enabled = principal.without_projects(&disabled);
            assert_eq!(shown(&enabled, requested), expected, "{roles:?} {requested:?}");
        }
        // The caller is computed again when other projects are disabled.
        let member = principal(&["member@a"], None);
        let none = Arc::default();
        for _ in 0..2 {
            assert_eq!(member.enabled_caller(None, &none).unwrap().project(), Some("a"));
        }
        let disabled_a = Arc::new(disabled.clone());
        assert_eq!(member.enabled_caller(None, &disabled_a).unwrap().project(), None);
        let token = Principal {
            rights: UserRights::FixedScope {
                scope: CallerScope::Project(Arc::from("1234")),
                project_name: Some(Arc::from("storage")),
                roles: Arc::from([Arc::from("member")]),
            },
            ..principal(&[], None)
        };
        assert_eq!(shown(&token.without_projects(&disabled), None), "Unscoped: ");
    }

    #[test]
    fn scope_of_a_token_is_fixed() {
        let token = |scope: CallerScope, name: Option<&str>| Principal {
            rights: UserRights::FixedScope {
                scope,
                project_name: name.map(Arc::from),
                roles: Arc::from([Arc::from("member")]),
            },
            ..principal(&[], None)
        };
        let project = token(CallerScope::Project(Arc::from("1234")), Some("storage"));
        assert_eq!(project.caller(None).unwrap().project_name.as_deref(), Some("storage"));
        for (requested, expected) in [
            (None, "Project(\"1234\"): member"),
            (Some("1234"), "Project(\"1234\"): member"),
            (Some("storage"), "Project(\"1234\"): member"),
            (Some("other"), "The user has no role in the scope other"),
            (Some("system"), "The user has no role in the scope system"),
        ] {
            assert_eq!(shown(&project, requested), expected, "{requested:?}");
        }
        let system = token(CallerScope::System, None);
        assert_eq!(shown(&system, Some("system")), "System: member");
        assert!(system.caller(Some(&AccessScope::named("storage"))).is_err());
        let unscoped = token(CallerScope::Unscoped, None);
        assert!(unscoped.caller(Some(&AccessScope::System)).is_err());
    }

    #[test]
    fn credentials_can_limit_role_and_scope() {
        let limited = |role: Option<&str>, scope: Option<&str>| {
            let limit =
                RightsLimit { role: role.map(str::to_owned), scope: scope.map(AccessScope::named) };
            Principal { limit, ..principal(&["admin@system", "member@a"], None) }
        };
        for (role, scope, requested, expected) in [
            (Some("reader"), None, None, "System: reader"),
            (Some("member"), Some("a"), None, "Project(\"a\"): member,reader"),
            // A limit never adds a role.
            (Some("admin"), Some("a"), None, "Project(\"a\"): member,reader"),
            (Some("service"), None, None, "System: "),
            (None, Some("a"), Some("system"), "The user has no role in the scope system"),
            (None, Some("b"), None, "The user has no role in the scope b"),
        ] {
            assert_eq!(shown(&limited(role, scope), requested), expected, "{role:?} {scope:?}");
        }
    }
}
