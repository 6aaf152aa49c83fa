// SPDX-License-Identifier: Apache-2.0
//! The client itself: reading resources and changing them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::exchange::{Call, Observer, Reply};
use crate::login::Login;
use crate::{Endpoint, Error, Patience, Resource, Timeouts, body, path, transport};

/// How long the service root is believed: it changes when the BMC's firmware does.
const ROOT_AGE: Duration = Duration::from_secs(600);

/// A client of one BMC's Redfish service.
///
/// Clones are cheap and share the session and what was found out about the BMC. Connections are
/// shared with every other client that trusts the same certificates.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) patience: Patience,
}

/// What all clones of a client have in common.
pub(crate) struct Shared {
    pub(crate) endpoint: Endpoint,
    pub(crate) timeouts: Timeouts,
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) login: Login,
    /// The service root, and when it was read.
    root: Mutex<Option<(Instant, Arc<Resource>)>>,
    /// The paths of the systems asked for so far, by what they were asked for as.
    pub(crate) systems: Mutex<HashMap<Option<String>, String>>,
}

impl Client {
    /// A client for this BMC. Nothing is asked of it yet.
    ///
    /// `turns` is how many requests the BMC is asked at once. Every request of every client holds
    /// one permit of it, so clients of the same BMC must be given the same semaphore.
    pub fn new(
        endpoint: Endpoint,
        timeouts: Timeouts,
        turns: Arc<Semaphore>,
    ) -> Result<Self, Error> {
        // What cannot work is told here; the HTTP client itself is asked for anew at each request,
        // because the CA file may have changed.
        transport::client(&endpoint, &timeouts)?;
        let shared = Shared {
            endpoint,
            timeouts,
            turns,
            login: Login::default(),
            root: Mutex::default(),
            systems: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), observer: None, patience: Patience::default() })
    }

    /// The same client, telling `observer` of every exchange.
    #[must_use]
    pub fn observed(&self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self.clone() }
    }

    /// The same client, waiting as long as `patience` says before it asks again.
    #[must_use]
    pub fn patient(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }

    /// How the BMC is reached.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// The service root. It is asked for without saying who we are, as the standard has it, and
    /// remembered for ten minutes.
    pub async fn root(&self) -> Result<Resource, Error> {
        Ok(self.known_root().await?.as_ref().clone())
    }

    /// The resource at a path or link.
    pub async fn get(&self, path: &str) -> Result<Resource, Error> {
        let path = path::local(&self.shared.endpoint.root, path);
        let call = Call::get(&path);
        Resource::of(self.authorised(&call).await?, &call)
    }

    /// Posts to a collection or an action's target.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, Error> {
        self.change(Method::POST, path, Some(body), &[None]).await
    }

    /// Changes a resource.
    ///
    /// The etag, if given, goes into `If-Match`. BMCs get etags wrong, so where one is refused (412
    /// or 428) the request is made again with the etag as a strong one, without any, and with `*`:
    /// a refused precondition means that nothing was done.
    pub async fn patch(
        &self,
        path: &str,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<Answer, Error> {
        self.change(Method::PATCH, path, Some(body), &preconditions(etag)).await
    }

    /// Replaces a resource; the etag is treated as by [`Client::patch`].
    pub async fn put(&self, path: &str, body: &Value, etag: Option<&str>) -> Result<Answer, Error> {
        self.change(Method::PUT, path, Some(body), &preconditions(etag)).await
    }

    /// Deletes a resource.
    pub async fn delete(&self, path: &str) -> Result<Answer, Error> {
        self.change(Method::DELETE, path, None, &[None]).await
    }

    /// The service root as remembered or as it is now.
    pub(crate) async fn known_root(&self) -> Result<Arc<Resource>, Error> {
        if let Some(root) = self.open_root().await? {
            return Ok(root);
        }
        // Some services show their root to known users only.
        let root = Arc::new(self.get(&self.shared.endpoint.root).await?);
        self.remember_root(&root);
        Ok(root)
    }

    /// The service root as everybody may see it; `None` if only known users may.
    pub(crate) async fn open_root(&self) -> Result<Option<Arc<Resource>>, Error> {
        let remembered = self.root_memory().clone();
        if let Some((_, root)) = remembered.filter(|(read, _)| read.elapsed() < ROOT_AGE) {
            return Ok(Some(root));
        }
        let call = Call::get(&self.shared.endpoint.root);
        let reply = self.repeated(&call, None).await?;
        if matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return match self.shared.endpoint.username {
                Some(_) => Ok(None),
                None => Err(Error::Unauthorized { address: self.shared.endpoint.address.clone() }),
            };
        }
        let root = Arc::new(Resource::of(reply, &call)?);
        self.remember_root(&root);
        Ok(Some(root))
    }

    fn remember_root(&self, root: &Arc<Resource>) {
        *self.root_memory() = Some((Instant::now(), Arc::clone(root)));
    }

    fn root_memory(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<Resource>)>> {
        self.shared.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        preconditions: &[Option<String>],
    ) -> Result<Answer, Error> {
        let path = path::local(&self.shared.endpoint.root, path);
        let mut secrets = Vec::new();
        body.into_iter().for_each(|body| secrets_in(body, &mut secrets));
        let mut call = Call {
            body: body.map(|body| Bytes::from(body.to_string())),
            secrets: &secrets,
            ..Call::plain(method, &path)
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
                None => return reply.accepted(&call).map(|reply| self.answer(&reply)),
            }
        }
    }

    fn answer(&self, reply: &Reply) -> Answer {
        Answer {
            status: reply.status.as_u16(),
            location: reply
                .location()
                .map(|location| path::local(&self.shared.endpoint.root, location)),
            // What was asked is done; that the answer cannot be read takes nothing from it.
            body: body::parse(&reply.body).unwrap_or(Value::Null),
        }
    }
}

impl Resource {
    /// The resource in an answer to a GET.
    pub(crate) fn of(reply: Reply, call: &Call<'_>) -> Result<Self, Error> {
        let reply = reply.accepted(call)?;
        let garbled = |why: String| Error::Garbled { path: call.path.to_owned(), why };
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

/// What to send as `If-Match`, one after the other until it is accepted.
fn preconditions(etag: Option<&str>) -> Vec<Option<String>> {
    let mut tried = Vec::with_capacity(4);
    if let Some(etag) = etag.filter(|etag| !etag.is_empty()) {
        tried.push(Some(etag.to_owned()));
        tried.extend(etag.strip_prefix("W/").map(|strong| Some(strong.to_owned())));
    }
    tried.extend([None, Some("*".to_owned())]);
    tried
}

/// The secrets in what is sent, which must not come back in a message: passwords, and what URLs of
/// images have before their host and after their path.
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
    fn etags_are_tried_in_order() {
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
