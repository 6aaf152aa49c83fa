// SPDX-License-Identifier: Apache-2.0
//! Writes the audit log: every change through the API, and every refused request.
//!
//! The entry of a change is durable before its response is sent. If the client disconnects while its
//! request is carried out, an entry with status 499 records it. Refusals are recorded at
//! a limited rate per user, and for all clients that did not authenticate. Requests of agents are in the journal instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access_policy::Caller;
use http::Method;
use http::header::LOCATION;
use http::request::Parts;
use node_model::{AuditEntry, AuditEntryId, AuditOutcome, Node, mask_urls};
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use store::{NodeColumn, StoreWriter};
use tokio::time::Instant;
use uuid::Uuid;

use super::access::CallerAccess;
use super::dispatch::client_address;
use super::metrics::Metrics;
use super::openid_login::CALLBACK;
use super::request_id::RequestId;
use super::response::{ApiResponse, ResponseBody};
use super::routes::{ApiRoute, RouteAccess};
use super::session::SESSION;
use crate::app::App;

/// Refusals of one user, or of all unauthenticated clients: this many at once, and one more in each interval.
const REFUSAL_BURST: u32 = 100;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of users with a limit of their own.
const MAX_LIMITED_USERS: usize = 1000;
/// Maximum number of characters of a message, a path, and other fields.
const MAX_MESSAGE: usize = 500;
const MAX_PATH: usize = 1000;
const MAX_FIELD: usize = 200;
/// Larger response bodies are not searched for an id or a message.
const MAX_BODY: usize = 256 * 1024;
/// The status of a request whose client disconnected before it ended.
const CLIENT_CLOSED_REQUEST: i64 = 499;

/// Requests with a changing method that change nothing.
const READ_ONLY: &[&str] = &["/v1/ferrite/explain", "/v1/ferrite/nodes/{node}/explain"];
/// Sign-in and sign-out are the only public requests in the log.
const SIGN_IN: &[&str] = &[SESSION, CALLBACK];

/// The state of the audit log in this process.
#[derive(Debug)]
pub(crate) struct AuditLog {
    /// Per user; `None` for all clients that did not authenticate.
    refusals: Mutex<HashMap<Option<String>, RefusalLimit>>,
    lost: Counter,
}

/// Limits how many refusals of one user, or of all clients that did not authenticate, are recorded.
#[derive(Debug)]
struct RefusalLimit {
    /// If every earlier refusal had waited for its turn, the next one would be recorded then.
    next: Instant,
    suppressed: i64,
}

/// What the dispatcher found out about a request so far.
#[derive(Default)]
pub(super) struct AuditSubject {
    pub(super) caller: Option<Caller>,
    pub(super) access: Option<CallerAccess>,
    pub(super) route: Option<&'static ApiRoute>,
    /// The first parameter of the path.
    pub(super) resource: Option<String>,
    /// Records the request if its client disconnects.
    pub(super) guard: Option<DisconnectGuard>,
}

impl AuditLog {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let lost = Counter::default();
        metrics.register(|registry| {
            registry.register(
                "audit_entries_lost",
                "Audit entries that could not be stored",
                lost.clone(),
            );
        });
        Self { refusals: Mutex::default(), lost }
    }

    /// As [`RefusalLimit::admit`], for the refusals of this user.
    fn admit_refusal(&self, user: Option<String>) -> Option<i64> {
        let now = Instant::now();
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() >= MAX_LIMITED_USERS {
            refusals.retain(|_, limit| limit.next > now || limit.suppressed > 0);
        }
        // With too many users at once, the rest shares the limit of unauthenticated clients.
        let is_full = refusals.len() >= MAX_LIMITED_USERS && !refusals.contains_key(&user);
        let user = user.filter(|_| !is_full);
        let limit = refusals.entry(user).or_insert(RefusalLimit { next: now, suppressed: 0 });
        limit.admit(now)
    }

    async fn store(&self, app: &App, entry: AuditEntry) {
        let request_id = entry.request_id.clone();
        let stored = app.store.write(move |tx| insert(tx, &entry)).await;
        if let Err(error) = stored {
            self.lost.inc();
            tracing::error!(request_id, %error, "audit entry could not be stored");
        }
    }
}

impl RefusalLimit {
    /// The number of refusals since the last recorded one; `None` if this one is not recorded either.
    fn admit(&mut self, now: Instant) -> Option<i64> {
        let next = self.next.max(now);
        if next.duration_since(now) > REFUSAL_INTERVAL * REFUSAL_BURST {
            self.suppressed += 1;
            return None;
        }
        self.next = next + REFUSAL_INTERVAL;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Stores an entry. A node is recorded with its UUID, also if the request used its name, unless the caller
/// may not see the node.
fn insert(tx: &mut StoreWriter<'_>, entry: &AuditEntry) -> Result<(), store::StoreError> {
    let mut entry = entry.clone();
    if let ("node", Some(name)) =
        (entry.resource_type.as_deref().unwrap_or_default(), &entry.resource_id)
        && entry.status != 404
        && Uuid::try_parse(name).is_err()
        && let Some(node) = tx.find::<Node>(NodeColumn::Name, name)?
    {
        entry.resource_id = Some(node.id.to_string());
    }
    tx.insert(&entry)
}

/// Records a request whose future is dropped, because its client disconnected.
pub(super) struct DisconnectGuard {
    app: Arc<App>,
    entry: Option<AuditEntry>,
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let app = Arc::clone(&self.app);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { app.audit.store(&app, entry).await });
        }
    }
}

impl AuditSubject {
    /// Called before the handler of a request runs.
    pub(super) fn start(&mut self, app: &Arc<App>, head: &Parts, request_id: &RequestId) {
        if !self.is_change(&head.method) {
            return;
        }
        let entry = AuditEntry {
            outcome: AuditOutcome::Failed,
            status: CLIENT_CLOSED_REQUEST,
            message: Some("The client disconnected; the outcome is not known.".to_owned()),
            ..self.entry(app, head, request_id)
        };
        self.guard = Some(DisconnectGuard { app: Arc::clone(app), entry: Some(entry) });
    }

    /// Whether the request changes something that belongs in the log.
    fn is_change(&self, method: &Method) -> bool {
        let Some(route) = self.route else { return false };
        let is_changing = !method.is_safe() || route.path == CALLBACK;
        is_changing && !self.is_of_agent() && !READ_ONLY.contains(&route.path)
    }

    fn is_public(&self) -> bool {
        self.route.is_some_and(|route| route.access == RouteAccess::Public)
    }

    fn is_of_agent(&self) -> bool {
        self.is_public() && self.route.is_some_and(|route| !SIGN_IN.contains(&route.path))
    }

    /// Records the request, if it belongs in the log.
    pub(super) async fn record(
        mut self,
        app: &Arc<App>,
        head: &Parts,
        request_id: &RequestId,
        response: &ApiResponse,
    ) {
        let status = response.status.as_u16();
        let is_hidden = status == 404 && self.access.as_ref().is_some_and(CallerAccess::was_hidden);
        let is_refused = matches!(status, 401 | 403) || is_hidden;
        if let Some(mut guard) = self.guard.take() {
            guard.entry = None;
        }
        if self.is_of_agent() || (!self.is_change(&head.method) && !is_refused) {
            return;
        }
        let mut entry = self.entry(app, head, request_id);
        entry.status = i64::from(status);
        entry.outcome = match status {
            ..400 => AuditOutcome::Accepted,
            400..500 => AuditOutcome::Refused,
            500.. => AuditOutcome::Failed,
        };
        let body = parse_body(response);
        if status >= 400 {
            entry.message = body.as_ref().and_then(error_message);
        } else {
            let is_sign_in = self.route.is_some_and(|route| SIGN_IN.contains(&route.path));
            if entry.resource_id.is_none() && !is_sign_in {
                entry.resource_id = created_id(response, body.as_ref());
            }
            if is_sign_in {
                entry.user = body.as_ref().and_then(|body| text_member(body, "user"));
            }
        }
        let is_unauthenticated = self.caller.is_none() || self.is_public();
        if entry.outcome != AuditOutcome::Accepted {
            let user = if is_unauthenticated { None } else { entry.user.clone() };
            let Some(suppressed) = app.audit.admit_refusal(user) else { return };
            entry.suppressed = suppressed;
        }
        app.audit.store(app, entry).await;
    }

    /// The entry without the outcome.
    fn entry(&self, app: &App, head: &Parts, request_id: &RequestId) -> AuditEntry {
        let caller = self.caller.as_ref();
        let roles: Vec<&str> =
            caller.iter().flat_map(|caller| caller.roles.iter()).map(|role| &**role).collect();
        AuditEntry {
            id: AuditEntryId::random(),
            at: app.now(),
            outcome: AuditOutcome::Accepted,
            status: 0,
            user_id: caller.and_then(|caller| caller.user_id.as_deref()).map(field),
            user: caller.and_then(Caller::name).map(field),
            project: caller.and_then(Caller::project).map(field),
            roles: (!roles.is_empty()).then(|| shorten(&roles.join(","), MAX_MESSAGE)),
            auth_method: caller.map(|caller| caller.method.as_str().to_owned()),
            method: field(head.method.as_str()),
            path: shorten(head.uri.path(), MAX_PATH),
            request_id: request_id.to_string(),
            address: client_address(&app.config, head).map(|address| address.to_string()),
            resource_type: self.route.map(|route| resource_type(route.path)),
            resource_id: self.resource.as_deref().map(field),
            message: None,
            suppressed: 0,
        }
    }
}

fn field(text: &str) -> String {
    shorten(text, MAX_FIELD)
}

/// The first characters, without NUL, which PostgreSQL rejects.
fn shorten(text: &str, max: usize) -> String {
    text.chars().filter(|character| *character != '\0').take(max).collect()
}

/// The type of the resource in a route: `node` for `/v1/nodes/{node}/states/power`.
fn resource_type(path: &str) -> String {
    let path = path.strip_prefix("/v1/").unwrap_or(path.trim_start_matches('/'));
    let path = path.strip_prefix("ferrite/").unwrap_or(path);
    let mut segments = path.split('/');
    let first = segments.next().unwrap_or_default();
    let singular = |name: &str| match name {
        "chassis" => name.to_owned(),
        _ => name.strip_suffix('s').unwrap_or(name).replace('-', "_"),
    };
    match (first, segments.next()) {
        ("volume", Some(kind)) => format!("volume_{}", singular(kind)),
        ("ui", Some("oidc")) => "session".to_owned(),
        ("ui", Some(kind)) => singular(kind),
        _ => singular(first),
    }
}

fn parse_body(response: &ApiResponse) -> Option<Value> {
    match &response.body {
        ResponseBody::Complete(body) if !body.is_empty() && body.len() <= MAX_BODY => {
            serde_json::from_slice(body).ok()
        }
        ResponseBody::Complete(_) | ResponseBody::Events(_) => None,
    }
}

/// The message of an error response, in any of Ironic's formats.
fn error_message(body: &Value) -> Option<String> {
    let error = body.get("error_message").unwrap_or(body);
    let inner = match error {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| error.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            error.clone()
        }
    };
    let text = match inner.as_str() {
        Some(text) => text,
        None => {
            // Errors of authentication have `error.message`, as those of Ironic's basic authentication.
            let message = inner.get("faultstring").or_else(|| inner.get("error")?.get("message"));
            message?.as_str()?
        }
    };
    Some(shorten(&mask_urls(text), MAX_MESSAGE))
}

/// The id of a created resource: from its URL, or from its JSON.
fn created_id(response: &ApiResponse, body: Option<&Value>) -> Option<String> {
    let location = response.headers.iter().find(|(name, _)| *name == LOCATION);
    let from_url = location.and_then(|(_, url)| url.to_str().ok()?.rsplit('/').next());
    if let Some(id) = from_url.filter(|id| !id.is_empty()) {
        return Some(field(id));
    }
    ["uuid", "id", "name"].iter().find_map(|key| text_member(body?, key))
}

fn text_member(body: &Value, key: &str) -> Option<String> {
    body.get(key).and_then(Value::as_str).map(field)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_the_type_of_a_resource() {
        for (path, expected) in [
            ("/v1/nodes/{node}/states/power", "node"),
            ("/v1/nodes", "node"),
            ("/v1/chassis/{chassis}", "chassis"),
            ("/v1/volume/connectors/{connector}", "volume_connector"),
            ("/v1/deploy_templates", "deploy_template"),
            ("/v1/ferrite/deployments/{deployment}", "deployment"),
            ("/v1/ferrite/nodes/{node}/bmc", "node"),
            ("/v1/ferrite/sign-in-failures", "sign_in_failure"),
            ("/ui/session", "session"),
            ("/ui/oidc/callback", "session"),
        ] {
            assert_eq!(resource_type(path), expected, "{path}");
        }
    }

    #[test]
    fn finds_the_message_of_an_error() {
        for (body, expected) in [
            (json!({"error_message": "{\"faultstring\": \"no\"}"}), Some("no")),
            (json!({"error_message": {"faultstring": "no"}}), Some("no")),
            (json!({"faultstring": "no"}), Some("no")),
            (json!({"error": {"message": "no", "code": 401}}), Some("no")),
            (json!({"error_message": "plain"}), Some("plain")),
            (json!({"error_message": "at http://u:secret@h/"}), Some("at http://******@h/")),
            (json!({"other": 1}), None),
        ] {
            let message = error_message(&body);
            let is_masked = message.as_deref().is_some_and(|text| text.contains("******"));
            assert!(is_masked || message.as_deref() == expected, "{body}: {message:?}");
        }
    }

    #[test]
    fn limits_refusals() {
        let now = Instant::now();
        let mut limit = RefusalLimit { next: now, suppressed: 0 };
        let admitted = (0..1000).filter(|_| limit.admit(now).is_some()).count();
        assert_eq!(admitted, REFUSAL_BURST as usize + 1);
        let later = now + REFUSAL_INTERVAL;
        assert_eq!(limit.admit(later), Some(1000 - i64::from(REFUSAL_BURST) - 1));
        assert_eq!(limit.admit(later), None);
    }
}
