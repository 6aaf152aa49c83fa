// SPDX-License-Identifier: Apache-2.0
//! API tokens of users and service accounts.
//!
//! A token is shown once, in the response that creates it. A caller who is authenticated by a token
//! cannot create tokens for itself: a stolen token must not outlive its expiry or its limits.

use std::collections::HashMap;
use std::time::Duration;

use access_policy::{AuthMethod, PolicyTarget};
use authentication::GeneratedToken;
use http::{Method, StatusCode};
use ironic_wire::{WireError, parse_fields, parse_object};
use node_model::{
    AccessScope, ApiToken, ApiTokenId, Timestamp, UserAccount, UserId, is_identity_name,
};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{OwnedByUserFilter, ResourceQuery, StoreReader};

use super::users::{changed, check_description, find_user, own_user_id};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

const ALL: &str = "/v1/ferrite/tokens";
const ONE: &str = "/v1/ferrite/tokens/{token}";

/// Lifetime of tokens created without one.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Longest lifetime in seconds: ten years.
const MAX_LIFETIME_SECONDS: u64 = 10 * 366 * 24 * 60 * 60;
/// Maximum number of tokens of one user.
const MAX_TOKENS: u64 = 200;

const LIST_ALL: &str = "ferrite:token:list_all";
const OWN: &str = "ferrite:token:own";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List API tokens, without their secrets", handler!(list))
        .since(UNVERSIONED)
        .query(&["user"])
        .checked_by_handler(&[LIST_ALL, OWN]),
    ApiRoute::new(Method::POST, ALL, "Create an API token", handler!(create))
        .since(UNVERSIONED)
        .checked_by_handler(&["ferrite:token:create", OWN]),
    ApiRoute::get(ONE, "Show an API token, without its secret", handler!(show))
        .since(UNVERSIONED)
        .checked_by_handler(&[LIST_ALL, OWN]),
    ApiRoute::new(Method::DELETE, ONE, "Revoke an API token", handler!(delete))
        .since(UNVERSIONED)
        .checked_by_handler(&["ferrite:token:delete", OWN]),
];

/// The body of a new token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewApiToken {
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    description: String,
    /// Seconds.
    #[serde(default)]
    expires_in: Option<u64>,
    /// Whether the token never expires.
    #[serde(default)]
    never_expires: bool,
    #[serde(default)]
    role: Option<String>,
    /// `system` or a project.
    #[serde(default)]
    scope: Option<String>,
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["user"])?;
    let own = own_user_id(&request);
    let sees_all = request.access.allows(LIST_ALL, &PolicyTarget::NONE);
    if !sees_all {
        request.access.require(OWN, &PolicyTarget::NONE)?;
    }
    let requested = request.query_value("user").map(str::to_owned);
    let tokens = request
        .app
        .store
        .scan(move |reader| {
            let user = match &requested {
                Some(ident) => Some(find_user(reader, ident)?.id),
                None if sees_all => None,
                None => own,
            };
            if !sees_all && (own.is_none() || user != own) {
                return Ok(Vec::new());
            }
            let query = ResourceQuery::filtered(OwnedByUserFilter { user });
            let tokens: Vec<ApiToken> = reader.collect(&query)?;
            let users: Vec<UserAccount> = reader.collect(&ResourceQuery::default())?;
            let names: HashMap<UserId, String> =
                users.into_iter().map(|user| (user.id, user.name)).collect();
            let rows = tokens
                .iter()
                .map(|token| token_json(token, names.get(&token.user_id).map(String::as_str)));
            Ok::<_, ApiError>(rows.collect())
        })
        .await?;
    Ok(ApiResponse::ok_value(&json!({"tokens": tokens})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (token, user) = find_visible(&request, LIST_ALL).await?;
    Ok(ApiResponse::ok_value(&token_json(&token, Some(&user.name))))
}

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "token")?);
    let new: NewApiToken = parse_fields(body)?;
    let expires_at = expiry(&new, request.now())?;
    check_description(Some(&new.description))?;
    let named = |name: &Option<String>, field: &str| match name {
        Some(name) if !is_identity_name(name) => {
            Err(WireError::invalid_field(field, "it must have 1 to 64 letters, digits or . _ -"))
        }
        Some(_) | None => Ok(name.clone()),
    };
    let role = named(&new.role, "role")?.map(|role| role.to_ascii_lowercase());
    let scope = named(&new.scope, "scope")?.map(|scope| AccessScope::named(&scope));
    let user = token_user(&request, new.user.as_deref()).await?;
    let generated = GeneratedToken::generate().map_err(|error| {
        tracing::error!(%error, "creating a token failed");
        WireError::internal(request.request_id.as_str())
    })?;
    let token = ApiToken {
        id: ApiTokenId::random(),
        lookup: generated.lookup,
        digest: generated.digest,
        user_id: user.id,
        description: new.description,
        created_at: request.now(),
        expires_at,
        last_used_at: None,
        role,
        scope,
    };
    let stored = token.clone();
    request
        .app
        .store
        .write(move |writer| {
            let filter = OwnedByUserFilter { user: Some(stored.user_id) };
            if writer.count::<ApiToken>(&filter)? >= MAX_TOKENS {
                let problem = format!("The user has {MAX_TOKENS} tokens already; revoke some.");
                return Err(WireError::conflict(problem).into());
            }
            check_limits(writer, &stored)?;
            writer.insert(&stored)?;
            Ok::<_, ApiError>(())
        })
        .await?;
    changed(&request, &user.name, "token created");
    let mut json = token_json(&token, Some(&user.name));
    json["token"] = json!(generated.token.reveal());
    Ok(ApiResponse::json(StatusCode::CREATED, json.to_string().into_bytes()))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (token, user) = find_visible(&request, "ferrite:token:delete").await?;
    let id = token.id;
    request.app.store.write(move |writer| writer.delete(id)).await.map_err(ApiError::Store)?;
    changed(&request, &user.name, "token revoked");
    Ok(ApiResponse::no_content())
}

/// The user that a new token is for: the caller, or another one if the caller may do that.
async fn token_user(request: &ApiRequest, ident: Option<&str>) -> Result<UserAccount, ApiError> {
    let own = own_user_id(request);
    let ident = match (ident, own) {
        (Some(ident), _) => ident.to_owned(),
        (None, Some(own)) => own.to_string(),
        (None, None) => {
            // The caller is no user of the store.
            request.access.require("ferrite:token:create", &PolicyTarget::NONE)?;
            return Err(WireError::missing("user").into());
        }
    };
    let may_create = request.access.allows("ferrite:token:create", &PolicyTarget::NONE);
    let name = ident.clone();
    let user = request.app.store.read(move |reader| find_user(reader, &name)).await;
    let is_own = user.as_ref().is_ok_and(|user| Some(user.id) == own);
    if may_create && !is_own {
        return user;
    }
    if !is_own {
        return Err(WireError::forbidden(format!(
            "Your roles do not allow to create tokens of {ident}: the policy rule \
             ferrite:token:create does not match."
        ))
        .into());
    }
    if request.caller.method == AuthMethod::ApiToken {
        return Err(WireError::forbidden(
            "A token cannot create another one; sign in with a password, or contact an administrator.",
        )
        .into());
    }
    if !may_create {
        request.access.require(OWN, &PolicyTarget::NONE)?;
    }
    user
}

/// The token in the path and its user, if it is a token of the caller or `rule` allows it.
async fn find_visible(
    request: &ApiRequest,
    rule: &'static str,
) -> Result<(ApiToken, UserAccount), ApiError> {
    let ident = request.param("token").to_owned();
    let not_found = WireError::not_found("Token", &ident);
    let found = match ident.parse::<ApiTokenId>() {
        Err(_) => None,
        Ok(id) => {
            request
                .app
                .store
                .read(move |reader| {
                    let Some(token) = reader.get(id)? else { return Ok(None) };
                    let user = reader.get(token.user_id)?;
                    Ok::<_, ApiError>(user.map(|user| (token, user)))
                })
                .await?
        }
    };
    let is_own =
        found.as_ref().is_some_and(|(token, _)| own_user_id(request) == Some(token.user_id));
    let is_allowed = request.access.allows(rule, &PolicyTarget::NONE)
        || (is_own && request.access.allows(OWN, &PolicyTarget::NONE));
    found.filter(|_| is_allowed).ok_or_else(|| not_found.into())
}

/// Fails with 400 if the user has no role in the scope of the token.
fn check_limits(reader: &mut StoreReader<'_>, token: &ApiToken) -> Result<(), ApiError> {
    let Some(scope) = &token.scope else { return Ok(()) };
    let roles = reader.role_assignments(token.user_id)?;
    if roles.iter().any(|assignment| assignment.scope == *scope) {
        return Ok(());
    }
    let problem = format!("the user has no role in {scope}");
    Err(WireError::invalid_field("scope", &problem).into())
}

fn expiry(new: &NewApiToken, now: Timestamp) -> Result<Option<Timestamp>, WireError> {
    match (new.never_expires, new.expires_in) {
        (true, None) => Ok(None),
        (true, Some(_)) => {
            Err(WireError::invalid("expires_in and never_expires exclude each other."))
        }
        (false, None) => Ok(Some(now.plus(DEFAULT_LIFETIME))),
        (false, Some(seconds)) if (1..=MAX_LIFETIME_SECONDS).contains(&seconds) => {
            Ok(Some(now.plus(Duration::from_secs(seconds))))
        }
        (false, Some(_)) => {
            let problem = format!("it must be 1 to {MAX_LIFETIME_SECONDS} seconds");
            Err(WireError::invalid_field("expires_in", &problem))
        }
    }
}

fn token_json(token: &ApiToken, user: Option<&str>) -> Value {
    json!({
        "id": token.id,
        "user": user,
        "description": token.description,
        "prefix": format!("frt_{}", token.lookup),
        "role": token.role,
        "scope": token.scope.as_ref().map(AccessScope::as_str),
        "created_at": token.created_at.to_string(),
        "expires_at": token.expires_at.map(|at| at.to_string()),
        "last_used_at": token.last_used_at.map(|at| at.to_string()),
    })
}
