// SPDX-License-Identifier: Apache-2.0
//! Sessions of the web UI.
//!
//! The web UI sends user and password once and gets an `HttpOnly` cookie. The sessions are in the
//! store, see `authentication::sessions`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use access_policy::{Caller, CallerScope};
use authentication::{AuthError, SESSION_COOKIE};
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::{HeaderValue, Method};
use ironic_wire::{WireError, parse_object};
use node_model::{AccessScope, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth_response::auth_error_response;
use super::openid_login::LOGIN;
use super::{ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, RouteAccess, UNVERSIONED};
use crate::handler;

pub(super) const SESSION: &str = "/ui/session";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(SESSION, "Show who is signed in to the web UI", handler!(show))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
    ApiRoute::new(Method::POST, SESSION, "Sign in to the web UI", handler!(sign_in))
        .since(UNVERSIONED)
        .access(RouteAccess::Public)
        .rate_limited()
        .body_limit(BodyLimit::Message),
    ApiRoute::new(Method::DELETE, SESSION, "Sign out of the web UI", handler!(sign_out))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionCredentials {
    username: String,
    password: String,
    /// The scope of the session: `system` or a project.
    project: Option<String>,
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let authenticator = &request.app.authenticator;
    let caller = match &request.browser.session {
        Some(cookie) if authenticator.is_required() => {
            match authenticator.session_caller(cookie).await {
                Ok(caller) => caller,
                Err(error) => return Ok(rejected(&error)),
            }
        }
        Some(_) | None => None,
    };
    let mut body = session_body(authenticator.is_required(), caller.as_ref());
    if let Some(settings) = authenticator.openid_client_settings() {
        body["oidc"] = json!({
            "login": settings.has_browser_login.then_some(LOGIN),
            "issuer": settings.issuer,
            "device_client_id": settings.device_client_id,
            "scopes": settings.scopes,
        });
    }
    Ok(no_store(&body))
}

async fn sign_in(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    check_web_ui(&request)?;
    let body = Value::Object(parse_object(&request.body, "session")?);
    let Ok(SessionCredentials { username, password, project }) = serde_json::from_value(body)
    else {
        return Err(
            WireError::invalid("username and password are required, both as strings.").into()
        );
    };
    let app = &request.app;
    if !app.authenticator.is_required() {
        return Ok(session_response(false, None));
    }
    let scope = project.as_deref().map(AccessScope::named);
    let address = request.client_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let signed_in =
        app.authenticator.sign_in(&username, Secret::new(password), scope, address).await;
    let signed_in = match signed_in {
        Ok(signed_in) => signed_in,
        Err(error) => return Ok(rejected(&error)),
    };
    request.mark_client_known();
    tracing::info!(user = %username, %address, "user signed in to the web UI");
    let response = session_response(true, Some(&signed_in.caller));
    Ok(with_cookie(response, &request, signed_in.cookie.reveal(), signed_in.lifetime))
}

async fn sign_out(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    check_web_ui(&request)?;
    let authenticator = &request.app.authenticator;
    if let Some(cookie) = &request.browser.session
        && let Err(error) = authenticator.sign_out(cookie).await
    {
        return Ok(rejected(&error));
    }
    let response = session_response(authenticator.is_required(), None);
    Ok(with_cookie(response, &request, "", Duration::ZERO))
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

pub(super) fn session_response(needed: bool, caller: Option<&Caller>) -> ApiResponse {
    no_store(&session_body(needed, caller))
}

fn no_store(body: &Value) -> ApiResponse {
    ApiResponse::ok_value(body).with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

fn session_body(needed: bool, caller: Option<&Caller>) -> Value {
    let mut body = json!({"needed": needed, "user": caller.and_then(Caller::name)});
    if let Some(caller) = caller.filter(|caller| caller.scope != CallerScope::Unrestricted) {
        body["roles"] = json!(caller.roles.iter().map(|role| &**role).collect::<Vec<&str>>());
        body["project"] = json!(caller.project());
        body["system"] = json!(caller.scope == CallerScope::System);
    }
    body
}

/// The response to wrong credentials in the web UI.
pub(super) fn rejected(error: &AuthError) -> ApiResponse {
    auth_error_response(error, None)
}

pub(super) fn with_cookie(
    response: ApiResponse,
    request: &ApiRequest,
    cookie: &str,
    max_age: Duration,
) -> ApiResponse {
    let secure = if request.base_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!(
        "{SESSION_COOKIE}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        max_age.as_secs()
    );
    let cookie =
        HeaderValue::try_from(cookie).expect("letters and digits are a valid header value");
    response.with_header(SET_COOKIE, cookie)
}
