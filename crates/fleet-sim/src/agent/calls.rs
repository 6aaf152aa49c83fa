// SPDX-License-Identifier: Apache-2.0
//! What agents ask of the API, and what else they fetch.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, LookupReply, NEWEST_VERSION_FOR_AGENTS, Report};
use node_model::Mac;
use reqwest::StatusCode;
use uuid::Uuid;

use super::Site;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The header with the version of the API.
const VERSION: &str = "X-OpenStack-Ironic-API-Version";
/// What a token on a CD is found by.
const TOKEN: &[u8] = b"ipa-agent-token=";
/// How much of a CD is searched for it.
const SEARCHED: usize = 256 << 20;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no answer")]
    Silent(#[from] reqwest::Error),
    #[error("the answer is {0}")]
    Status(StatusCode),
}

/// The client of all agents: calls are rare, and connections not worth keeping.
pub(super) fn client() -> Result<reqwest::Client, reqwest::Error> {
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
        .timeout(PATIENCE)
        .tls_backend_preconfigured(tls)
        .build()
}

impl Site {
    /// Asks which node has these cards.
    pub(super) async fn look_up(&self, macs: &[Mac]) -> Result<LookupReply, CallError> {
        let macs: Vec<&str> = macs.iter().map(Mac::as_str).collect();
        let url = format!("{}/v1/lookup?addresses={}", self.api(), macs.join(","));
        let request = self.client.get(url).header(VERSION, NEWEST_VERSION_FOR_AGENTS);
        let answer = request.send().await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.json().await?),
            other => Err(CallError::Status(other)),
        }
    }

    /// Says that it is there.
    pub(super) async fn call_home(
        &self,
        node: Uuid,
        heartbeat: &Heartbeat,
    ) -> Result<(), CallError> {
        let url = format!("{}/v1/heartbeat/{node}", self.api());
        let request = self.client.post(url).header(VERSION, NEWEST_VERSION_FOR_AGENTS);
        match request.json(heartbeat).send().await?.status() {
            StatusCode::ACCEPTED => Ok(()),
            other => Err(CallError::Status(other)),
        }
    }

    /// Sends what the machine is made of. Ramdisks do that without a version.
    pub(super) async fn send_report(&self, report: &Report) -> Result<(), CallError> {
        let url = format!("{}/v1/continue_inspection", self.api());
        let status = self.client.post(url).json(report).send().await?.status();
        if status.is_success() { Ok(()) } else { Err(CallError::Status(status)) }
    }

    /// Fetches something, a piece at a time.
    pub(super) async fn fetch(
        &self,
        url: &str,
        mut piece: impl FnMut(&[u8]),
    ) -> Result<(), CallError> {
        let mut answer = self.client.get(url).send().await?;
        if answer.status() != StatusCode::OK {
            return Err(CallError::Status(answer.status()));
        }
        while let Some(chunk) = answer.chunk().await? {
            piece(&chunk);
        }
        Ok(())
    }

    /// The token on the CD that was booted, if there is one.
    pub(super) async fn token_on_cd(&self, url: &str) -> Option<String> {
        let mut answer = self.client.get(url).send().await.ok()?;
        let mut kept: Vec<u8> = Vec::new();
        let mut read = 0;
        while let Some(chunk) = answer.chunk().await.ok()? {
            read += chunk.len();
            kept.extend_from_slice(&chunk);
            if let Some(token) = token_in(&kept) {
                return Some(token);
            }
            if read > SEARCHED {
                return None;
            }
            // A token may lie across two pieces.
            let done = kept.len().saturating_sub(LONGEST);
            kept.drain(..done);
        }
        None
    }
}

/// The longest text that is taken for a token, with its name.
const LONGEST: usize = 512;

/// The token in a piece of a CD, if all of it is there.
fn token_in(piece: &[u8]) -> Option<String> {
    let begins = piece.windows(TOKEN.len()).position(|window| window == TOKEN)? + TOKEN.len();
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let rest = &piece[begins..];
    let length = rest.iter().position(|byte| !is_of_token(byte))?;
    String::from_utf8(rest[..length].to_vec()).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_on_cds() {
        for (piece, expected) in [
            ("quiet ipa-agent-token=abc-D_9 ipa-api-url=x", Some("abc-D_9")),
            ("ipa-agent-token=abc\n", Some("abc")),
            ("ipa-agent-token=abc", None),
            ("ipa-agent-token= ", None),
            ("ipa-api-url=x", None),
        ] {
            assert_eq!(token_in(piece.as_bytes()).as_deref(), expected, "{piece}");
        }
    }
}
