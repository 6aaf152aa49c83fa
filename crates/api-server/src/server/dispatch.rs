// SPDX-License-Identifier: Apache-2.0
//! Turns an HTTP request into a response: route, caller, version, body, handler, headers.
//!
//! The order of the checks is Ironic's, because clients can observe it: authentication before path,
//! path and method before version, version before body.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Instant;

use access_policy::{AuthMethod, Caller};
use authentication::CredentialHeaders;
use bytes::Bytes;
use error_chain::error_chain;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use ironic_wire::{ApiVersion, WireError, negotiate};
use node_model::Secret;
use tracing::{Instrument, field};

use super::access::CallerAccess;
use super::audit_log::AuditSubject;
use super::auth_response::auth_error_response;
use super::body::{discard, max_body, read_body};
use super::browser_headers::{self, BrowserHeaders};
use super::client_certificate;
use super::client_connection::{ClientConnection, RequestConnection};
use super::error::ApiError;
use super::request::ApiRequest;
use super::request_id::RequestId;
use super::request_origin::check_content_type;
use super::response::{ApiResponse, ResponseBody, TrackedBody};
use super::routes::{ApiRoute, Handler, RouteAccess, RouteEntry, RouteMatch, TooOld, UNVERSIONED};
use super::transport::ApiTransport;
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
/// `agent_protocol::BOOT_SECRET_HEADER`.
const BOOT_SECRET: HeaderName = HeaderName::from_static("x-ferrite-boot-secret");

/// From this version on, `.json` at the end of a path is part of the name.
const JSON_SUFFIX_KEPT_SINCE: u16 = 91;

/// Name of callers over the Unix socket.
const LOCAL_USER: &str = "local root";

/// Preformatted header values of all versions.
static VERSION_VALUES: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    (0..=ApiVersion::MAX.0)
        .map(|minor| HeaderValue::try_from(ApiVersion(minor).to_string()))
        .collect::<Result<_, _>>()
        .expect("digits and a dot are a valid header value")
});

/// Handles one request. Never fails: every error becomes a response.
pub(super) async fn dispatch(app: Arc<App>, request: Request<Incoming>) -> Response<TrackedBody> {
    let (head, body) = request.into_parts();
    let request_id = RequestId::generate();
    let mut connection = RequestConnection::new(&head);
    let mut origin = CallSource::Network(Some(body), &mut connection);
    let outcome = handle(&app, &head, &mut origin, &request_id).await;
    if let CallSource::Network(Some(unread), _) = origin {
        discard(unread, &head.headers);
    }
    into_http(outcome, &request_id).map(|body| TrackedBody::new(body, connection.in_progress))
}

/// Handles a request and records it in metrics, audit log and trace.
async fn handle<'r>(
    app: &'r Arc<App>,
    head: &Parts,
    origin: &mut CallSource<'_>,
    request_id: &RequestId,
) -> DispatchOutcome<'r> {
    let started = Instant::now();
    let in_flight = app.request_metrics.start_request();
    let span = tracing::debug_span!(
        "request",
        %request_id,
        method = %head.method,
        route = field::Empty,
        status = field::Empty,
        duration_us = field::Empty,
    );
    let mut subject = AuditSubject::default();
    let outcome = async {
        let outcome = respond(app, head, origin, request_id, &mut subject).await;
        subject.record(app, head, request_id, &outcome.response).await;
        outcome
    };
    let outcome = outcome.instrument(span.clone()).await;
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
    outcome
}

/// Where the body and the caller of a request come from.
enum CallSource<'c> {
    /// A connection. The caller is authenticated by the request's headers.
    Network(Option<Incoming>, &'c mut RequestConnection),
    /// This process, which has authenticated the caller.
    InProcess { caller: Caller, body: Bytes },
}

/// Handles a request of this process for a caller who is authenticated already.
pub(crate) async fn dispatch_in_process(
    app: &Arc<App>,
    caller: Caller,
    request: Request<Bytes>,
) -> Response<ResponseBody> {
    let (head, body) = request.into_parts();
    let request_id = RequestId::generate();
    let mut origin = CallSource::InProcess { caller, body };
    let outcome = handle(app, &head, &mut origin, &request_id).await;
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
    origin: &mut CallSource<'_>,
    request_id: &RequestId,
    subject: &mut AuditSubject,
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
    if let CallSource::Network(..) = origin
        && let Err(error) = check_origin(app, head, &found)
    {
        return reject(None, VersionHeaders::None, error);
    }

    if let RouteMatch::Route(entry, params) = &found {
        subject.route = Some(entry.route);
        subject.resource = params.first().map(|(_, value)| value.clone());
    }
    let access = match &found {
        RouteMatch::Route(entry, _) => entry.route.access,
        RouteMatch::OtherMethods(_) | RouteMatch::NotFound { .. } => RouteAccess::Authenticated,
    };
    let identified = match origin {
        CallSource::Network(..) => identify(app, access, head).await,
        CallSource::InProcess { .. } if is_open(app, access) => Ok(Caller::anonymous()),
        CallSource::InProcess { caller, .. } => Ok(caller.clone()),
    };
    let caller = match identified {
        Ok(caller) => caller,
        Err(response) => {
            return DispatchOutcome {
                route: None,
                versions: VersionHeaders::None,
                response: *response,
            };
        }
    };

    subject.caller = Some(caller.clone());

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
    let access = CallerAccess::new(&app.policy, &caller, route.access);
    subject.access = Some(access.clone());
    if let Err(error) = access.check_route() {
        return reject(Some(entry), versions, error);
    }
    let query = match url::decode_query(head.uri.query().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => {
            return reject(Some(entry), versions, WireError::invalid(error.to_string()));
        }
    };
    let read = match origin {
        CallSource::Network(body, connection) => {
            receive_body(app, head, route, &query, body, connection).await
        }
        CallSource::InProcess { body, .. } => {
            let limit = max_body(&app.config.body_limits, route.body_limit);
            let body = std::mem::take(body);
            if body.len() > limit { Err(WireError::body_too_large(limit)) } else { Ok(body) }
        }
    };
    let body = match read {
        Ok(body) => body,
        Err(error) => return reject(Some(entry), versions, error),
    };
    let request = ApiRequest {
        app: Arc::clone(app),
        method: head.method.clone(),
        version,
        request_id: request_id.clone(),
        caller,
        credentials: CredentialHeaders::of(&head.headers),
        access: access.clone(),
        base_url: base_url(&app.config, head),
        params,
        json_suffix_cut,
        query,
        client_address: client_address(&app.config, head),
        connection: head.extensions.get::<Arc<ClientConnection>>().cloned(),
        boot_secret: header_text(&head.headers, &BOOT_SECRET)
            .map(|secret| Secret::new(secret.to_owned())),
        last_event_id: header_text(&head.headers, &LAST_EVENT_ID).map(str::to_owned),
        browser: BrowserHeaders::parse(&head.headers),
        body,
    };
    subject.start(app, head, request_id);
    let response = match call_handler(route.handler, request).await {
        Ok(Ok(_)) if !access.was_checked() => {
            tracing::error!(%request_id, route = route.path, "handler did not check its policy rule");
            error_response(&WireError::internal(request_id.as_str()))
        }
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

/// Fails if the request is for another server or comes from a page of another site.
fn check_origin(app: &App, head: &Parts, found: &RouteMatch<'_>) -> Result<(), WireError> {
    if transport(head) == ApiTransport::UnixSocket {
        return Ok(());
    }
    let (allows_any_host, allows_links) = match found {
        RouteMatch::Route(RouteEntry { route, .. }, _) => {
            (route.allows_any_host, route.allows_links)
        }
        RouteMatch::OtherMethods(_) | RouteMatch::NotFound { .. } => (false, true),
    };
    if !allows_any_host {
        app.hosts.check_host(head)?;
    }
    app.hosts.check_site(head, allows_links)
}

/// Checks the limits of the client and reads the body. Afterwards the connection stays open until the
/// response is sent: that of an authenticated client from the head on, others from the end of the body on.
async fn receive_body(
    app: &App,
    head: &Parts,
    route: &ApiRoute,
    query: &[(String, String)],
    body: &mut Option<Incoming>,
    connection: &mut RequestConnection,
) -> Result<Bytes, WireError> {
    let is_public = is_open(app, route.access);
    let address = client_address(&app.config, head).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if route.is_rate_limited {
        app.limits.check_rate(address)?;
    }
    if !is_public {
        connection.start_work()?;
        connection.mark_known();
    }
    if body.as_ref().is_some_and(|body| !body.is_end_stream()) {
        check_content_type(&head.headers)?;
    }
    let share = app.limits.body_share(address, !is_public);
    let received = read_body(app, body, route.body_limit, !is_public, share, query).await?;
    connection.start_work()?;
    Ok(received)
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
    // Responses contain data of the installation; only files of the web UI may be cached.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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

/// Whether a route needs no authentication.
fn is_open(app: &App, access: RouteAccess) -> bool {
    match access {
        RouteAccess::Public => true,
        RouteAccess::Metrics => app.config.public_metrics,
        RouteAccess::Authenticated
        | RouteAccess::Rule(_)
        | RouteAccess::Resource(_)
        | RouteAccess::List { .. }
        | RouteAccess::CheckedByHandler(_)
        | RouteAccess::Unassigned => false,
    }
}

async fn identify(
    app: &App,
    access: RouteAccess,
    head: &Parts,
) -> Result<Caller, Box<ApiResponse>> {
    let headers = &head.headers;
    if is_open(app, access) {
        return Ok(Caller::anonymous());
    }
    if transport(head) == ApiTransport::UnixSocket {
        return Ok(Caller::unrestricted(LOCAL_USER, AuthMethod::UnixSocket));
    }
    let address = client_address(&app.config, head).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let refuse = |error: WireError| Box::new(error_response(&error));
    let user = client_certificate::certificate_user(app, head);
    client_certificate::check_required(app, user.as_deref()).map_err(refuse)?;
    let authenticator = &app.authenticator;
    match authenticator.identify_with_certificate(headers, user.as_deref(), address).await {
        // Browsers send the cookie with cross-site requests, too, but only the web UI can send its
        // header: this prevents CSRF.
        Ok(caller)
            if caller.method == AuthMethod::Session
                && !head.method.is_safe()
                && !headers.contains_key(browser_headers::WEB_UI) =>
        {
            let problem =
                "Changes authenticated by the session cookie need the header X-Ferrite-Page.";
            Err(Box::new(error_response(&WireError::new(403, problem))))
        }
        Ok(caller) => {
            client_certificate::check_browser(head, &caller).map_err(refuse)?;
            Ok(caller)
        }
        Err(error) => {
            let has_own_login_form = browser_headers::has_own_login_form(headers);
            let challenge = (!has_own_login_form).then(|| authenticator.challenge());
            Err(Box::new(auth_error_response(&error, challenge)))
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

/// The address of the client; `None` for clients over the Unix socket.
pub(super) fn client_address(config: &ApiConfig, head: &Parts) -> Option<IpAddr> {
    let connection = head.extensions.get::<Arc<ClientConnection>>()?;
    Some(connection.client_address(config, &head.headers))
}

/// The transport of a request.
fn transport(head: &Parts) -> ApiTransport {
    head.extensions.get().copied().unwrap_or(ApiTransport::Plain)
}

/// The prefix of links: the configured public endpoint, or the `Host` the client used.
fn base_url(config: &ApiConfig, head: &Parts) -> String {
    if let Some(endpoint) = &config.public_endpoint {
        return endpoint.clone();
    }
    let headers = &head.headers;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| {
        // Other characters could inject markup or another host into links.
        !host.is_empty()
            && host.len() <= 255
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    });
    let is_forwarded = config.trust_forwarded_headers
        && headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes() == b"https");
    let is_https = is_forwarded || transport(head) == ApiTransport::Tls;
    let scheme = if is_https { "https" } else { "http" };
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
