// SPDX-License-Identifier: Apache-2.0
//! Users of the store: passwords and API tokens.

use std::sync::Arc;
use std::time::Duration;

use access_policy::AuthMethod;
use node_model::{ApiToken, ApiTokenId, Timestamp, UserAccount, UserKind};
use store::{ApiTokenColumn, Store, StoreError, StoreReader, UserColumn};

use crate::roles::{DefaultCaller, Principal, RightsLimit, UserRights};
use crate::token_format::ParsedToken;

/// Resolution of the recorded time of the last use of a token.
const LAST_USE_RESOLUTION: Duration = Duration::from_secs(60);

/// A user with a password.
#[derive(Debug)]
pub(crate) struct PasswordUser {
    pub(crate) hash: String,
    pub(crate) principal: Principal,
}

/// A valid token.
#[derive(Debug)]
pub(crate) struct ValidToken {
    pub(crate) principal: Principal,
    pub(crate) expires_at: Option<Timestamp>,
    /// The token, if its use has to be recorded.
    pub(crate) record_use: Option<ApiTokenId>,
}

/// The user of this name, if the user is enabled and has a password.
pub(crate) async fn find_password_user(
    store: &Store,
    name: &str,
) -> Result<Option<PasswordUser>, StoreError> {
    let name = name.to_owned();
    store
        .read(move |reader| {
            let user: Option<UserAccount> = reader.find(UserColumn::Name, &name)?;
            let Some(user) = user.filter(|user| user.enabled && user.kind == UserKind::Human)
            else {
                return Ok(None);
            };
            let Some(hash) = &user.password_hash else { return Ok(None) };
            let hash = hash.reveal().clone();
            let principal = principal(reader, &user, AuthMethod::Password)?;
            Ok(Some(PasswordUser { hash, principal }))
        })
        .await
}

/// The user or service account of this name, if it is enabled. `method` has authenticated the name.
pub(crate) async fn find_enabled_user(
    store: &Store,
    name: &str,
    method: AuthMethod,
) -> Result<Option<Principal>, StoreError> {
    let name = name.to_owned();
    store
        .read(move |reader| {
            let user: Option<UserAccount> = reader.find(UserColumn::Name, &name)?;
            let Some(user) = user.filter(|user| user.enabled) else { return Ok(None) };
            principal(reader, &user, method).map(Some)
        })
        .await
}

/// The token that a client presented, if it is valid at `now`.
pub(crate) async fn find_token(
    store: &Store,
    presented: &str,
    now: Timestamp,
) -> Result<Option<ValidToken>, StoreError> {
    if ParsedToken::parse(presented).is_none() {
        return Ok(None);
    }
    let presented = presented.to_owned();
    store
        .read(move |reader| {
            let Some(parsed) = ParsedToken::parse(&presented) else { return Ok(None) };
            let found: Option<ApiToken> = reader.find(ApiTokenColumn::Lookup, parsed.lookup)?;
            let is_valid = |token: &ApiToken| {
                parsed.matches(&token.digest) && token.expires_at.is_none_or(|end| end > now)
            };
            let Some(token) = found.filter(is_valid) else { return Ok(None) };
            let Some(user) = reader.get(token.user_id)?.filter(|user| user.enabled) else {
                return Ok(None);
            };
            let mut principal = principal(reader, &user, AuthMethod::ApiToken)?;
            principal.limit = RightsLimit { role: token.role, scope: token.scope };
            let is_recorded =
                token.last_used_at.is_some_and(|last| now.since(last) < LAST_USE_RESOLUTION);
            Ok(Some(ValidToken {
                principal,
                expires_at: token.expires_at,
                record_use: (!is_recorded).then_some(token.id),
            }))
        })
        .await
}

/// Records the use of a token in the background.
pub(crate) fn record_token_use(store: &Store, token: ApiTokenId, now: Timestamp) {
    let store = store.clone();
    tokio::spawn(async move {
        let recorded = store.write(move |writer| writer.record_token_use(token, now)).await;
        if let Err::<(), StoreError>(error) = recorded {
            tracing::warn!(%token, %error, "recording the use of a token failed");
        }
    });
}

/// An enabled user as an authenticated principal.
pub(crate) fn principal(
    reader: &mut StoreReader<'_>,
    user: &UserAccount,
    method: AuthMethod,
) -> Result<Principal, StoreError> {
    Ok(Principal {
        user_id: Arc::from(user.id.to_string()),
        user_name: Arc::from(user.name.as_str()),
        method,
        rights: UserRights::Roles {
            assignments: reader.valid_role_assignments(user.id)?,
            default_project: user.default_project.clone(),
        },
        limit: RightsLimit::default(),
        preferred_scope: None,
        default_caller: DefaultCaller::default(),
    })
}
