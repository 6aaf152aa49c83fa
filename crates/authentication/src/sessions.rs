// SPDX-License-Identifier: Apache-2.0
//! Sessions of the web UI.
//!
//! A browser sends user and password once and gets a random cookie. The store has the digest of the
//! cookie, so sessions survive restarts, are valid on all replicas, and end for all of them with a
//! sign-out. They also end with a changed password or a removed user. A session of a user of an OpenID
//! Connect provider has the roles of the sign-in until it ends.

use std::sync::Arc;
use std::time::Duration;

use access_policy::AuthMethod;
use node_model::{
    AccessScope, IdentitySource, Secret, SessionId, Timestamp, UserAccount, UserId, UserSession,
};
use serde::{Deserialize, Serialize};
use store::{SessionColumn, Store, StoreError};

use crate::htpasswd::HtpasswdUsers;
use crate::local_users;
use crate::roles::{DefaultCaller, Principal, RightsLimit, UserRights};
use crate::token_format::{RandomError, push_random_digits, sha256_hex};

/// Lifetime of a session: a working day.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Length of a cookie: 238 random bits.
const COOKIE_CHARS: usize = 40;

/// What a session is created for.
#[derive(Debug)]
pub(crate) struct NewSession {
    pub(crate) source: IdentitySource,
    pub(crate) user_id: Option<UserId>,
    pub(crate) user_name: String,
    /// See [`password_credential`] and [`provider_credential`].
    pub(crate) credential: String,
    pub(crate) scope: Option<AccessScope>,
    pub(crate) address: String,
}

/// Stores a session and returns its cookie.
pub(crate) async fn create(
    store: &Store,
    new: NewSession,
    now: Timestamp,
) -> Result<Secret<String>, SessionError> {
    let mut cookie = String::new();
    push_random_digits(&mut cookie, COOKIE_CHARS)?;
    let session = UserSession {
        id: SessionId::random(),
        digest: sha256_hex(cookie.as_bytes()),
        source: new.source,
        user_id: new.user_id,
        user_name: new.user_name,
        credential: new.credential,
        scope: new.scope,
        created_at: now,
        expires_at: now.plus(SESSION_LIFETIME),
        address: Some(new.address),
    };
    store
        .write(move |writer| {
            writer.delete_expired_sessions(now)?;
            writer.insert(&session)
        })
        .await?;
    Ok(Secret::new(cookie))
}

/// What the session of a user with a password depends on.
pub(crate) fn password_credential(hash: &str) -> String {
    sha256_hex(hash.as_bytes())
}

/// The user and roles in the session of a user of an OpenID Connect provider.
pub(crate) fn provider_credential(principal: &Principal) -> String {
    let (roles, default_project) = match &principal.rights {
        UserRights::Roles { assignments, default_project } => {
            (assignments.iter().map(ToString::to_string).collect(), default_project.clone())
        }
        UserRights::Unrestricted | UserRights::FixedScope { .. } => (Vec::new(), None),
    };
    let user = ProviderUser { user_id: principal.user_id.to_string(), roles, default_project };
    serde_json::to_string(&user).unwrap_or_default()
}

/// A user of an OpenID Connect provider, as stored with a session.
#[derive(Serialize, Deserialize)]
struct ProviderUser {
    user_id: String,
    /// Assignments such as `member@storage`.
    roles: Vec<String>,
    default_project: Option<String>,
}

/// The enabled methods. Sessions of other methods are not valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionMethods<'m> {
    pub(crate) htpasswd: Option<&'m HtpasswdUsers>,
    pub(crate) has_local_users: bool,
    pub(crate) has_openid_connect: bool,
}

/// A valid session.
#[derive(Debug)]
pub(crate) struct ValidSession {
    pub(crate) principal: Principal,
    pub(crate) expires_at: Timestamp,
    /// The password hash in the htpasswd file, for its users.
    pub(crate) htpasswd_hash: Option<String>,
}

/// The session of a cookie, if it is valid at `now`.
pub(crate) async fn find(
    store: &Store,
    cookie: &str,
    methods: SessionMethods<'_>,
    now: Timestamp,
) -> Result<Option<ValidSession>, StoreError> {
    if !is_cookie(cookie) {
        return Ok(None);
    }
    let digest = sha256_hex(cookie.as_bytes());
    let found = store
        .read(move |reader| {
            let session: Option<UserSession> = reader.find(SessionColumn::Digest, &digest)?;
            let Some(session) = session.filter(|session| session.expires_at > now) else {
                return Ok::<_, StoreError>(None);
            };
            let principal = match (session.source, session.user_id) {
                (IdentitySource::Local, Some(id)) => {
                    let user: Option<UserAccount> = reader.get(id)?;
                    match user.filter(|user| user.enabled && has_password(user, &session)) {
                        Some(user) => {
                            Some(local_users::principal(reader, &user, AuthMethod::Session)?)
                        }
                        None => None,
                    }
                }
                (IdentitySource::Local, None)
                | (IdentitySource::Htpasswd | IdentitySource::OpenIdConnect, _) => None,
            };
            Ok(Some((session, principal)))
        })
        .await?;
    let Some((session, principal)) = found else { return Ok(None) };
    let (principal, htpasswd_hash) = match session.source {
        IdentitySource::Local => (principal.filter(|_| methods.has_local_users), None),
        IdentitySource::OpenIdConnect => {
            (provider_principal(&session).filter(|_| methods.has_openid_connect), None)
        }
        IdentitySource::Htpasswd => {
            let entry = methods
                .htpasswd
                .and_then(|users| users.get(&session.user_name))
                .filter(|entry| sha256_hex(entry.hash.as_bytes()) == session.credential);
            let principal =
                entry.map(|entry| entry.principal(&session.user_name, AuthMethod::Session));
            (principal, entry.map(|entry| entry.hash.clone()))
        }
    };
    Ok(principal.map(|principal| ValidSession {
        principal: Principal {
            preferred_scope: session.scope,
            default_caller: DefaultCaller::default(),
            ..principal
        },
        expires_at: session.expires_at,
        htpasswd_hash,
    }))
}

/// The user of a session that an OpenID Connect provider authenticated.
fn provider_principal(session: &UserSession) -> Option<Principal> {
    let user: ProviderUser = serde_json::from_str(&session.credential).ok()?;
    Some(Principal {
        user_id: Arc::from(user.user_id),
        user_name: Arc::from(session.user_name.as_str()),
        method: AuthMethod::Session,
        rights: UserRights::Roles {
            assignments: user.roles.iter().filter_map(|role| role.parse().ok()).collect(),
            default_project: user.default_project,
        },
        limit: RightsLimit::default(),
        preferred_scope: None,
        default_caller: DefaultCaller::default(),
    })
}

/// Ends the session of a cookie.
pub(crate) async fn end(store: &Store, cookie: &str) -> Result<(), StoreError> {
    if !is_cookie(cookie) {
        return Ok(());
    }
    let digest = sha256_hex(cookie.as_bytes());
    store.write(move |writer| writer.delete_session(&digest)).await.map(drop)
}

/// A session cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether the user still has the password of the sign-in.
fn has_password(user: &UserAccount, session: &UserSession) -> bool {
    let hash = user.password_hash.as_ref();
    hash.is_some_and(|hash| sha256_hex(hash.reveal().as_bytes()) == session.credential)
}

fn is_cookie(text: &str) -> bool {
    text.len() == COOKIE_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
