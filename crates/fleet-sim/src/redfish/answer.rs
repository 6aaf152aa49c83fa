// SPDX-License-Identifier: Apache-2.0
//! From a request to an answer: finding the resource, checking who asks, conditions, oddities.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};

use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::{self, Route};
use super::service::Service;
use super::visit::{ROOT, Reply, Visit};
use super::{document, tasks};
use crate::Credentials;
use crate::machine::{Machine, mix};
use crate::personality::{EtagRule, IfMatchRule, Personality};
use node_model::Timestamp;

/// A request, read whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
    pub(crate) if_match: Option<&'a str>,
    pub(crate) body: &'a [u8],
    pub(crate) now: Timestamp,
    /// Nobody gets in, whatever the password.
    pub(crate) refuses_everybody: bool,
    /// Power is to stay as it is, whatever is asked.
    pub(crate) power_is_stuck: bool,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json;odata.metadata=minimal");
const REALM: HeaderValue = HeaderValue::from_static("Basic realm=\"Redfish\"");

/// Answers a request.
pub(crate) fn answer(
    machine: &mut Machine,
    service: &mut Service,
    credentials: &Credentials,
    asked: Asked<'_>,
) -> Answer {
    machine.advance(asked.now);
    let explains = machine.personality().http.explains_errors;
    if machine.personality().http.trailing_slash && asked.path == ROOT {
        return moved();
    }
    match reply(machine, service, credentials, asked) {
        Ok(answer) => answer,
        Err(refusal) => refused(&refusal, explains),
    }
}

fn reply(
    machine: &mut Machine,
    service: &mut Service,
    credentials: &Credentials,
    asked: Asked<'_>,
) -> Result<Answer, Refusal> {
    let path = match asked.path.trim_end_matches('/') {
        "" => return Err(Refusal::not_found("/")),
        path => path,
    };
    let found = routes::find(path).ok_or_else(|| Refusal::not_found(path))?;
    let route: &Route = found.value;
    let is_read = matches!(*asked.method, Method::GET | Method::HEAD);
    let is_open = (route.is_public && is_read) || (route.is_door && *asked.method == Method::POST);
    if asked.refuses_everybody || !(is_open || is_let_in(machine, service, credentials, asked)) {
        return Err(Refusal::unauthorized());
    }
    let mut visit = Visit {
        machine,
        service,
        now: asked.now,
        path,
        params: found.params.iter().collect(),
        body: Map::new(),
        power_is_stuck: asked.power_is_stuck,
        credentials,
    };
    check_place(&visit, route)?;
    if is_read {
        let read = route.get.ok_or_else(|| Refusal::method_not_allowed(route.allow()))?;
        let is_head = *asked.method == Method::HEAD;
        return shown(&visit, route, read(&visit)?, is_head);
    }
    let change = route.change(asked.method);
    let change = change.ok_or_else(|| Refusal::method_not_allowed(route.allow()))?;
    visit.body = object(asked.body)?;
    if *asked.method == Method::PATCH {
        check_condition(&visit, route, asked.if_match)?;
    }
    let reply = change(&mut visit)?;
    Ok(written(visit.machine.personality(), route.kind, reply))
}

/// Whether somebody shows the right password or a session's token.
fn is_let_in(
    machine: &Machine,
    service: &mut Service,
    credentials: &Credentials,
    asked: Asked<'_>,
) -> bool {
    match (asked.token, asked.authorization) {
        (Some(token), _) => service.knows(token, machine, asked.now),
        (None, Some(given)) => credentials.are_in(given),
        (None, None) => false,
    }
}

/// This BMC has one system, one manager and one chassis, and not every kind of resource.
fn check_place(visit: &Visit<'_>, route: &Route) -> Result<(), Refusal> {
    if !visit.has(route.kind) {
        return Err(visit.not_found());
    }
    for (name, value) in &visit.params {
        let is_ours = match *name {
            "system" => visit.system_id() == *value,
            "manager" => visit.manager_id() == *value,
            "chassis" => visit.chassis_id() == *value,
            _ => true,
        };
        if !is_ours {
            return Err(visit.not_found());
        }
    }
    Ok(())
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    serde_json::from_slice(body).map_err(|_| Refusal::malformed())
}

fn check_condition(
    visit: &Visit<'_>,
    route: &Route,
    if_match: Option<&str>,
) -> Result<(), Refusal> {
    let rules = &visit.personality().http;
    let (Some(read), false, false) = (route.get, route.is_volatile, rules.etags == EtagRule::None)
    else {
        return Ok(());
    };
    let Some(given) = if_match else {
        return match rules.if_match {
            IfMatchRule::Optional => Ok(()),
            IfMatchRule::Required => Err(Refusal::etag_missing()),
        };
    };
    let current = etag(visit.personality(), route.kind, read(visit)?);
    let matches = |tag: &str| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == current
    };
    if given.split(',').any(matches) { Ok(()) } else { Err(Refusal::etag_differs()) }
}

/// The strong ETag of a document.
pub(super) fn etag(personality: &Personality, kind: Kind, document: Value) -> String {
    tag(&bytes_of(personality, kind, document))
}

fn shown(
    visit: &Visit<'_>,
    route: &Route,
    document: Value,
    is_head: bool,
) -> Result<Answer, Refusal> {
    let personality = visit.personality();
    let body = bytes_of(personality, route.kind, document);
    let mut headers = vec![(header::CONTENT_TYPE, JSON), (ODATA_VERSION, version())];
    let weak = match personality.http.etags {
        EtagRule::Strong => Some(""),
        EtagRule::Weak => Some("W/"),
        EtagRule::None => None,
    };
    if let (Some(weak), false) = (weak, route.is_volatile) {
        let etag = format!("{weak}{}", tag(&body));
        headers.extend(HeaderValue::try_from(etag).ok().map(|etag| (header::ETAG, etag)));
    }
    let allow = HeaderValue::try_from(route.allow()).ok();
    headers.extend(allow.map(|allow| (header::ALLOW, allow)));
    let status = tasks::status_of(visit, route.kind);
    let body = if is_head { Bytes::new() } else { body.into() };
    Ok(Answer { status, headers, body })
}

fn written(personality: &Personality, kind: Kind, reply: Reply) -> Answer {
    let mut headers = vec![(ODATA_VERSION, version())];
    let mut put = |name: HeaderName, value: String| {
        headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    };
    if let Some(location) = reply.location {
        let slash = if personality.http.trailing_slash { "/" } else { "" };
        put(header::LOCATION, format!("{location}{slash}"));
    }
    for (name, value) in reply.headers {
        put(name, value);
    }
    let body = match reply.body {
        None => Bytes::new(),
        Some(document) => {
            headers.push((header::CONTENT_TYPE, JSON));
            bytes_of(personality, kind, document).into()
        }
    };
    Answer { status: reply.status, headers, body }
}

/// The document as this kind of BMC writes it.
fn bytes_of(personality: &Personality, kind: Kind, mut document: Value) -> Vec<u8> {
    for odd in personality.odd.iter().filter(|odd| odd.resource == kind) {
        for pointer in &odd.without {
            document::remove(&mut document, pointer);
        }
        if let Some(fields) = document.as_object_mut() {
            fields.extend(odd.with.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    if personality.http.trailing_slash {
        document::end_links_with_slash(&mut document);
    }
    document.to_string().into_bytes()
}

/// A refusal as an answer.
pub(crate) fn refused(refusal: &Refusal, explains: bool) -> Answer {
    let mut headers = vec![(header::CONTENT_TYPE, JSON), (ODATA_VERSION, version())];
    if refusal.status == StatusCode::UNAUTHORIZED {
        headers.push((header::WWW_AUTHENTICATE, REALM));
    }
    let allow = refusal.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok());
    headers.extend(allow.map(|allow| (header::ALLOW, allow)));
    let body = refusal.body(explains).to_string().into();
    Answer { status: refusal.status, headers, body }
}

fn moved() -> Answer {
    let location = HeaderValue::from_static("/redfish/v1/");
    Answer {
        status: StatusCode::PERMANENT_REDIRECT,
        headers: vec![(header::LOCATION, location)],
        body: Bytes::new(),
    }
}

fn version() -> HeaderValue {
    HeaderValue::from_static("4.0")
}

/// A fingerprint in quotes.
fn tag(bytes: &[u8]) -> String {
    let fingerprint = bytes.chunks(8).fold(0, |sum, chunk| {
        let mut word = [0; 8];
        for (place, byte) in word.iter_mut().zip(chunk) {
            *place = *byte;
        }
        mix(sum ^ u64::from_le_bytes(word))
    });
    format!("\"{fingerprint:016x}\"")
}
