// SPDX-License-Identifier: Apache-2.0
//! The calls an agent makes: which version the server speaks, which node this is, and heartbeats.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use agent_protocol::{Heartbeat, LookupReply, NEWEST_VERSION_FOR_AGENTS};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use crate::logs::causes;

const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// What a server speaks that does not say.
const OLDEST: (u32, u32) = (1, 31);
/// From here on the server takes the agent's own certificate.
const TAKES_CERTIFICATES: (u32, u32) = (1, 68);
/// What lookups are asked in at most.
const NEWEST_FOR_LOOKUP: (u32, u32) = (1, 62);
/// No answer is longer.
const LONGEST_ANSWER: usize = 8 << 20;

/// The servers, and what is known about them.
pub struct Server {
    client: reqwest::Client,
    /// Those that may answer; the one that last did comes first.
    urls: Mutex<Vec<String>>,
    version: Mutex<Option<(u32, u32)>>,
    request_id: Option<String>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody answered.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// The last that was tried.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server is busy with this node.
    #[error("the server is busy with this node: {said}")]
    Busy {
        /// Its words.
        said: String,
    },
    /// The server said no.
    #[error("the server answered {status}: {said}")]
    Refused {
        /// The status.
        status: u16,
        /// Its words.
        said: String,
    },
    /// The answer makes no sense.
    #[error("the server's answer cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
}

impl Server {
    /// Knows these, and their version if it was told.
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

    /// The servers, the one that last answered first.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it takes the agent's own certificate.
    pub async fn takes_certificates(&self) -> bool {
        self.version().await >= TAKES_CERTIFICATES
    }

    /// Asks which node has these network cards.
    ///
    /// # Errors
    /// If nobody answers, or no node does.
    pub async fn look_up(
        &self,
        macs: &[String],
        node: Option<&str>,
    ) -> Result<LookupReply, CallError> {
        let version = self.version().await.min(NEWEST_FOR_LOOKUP);
        let mut path = format!("/v1/lookup?addresses={}", macs.join(","));
        if let Some(node) = node {
            path.push_str("&node_uuid=");
            path.push_str(node);
        }
        let (_, body) = self.call(Method::GET, &path, Some(version), None).await?;
        serde_json::from_slice(&body)
            .map_err(|error| CallError::Unreadable { reason: error.to_string() })
    }

    /// Says that the agent lives.
    ///
    /// # Errors
    /// If nobody answers, or the server does not accept it.
    pub async fn heartbeat(&self, node: &str, heartbeat: &Heartbeat) -> Result<(), CallError> {
        let newest = parse_version(NEWEST_VERSION_FOR_AGENTS).unwrap_or(TAKES_CERTIFICATES);
        let version = self.version().await.min(newest);
        let body = serde_json::to_string(heartbeat)
            .map_err(|error| CallError::Unreadable { reason: error.to_string() })?;
        let path = format!("/v1/heartbeat/{node}");
        let (status, said) = self.call(Method::POST, &path, Some(version), Some(body)).await?;
        if status == StatusCode::ACCEPTED {
            return Ok(());
        }
        Err(CallError::Refused { status: status.as_u16(), said: words(&said) })
    }

    /// The newest version the server speaks, asked once.
    async fn version(&self) -> (u32, u32) {
        let known = *self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            return known;
        }
        match self.call(Method::GET, "/", None, None).await {
            Ok((_, body)) => {
                let told = newest_version(&body);
                if told.is_none() {
                    tracing::warn!("the server does not say which versions it speaks");
                }
                let version = told.unwrap_or(OLDEST);
                *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
                version
            }
            // Asked again next time: it is only not there yet.
            Err(_) => OLDEST,
        }
    }

    /// Tries each server in turn until one answers.
    async fn call(
        &self,
        method: Method,
        path: &str,
        version: Option<(u32, u32)>,
        body: Option<String>,
    ) -> Result<(StatusCode, Vec<u8>), CallError> {
        let mut failure = CallError::Unreadable { reason: "no server is known".to_owned() };
        for (index, url) in self.urls().into_iter().enumerate() {
            let request = self.client.request(method.clone(), format!("{url}{path}"));
            let request = self.with_headers(request, version);
            let request = match &body {
                Some(body) => request.body(body.clone()),
                None => request,
            };
            let sent = async {
                let answer = request.send().await?;
                Ok::<_, reqwest::Error>((answer.status(), answer.bytes().await?))
            };
            match sent.await {
                Ok((status, body)) => {
                    self.urls.lock().unwrap_or_else(PoisonError::into_inner).rotate_left(index);
                    let body = body[..body.len().min(LONGEST_ANSWER)].to_vec();
                    return judged(status, body);
                }
                Err(error) => {
                    failure = CallError::Unreachable { url, reason: causes(&error.without_url()) }
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

/// The host of a URL, without the brackets of IPv6.
#[must_use]
pub fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(url.host_str()?.trim_matches(['[', ']']).to_owned())
}

/// An address as it stands in a URL.
#[must_use]
pub fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn judged(status: StatusCode, body: Vec<u8>) -> Result<(StatusCode, Vec<u8>), CallError> {
    if status == StatusCode::CONFLICT {
        return Err(CallError::Busy { said: words(&body) });
    }
    if status.is_client_error() || status.is_server_error() {
        return Err(CallError::Refused { status: status.as_u16(), said: words(&body) });
    }
    Ok((status, body))
}

/// What an error answer says: `{"error_message": {"faultstring": …}}`, where the middle may be text.
fn words(body: &[u8]) -> String {
    let read = || {
        let value: Value = serde_json::from_slice(body).ok()?;
        let inner = value.get("error_message").unwrap_or(&value);
        let inner: Value = match inner.as_str() {
            Some(text) => serde_json::from_str(text).ok()?,
            None => inner.clone(),
        };
        let text = inner.get("faultstring").or_else(|| inner.get("title"))?;
        Some(text.as_str()?.to_owned())
    };
    read().unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned())
}

fn newest_version(body: &[u8]) -> Option<(u32, u32)> {
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
    fn errors_are_told_in_the_servers_words() {
        let nested = br#"{"error_message": "{\"faultstring\": \"Node is locked\", \"faultcode\": \"Client\"}"}"#;
        assert_eq!(words(nested), "Node is locked");
        assert_eq!(words(br#"{"error_message": {"faultstring": "no"}}"#), "no");
        assert_eq!(words(b"<html>"), "<html>");
        assert_eq!(newest_version(br#"{"default_version": {"version": "1.95"}}"#), Some((1, 95)));
    }

    #[test]
    fn hosts_are_found() {
        assert_eq!(host_of("http://[fd00::1]:6385/").as_deref(), Some("fd00::1"));
        assert_eq!(host_of("https://api.example/baremetal").as_deref(), Some("api.example"));
    }
}
