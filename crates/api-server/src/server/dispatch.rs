// SPDX-License-Identifier: Apache-2.0
//! Turns an HTTP request into a response: route, caller, version, body, handler, headers.
//!
//! The order of the checks is Ironic's, because clients can observe it: authentication before path,
//! path and method before version, version before body.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Instant;

use error_chain::error_chain;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use ironic_wire::{ApiVersion, WireError, negotiate};
use tracing::{Instrument, field};

use super::auth::CallerIdentity;
use super::body::{discard, read_body};
use super::browser_headers::{self, BrowserHeaders, session_token};
use super::error::ApiError;
use super::request::ApiRequest;
use super::request_id::RequestId;
use super::response::{ApiResponse, ResponseBody};
use super::routes::{ApiRoute, Handler, RouteAccess, RouteEntry, RouteMatch, TooOld, UNVERSIONED};
use super::url;
use crate::app::App;
use crate::config::ApiConfig;

const IRONIC_VERSION: HeaderName = HeaderName::from_static("x-openstack-ironic-api-version");
const OPENSTACK_VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
const MINIMUM_VERSION: HeaderName =
    HeaderName::from_static("x-openstack-ironic-api-minimum-version");
const MAXIMUM_VERSION: HeaderName =
    HeaderName::from_static("x-openstack-ironic-api-maximum-version");
const REQUEST_ID: HeaderName = HeaderName::from_static("openstack-request-id");
const GLOBAL_REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// From this version on, `.json` at the end of a path is part of the name.
const JSON_SUFFIX_KEPT_SINCE: u16 = 91;

/// Preformatted header values of all versions.
static VERSION_VALUES: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    (0..=ApiVersion::MAX.0)
        .map(|minor| HeaderValue::try_from(ApiVersion(minor).to_string()))
        .collect::<Result<_, _>>()
        .expect("digits and a dot are a valid header value")
});

/// Handles one request. Never fails: every error becomes a response.
pub(super) async fn dispatch(app: Arc<App>, request: Request<Incoming>) -> Response<ResponseBody> {
    let started = Instant::now();
    let in_flight = app.request_metrics.start_request();
    let (head, body) = request.into_parts();
    let request_id = RequestId::generate();
    let span = tracing::debug_span!(
        "request",
        %request_id,
        method = %head.method,
        route = field::Empty,
        status = field::Empty,
        duration_us = field::Empty,
    );
    let mut body = Some(body);
    let outcome = respond(&app, &head, &mut body, &request_id).instrument(span.clone()).await;
    if let Some(unread) = body {
        discard(unread, &head.headers);
    }
    let duration = started.elapsed();
    let status = outcome.response.status.as_u16();
    app.request_metrics.record(outcome.route, status, duration);
    if !span.is_disabled() {
        span.record("route", outcome.route.map_or("none", |entry| entry.route.path));
        span.record("status", status);
        span.record("duration_us", duration.as_micros());
        let caller_id = head.headers.get(GLOBAL_REQUEST_ID).and_then(|value| value.to_str().ok());
        let caller_id = caller_id.and_then(RequestId::parse);
        span.in_scope(|| tracing::debug!(caller_request_id = ?caller_id, "request completed"));
    }
    drop(in_flight);
    into_http(outcome, &request_id)
}

/// The response to a request, and what metrics and version headers need to know.
struct DispatchOutcome<'r> {
    route: Option<&'r RouteEntry>,
    versions: VersionHeaders,
    response: ApiResponse,
}

/// Which version headers the response has.
#[derive(Clone, Copy)]
enum VersionHeaders {
    None,
    Range,
    Served(ApiVersion),
}

async fn respond<'r>(
    app: &'r Arc<App>,
    head: &Parts,
    body: &mut Option<Incoming>,
    request_id: &RequestId,
) -> DispatchOutcome<'r> {
    let reject = |route, versions, error: WireError| DispatchOutcome {
        route,
        versions,
        response: error_response(&error),
    };
    let decoded = match url::decode_path(head.uri.path()) {
        Ok(decoded) => decoded,
        Err(error) => {
            return reject(None, VersionHeaders::None, WireError::router(400, error.to_string()));
        }
    };
    let ironic_version = header_text(&head.headers, &IRONIC_VERSION);
    let negotiated = negotiate(ironic_version, header_text(&head.headers, &OPENSTACK_VERSION));
    let (decoded, json_suffix_cut) = cut_json_suffix(&decoded, ironic_version, &negotiated);
    let found = app.router.find(&head.method, url::route_key(decoded));

    let access = match &found {
        RouteMatch::Route(entry, _) => entry.route.access,
        RouteMatch::OtherMethods(_) | RouteMatch::NotFound { .. } => RouteAccess::Authenticated,
    };
    let identity = match identify(app, access, head).await {
        Ok(identity) => identity,
        Err(response) => {
            return DispatchOutcome {
                route: None,
                versions: VersionHeaders::None,
                response: *response,
            };
        }
    };

    let (entry, params) = match found {
        RouteMatch::Route(entry, params) => (entry, params),
        RouteMatch::OtherMethods(others) => {
            let response = other_method(&head.method, others);
            return DispatchOutcome { route: None, versions: VersionHeaders::None, response };
        }
        RouteMatch::NotFound { known_first_segment } => {
            let versions = match &negotiated {
                Ok(version) if known_first_segment => VersionHeaders::Served(*version),
                Ok(_) | Err(_) => VersionHeaders::None,
            };
            return reject(
                None,
                versions,
                WireError::router(
                    404,
                    "No endpoint at this path; /v1/ferrite/openapi lists all endpoints.",
                ),
            );
        }
    };
    let route = entry.route;
    let (version, versions) = if route.since == UNVERSIONED {
        (ApiVersion::MAX, VersionHeaders::None)
    } else {
        match negotiated {
            Ok(version) => (version, VersionHeaders::Served(version)),
            Err(error) => {
                let versions = if error.has_version_range() {
                    VersionHeaders::Range
                } else {
                    VersionHeaders::None
                };
                return reject(Some(entry), versions, error.into());
            }
        }
    };
    if let Some(outcome) = too_old(entry, version) {
        return outcome;
    }
    let query = match url::decode_query(head.uri.query().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => {
            return reject(Some(entry), versions, WireError::invalid(error.to_string()));
        }
    };
    let body = match read_body(body, route.body_limit, &app.config).await {
        Ok(body) => body,
        Err(error) => return reject(Some(entry), versions, error),
    };
    let request = ApiRequest {
        app: Arc::clone(app),
        method: head.method.clone(),
        version,
        request_id: request_id.clone(),
        identity,
        base_url: base_url(&app.config, &head.headers),
        params,
        json_suffix_cut,
        query,
        last_event_id: header_text(&head.headers, &LAST_EVENT_ID).map(str::to_owned),
        browser: BrowserHeaders::parse(&head.headers),
        body,
    };
    let response = match call_handler(route.handler, request).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let cause = store_cause(&error);
            let error = error.into_wire(request_id);
            if error.status() >= 500 {
                tracing::error!(%request_id, route = route.path, %error, cause, "request failed");
            }
            error_response(&error)
        }
        Err(Panicked(message)) => {
            tracing::error!(%request_id, route = route.path, panic = message, "handler panicked");
            error_response(&WireError::internal(request_id.as_str()))
        }
    };
    DispatchOutcome { route: Some(entry), versions, response }
}

fn into_http(outcome: DispatchOutcome<'_>, request_id: &RequestId) -> Response<ResponseBody> {
    let DispatchOutcome { versions, response, .. } = outcome;
    let ApiResponse { status, content_type, headers: more, body } = response;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(8 + more.len());
    let value_of = |version: ApiVersion| VERSION_VALUES[usize::from(version.0)].clone();
    match versions {
        VersionHeaders::None => {}
        VersionHeaders::Range | VersionHeaders::Served(_) => {
            headers.insert(MINIMUM_VERSION, value_of(ApiVersion::MIN));
            headers.insert(MAXIMUM_VERSION, value_of(ApiVersion::MAX));
            if let VersionHeaders::Served(version) = versions {
                headers.insert(IRONIC_VERSION, value_of(version));
            }
        }
    }
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers.extend(more);
    let id = request_id.header();
    headers.insert(REQUEST_ID, id.clone());
    headers.insert(GLOBAL_REQUEST_ID, id);
    response
}

/// The response for an error.
fn error_response(error: &WireError) -> ApiResponse {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = ApiResponse::json(status, error.body());
    match error.retry_after() {
        Some(seconds) => response.with_header(RETRY_AFTER, HeaderValue::from(seconds)),
        None => response,
    }
}

async fn identify(
    app: &App,
    access: RouteAccess,
    head: &Parts,
) -> Result<CallerIdentity, Box<ApiResponse>> {
    let headers = &head.headers;
    let open = match access {
        RouteAccess::Public => true,
        RouteAccess::Authenticated => false,
        RouteAccess::Metrics => app.config.public_metrics,
    };
    if open {
        return Ok(CallerIdentity::Anonymous);
    }
    if !headers.contains_key(AUTHORIZATION)
        && let Some(token) = session_token(headers)
        && let Some(identity) =
            app.sessions.identify(token, &app.store, &app.authenticator, app.now())
    {
        // Browsers send the cookie with cross-site requests, too, but only the web UI can send its
        // header: this prevents CSRF.
        if head.method.is_safe() || headers.contains_key(browser_headers::WEB_UI) {
            return Ok(identity);
        }
        let problem = "Changes authenticated by the session cookie need the header X-Ferrite-Page.";
        return Err(Box::new(error_response(&WireError::new(403, problem))));
    }
    match app.authenticator.identify(headers.get(AUTHORIZATION)).await {
        Ok(identity) => Ok(identity),
        Err(error) => {
            let mut response = error.into_response();
            if browser_headers::has_own_login_form(headers) {
                response.headers.retain(|(name, _)| *name != WWW_AUTHENTICATE);
            }
            Err(Box::new(response))
        }
    }
}

fn other_method(method: &Method, others: &[RouteEntry]) -> ApiResponse {
    let mut allowed: Vec<&str> = others.iter().map(|other| other.route.method.as_str()).collect();
    allowed.sort_unstable();
    let response = if *method == Method::OPTIONS {
        ApiResponse::empty(StatusCode::OK)
    } else {
        error_response(&WireError::router(405, ""))
    };
    match HeaderValue::try_from(allowed.join(", ")) {
        Ok(allowed) => response.with_header(ALLOW, allowed),
        Err(_) => response,
    }
}

/// The response to a client whose version is older than the endpoint; `None` if it is not.
fn too_old(entry: &RouteEntry, version: ApiVersion) -> Option<DispatchOutcome<'_>> {
    let ApiRoute { since, too_old, .. } = *entry.route;
    if version.has(since) {
        return None;
    }
    let error = match too_old {
        TooOld::HandlerDecides => return None,
        TooOld::NotFound => WireError::endpoint_too_new(),
        TooOld::MethodNotAllowed => WireError::method_not_allowed(),
        TooOld::NotAcceptable => WireError::too_new("this endpoint", since),
    };
    let versions = VersionHeaders::Served(version);
    Some(DispatchOutcome { route: Some(entry), versions, response: error_response(&error) })
}

/// Removes `.json` from the end of a path for clients of old versions. As in Ironic, this applies
/// only to clients that send `X-OpenStack-Ironic-API-Version`.
fn cut_json_suffix<'p, E>(
    decoded: &'p str,
    ironic_version: Option<&str>,
    negotiated: &Result<ApiVersion, E>,
) -> (&'p str, bool) {
    let old = matches!(negotiated, Ok(version) if !version.has(JSON_SUFFIX_KEPT_SINCE));
    match decoded.strip_suffix(".json") {
        Some(shorter) if old && ironic_version.is_some() => (shorter, true),
        Some(_) | None => (decoded, false),
    }
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    // A non-ASCII header value is invalid, not absent.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// The prefix of links: the configured public endpoint, or the `Host` the client used.
fn base_url(config: &ApiConfig, headers: &HeaderMap) -> String {
    if let Some(endpoint) = &config.public_endpoint {
        return endpoint.clone();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| {
        // Other characters could inject markup or another host into links.
        !host.is_empty()
            && host.len() <= 255
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    });
    let https = config.trust_forwarded_headers
        && headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes() == b"https");
    let scheme = if https { "https" } else { "http" };
    match host {
        Some(host) => format!("{scheme}://{host}"),
        None => format!("{scheme}://{}", config.listen),
    }
}

/// The message of a handler's panic.
struct Panicked(String);

/// Calls a handler and catches its panics, so that a panic does not close the connection.
async fn call_handler(
    handler: Handler,
    request: ApiRequest,
) -> Result<Result<ApiResponse, ApiError>, Panicked> {
    // Unwind safe: a handler owns its request and shares only locks that tolerate poisoning.
    let mut future = std::panic::catch_unwind(AssertUnwindSafe(|| handler(request)))
        .map_err(|payload| Panicked(panic_message(payload.as_ref())))?;
    std::future::poll_fn(move |context: &mut Context<'_>| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
            Err(payload) => Poll::Ready(Err(Panicked(panic_message(payload.as_ref())))),
        }
    })
    .await
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The store's error chain for the log; empty for wire errors, whose message is complete.
fn store_cause(error: &ApiError) -> String {
    match error {
        ApiError::Store(error) => error_chain(error),
        ApiError::Wire(_) => String::new(),
    }
}
