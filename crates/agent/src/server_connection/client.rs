// SPDX-License-Identifier: Apache-2.0
//! HTTP client for the server's API: version discovery, lookup and heartbeats.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use agent_protocol::{BOOT_SECRET_HEADER, Heartbeat, LookupReply, MAX_AGENT_API_VERSION};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use error_chain::error_chain;

const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// The API version of a server that does not report one.
const FALLBACK_VERSION: (u32, u32) = (1, 31);
/// The first version that accepts `agent_verify_ca`.
const CERTIFICATE_VERSION: (u32, u32) = (1, 68);
/// The maximum version used for lookups.
const MAX_LOOKUP_VERSION: (u32, u32) = (1, 62);
/// Longer responses are truncated.
const MAX_RESPONSE_SIZE: usize = 8 << 20;

/// A client for one or more equivalent servers.
pub struct ServerClient {
    client: reqwest::Client,
    /// The base URLs; the one that responded last comes first.
    urls: Mutex<Vec<String>>,
    version: Mutex<Option<(u32, u32)>>,
    request_id: Option<String>,
}

/// A call to the server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerCallError {
    /// No server responded.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// The URL tried last.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The node is locked (409).
    #[error("the node is busy: {message}")]
    Busy {
        /// The server's error message.
        message: String,
    },
    /// The server rejected the request.
    #[error("the server returned {status}: {message}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's error message.
        message: String,
    },
    /// The response cannot be parsed.
    #[error("invalid response from the server: {reason}")]
    InvalidResponse {
        /// The cause.
        reason: String,
    },
}

impl ServerClient {
    /// Creates a client. `version` is the server's API version, if known in advance.
    #[must_use]
    pub fn new(
        client: reqwest::Client,
        urls: Vec<String>,
        version: Option<&str>,
        request_id: Option<String>,
    ) -> Self {
        let urls = urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        let version = Mutex::new(version.and_then(parse_version));
        Self { client, urls: Mutex::new(urls), version, request_id }
    }

    /// Returns the base URLs, the one that responded last first.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the server accepts a self-signed certificate of the agent.
    pub async fn accepts_certificates(&self) -> bool {
        self.version().await >= CERTIFICATE_VERSION
    }

    /// Looks up the node with these MAC addresses. `secret` is the token of the kernel parameters, which
    /// proves that this agent was booted on the machine.
    ///
    /// # Errors
    /// If no server responds, or none has the node.
    pub async fn lookup(
        &self,
        macs: &[String],
        node: Option<&str>,
        secret: Option<&str>,
    ) -> Result<LookupReply, ServerCallError> {
        let version = self.version().await.min(MAX_LOOKUP_VERSION);
        let mut path = format!("/v1/lookup?addresses={}", macs.join(","));
        if let Some(node) = node {
            path.push_str("&node_uuid=");
            path.push_str(node);
        }
        let (_, body) = self.call(Method::GET, &path, Some(version), None, secret).await?;
        serde_json::from_slice(&body)
            .map_err(|error| ServerCallError::InvalidResponse { reason: error.to_string() })
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// If no server responds, or the server rejects it.
    pub async fn heartbeat(
        &self,
        node: &str,
        heartbeat: &Heartbeat,
    ) -> Result<(), ServerCallError> {
        let newest = parse_version(MAX_AGENT_API_VERSION).unwrap_or(CERTIFICATE_VERSION);
        let version = self.version().await.min(newest);
        let body = serde_json::to_string(heartbeat)
            .map_err(|error| ServerCallError::InvalidResponse { reason: error.to_string() })?;
        let path = format!("/v1/heartbeat/{node}");
        let (status, body) =
            self.call(Method::POST, &path, Some(version), Some(body), None).await?;
        if status == StatusCode::ACCEPTED {
            return Ok(());
        }
        Err(ServerCallError::Rejected { status: status.as_u16(), message: error_message(&body) })
    }

    /// Returns the server's maximum API version. The first successful response is cached.
    async fn version(&self) -> (u32, u32) {
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            return known;
        }
        match self.call(Method::GET, "/", None, None, None).await {
            Ok((_, body)) => {
                let reported = parse_max_version(&body);
                if reported.is_none() {
                    tracing::warn!("server reports no API version, assuming 1.31");
                }
                let version = reported.unwrap_or(FALLBACK_VERSION);
                *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
                version
            }
            // Not cached: the server may be unreachable only now.
            Err(_) => FALLBACK_VERSION,
        }
    }

    /// Sends a request to each server in turn until one responds.
    async fn call(
        &self,
        method: Method,
        path: &str,
        version: Option<(u32, u32)>,
        body: Option<String>,
        secret: Option<&str>,
    ) -> Result<(StatusCode, Vec<u8>), ServerCallError> {
        let mut failure =
            ServerCallError::InvalidResponse { reason: "no server configured".to_owned() };
        for (index, url) in self.urls().into_iter().enumerate() {
            let request = self.client.request(method.clone(), format!("{url}{path}"));
            let mut request = self.with_headers(request, version);
            if let Some(secret) = secret {
                request = request.header(BOOT_SECRET_HEADER, secret);
            }
            let request = match &body {
                Some(body) => request.body(body.clone()),
                None => request,
            };
            let exchange = async {
                let response = request.send().await?;
                Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
            };
            match exchange.await {
                Ok((status, body)) => {
                    self.urls.lock().unwrap_or_else(PoisonError::into_inner).rotate_left(index);
                    let body = body[..body.len().min(MAX_RESPONSE_SIZE)].to_vec();
                    return check_status(status, body);
                }
                Err(error) => {
                    failure = ServerCallError::Unreachable {
                        url,
                        reason: error_chain(&error.without_url()),
                    }
                }
            }
        }
        Err(failure)
    }

    fn with_headers(&self, request: RequestBuilder, version: Option<(u32, u32)>) -> RequestBuilder {
        let mut request =
            request.header("Content-Type", "application/json").header("Accept", "application/json");
        if let Some((major, minor)) = version {
            request = request.header(VERSION_HEADER, format!("{major}.{minor}"));
        }
        if let Some(id) = &self.request_id {
            request = request.header("X-OpenStack-Request-ID", id);
        }
        request
    }
}

/// Returns the host of a URL, without the brackets of IPv6.
#[must_use]
pub fn url_host(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(url.host_str()?.trim_matches(['[', ']']).to_owned())
}

/// Formats an address for a URL.
#[must_use]
pub fn url_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn check_status(
    status: StatusCode,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), ServerCallError> {
    if status == StatusCode::CONFLICT {
        return Err(ServerCallError::Busy { message: error_message(&body) });
    }
    if status.is_client_error() || status.is_server_error() {
        let (status, message) = (status.as_u16(), error_message(&body));
        return Err(ServerCallError::Rejected { status, message });
    }
    Ok((status, body))
}

/// Extracts the text of an error response: `{"error_message": {"faultstring": …}}`, where the inner
/// object may be encoded as a string.
fn error_message(body: &[u8]) -> String {
    let parse = || {
        let value: Value = serde_json::from_slice(body).ok()?;
        let inner = value.get("error_message").unwrap_or(&value);
        let inner: Value = match inner.as_str() {
            Some(text) => serde_json::from_str(text).ok()?,
            None => inner.clone(),
        };
        let text = inner.get("faultstring").or_else(|| inner.get("title"))?;
        Some(text.as_str()?.to_owned())
    };
    parse().unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned())
}

fn parse_max_version(body: &[u8]) -> Option<(u32, u32)> {
    let root: Value = serde_json::from_slice(body).ok()?;
    parse_version(root.get("default_version")?.get("version")?.as_str()?)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extracts_error_messages() {
        let nested = br#"{"error_message": "{\"faultstring\": \"Node is locked\", \"faultcode\": \"Client\"}"}"#;
        assert_eq!(error_message(nested), "Node is locked");
        assert_eq!(error_message(br#"{"error_message": {"faultstring": "no"}}"#), "no");
        assert_eq!(error_message(b"<html>"), "<html>");
        assert_eq!(
            parse_max_version(br#"{"default_version": {"version": "1.95"}}"#),
            Some((1, 95))
        );
    }

    #[test]
    fn extracts_host_from_url() {
        assert_eq!(url_host("http://[fd00::1]:6385/").as_deref(), Some("fd00::1"));
        assert_eq!(url_host("https://api.example/baremetal").as_deref(), Some("api.example"));
    }
}
