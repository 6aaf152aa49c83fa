// SPDX-License-Identifier: Apache-2.0
//! From a request to its response: route, caller, version, body, handler, headers.
//!
//! The order is Ironic's, because clients can see it: the caller is checked before anything is
//! said about the path, the path and method before the version, the version before the body.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, EXPECT, HOST, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use tracing::{Instrument, field};

use crate::app::App;
use crate::auth::Identity;
use crate::call::Call;
use crate::config::ApiConfig;
use crate::page_headers::{self, PageHeaders, session_of};
use crate::path;
use crate::refusal::Refusal;
use crate::reply::{Reply, ReplyBody};
use crate::request_id::RequestId;
use crate::routes::{Access, BodyLimit, Found, Handler, Numbered, Route, TooOld, UNVERSIONED};
use ironic_wire::{ApiVersion, WireError, negotiate};

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

/// How much of a body is still read after the request was refused, and for how long. A client that
/// sends everything before it listens would otherwise lose the answer to a reset connection.
const DISCARDED_AT_MOST: usize = 64 * 1024 * 1024;
const DISCARDED_FOR: Duration = Duration::from_secs(10);

/// From this version on, `.json` at the end of a path means itself.
const JSON_SUFFIX_KEPT_SINCE: u16 = 91;

/// Header values for every version, so that none is formatted per request.
static VERSION_VALUES: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    (0..=ApiVersion::MAX.0)
        .map(|minor| HeaderValue::try_from(ApiVersion(minor).to_string()))
        .collect::<Result<_, _>>()
        .expect("digits and a dot are a valid header value")
});

/// Answers one request. Never fails: whatever goes wrong becomes a response.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>) -> Response<ReplyBody> {
    let started = Instant::now();
    let in_flight = app.request_metrics.enter();
    let (head, body) = request.into_parts();
    let request_id = RequestId::fresh();
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
    let took = started.elapsed();
    let status = outcome.reply.status.as_u16();
    app.request_metrics.answered(outcome.route, status, took);
    if !span.is_disabled() {
        span.record("route", outcome.route.map_or("none", |numbered| numbered.route.path));
        span.record("status", status);
        span.record("duration_us", took.as_micros());
        let caller_id = head.headers.get(GLOBAL_REQUEST_ID).and_then(|value| value.to_str().ok());
        let caller_id = caller_id.and_then(RequestId::parse);
        span.in_scope(|| tracing::debug!(caller_request_id = ?caller_id, "answered"));
    }
    drop(in_flight);
    finish(outcome, &request_id)
}

/// What is known about a request once it is answered.
struct Outcome<'r> {
    route: Option<&'r Numbered>,
    versions: VersionHeaders,
    reply: Reply,
}

/// Which version headers the response carries.
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
) -> Outcome<'r> {
    let refuse =
        |route, versions, error: WireError| Outcome { route, versions, reply: refusal(&error) };
    let decoded = match path::decode_path(head.uri.path()) {
        Ok(decoded) => decoded,
        Err(error) => {
            return refuse(None, VersionHeaders::None, WireError::router(400, error.to_string()));
        }
    };
    let ironic_version = header_text(&head.headers, &IRONIC_VERSION);
    let negotiated = negotiate(ironic_version, header_text(&head.headers, &OPENSTACK_VERSION));
    let (decoded, json_suffix_cut) = cut_json_suffix(&decoded, ironic_version, &negotiated);
    let found = app.router.find(&head.method, path::route_key(decoded));

    let access = match &found {
        Found::Route(numbered, _) => numbered.route.access,
        Found::OtherMethods(_) | Found::Nothing { .. } => Access::Authenticated,
    };
    let identity = match identify(app, access, head).await {
        Ok(identity) => identity,
        Err(reply) => {
            return Outcome { route: None, versions: VersionHeaders::None, reply: *reply };
        }
    };

    let (numbered, params) = match found {
        Found::Route(numbered, params) => (numbered, params),
        Found::OtherMethods(others) => {
            let reply = other_method(&head.method, others);
            return Outcome { route: None, versions: VersionHeaders::None, reply };
        }
        Found::Nothing { known_first_segment } => {
            let versions = match &negotiated {
                Ok(version) if known_first_segment => VersionHeaders::Served(*version),
                Ok(_) | Err(_) => VersionHeaders::None,
            };
            return refuse(
                None,
                versions,
                WireError::router(
                    404,
                    "There is nothing at this path; /v1/ferrite/openapi lists what there is.",
                ),
            );
        }
    };
    let route = numbered.route;
    let (version, versions) = if route.since == UNVERSIONED {
        (ApiVersion::MAX, VersionHeaders::None)
    } else {
        match negotiated {
            Ok(version) => (version, VersionHeaders::Served(version)),
            Err(error) => {
                let versions =
                    if error.tells_range() { VersionHeaders::Range } else { VersionHeaders::None };
                return refuse(Some(numbered), versions, error.into());
            }
        }
    };
    if let Some(outcome) = too_old(numbered, version) {
        return outcome;
    }
    let query = match path::decode_query(head.uri.query().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => {
            return refuse(Some(numbered), versions, WireError::invalid(error.to_string()));
        }
    };
    let body = match read_body(body, route.body_limit, &app.config).await {
        Ok(body) => body,
        Err(error) => return refuse(Some(numbered), versions, error),
    };
    let call = Call {
        app: Arc::clone(app),
        version,
        request_id: request_id.clone(),
        identity,
        base_url: base_url(&app.config, &head.headers),
        params,
        json_suffix_cut,
        query,
        last_event_id: header_text(&head.headers, &LAST_EVENT_ID).map(str::to_owned),
        page: PageHeaders::read(&head.headers),
        body,
    };
    let reply = match run(route.handler, call).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(cause)) => {
            let causes = causes(&cause);
            let error = cause.into_wire(request_id);
            if error.status() >= 500 {
                tracing::error!(%request_id, route = route.path, %error, causes, "request failed");
            }
            refusal(&error)
        }
        Err(Panicked(what)) => {
            tracing::error!(%request_id, route = route.path, %what, "handler panicked");
            refusal(&WireError::internal(request_id.as_str()))
        }
    };
    Outcome { route: Some(numbered), versions, reply }
}

fn finish(outcome: Outcome<'_>, request_id: &RequestId) -> Response<ReplyBody> {
    let Outcome { versions, reply, .. } = outcome;
    let Reply { status, content_type, headers: more, body } = reply;
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

/// The refusal as a reply.
fn refusal(error: &WireError) -> Reply {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reply = Reply::json(status, error.body());
    match error.retry_after() {
        Some(seconds) => reply.with_header(RETRY_AFTER, HeaderValue::from(seconds)),
        None => reply,
    }
}

async fn identify(app: &App, access: Access, head: &Parts) -> Result<Identity, Box<Reply>> {
    let headers = &head.headers;
    let open = match access {
        Access::Public => true,
        Access::Authenticated => false,
        Access::Metrics => app.config.public_metrics,
    };
    if open {
        return Ok(Identity::Anonymous);
    }
    if !headers.contains_key(AUTHORIZATION)
        && let Some(token) = session_of(headers)
        && let Some(identity) =
            app.sessions.identify(token, &app.store, &app.authenticator, app.now())
    {
        // A browser sends the cookie whoever makes it ask; only our page sends its header, too.
        if head.method.is_safe() || headers.contains_key(page_headers::PAGE) {
            return Ok(identity);
        }
        let problem = "Changes that are signed in by cookie need the header X-Ferrite-Page.";
        return Err(Box::new(refusal(&WireError::new(403, problem))));
    }
    match app.authenticator.identify(headers.get(AUTHORIZATION)).await {
        Ok(identity) => Ok(identity),
        Err(error) => {
            let mut reply = error.into_reply();
            if page_headers::has_a_form_of_its_own(headers) {
                reply.headers.retain(|(name, _)| *name != WWW_AUTHENTICATE);
            }
            Err(Box::new(reply))
        }
    }
}

fn other_method(method: &Method, others: &[Numbered]) -> Reply {
    let mut allowed: Vec<&str> = others.iter().map(|other| other.route.method.as_str()).collect();
    allowed.sort_unstable();
    let reply = if *method == Method::OPTIONS {
        Reply::empty(StatusCode::OK)
    } else {
        refusal(&WireError::router(405, ""))
    };
    match HeaderValue::try_from(allowed.join(", ")) {
        Ok(allowed) => reply.with_header(ALLOW, allowed),
        Err(_) => reply,
    }
}

/// The answer to a client whose version is older than the endpoint.
fn too_old(numbered: &Numbered, version: ApiVersion) -> Option<Outcome<'_>> {
    let Route { since, too_old, .. } = *numbered.route;
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
    Some(Outcome { route: Some(numbered), versions, reply: refusal(&error) })
}

/// Old clients may end a path in `.json`. As in Ironic only those who name their version in its own
/// header are taken for old: without one, nothing is cut.
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
    // Bytes that are not text stand for something nobody can have meant, not for nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// What links start with: the configured address, or the one the client used.
fn base_url(config: &ApiConfig, headers: &HeaderMap) -> String {
    if let Some(endpoint) = &config.public_endpoint {
        return endpoint.clone();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| {
        // Whatever else a client sends must not get into links that others may follow.
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

/// The whole body. One that is refused is left where it is.
async fn read_body(
    place: &mut Option<Incoming>,
    limit: BodyLimit,
    config: &ApiConfig,
) -> Result<Bytes, WireError> {
    let Some(body) = place.as_mut().filter(|body| !body.is_end_stream()) else {
        return Ok(Bytes::new());
    };
    let limit = match limit {
        BodyLimit::Small => config.body_limits.small,
        BodyLimit::Provision => config.body_limits.provision,
        BodyLimit::Inspection => config.body_limits.inspection,
    };
    if body.size_hint().lower() > limit as u64 {
        return Err(WireError::body_too_large(limit));
    }
    let collected = match tokio::time::timeout(config.body_timeout, collect(body, limit)).await {
        Ok(collected) => collected?,
        Err(_) => {
            // Whoever is this slow is not waited for any longer.
            *place = None;
            return Err(WireError::router(408, "the body did not arrive in time"));
        }
    };
    *place = None;
    Ok(collected)
}

/// Most bodies arrive in one piece, which is then used as it is.
async fn collect(body: &mut Incoming, limit: usize) -> Result<Bytes, WireError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = next_frame(body).await {
        let frame = frame.map_err(|_| WireError::invalid("the body ended before its time"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + all.len() + piece.len() > limit {
            return Err(WireError::body_too_large(limit));
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Reads on while the answer is on its way, so that the client comes to listen to it.
fn discard(mut body: Incoming, headers: &HeaderMap) {
    // Who waits to be told to go on must not be told so now.
    if body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(tokio::time::timeout(DISCARDED_FOR, async move {
        let mut discarded = 0;
        while let Some(Ok(frame)) = next_frame(&mut body).await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > DISCARDED_AT_MOST {
                break;
            }
        }
    }));
}

async fn next_frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// A handler panicked, with these words.
struct Panicked(String);

/// Runs a handler; a panic in it is caught, so that it costs one response and not the connection.
async fn run(handler: Handler, call: Call) -> Result<Result<Reply, Refusal>, Panicked> {
    // A handler only has what it was given and shares only locks that survive poisoning.
    let mut future = std::panic::catch_unwind(AssertUnwindSafe(|| handler(call)))
        .map_err(|payload| Panicked(panic_words(payload.as_ref())))?;
    std::future::poll_fn(move |context: &mut Context<'_>| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
            Err(payload) => Poll::Ready(Err(Panicked(panic_words(payload.as_ref())))),
        }
    })
    .await
}

fn panic_words(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// What the store said and why, for the log; nothing for refusals that say it all themselves.
fn causes(refusal: &Refusal) -> String {
    let Refusal::Store(error) = refusal else { return String::new() };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
