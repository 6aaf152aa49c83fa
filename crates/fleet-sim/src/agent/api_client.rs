// SPDX-License-Identifier: Apache-2.0
//! HTTP requests of agents: the agent API, image downloads, and the secrets on a boot CD.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, InspectionReport, LookupReply, MAX_AGENT_API_VERSION};
use node_model::Mac;
use reqwest::StatusCode;
use uuid::Uuid;

use super::AgentContext;

/// Time limit for a request, including the download of its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const API_VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";
/// The kernel parameter with the token on a boot CD.
const TOKEN_PREFIX: &[u8] = b"ipa-agent-token=";
/// The query of the URL for inspection data in the kernel parameters on a boot CD.
const INSPECTION_PREFIX: &[u8] = b"?boot_secret=";
/// Limit for searching a CD for secrets.
const MAX_SEARCHED_BYTES: usize = 256 << 20;
/// Longest kernel command line, in which all secrets are.
const MAX_COMMAND_LINE_BYTES: usize = 4096;

/// The secrets in the kernel parameters of a boot CD.
#[derive(Debug, Default)]
pub(super) struct CdSecrets {
    pub(super) token: Option<String>,
    pub(super) inspection: Option<String>,
}

/// A request of an agent failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentCallError {
    #[error("request failed")]
    Request(#[from] reqwest::Error),
    #[error("unexpected status {0}")]
    Status(StatusCode),
}

/// Creates the HTTP client of all agents. It does not keep connections open, because calls are
/// rare.
pub(super) fn build_client() -> Result<reqwest::Client, reqwest::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has suites for every version")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .tcp_nodelay(true)
        .pool_max_idle_per_host(0)
        .timeout(REQUEST_TIMEOUT)
        .tls_backend_preconfigured(tls)
        .build()
}

impl AgentContext {
    /// Finds the node with these MACs.
    pub(super) async fn lookup(&self, macs: &[Mac]) -> Result<LookupReply, AgentCallError> {
        let macs: Vec<&str> = macs.iter().map(Mac::as_str).collect();
        let url = format!("{}/v1/lookup?addresses={}", self.api_url(), macs.join(","));
        let request = self.client.get(url).header(API_VERSION_HEADER, MAX_AGENT_API_VERSION);
        let response = request.send().await?;
        match response.status() {
            StatusCode::OK => Ok(response.json().await?),
            other => Err(AgentCallError::Status(other)),
        }
    }

    /// Sends a heartbeat.
    pub(super) async fn send_heartbeat(
        &self,
        node: Uuid,
        heartbeat: &Heartbeat,
    ) -> Result<(), AgentCallError> {
        let url = format!("{}/v1/heartbeat/{node}", self.api_url());
        let request = self.client.post(url).header(API_VERSION_HEADER, MAX_AGENT_API_VERSION);
        match request.json(heartbeat).send().await?.status() {
            StatusCode::ACCEPTED => Ok(()),
            other => Err(AgentCallError::Status(other)),
        }
    }

    /// Sends inspection data. As ironic-python-agent does, without a version header.
    pub(super) async fn send_inspection_data(
        &self,
        report: &InspectionReport,
        secret: Option<&str>,
    ) -> Result<(), AgentCallError> {
        let query = secret.map(|secret| format!("?boot_secret={secret}")).unwrap_or_default();
        let url = format!("{}/v1/continue_inspection{query}", self.api_url());
        let status = self.client.post(url).json(report).send().await?.status();
        if status.is_success() { Ok(()) } else { Err(AgentCallError::Status(status)) }
    }

    /// Downloads a URL and passes each chunk to `on_chunk`.
    pub(super) async fn download(
        &self,
        url: &str,
        mut on_chunk: impl FnMut(&[u8]),
    ) -> Result<(), AgentCallError> {
        let mut response = self.client.get(url).send().await?;
        if response.status() != StatusCode::OK {
            return Err(AgentCallError::Status(response.status()));
        }
        while let Some(chunk) = response.chunk().await? {
            on_chunk(&chunk);
        }
        Ok(())
    }

    /// Returns the secrets on the CD image at this URL.
    pub(super) async fn find_secrets_on_cd(&self, url: &str) -> CdSecrets {
        let mut found = CdSecrets::default();
        let Ok(mut response) = self.client.get(url).send().await else { return found };
        let mut buffer: Vec<u8> = Vec::new();
        let (mut read, mut rest) = (0, MAX_COMMAND_LINE_BYTES);
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            buffer.extend_from_slice(&chunk);
            found.token = found.token.or_else(|| parse_secret(&buffer, TOKEN_PREFIX));
            found.inspection =
                found.inspection.or_else(|| parse_secret(&buffer, INSPECTION_PREFIX));
            // The other secret, if there is one, is in the same command line.
            if found.token.is_some() || found.inspection.is_some() {
                match rest.checked_sub(chunk.len()) {
                    Some(remaining) => rest = remaining,
                    None => return found,
                }
            }
            if read > MAX_SEARCHED_BYTES {
                return found;
            }
            // A secret may span two chunks.
            let searched = buffer.len().saturating_sub(MAX_COMMAND_LINE_BYTES);
            buffer.drain(..searched);
        }
        found
    }
}

/// Returns the secret after `prefix` in a piece of a CD image, if it is there completely.
fn parse_secret(piece: &[u8], prefix: &[u8]) -> Option<String> {
    let start = piece.windows(prefix.len()).position(|window| window == prefix)?;
    let rest = &piece[start + prefix.len()..];
    let is_token_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let length = rest.iter().position(|byte| !is_token_byte(byte))?;
    String::from_utf8(rest[..length].to_vec()).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_tokens_on_cds() {
        for (piece, expected) in [
            ("quiet ipa-agent-token=abc-D_9 ipa-api-url=x", Some("abc-D_9")),
            ("ipa-agent-token=abc\n", Some("abc")),
            ("ipa-agent-token=abc", None),
            ("ipa-agent-token= ", None),
            ("ipa-api-url=x", None),
        ] {
            let token = parse_secret(piece.as_bytes(), TOKEN_PREFIX);
            assert_eq!(token.as_deref(), expected, "{piece}");
        }
    }
}
