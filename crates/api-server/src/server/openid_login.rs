// SPDX-License-Identifier: Apache-2.0
//! Sign-in to the web UI with an OpenID Connect provider.
//!
//! `/ui/oidc/login` sends the browser to the provider, which sends it back to `/ui/oidc/callback`. That
//! starts the same session as a sign-in with a password.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use authentication::{AuthError, LoginResponse};
use http::header::{LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;
use node_model::Secret;

use super::browser_headers::LOGIN_COOKIE;
use super::session::{rejected, session_response, with_cookie};
use super::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};
use crate::handler;

/// Where a sign-in starts.
pub(crate) const LOGIN: &str = "/ui/oidc/login";
pub(crate) const CALLBACK: &str = "/ui/oidc/callback";

// The provider sends browsers to the callback with a link.
pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(LOGIN, "Sign in to the web UI with OpenID Connect", handler!(login))
        .since(UNVERSIONED)
        .access(RouteAccess::Public)
        .rate_limited_page(),
    ApiRoute::get(CALLBACK, "Complete a sign-in with OpenID Connect", handler!(callback))
        .since(UNVERSIONED)
        .access(RouteAccess::Public)
        .rate_limited_page(),
];

async fn login(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    check_enabled(&request)?;
    let redirect_uri = format!("{}{CALLBACK}", request.base_url);
    match request.app.authenticator.start_openid_login(redirect_uri).await {
        Ok(started) => {
            let cookie = login_cookie(&request, started.cookie.reveal(), started.lifetime);
            Ok(redirect(&started.url)?.with_header(SET_COOKIE, cookie))
        }
        Err(error) => Ok(rejected(&error)),
    }
}

/// Providers may add parameters, so unknown ones are ignored.
async fn callback(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    check_enabled(&request)?;
    let value = |name: &str| request.query_value(name).map(str::to_owned);
    let response = LoginResponse {
        code: value("code").map(Secret::new),
        state: value("state"),
        issuer: value("iss"),
        error: value("error"),
        cookie: request.browser.login.clone(),
    };
    let address = request.client_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let forget = login_cookie(&request, "", Duration::ZERO);
    match request.app.authenticator.finish_openid_login(response, address).await {
        Ok(signed_in) => {
            request.mark_client_known();
            let user = signed_in.caller.name().unwrap_or_default();
            tracing::info!(user, %address, "user signed in to the web UI with OpenID Connect");
            // The body is that of a sign-in with a password; the audit log takes the user from it.
            let response = ApiResponse {
                status: StatusCode::SEE_OTHER,
                ..session_response(true, Some(&signed_in.caller))
            };
            let response = response
                .with_header(LOCATION, HeaderValue::from_static("/ui"))
                .with_header(SET_COOKIE, forget);
            Ok(with_cookie(response, &request, signed_in.cookie.reveal(), signed_in.lifetime))
        }
        Err(error) => {
            if let AuthError::SignInFailed { problem } = &error {
                tracing::warn!(%address, problem, "sign-in with OpenID Connect failed");
            }
            Ok(rejected(&error).with_header(SET_COOKIE, forget))
        }
    }
}

fn check_enabled(request: &ApiRequest) -> Result<(), WireError> {
    let settings = request.app.authenticator.openid_client_settings();
    if settings.is_some_and(|settings| settings.has_browser_login) {
        return Ok(());
    }
    Err(WireError::router(404, "Sign-in with OpenID Connect is not enabled on this server."))
}

fn redirect(url: &str) -> Result<ApiResponse, WireError> {
    let location = HeaderValue::try_from(url)
        .map_err(|_| WireError::new(500, "The sign-in page of the provider has an invalid URL."))?;
    Ok(ApiResponse::empty(StatusCode::SEE_OTHER).with_header(LOCATION, location))
}

/// The cookie that ties a sign-in to the browser. The provider sends the browser back with a link of
/// another site, so it cannot be `SameSite=Strict`.
fn login_cookie(request: &ApiRequest, value: &str, max_age: Duration) -> HeaderValue {
    let secure = if request.base_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!(
        "{LOGIN_COOKIE}={value}; HttpOnly; SameSite=Lax; Path=/ui/oidc; Max-Age={}{secure}",
        max_age.as_secs()
    );
    HeaderValue::try_from(cookie).expect("base64 is a valid header value")
}
