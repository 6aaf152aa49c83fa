// SPDX-License-Identifier: Apache-2.0
//! The client: reads and changes resources.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::exchange::{BmcHttpResponse, ExchangeObserver, OutgoingRequest};
use crate::login::LoginState;
use crate::login_permission::LoginPermission;
use crate::response::OperationResponse;
use crate::{
    RedfishEndpoint, RedfishError, RedfishResource, RedfishRetryPolicy, RedfishTimeouts, body,
    path, transport,
};

/// The service root is cached this long; it changes only with the BMC firmware.
const ROOT_AGE: Duration = Duration::from_secs(600);

/// A client of one BMC's Redfish service.
///
/// Clones are cheap and share the session and the cached data of the BMC. Connections are shared
/// with all clients that trust the same certificates.
#[derive(Clone)]
pub struct RedfishClient {
    pub(crate) shared: Arc<RedfishClientState>,
    pub(crate) observer: Option<Arc<dyn ExchangeObserver>>,
    pub(crate) retry_policy: RedfishRetryPolicy,
    /// Of the clone that logs in.
    pub(crate) permission: Option<LoginPermission>,
}

/// The state that all clones of a client share.
pub(crate) struct RedfishClientState {
    pub(crate) endpoint: RedfishEndpoint,
    pub(crate) timeouts: RedfishTimeouts,
    pub(crate) request_permits: Arc<Semaphore>,
    pub(crate) login: LoginState,
    /// The service root and the time it was read.
    root: Mutex<Option<(Instant, Arc<RedfishResource>)>>,
    /// The paths of the systems, by the requested path or id.
    pub(crate) systems: Mutex<HashMap<Option<String>, String>>,
}

impl RedfishClient {
    /// Creates a client. Sends no request.
    ///
    /// `request_permits` limits the concurrent requests to the BMC. Every request holds one permit,
    /// so all clients of a BMC must share the semaphore.
    pub fn new(
        endpoint: RedfishEndpoint,
        timeouts: RedfishTimeouts,
        turns: Arc<Semaphore>,
    ) -> Result<Self, RedfishError> {
        // Fails early on bad settings. The HTTP client is looked up again for each request, because
        // the CA file may have changed.
        transport::client(&endpoint, &timeouts)?;
        let shared = RedfishClientState {
            endpoint,
            timeouts,
            request_permits: turns,
            login: LoginState::default(),
            root: Mutex::default(),
            systems: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            observer: None,
            retry_policy: RedfishRetryPolicy::default(),
            permission: None,
        })
    }

    /// Returns the client with an observer of every exchange.
    #[must_use]
    pub fn observed(&self, observer: Arc<dyn ExchangeObserver>) -> Self {
        Self { observer: Some(observer), ..self.clone() }
    }

    /// Returns the client with another retry policy.
    #[must_use]
    pub fn with_retry_policy(&self, retry_policy: RedfishRetryPolicy) -> Self {
        Self { retry_policy, ..self.clone() }
    }

    /// The address and credentials of the BMC.
    #[must_use]
    pub fn endpoint(&self) -> &RedfishEndpoint {
        &self.shared.endpoint
    }

    /// Returns the service root. It is read without credentials, as the standard allows, and cached
    /// for ten minutes.
    pub async fn root(&self) -> Result<RedfishResource, RedfishError> {
        Ok(self.known_root().await?.as_ref().clone())
    }

    /// Returns the resource at a path or link.
    pub async fn get(&self, path: &str) -> Result<RedfishResource, RedfishError> {
        let path = path::local(&self.shared.endpoint.root, path);
        let call = OutgoingRequest::get(&path);
        RedfishResource::of(self.authorised(&call).await?, &call)
    }

    /// Posts to a collection or to the target of an action.
    pub async fn post(&self, path: &str, body: &Value) -> Result<OperationResponse, RedfishError> {
        self.change(Method::POST, path, Some(body), &[None]).await
    }

    /// Changes a resource.
    ///
    /// The etag, if given, is sent as `If-Match`. BMCs handle etags incorrectly, so after a 412 or
    /// 428 the request is repeated with a strong etag, without one, and with `*`. A failed
    /// precondition means that nothing was changed.
    pub async fn patch(
        &self,
        path: &str,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<OperationResponse, RedfishError> {
        self.change(Method::PATCH, path, Some(body), &preconditions(etag)).await
    }

    /// Replaces a resource; handles the etag like [`RedfishClient::patch`].
    pub async fn put(
        &self,
        path: &str,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<OperationResponse, RedfishError> {
        self.change(Method::PUT, path, Some(body), &preconditions(etag)).await
    }

    /// Deletes a resource.
    pub async fn delete(&self, path: &str) -> Result<OperationResponse, RedfishError> {
        self.change(Method::DELETE, path, None, &[None]).await
    }

    /// Returns the cached or current service root.
    pub(crate) async fn known_root(&self) -> Result<Arc<RedfishResource>, RedfishError> {
        if let Some(root) = self.open_root().await? {
            return Ok(root);
        }
        // Some services require credentials for the root.
        let root = Arc::new(self.get(&self.shared.endpoint.root).await?);
        self.cache_root(&root);
        Ok(root)
    }

    /// Returns the service root without credentials; `None` if the BMC requires them.
    pub(crate) async fn open_root(&self) -> Result<Option<Arc<RedfishResource>>, RedfishError> {
        let cached = self.root_memory().clone();
        if let Some((_, root)) = cached.filter(|(read, _)| read.elapsed() < ROOT_AGE) {
            return Ok(Some(root));
        }
        let call = OutgoingRequest::get(&self.shared.endpoint.root);
        let reply = self.repeated(&call, None).await?;
        if matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return match self.shared.endpoint.username {
                Some(_) => Ok(None),
                None => Err(RedfishError::Unauthorized {
                    address: self.shared.endpoint.address.clone(),
                }),
            };
        }
        let root = Arc::new(RedfishResource::of(reply, &call)?);
        self.cache_root(&root);
        Ok(Some(root))
    }

    fn cache_root(&self, root: &Arc<RedfishResource>) {
        *self.root_memory() = Some((Instant::now(), Arc::clone(root)));
    }

    fn root_memory(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<RedfishResource>)>> {
        self.shared.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        preconditions: &[Option<String>],
    ) -> Result<OperationResponse, RedfishError> {
        let path = path::local(&self.shared.endpoint.root, path);
        let mut secrets = Vec::new();
        body.into_iter().for_each(|body| secrets_in(body, &mut secrets));
        let mut call = OutgoingRequest {
            body: body.map(|body| Bytes::from(body.to_string())),
            secrets: &secrets,
            ..OutgoingRequest::plain(method, &path)
        };
        let mut preconditions = preconditions.iter();
        call.if_match = preconditions.next().and_then(Option::as_deref);
        loop {
            let reply = self.authorised(&call).await?;
            let unmet = matches!(
                reply.status,
                StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED
            );
            match preconditions.next().filter(|_| unmet) {
                Some(next) => call.if_match = next.as_deref(),
                None => return reply.accepted(&call).map(|reply| self.operation_response(&reply)),
            }
        }
    }

    fn operation_response(&self, reply: &BmcHttpResponse) -> OperationResponse {
        OperationResponse {
            status: reply.status.as_u16(),
            location: reply
                .location()
                .map(|location| path::local(&self.shared.endpoint.root, location)),
            // The operation succeeded even if the body cannot be parsed.
            body: body::parse(&reply.body).unwrap_or(Value::Null),
        }
    }
}

impl RedfishResource {
    /// Parses the response to a GET.
    pub(crate) fn of(
        reply: BmcHttpResponse,
        call: &OutgoingRequest<'_>,
    ) -> Result<Self, RedfishError> {
        let reply = reply.accepted(call)?;
        let garbled = |why: String| RedfishError::Garbled { path: call.path.to_owned(), why };
        if reply.body.is_empty() {
            return Err(garbled("it is empty".to_owned()));
        }
        let body = body::parse(&reply.body).map_err(|error| garbled(error.to_string()))?;
        if !body.is_object() {
            return Err(garbled("it is not a JSON object".to_owned()));
        }
        let etag = reply.etag().or_else(|| body.get("@odata.etag")?.as_str()).map(str::to_owned);
        Ok(Self { etag, path: reply.path, body })
    }
}

/// The values of `If-Match` to try, in order.
fn preconditions(etag: Option<&str>) -> Vec<Option<String>> {
    let mut tried = Vec::with_capacity(4);
    if let Some(etag) = etag.filter(|etag| !etag.is_empty()) {
        tried.push(Some(etag.to_owned()));
        tried.extend(etag.strip_prefix("W/").map(|strong| Some(strong.to_owned())));
    }
    tried.extend([None, Some("*".to_owned())]);
    tried
}

/// Collects the secrets of a request body, which must not appear in messages: passwords, and the
/// credentials and queries of image URLs.
fn secrets_in<'a>(body: &'a Value, found: &mut Vec<&'a str>) {
    match body {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str().filter(|_| key.to_ascii_lowercase().contains("password")) {
                    Some(password) => found.push(password),
                    None => secrets_in(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secrets_in(item, found)),
        Value::String(text) => {
            let Some((_, rest)) = text.split_once("://") else { return };
            let authority = rest.split(['/', '?']).next().unwrap_or_default();
            found.extend(authority.rsplit_once('@').map(|(login, _)| login));
            found.extend(rest.split_once('?').map(|(_, query)| query));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_etags_in_order() {
        let shown = |etag| {
            let tried = preconditions(etag).into_iter();
            tried.map(|etag| etag.unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(Some("W/\"1\"")), "W/\"1\" \"1\" - *");
        assert_eq!(shown(Some("\"1\"")), "\"1\" - *");
        assert_eq!(shown(Some("")), "- *");
        assert_eq!(shown(None), "- *");
    }
}
