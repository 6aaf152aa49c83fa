// SPDX-License-Identifier: Apache-2.0
//! Sessions of the web UI.
//!
//! The web UI sends user and password once and gets an `HttpOnly` cookie. The cookie is sealed with
//! the store's key and contains the user, the expiry and the password hash. So every replica on the
//! same database accepts it, and it ends with a changed password or a removed user. Sign-outs are
//! kept in memory only: other replicas accept a copied cookie until it expires.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::{HeaderValue, Method, StatusCode};
use ironic_wire::{WireError, parse_object};
use node_model::{Secret, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Store;
use uuid::Uuid;

use super::auth::{AuthError, Authenticator, CallerIdentity};
use super::browser_headers::SESSION_COOKIE;
use super::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};
use crate::handler;

/// Lifetime of a session: a working day.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Owner id under which tokens are sealed, so that no other sealed value is accepted as a token.
const SEAL_OWNER: Uuid = Uuid::from_u128(0x6665_7272_6974_655f_7365_7373_696f_6e73);
/// Longer than any issued token.
const MAX_TOKEN_LENGTH: usize = 2048;

const SESSION: &str = "/ui/session";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(SESSION, "Show who is signed in to the web UI", handler!(show))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
    ApiRoute::new(Method::POST, SESSION, "Sign in to the web UI", handler!(sign_in))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
    ApiRoute::new(Method::DELETE, SESSION, "Sign out of the web UI", handler!(sign_out))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
];

/// Checks session tokens.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Tokens that were signed out, with their expiry.
    ended: Mutex<HashMap<String, Timestamp>>,
}

/// The content of a token.
#[derive(Serialize, Deserialize)]
struct SessionToken {
    user: String,
    until: Timestamp,
    hash: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionCredentials {
    username: String,
    password: String,
}

impl Sessions {
    /// Issues a token to a user who has authenticated with the password of this hash.
    fn issue(store: &Store, user: &str, hash: String, now: Timestamp) -> String {
        let token = SessionToken { user: user.to_owned(), until: now.plus(LIFETIME), hash };
        let plain = json!(token).to_string();
        URL_SAFE_NO_PAD.encode(store.seal(SEAL_OWNER, plain.as_bytes()))
    }

    /// The user of a token; `None` if it is invalid, expired or signed out.
    pub(crate) fn identify(
        &self,
        token: &str,
        store: &Store,
        authenticator: &Authenticator,
        now: Timestamp,
    ) -> Option<CallerIdentity> {
        let session = open_token(token, store)?;
        let is_valid = session.until > now
            && authenticator.password_hash(&session.user).as_ref() == Some(&session.hash)
            && !self.ended().contains_key(token);
        is_valid.then(|| CallerIdentity::User(Arc::from(session.user)))
    }

    /// Invalidates a token.
    fn end(&self, token: &str, store: &Store, now: Timestamp) {
        if let Some(SessionToken { until, .. }) = open_token(token, store) {
            let mut ended = self.ended();
            ended.retain(|_, until| *until > now);
            ended.insert(token.to_owned(), until);
        }
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_token(token: &str, store: &Store) -> Option<SessionToken> {
    if token.len() > MAX_TOKEN_LENGTH {
        return None;
    }
    let sealed = URL_SAFE_NO_PAD.decode(token).ok()?;
    let plain = store.unseal(SEAL_OWNER, &sealed).ok()?;
    serde_json::from_slice(&plain).ok()
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let app = &request.app;
    let identity = request.browser.session.as_ref().and_then(|token| {
        app.sessions.identify(token.reveal(), &app.store, &app.authenticator, request.now())
    });
    Ok(session_response(
        app.authenticator.is_required(),
        identity.as_ref().and_then(CallerIdentity::name),
    ))
}

async fn sign_in(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    check_web_ui(&request)?;
    let body = Value::Object(parse_object(&request.body, "session")?);
    let Ok(SessionCredentials { username, password }) = serde_json::from_value(body) else {
        return Err(
            WireError::invalid("username and password are required, both as strings.").into()
        );
    };
    let app = &request.app;
    if !app.authenticator.is_required() {
        return Ok(session_response(false, None));
    }
    let password = Secret::new(password);
    let hash = match app.authenticator.check_password(username.clone(), password).await {
        Ok(hash) => hash,
        Err(error) => return Ok(rejected(error)),
    };
    let token = Sessions::issue(&app.store, &username, hash, request.now());
    tracing::info!(user = %username, "user signed in to the web UI");
    Ok(with_cookie(session_response(true, Some(&username)), &request, &token, LIFETIME))
}

async fn sign_out(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    check_web_ui(&request)?;
    if let Some(token) = &request.browser.session {
        request.app.sessions.end(token.reveal(), &request.app.store, request.now());
    }
    Ok(with_cookie(
        session_response(request.app.authenticator.is_required(), None),
        &request,
        "",
        Duration::ZERO,
    ))
}

/// Rejects requests of other sites: they must not sign a browser in or out.
fn check_web_ui(request: &ApiRequest) -> Result<(), WireError> {
    if request.browser.is_web_ui {
        return Ok(());
    }
    Err(WireError::new(
        403,
        "Only the web UI may use this endpoint: the header X-Ferrite-Page is missing.",
    ))
}

fn session_response(needed: bool, user: Option<&str>) -> ApiResponse {
    let body: Value = json!({"needed": needed, "user": user});
    ApiResponse::ok_value(&body).with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// The response to wrong credentials, without `WWW-Authenticate`: that would make the browser open its
/// own password dialog.
fn rejected(error: AuthError) -> ApiResponse {
    let mut response = error.into_response();
    if response.status == StatusCode::UNAUTHORIZED {
        response.headers.clear();
    }
    response
}

fn with_cookie(
    response: ApiResponse,
    request: &ApiRequest,
    token: &str,
    max_age: Duration,
) -> ApiResponse {
    let secure = if request.base_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!(
        "{SESSION_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        max_age.as_secs()
    );
    let cookie = HeaderValue::try_from(cookie).expect("base64 is a valid header value");
    response.with_header(SET_COOKIE, cookie)
}
