// SPDX-License-Identifier: Apache-2.0
//! The API itself: requests, the version they are made in, sign-in, and pages.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::error::{ApiError, message_in};
use crate::events::Events;
use crate::query::{Query, unescaped, value_in};
use crate::secret::Secret;
use crate::target::{Login, Target, Trust};
use crate::version::{NEWEST, Version};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Stock Ironic can take a minute to answer for a thousand nodes.
const PATIENCE: Duration = Duration::from_secs(120);
/// A stream that says nothing for so long is dead: servers show that they live more often.
const STREAM_PATIENCE: Duration = Duration::from_secs(60);
const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// How many of a list are asked for at once; servers may give fewer.
const PAGE: &str = "1000";

/// An Ironic API.
pub struct Api {
    http: Client,
    /// Without a deadline for the whole answer.
    streaming: Client,
    target: Target,
    /// The dialect to speak, which is lowered if the server does not know it.
    version: AtomicU16,
    session: Mutex<Option<Session>>,
    /// Whether an API was found at the address.
    is_found: AtomicBool,
}

/// Where the API is and what opens it.
#[derive(Clone)]
struct Session {
    base: String,
    token: Option<Secret>,
}

impl Api {
    /// The API of a target. Nothing is asked of it yet.
    pub fn new(target: Target) -> Result<Self, ApiError> {
        // Where a server sends us, our token must not follow.
        let tls = tls(&target.trust)?;
        let builder = || {
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .tls_backend_preconfigured(tls.clone())
        };
        let http = builder().timeout(PATIENCE).connect_timeout(CONNECT_PATIENCE).build();
        let streaming =
            builder().read_timeout(STREAM_PATIENCE).connect_timeout(CONNECT_PATIENCE).build();
        Ok(Self {
            http: http.map_err(ApiError::NoClient)?,
            streaming: streaming.map_err(ApiError::NoClient)?,
            target,
            version: AtomicU16::new(NEWEST.0),
            session: Mutex::new(None),
            is_found: AtomicBool::new(false),
        })
    }

    /// Where the API is, as far as it is known before signing in.
    #[must_use]
    pub fn address(&self) -> String {
        match (&self.target.url, &self.target.login) {
            (Some(url), _) => url.clone(),
            (None, Login::Keystone(keystone)) => format!("the Ironic that {} knows", keystone.url),
            (None, Login::Nobody | Login::Basic { .. }) => self.target.origin.clone(),
        }
    }

    /// The dialect that is spoken: the newest both sides know, once the server was asked anything.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.version.load(Ordering::Relaxed))
    }

    /// Reads one thing.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, None).await
    }

    /// Reads one thing that may not be there.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole list, page by page; `key` is what the list is called in the answer.
    pub async fn list(&self, path: &str, key: &str, query: &Query) -> Result<Vec<Value>, ApiError> {
        let mut found = Vec::new();
        let first = query.clone().with("limit", PAGE);
        let mut next = Some(first.clone());
        while let Some(page) = next.take() {
            let mut answer = self.get(&page.on(path)).await?;
            // Only where to go on is taken over: an Ironic leaves filters out of its link, and behind a
            // proxy the link leads where we cannot go.
            next = answer["next"]
                .as_str()
                .and_then(|url| value_in(url, "marker"))
                .map(|marker| first.clone().with("marker", &marker));
            let Value::Array(rows) = answer[key].take() else {
                let (url, request) = (self.address(), format!("GET {path}"));
                let answer = format!("an answer without {key}");
                return Err(ApiError::NotIronic { url, request, answer });
            };
            if rows.is_empty() {
                break;
            }
            found.extend(rows);
        }
        Ok(found)
    }

    /// Changes something with a JSON patch.
    pub async fn patch(&self, path: &str, operations: &[Value]) -> Result<Value, ApiError> {
        self.send(Method::PATCH, path, Some(&json!(operations))).await
    }

    /// Makes a request that must succeed; gives the answer, null if it is empty.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let (response, base) = self.exchange(&self.http, &method, path, body, &[]).await?;
        let request = format!("{method} {path}");
        let bytes = response.bytes().await.map_err(|error| ApiError::BrokenOff {
            url: base.clone(),
            request: request.clone(),
            source: error.without_url(),
        })?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| {
            let answer = "something else than JSON".to_owned();
            ApiError::NotIronic { url: base, request, answer }
        })
    }

    /// Follows what happens at a Ferrite, to one node or to all, beginning after an event if one is
    /// given.
    pub async fn events(&self, node: Option<&str>, after: Option<u64>) -> Result<Events, ApiError> {
        let mut query = Query::new();
        if let Some(node) = node {
            query.set("node", node);
        }
        if let Some(after) = after {
            query.set("after", &after.to_string());
        }
        self.stream(&query.on("/v1/ferrite/events")).await
    }

    /// Follows any stream of events.
    pub async fn stream(&self, path: &str) -> Result<Events, ApiError> {
        let accept = [("Accept", "text/event-stream")];
        let (response, base) =
            self.exchange(&self.streaming, &Method::GET, path, None, &accept).await?;
        Ok(Events::new(response, base, format!("GET {path}")))
    }

    /// One request and the beginning of its answer, which is a success. Signs in again if the token
    /// has expired, and speaks an older dialect if the server does not know ours.
    async fn exchange(
        &self,
        http: &Client,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<(Response, String), ApiError> {
        if let Some(part) = part_that_names_nothing(path) {
            return Err(ApiError::Refused {
                url: self.address(),
                request: format!("{method} {path}"),
                status: 404,
                message: format!("nothing can be called {:?}", unescaped(part)),
            });
        }
        let mut is_fresh = false;
        loop {
            let session = self.session(&mut is_fresh).await?;
            let version = self.version();
            let mut request = http
                .request(method.clone(), format!("{}{path}", session.base))
                .header(VERSION_HEADER, version.to_string());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            request = self.signed(request, &session);
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await.map_err(|error| {
                let (url, source) = (session.base.clone(), error.without_url());
                if source.is_timeout() && !source.is_connect() {
                    ApiError::BrokenOff { url, request: format!("{method} {path}"), source }
                } else {
                    ApiError::unreachable(url, source)
                }
            })?;
            if response.status().is_success() {
                self.is_found.store(true, Ordering::Relaxed);
                return Ok((response, session.base));
            }
            if response.status() == StatusCode::NOT_ACCEPTABLE {
                self.speak_older(&response, version, &session.base)?;
                continue;
            }
            // A token that was good when we got it can have expired since.
            if response.status() == StatusCode::UNAUTHORIZED && session.token.is_some() && !is_fresh
            {
                is_fresh = true;
                let mut kept = self.session.lock().await;
                // Of those who were refused with it, the first signs in for all.
                if kept.as_ref().is_some_and(|kept| kept.token == session.token) {
                    *kept = None;
                }
                continue;
            }
            let base = session.base.clone();
            let error = self.refused(response, base, format!("{method} {path}")).await;
            if error.status() == Some(404) && self.leads_nowhere(http, &session).await {
                let (request, answer) = ("GET /v1".to_owned(), StatusCode::NOT_FOUND.to_string());
                return Err(ApiError::NotIronic { url: session.base, request, answer });
            }
            return Err(error);
        }
    }

    /// A request that says who we are.
    fn signed(&self, request: RequestBuilder, session: &Session) -> RequestBuilder {
        match (&self.target.login, &session.token) {
            (Login::Basic { user, password }, _) => {
                request.basic_auth(user, Some(password.reveal()))
            }
            (_, Some(token)) => request.header("X-Auth-Token", token.reveal()),
            (Login::Nobody | Login::Keystone(_), None) => request,
        }
    }

    /// Whether nothing is to be found because the address has a path under which there is no API: then
    /// it is not the thing that is not there.
    async fn leads_nowhere(&self, http: &Client, session: &Session) -> bool {
        let base = &session.base;
        let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        if !has_path || self.is_found.load(Ordering::Relaxed) {
            return false;
        }
        let root = self.signed(http.get(format!("{base}/v1")), session).send().await;
        let is_missing = root.is_ok_and(|root| root.status() == StatusCode::NOT_FOUND);
        self.is_found.store(!is_missing, Ordering::Relaxed);
        is_missing
    }

    /// The session, signing in if there is none; `is_fresh` tells that this was needed.
    async fn session(&self, is_fresh: &mut bool) -> Result<Session, ApiError> {
        let mut kept = self.session.lock().await;
        if let Some(session) = &*kept {
            return Ok(session.clone());
        }
        let session = match &self.target.login {
            Login::Nobody | Login::Basic { .. } => {
                Session { base: self.target.url.clone().unwrap_or_default(), token: None }
            }
            Login::Keystone(keystone) => {
                *is_fresh = true;
                let ticket = keystone.sign_in(&self.http, self.target.url.is_some()).await?;
                let base = self.target.url.clone().or(ticket.endpoint).unwrap_or_default();
                Session { base, token: Some(ticket.token) }
            }
        };
        *kept = Some(session.clone());
        Ok(session)
    }

    /// What a refusal says.
    async fn refused(&self, response: Response, url: String, request: String) -> ApiError {
        let status = response.status();
        // A refusal whose words are lost is still a refusal.
        let bytes = response.bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = message_in(&body);
        // Proxies speak for a server that is away; whoever else says no without saying why is none.
        let is_ironic =
            status.is_server_error() || !message.is_empty() || !body["error_message"].is_null();
        match (status, &self.target.login) {
            (StatusCode::UNAUTHORIZED, Login::Basic { user, .. }) => {
                let (user, origin) = (user.clone(), self.target.origin.clone());
                ApiError::WrongPassword { url, user, origin, message }
            }
            (StatusCode::UNAUTHORIZED, Login::Nobody | Login::Keystone(_)) => {
                ApiError::NotSignedIn { url, message }
            }
            (StatusCode::FORBIDDEN, _) => ApiError::Forbidden { url, request, message },
            (_, _) if !is_ironic => {
                // What was asked for in particular does not matter to whoever is no Ironic.
                let request = request.split('?').next().unwrap_or_default().to_owned();
                ApiError::NotIronic { url, request, answer: status.to_string() }
            }
            (_, _) => {
                let message = match message.is_empty() {
                    false => message,
                    true => format!("{url} answers {status} to {request}"),
                };
                ApiError::Refused { url, request, status: status.as_u16(), message }
            }
        }
    }

    /// Lowers the version to the newest the server knows.
    fn speak_older(&self, response: &Response, tried: Version, base: &str) -> Result<(), ApiError> {
        let header = |end: &str| {
            let name = format!("X-OpenStack-Ironic-API-{end}-Version");
            let value = response.headers().get(name)?.to_str().ok()?.to_owned();
            Some(value)
        };
        let newest = header("Maximum");
        match newest.as_deref().and_then(Version::parse).filter(|newest| *newest < tried) {
            Some(version) => {
                self.version.store(version.0, Ordering::Relaxed);
                Ok(())
            }
            None => Err(ApiError::NoCommonVersion {
                url: base.to_owned(),
                theirs: format!(
                    "{} to {}",
                    header("Minimum").unwrap_or_else(|| "?".to_owned()),
                    newest.unwrap_or_else(|| "?".to_owned())
                ),
                ours: NEWEST.to_string(),
            }),
        }
    }
}

/// A part of a path that would lead elsewhere, or that no server takes for a name.
fn part_that_names_nothing(path: &str) -> Option<&str> {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').skip(1);
    parts.find(|part| matches!(*part, "" | "." | "..") || part.contains("%2F"))
}

/// TLS with the trust that was asked for: in given certificates besides those of this machine.
fn tls(trust: &Trust) -> Result<ClientConfig, ApiError> {
    if trust.anybody {
        return Ok(server_trust::trusting_anybody());
    }
    let mut trusted = server_trust::of_this_machine().unwrap_or_default();
    if let Some(path) = &trust.authorities {
        let unusable = |problem: String| ApiError::BadCertificates { path: path.clone(), problem };
        let given = server_trust::in_file_or_folder(path);
        let given = given.map_err(|error| unusable(error.to_string()))?;
        if given.is_empty() {
            return Err(unusable(server_trust::NoCertificates.to_string()));
        }
        trusted.extend(given);
    }
    // Who speaks plain HTTP needs none.
    Ok(server_trust::trusting(trusted).unwrap_or_else(|_| server_trust::trusting_nobody()))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;
