// SPDX-License-Identifier: Apache-2.0
//! The caller of a request: who it is, which roles it has, and in which scope.

use std::sync::Arc;

/// How a caller proved its identity. Recorded in the audit log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMethod {
    /// Authentication is disabled.
    None,
    /// An entry of the htpasswd file.
    Htpasswd,
    /// User name and password of a user in the store.
    Password,
    /// An API token of a user or service account.
    ApiToken,
    /// A session cookie of the web UI.
    Session,
    /// A JWT of the OpenID Connect provider.
    OpenIdConnect,
    /// A Keystone token.
    Keystone,
    /// A TLS client certificate.
    ClientCertificate,
    /// The Unix socket of this host.
    UnixSocket,
    /// A part of this process, such as the operator.
    InProcess,
}

impl AuthMethod {
    /// The name in responses and the audit log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Htpasswd => "htpasswd",
            Self::Password => "password",
            Self::ApiToken => "api_token",
            Self::Session => "session",
            Self::OpenIdConnect => "openid_connect",
            Self::Keystone => "keystone",
            Self::ClientCertificate => "certificate",
            Self::UnixSocket => "unix_socket",
            Self::InProcess => "in_process",
        }
    }
}

/// What the roles of a caller apply to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallerScope {
    /// Every project: policy is not applied. Callers of `auth=none` and of htpasswd entries without
    /// roles, as in Ironic.
    Unrestricted,
    /// The whole system (`system_scope:all`).
    System,
    /// One project, by id.
    Project(Arc<str>),
    /// Neither: no rule with a scope matches.
    Unscoped,
}

/// The caller of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Stable id of the user; the name for users of the htpasswd file.
    pub user_id: Option<Arc<str>>,
    /// User name, for logs and history.
    pub user_name: Option<Arc<str>>,
    /// What the roles apply to.
    pub scope: CallerScope,
    /// Name of the project, if known. Only rules that match a project by name use it.
    pub project_name: Option<Arc<str>>,
    /// Role names in lower case, such as `member`. Roles that are implied (admin implies manager,
    /// member and reader) are included.
    pub roles: Arc<[Arc<str>]>,
    /// How the caller was authenticated.
    pub method: AuthMethod,
}

impl Caller {
    /// A caller without identity. It may do everything: used with `auth=none` and on public routes.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            user_id: None,
            user_name: None,
            scope: CallerScope::Unrestricted,
            project_name: None,
            roles: Arc::default(),
            method: AuthMethod::None,
        }
    }

    /// A named caller without restriction: policy is not applied.
    #[must_use]
    pub fn unrestricted(name: &str, method: AuthMethod) -> Self {
        let name: Arc<str> = Arc::from(name);
        Self {
            user_id: Some(Arc::clone(&name)),
            user_name: Some(name),
            scope: CallerScope::Unrestricted,
            project_name: None,
            roles: Arc::default(),
            method,
        }
    }

    /// The user name; `None` if the caller is anonymous.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.user_name.as_deref()
    }

    /// The project of a project-scoped caller.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        match &self.scope {
            CallerScope::Project(project) => Some(project),
            CallerScope::Unrestricted | CallerScope::System | CallerScope::Unscoped => None,
        }
    }

    /// Whether the caller has this role.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own.eq_ignore_ascii_case(role))
    }
}
