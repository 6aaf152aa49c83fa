// SPDX-License-Identifier: Apache-2.0
//! Request handling: routing, authentication, If-Match conditions, and rendering with quirks.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};

use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::{self, RedfishRoute};
use super::service_state::RedfishServiceState;
use super::{document, tasks};
use crate::BmcCredentials;
use crate::machine::{MachineModel, mix};
use crate::personality::{EtagRule, IfMatchRule, Personality};
use node_model::Timestamp;

/// A complete request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedfishRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
    pub(crate) if_match: Option<&'a str>,
    pub(crate) body: &'a [u8],
    pub(crate) now: Timestamp,
    /// Fault: all credentials are rejected.
    pub(crate) rejects_credentials: bool,
    /// Fault: power requests succeed without an effect.
    pub(crate) power_stuck: bool,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct RedfishResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json;odata.metadata=minimal");
const REALM: HeaderValue = HeaderValue::from_static("Basic realm=\"Redfish\"");

/// Handles a request.
pub(crate) fn handle_request(
    machine: &mut MachineModel,
    service: &mut RedfishServiceState,
    credentials: &BmcCredentials,
    request: RedfishRequest<'_>,
) -> RedfishResponse {
    machine.advance(request.now);
    let explains = machine.personality().http.detailed_errors;
    if machine.personality().http.trailing_slash && request.path == ROOT {
        return redirect_to_root();
    }
    match dispatch(machine, service, credentials, request) {
        Ok(response) => response,
        Err(error) => error_response(&error, explains),
    }
}

fn dispatch(
    machine: &mut MachineModel,
    service: &mut RedfishServiceState,
    credentials: &BmcCredentials,
    request: RedfishRequest<'_>,
) -> Result<RedfishResponse, RedfishErrorResponse> {
    let path = match request.path.trim_end_matches('/') {
        "" => return Err(RedfishErrorResponse::not_found("/")),
        path => path,
    };
    let found = routes::find(path).ok_or_else(|| RedfishErrorResponse::not_found(path))?;
    let route: &RedfishRoute = found.value;
    let is_read = matches!(*request.method, Method::GET | Method::HEAD);
    let is_open =
        (route.is_public && is_read) || (route.is_login && *request.method == Method::POST);
    if request.rejects_credentials
        || !(is_open || is_authenticated(machine, service, credentials, request))
    {
        return Err(RedfishErrorResponse::unauthorized());
    }
    let mut context = RequestContext {
        machine,
        service,
        now: request.now,
        path,
        params: found.params.iter().collect(),
        body: Map::new(),
        power_stuck: request.power_stuck,
        credentials,
    };
    check_resource_exists(&context, route)?;
    if is_read {
        let read =
            route.get.ok_or_else(|| RedfishErrorResponse::method_not_allowed(route.allow()))?;
        let is_head = *request.method == Method::HEAD;
        return read_response(&context, route, read(&context)?, is_head);
    }
    let change = route.change_handler(request.method);
    let change = change.ok_or_else(|| RedfishErrorResponse::method_not_allowed(route.allow()))?;
    context.body = parse_body(request.body)?;
    if *request.method == Method::PATCH {
        check_if_match(&context, route, request.if_match)?;
    }
    let response = change(&mut context)?;
    Ok(change_response(context.machine.personality(), route.kind, response))
}

/// Whether the request has a valid session token or the correct user name and password.
fn is_authenticated(
    machine: &MachineModel,
    service: &mut RedfishServiceState,
    credentials: &BmcCredentials,
    request: RedfishRequest<'_>,
) -> bool {
    match (request.token, request.authorization) {
        (Some(token), _) => service.accepts_token(token, machine, request.now),
        (None, Some(authorization)) => credentials.matches_basic_auth(authorization),
        (None, None) => false,
    }
}

/// Checks that the BMC has this kind of resource, and that the path names its only system, manager
/// and chassis.
fn check_resource_exists(
    context: &RequestContext<'_>,
    route: &RedfishRoute,
) -> Result<(), RedfishErrorResponse> {
    if !context.has_resource(route.kind) {
        return Err(context.not_found());
    }
    for (name, value) in &context.params {
        let is_match = match *name {
            "system" => context.system_id() == *value,
            "manager" => context.manager_id() == *value,
            "chassis" => context.chassis_id() == *value,
            _ => true,
        };
        if !is_match {
            return Err(context.not_found());
        }
    }
    Ok(())
}

fn parse_body(body: &[u8]) -> Result<Map<String, Value>, RedfishErrorResponse> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    serde_json::from_slice(body).map_err(|_| RedfishErrorResponse::malformed())
}

fn check_if_match(
    context: &RequestContext<'_>,
    route: &RedfishRoute,
    if_match: Option<&str>,
) -> Result<(), RedfishErrorResponse> {
    let rules = &context.personality().http;
    let (Some(read), false, false) = (route.get, route.is_volatile, rules.etags == EtagRule::None)
    else {
        return Ok(());
    };
    let Some(if_match) = if_match else {
        return match rules.if_match {
            IfMatchRule::Optional => Ok(()),
            IfMatchRule::Required => Err(RedfishErrorResponse::etag_missing()),
        };
    };
    let current = strong_etag(context.personality(), route.kind, read(context)?);
    let matches = |tag: &str| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == current
    };
    if if_match.split(',').any(matches) {
        Ok(())
    } else {
        Err(RedfishErrorResponse::etag_differs())
    }
}

/// Returns the strong ETag of a document.
pub(super) fn strong_etag(
    personality: &Personality,
    kind: ResourceKind,
    document: Value,
) -> String {
    fingerprint_etag(&render_document(personality, kind, document))
}

fn read_response(
    context: &RequestContext<'_>,
    route: &RedfishRoute,
    document: Value,
    is_head: bool,
) -> Result<RedfishResponse, RedfishErrorResponse> {
    let personality = context.personality();
    let body = render_document(personality, route.kind, document);
    let mut headers = vec![(header::CONTENT_TYPE, JSON), (ODATA_VERSION, odata_version())];
    let prefix = match personality.http.etags {
        EtagRule::Strong => Some(""),
        EtagRule::Weak => Some("W/"),
        EtagRule::None => None,
    };
    if let (Some(prefix), false) = (prefix, route.is_volatile) {
        let etag = format!("{prefix}{}", fingerprint_etag(&body));
        headers.extend(HeaderValue::try_from(etag).ok().map(|etag| (header::ETAG, etag)));
    }
    let allow = HeaderValue::try_from(route.allow()).ok();
    headers.extend(allow.map(|allow| (header::ALLOW, allow)));
    let status = tasks::read_status(context, route.kind);
    let body = if is_head { Bytes::new() } else { body.into() };
    Ok(RedfishResponse { status, headers, body })
}

fn change_response(
    personality: &Personality,
    kind: ResourceKind,
    change: ChangeResponse,
) -> RedfishResponse {
    let mut headers = vec![(ODATA_VERSION, odata_version())];
    let mut add_header = |name: HeaderName, value: String| {
        headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    };
    if let Some(location) = change.location {
        let slash = if personality.http.trailing_slash { "/" } else { "" };
        add_header(header::LOCATION, format!("{location}{slash}"));
    }
    for (name, value) in change.headers {
        add_header(name, value);
    }
    let body = match change.body {
        None => Bytes::new(),
        Some(document) => {
            headers.push((header::CONTENT_TYPE, JSON));
            render_document(personality, kind, document).into()
        }
    };
    RedfishResponse { status: change.status, headers, body }
}

/// Serialises a document with the personality's quirks.
fn render_document(personality: &Personality, kind: ResourceKind, mut document: Value) -> Vec<u8> {
    for quirk in personality.quirks.iter().filter(|quirk| quirk.resource == kind) {
        for pointer in &quirk.remove {
            document::remove(&mut document, pointer);
        }
        if let Some(fields) = document.as_object_mut() {
            fields.extend(quirk.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    if personality.http.trailing_slash {
        document::end_links_with_slash(&mut document);
    }
    document.to_string().into_bytes()
}

/// Converts an error into a response.
pub(crate) fn error_response(refusal: &RedfishErrorResponse, explains: bool) -> RedfishResponse {
    let mut headers = vec![(header::CONTENT_TYPE, JSON), (ODATA_VERSION, odata_version())];
    if refusal.status == StatusCode::UNAUTHORIZED {
        headers.push((header::WWW_AUTHENTICATE, REALM));
    }
    let allow = refusal.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok());
    headers.extend(allow.map(|allow| (header::ALLOW, allow)));
    let body = refusal.body(explains).to_string().into();
    RedfishResponse { status: refusal.status, headers, body }
}

fn redirect_to_root() -> RedfishResponse {
    let location = HeaderValue::from_static("/redfish/v1/");
    RedfishResponse {
        status: StatusCode::PERMANENT_REDIRECT,
        headers: vec![(header::LOCATION, location)],
        body: Bytes::new(),
    }
}

fn odata_version() -> HeaderValue {
    HeaderValue::from_static("4.0")
}

/// Returns a hash of the bytes, quoted as an ETag.
fn fingerprint_etag(bytes: &[u8]) -> String {
    let fingerprint = bytes.chunks(8).fold(0, |sum, chunk| {
        let mut word = [0; 8];
        for (target, byte) in word.iter_mut().zip(chunk) {
            *target = *byte;
        }
        mix(sum ^ u64::from_le_bytes(word))
    });
    format!("\"{fingerprint:016x}\"")
}
