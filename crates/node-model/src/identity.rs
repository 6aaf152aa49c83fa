// SPDX-License-Identifier: Apache-2.0
//! Users, projects, role assignments, API tokens and sessions.

use std::fmt;
use std::str::FromStr;

use crate::{ApiTokenId, ProjectId, Secret, SessionId, Timestamp, UserId, named_enum};

/// Maximum length of user names, project names and role names, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The word for the system scope in `role@scope`. No project may have this name.
const SYSTEM: &str = "system";

named_enum! {
    /// What a user is.
    UserKind {
        /// A person, who signs in with a password.
        Human = "human",
        /// A service account: a program that uses API tokens and has no password.
        Service = "service",
    }
    /// Which identity provider a session belongs to.
    IdentitySource {
        /// The htpasswd file.
        Htpasswd = "htpasswd",
        /// The users in the store.
        Local = "local",
        /// The OpenID Connect provider.
        OpenIdConnect = "oidc",
    }
}

/// A user or a service account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserAccount {
    /// The id.
    pub id: UserId,
    /// Unique name.
    pub name: String,
    /// Person or service account.
    pub kind: UserKind,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Whether the user may sign in and use tokens.
    pub enabled: bool,
    /// Hash of the password (PHC string); `None` if the user has no password.
    pub password_hash: Option<Secret<String>>,
    /// The project that applies if a request selects none and the user has no system role.
    pub default_project: Option<String>,
}

/// A project: a group of users that owns or leases machines. Its name is the value of the fields
/// `owner` and `lessee`, so it never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    /// The id of the record.
    pub id: ProjectId,
    /// Unique name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Whether role assignments in it are valid.
    pub enabled: bool,
}

/// What a role applies to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessScope {
    /// The whole installation.
    System,
    /// One project, by name.
    Project(String),
}

/// A role in a scope. The text form is `role@scope`, such as `member@storage` or `reader@system`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoleAssignment {
    /// Role name in lower case.
    pub role: String,
    /// What it applies to.
    pub scope: AccessScope,
}

/// An API token. The token itself is not stored, only its digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiToken {
    /// The id.
    pub id: ApiTokenId,
    /// The public part of the token, by which it is found.
    pub lookup: String,
    /// SHA-256 of the token, as hex digits.
    pub digest: String,
    /// The user it belongs to.
    pub user_id: UserId,
    /// What the token is for.
    pub description: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, with a resolution of one minute.
    pub last_used_at: Option<Timestamp>,
    /// The highest role of requests with this token; `None` for all roles of the user.
    pub role: Option<String>,
    /// The scope of requests with this token; `None` for the user's default.
    pub scope: Option<AccessScope>,
}

/// A session of the web UI. The cookie is not stored, only its digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserSession {
    /// The id.
    pub id: SessionId,
    /// SHA-256 of the cookie, as hex digits.
    pub digest: String,
    /// Who authenticated the user.
    pub source: IdentitySource,
    /// The user in the store, for [`IdentitySource::Local`].
    pub user_id: Option<UserId>,
    /// The user name.
    pub user_name: String,
    /// SHA-256 of the password hash at sign-in: the session ends when the password changes. For
    /// [`IdentitySource::OpenIdConnect`], the user id and the roles of the sign-in as JSON.
    pub credential: String,
    /// The scope that was selected at sign-in.
    pub scope: Option<AccessScope>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Network address of the browser.
    pub address: Option<String>,
}

/// Failed sign-ins of one user name from one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignInFailure {
    /// The user name as sent, shortened.
    pub user_name: String,
    /// Network address of the client.
    pub address: String,
    /// What was presented: `password`, `token` or `oidc`.
    pub credential: String,
    /// Time of the first of these attempts.
    pub first_at: Timestamp,
    /// Time of the last of these attempts.
    pub last_at: Timestamp,
    /// Number of attempts.
    pub attempts: i64,
}

/// A text is not a role assignment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text:?} is not ROLE@PROJECT or ROLE@system, such as member@storage: names have 1 to {MAX_NAME_BYTES} \
     letters, digits, dots, hyphens or underscores"
)]
pub struct ParseRoleError {
    text: String,
}

impl AccessScope {
    /// The scope with this name: `system`, or a project.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name.eq_ignore_ascii_case(SYSTEM) {
            Self::System
        } else {
            Self::Project(name.to_owned())
        }
    }

    /// `system`, or the name of the project.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::System => SYSTEM,
            Self::Project(name) => name,
        }
    }
}

impl fmt::Display for AccessScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RoleAssignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.scope)
    }
}

impl FromStr for RoleAssignment {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let invalid = || ParseRoleError { text: text.chars().take(80).collect() };
        let (role, scope) = text.trim().split_once('@').ok_or_else(invalid)?;
        if !is_identity_name(role) || !is_identity_name(scope) {
            return Err(invalid());
        }
        Ok(Self { role: role.to_ascii_lowercase(), scope: AccessScope::named(scope) })
    }
}

/// Whether `name` can be the name of a role or of a project other than the system scope.
#[must_use]
pub fn is_identity_name(name: &str) -> bool {
    is_name_with(name, b"._-")
}

/// Whether `name` can be the name of a project.
#[must_use]
pub fn is_project_name(name: &str) -> bool {
    is_identity_name(name) && !name.eq_ignore_ascii_case(SYSTEM)
}

/// Whether `name` can be the name of a user; also allows `@` and `+`, for mail addresses.
#[must_use]
pub fn is_user_name(name: &str) -> bool {
    is_name_with(name, b"._-@+")
}

/// Whether a name has letters, digits and these characters. `.` and `..` would change the path of a request.
fn is_name_with(name: &str, other: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || other.contains(&byte);
    let is_path_segment = name != "." && name != "..";
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed) && is_path_segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_role_assignments() {
        for (text, shown) in [
            ("member@storage", Some("member@storage")),
            (" Admin@system ", Some("admin@system")),
            ("reader@a.b-c_1", Some("reader@a.b-c_1")),
            ("member", None),
            ("@storage", None),
            ("member@", None),
            ("member@a b", None),
            ("member@a@b", None),
            (&format!("member@{}", "a".repeat(65)), None),
        ] {
            let parsed = text.parse::<RoleAssignment>().ok();
            assert_eq!(parsed.as_ref().map(ToString::to_string).as_deref(), shown, "{text}");
        }
        assert_eq!(AccessScope::named("system"), AccessScope::System);
    }

    #[test]
    fn checks_names() {
        for (name, is_user, is_project) in [
            ("alice", true, true),
            ("alice@example.org", true, false),
            ("system", true, false),
            ("System", true, false),
            ("a:b", false, false),
            ("a b", false, false),
            ("", false, false),
            (".", false, false),
            ("..", false, false),
            ("...", true, true),
            ("ä", false, false),
        ] {
            assert_eq!(
                (is_user_name(name), is_project_name(name)),
                (is_user, is_project),
                "{name}"
            );
        }
    }
}
