// SPDX-License-Identifier: Apache-2.0
//! Requests to an Ironic API: microversion negotiation, sign-in and pagination.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::error::{IronicClientError, error_message};
use crate::events::EventStream;
use crate::openid_login::{DevicePrompt, OpenIdLogin};
use crate::query::{QueryString, percent_decode, query_value};
use crate::secret::HiddenText;
use crate::target::{ApiLogin, ApiTarget, ClientCertificatePaths, TlsTrust};
use crate::version::{Microversion, NEWEST_MICROVERSION};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Stock Ironic can take a minute to list a thousand nodes.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Servers send keep-alive comments more often than this; a longer silence means a dead connection.
const STREAM_READ_TIMEOUT: Duration = Duration::from_secs(60);
const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// Requested page size of lists; servers may return fewer entries.
const PAGE_LIMIT: &str = "1000";

/// A client of an Ironic API.
pub struct Api {
    http: Client,
    /// Without a timeout for the whole response.
    streaming: Client,
    target: ApiTarget,
    /// The microversion to request; lowered if the server does not support it.
    version: AtomicU16,
    session: Mutex<Option<ApiSession>>,
    /// Whether a request under the base URL succeeded or `/v1` exists there.
    is_api_confirmed: AtomicBool,
}

/// Base URL and token of a signed-in client.
#[derive(Clone)]
struct ApiSession {
    base: String,
    token: Option<HiddenText>,
}

impl Api {
    /// Creates a client. Sends no requests yet.
    pub fn new(target: ApiTarget) -> Result<Self, IronicClientError> {
        // Redirects are not followed: the token must not be sent to another server.
        let tls_config = tls_config(&target.trust)?;
        let builder = || {
            let builder = Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .tls_backend_preconfigured(tls_config.clone());
            match &target.unix_socket {
                Some(path) => builder.unix_socket(path.as_path()),
                None => builder,
            }
        };
        let http = builder().timeout(REQUEST_TIMEOUT).connect_timeout(CONNECT_TIMEOUT).build();
        let streaming =
            builder().read_timeout(STREAM_READ_TIMEOUT).connect_timeout(CONNECT_TIMEOUT).build();
        Ok(Self {
            http: http.map_err(IronicClientError::HttpClientSetup)?,
            streaming: streaming.map_err(IronicClientError::HttpClientSetup)?,
            target,
            version: AtomicU16::new(NEWEST_MICROVERSION.0),
            session: Mutex::new(None),
            is_api_confirmed: AtomicBool::new(false),
        })
    }

    /// The address of the API for messages, as far as it is known before signing in.
    #[must_use]
    pub fn address(&self) -> String {
        if let Some(socket) = &self.target.unix_socket {
            return format!("unix:{}", socket.display());
        }
        match (&self.target.url, &self.target.login) {
            (Some(url), _) => url.clone(),
            (None, ApiLogin::Keystone(keystone)) => {
                format!("the Ironic endpoint in the catalogue of {}", keystone.url)
            }
            (
                None,
                ApiLogin::Anonymous
                | ApiLogin::Basic { .. }
                | ApiLogin::Token(_)
                | ApiLogin::OpenIdConnect(_),
            ) => self.target.origin.clone(),
        }
    }

    /// Signs in with the OpenID Connect provider of the server, on any device of the user, and saves the
    /// token. `show` displays the instructions to the user.
    pub async fn sign_in_with_device(
        &self,
        login: &OpenIdLogin,
        show: impl FnOnce(&DevicePrompt),
    ) -> Result<(), IronicClientError> {
        login.sign_in(&self.http, show).await
    }

    /// The requested microversion; after the first response the newest that both sides support.
    #[must_use]
    pub fn version(&self) -> Microversion {
        Microversion(self.version.load(Ordering::Relaxed))
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Result<Value, IronicClientError> {
        self.send(Method::GET, path, None).await
    }

    /// Sends a GET request; `None` if the resource does not exist.
    pub async fn find(&self, path: &str) -> Result<Option<Value>, IronicClientError> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all pages of a list; `key` is the member of the response that holds the entries.
    pub async fn list(
        &self,
        path: &str,
        key: &str,
        query: &QueryString,
    ) -> Result<Vec<Value>, IronicClientError> {
        let mut entries = Vec::new();
        let first = query.clone().with("limit", PAGE_LIMIT);
        let mut next = Some(first.clone());
        while let Some(page) = next.take() {
            let mut response = self.get(&page.append_to(path)).await?;
            // Only the marker of the link is used: Ironic omits the filters from it, and behind a proxy
            // its host may be unreachable.
            next = response["next"]
                .as_str()
                .and_then(|url| query_value(url, "marker"))
                .map(|marker| first.clone().with("marker", &marker));
            let Value::Array(rows) = response[key].take() else {
                let (url, request) = (self.address(), format!("GET {path}"));
                let response = format!("a response without {key}");
                return Err(IronicClientError::NotIronic { url, request, response });
            };
            if rows.is_empty() {
                break;
            }
            entries.extend(rows);
        }
        Ok(entries)
    }

    /// Sends a JSON patch.
    pub async fn patch(
        &self,
        path: &str,
        operations: &[Value],
    ) -> Result<Value, IronicClientError> {
        self.send(Method::PATCH, path, Some(&json!(operations))).await
    }

    /// Sends a request. Returns the JSON of a successful response, null if it is empty.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicClientError> {
        let (response, base) =
            self.send_authenticated(&self.http, &method, path, body, &[]).await?;
        let request = format!("{method} {path}");
        let bytes = response.bytes().await.map_err(|error| IronicClientError::Interrupted {
            url: base.clone(),
            request: request.clone(),
            source: error.without_url(),
        })?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| {
            let response = "a body that is not JSON".to_owned();
            IronicClientError::NotIronic { url: base, request, response }
        })
    }

    /// Opens Ferrite's event stream for one node or all nodes, starting after the event id `after`.
    pub async fn events(
        &self,
        node: Option<&str>,
        after: Option<u64>,
    ) -> Result<EventStream, IronicClientError> {
        let mut query = QueryString::new();
        if let Some(node) = node {
            query.add("node", node);
        }
        if let Some(after) = after {
            query.add("after", &after.to_string());
        }
        self.stream(&query.append_to("/v1/ferrite/events")).await
    }

    /// Opens a stream of server-sent events.
    pub async fn stream(&self, path: &str) -> Result<EventStream, IronicClientError> {
        let accept = [("Accept", "text/event-stream")];
        let (response, base) =
            self.send_authenticated(&self.streaming, &Method::GET, path, None, &accept).await?;
        Ok(EventStream::new(response, base, format!("GET {path}")))
    }

    /// Sends a request and returns the successful response with the base URL. Signs in again if the
    /// token has expired, and retries with an older microversion if the server requires it.
    async fn send_authenticated(
        &self,
        http: &Client,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<(Response, String), IronicClientError> {
        if let Some(part) = invalid_path_segment(path) {
            return Err(IronicClientError::Rejected {
                url: self.address(),
                request: format!("{method} {path}"),
                status: 404,
                message: format!("{:?} is not a valid name", percent_decode(part)),
            });
        }
        let mut is_new_session = false;
        loop {
            let session = self.session(&mut is_new_session).await?;
            let version = self.version();
            let mut request = http
                .request(method.clone(), format!("{}{path}", session.base))
                .header(VERSION_HEADER, version.to_string());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            request = self.with_credentials(request, &session);
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await.map_err(|error| {
                let url = match &self.target.unix_socket {
                    Some(_) => self.address(),
                    None => session.base.clone(),
                };
                let source = error.without_url();
                if source.is_timeout() && !source.is_connect() {
                    IronicClientError::Interrupted {
                        url,
                        request: format!("{method} {path}"),
                        source,
                    }
                } else {
                    IronicClientError::unreachable(url, source)
                }
            })?;
            if response.status().is_success() {
                self.is_api_confirmed.store(true, Ordering::Relaxed);
                return Ok((response, session.base));
            }
            if response.status() == StatusCode::NOT_ACCEPTABLE {
                self.lower_version(&response, version, &session.base)?;
                continue;
            }
            // The token can have expired since it was issued.
            if response.status() == StatusCode::UNAUTHORIZED
                && session.token.is_some()
                && !is_new_session
            {
                is_new_session = true;
                let mut current = self.session.lock().await;
                // Of concurrent requests that were rejected with this token, only the first signs in.
                if current.as_ref().is_some_and(|current| current.token == session.token) {
                    *current = None;
                }
                continue;
            }
            let base = session.base.clone();
            let error = self.error_from_response(response, base, format!("{method} {path}")).await;
            if error.status() == Some(404) && self.is_wrong_base_path(http, &session).await {
                let (request, response) = ("GET /v1".to_owned(), StatusCode::NOT_FOUND.to_string());
                return Err(IronicClientError::NotIronic { url: session.base, request, response });
            }
            return Err(error);
        }
    }

    /// Adds the credentials to a request.
    fn with_credentials(&self, request: RequestBuilder, session: &ApiSession) -> RequestBuilder {
        let request = match &self.target.project {
            Some(project) => request.header("X-Ferrite-Project", project),
            None => request,
        };
        match (&self.target.login, &session.token) {
            (ApiLogin::Basic { user, password }, _) => {
                request.basic_auth(user, Some(password.reveal()))
            }
            (_, Some(token)) => request.header("X-Auth-Token", token.reveal()),
            (
                ApiLogin::Anonymous
                | ApiLogin::Token(_)
                | ApiLogin::Keystone(_)
                | ApiLogin::OpenIdConnect(_),
                None,
            ) => request,
        }
    }

    /// Whether a 404 is caused by a base URL with a path under which there is no API, rather than by a
    /// missing resource.
    async fn is_wrong_base_path(&self, http: &Client, session: &ApiSession) -> bool {
        let base = &session.base;
        let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        if !has_path || self.is_api_confirmed.load(Ordering::Relaxed) {
            return false;
        }
        let root = self.with_credentials(http.get(format!("{base}/v1")), session).send().await;
        let is_missing = root.is_ok_and(|root| root.status() == StatusCode::NOT_FOUND);
        self.is_api_confirmed.store(!is_missing, Ordering::Relaxed);
        is_missing
    }

    /// Returns the session and signs in if there is none. Sets `is_new_session` after a sign-in.
    async fn session(&self, is_new_session: &mut bool) -> Result<ApiSession, IronicClientError> {
        let mut current = self.session.lock().await;
        if let Some(session) = &*current {
            return Ok(session.clone());
        }
        let session = match &self.target.login {
            ApiLogin::Anonymous | ApiLogin::Basic { .. } => {
                ApiSession { base: self.target.url.clone().unwrap_or_default(), token: None }
            }
            ApiLogin::Token(token) => {
                // There is no other token to retry with.
                *is_new_session = true;
                let base = self.target.url.clone().unwrap_or_default();
                ApiSession { base, token: Some(token.clone()) }
            }
            ApiLogin::OpenIdConnect(login) => {
                *is_new_session = true;
                let base = self.target.url.clone().unwrap_or_default();
                ApiSession { base, token: Some(login.token(&self.http).await?) }
            }
            ApiLogin::Keystone(keystone) => {
                *is_new_session = true;
                let issued = keystone.sign_in(&self.http, self.target.url.is_some()).await?;
                let base = self.target.url.clone().or(issued.endpoint).unwrap_or_default();
                ApiSession { base, token: Some(issued.token) }
            }
        };
        *current = Some(session.clone());
        Ok(session)
    }

    /// Converts an error response.
    async fn error_from_response(
        &self,
        response: Response,
        url: String,
        request: String,
    ) -> IronicClientError {
        let status = response.status();
        // If the body cannot be read, the status alone is reported.
        let bytes = response.bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = error_message(&body);
        // A proxy reports 5xx for a server that is down. Other errors without a message are not Ironic's.
        let is_ironic =
            status.is_server_error() || !message.is_empty() || !body["error_message"].is_null();
        match (status, &self.target.login) {
            (StatusCode::UNAUTHORIZED, ApiLogin::Basic { user, .. }) => {
                let (user, origin) = (user.clone(), self.target.origin.clone());
                IronicClientError::WrongPassword { url, user, origin, message }
            }
            (StatusCode::UNAUTHORIZED, ApiLogin::OpenIdConnect(_)) => {
                let origin = "the saved sign-in; run `ferrite login` again".to_owned();
                IronicClientError::WrongToken { url, origin, message }
            }
            (StatusCode::UNAUTHORIZED, ApiLogin::Token(_)) => {
                IronicClientError::WrongToken { url, origin: self.target.origin.clone(), message }
            }
            (StatusCode::UNAUTHORIZED, ApiLogin::Anonymous | ApiLogin::Keystone(_)) => {
                IronicClientError::CredentialsRequired { url, message }
            }
            (StatusCode::FORBIDDEN, _) => IronicClientError::Forbidden { url, request, message },
            (_, _) if !is_ironic => {
                // The query is irrelevant if the server is not an Ironic.
                let request = request.split('?').next().unwrap_or_default().to_owned();
                IronicClientError::NotIronic { url, request, response: status.to_string() }
            }
            (_, _) => {
                let message = match message.is_empty() {
                    false => message,
                    true => format!("{url} returned {status} for {request}"),
                };
                IronicClientError::Rejected { url, request, status: status.as_u16(), message }
            }
        }
    }

    /// Lowers the microversion to the newest that the server supports.
    fn lower_version(
        &self,
        response: &Response,
        tried: Microversion,
        base: &str,
    ) -> Result<(), IronicClientError> {
        let header = |end: &str| {
            let name = format!("X-OpenStack-Ironic-API-{end}-Version");
            let value = response.headers().get(name)?.to_str().ok()?.to_owned();
            Some(value)
        };
        let newest = header("Maximum");
        match newest.as_deref().and_then(Microversion::parse).filter(|newest| *newest < tried) {
            Some(version) => {
                self.version.store(version.0, Ordering::Relaxed);
                Ok(())
            }
            None => Err(IronicClientError::NoCommonVersion {
                url: base.to_owned(),
                theirs: format!(
                    "{} to {}",
                    header("Minimum").unwrap_or_else(|| "?".to_owned()),
                    newest.unwrap_or_else(|| "?".to_owned())
                ),
                ours: NEWEST_MICROVERSION.to_string(),
            }),
        }
    }
}

/// Returns a path segment that would change the path, or that no server accepts as a name.
fn invalid_path_segment(path: &str) -> Option<&str> {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').skip(1);
    parts.find(|part| matches!(*part, "" | "." | "..") || part.contains("%2F"))
}

/// Builds the TLS configuration, with the certificate of this client if one is given.
fn tls_config(trust: &TlsTrust) -> Result<ClientConfig, IronicClientError> {
    let mut config = server_verification(trust)?;
    if let Some(files) = &trust.client_certificate {
        let certified = load_client_certificate(files, config.crypto_provider())?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    }
    Ok(config)
}

fn load_client_certificate(
    files: &ClientCertificatePaths,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, IronicClientError> {
    let invalid = |path: &Path, problem: String| IronicClientError::BadCertificates {
        path: path.to_owned(),
        problem,
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| invalid(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        let problem = server_trust::NoCertificates.to_string();
        return Err(invalid(&files.certificate, problem));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| invalid(&files.key, format!("no private key can be read: {error}")))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|error| invalid(&files.key, error.to_string()))
}

/// Which servers are trusted: the given certificates in addition to the system's.
fn server_verification(trust: &TlsTrust) -> Result<ClientConfig, IronicClientError> {
    if trust.accept_any {
        return Ok(server_trust::unverified_client_config());
    }
    let mut trusted = server_trust::system_certificates().unwrap_or_default();
    if let Some(path) = &trust.ca_file {
        let invalid =
            |problem: String| IronicClientError::BadCertificates { path: path.clone(), problem };
        let given = server_trust::load_certificates(path);
        let given = given.map_err(|error| invalid(error.to_string()))?;
        if given.is_empty() {
            return Err(invalid(server_trust::NoCertificates.to_string()));
        }
        trusted.extend(given);
    }
    if let Some(text) = &trust.ca_certificates {
        trusted.extend(CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok));
    }
    // Without any certificates, HTTPS fails and plain HTTP works.
    Ok(server_trust::client_config(trusted)
        .unwrap_or_else(|_| server_trust::client_config_without_roots()))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;
