// SPDX-License-Identifier: Apache-2.0
//! Streams log lines to the server, if `ferrite-log-url` is set.
//!
//! The server accepts them only with the token, so the first message contains all lines since the
//! start.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;

use crate::agent::RamdiskAgent;
use crate::entropy;

/// The interval of checks for new lines.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// The maximum number of lines per message.
const MAX_LINES: usize = 500;
/// The approximate maximum size of a message.
const MAX_BYTES: usize = 128 << 10;

/// Posts new lines to the URL forever: `{"agent_token", "run", "first", "lines"}`, where `run`
/// identifies this process and `first` is the number of the first line. Stops if the server rejects
/// them. After temporary failures, lines are sent again as far as they are still buffered.
pub async fn stream_to_server(agent: Arc<RamdiskAgent>, url: String) {
    let run = format!("{:08x}", entropy::random_u32());
    let mut next = 0;
    loop {
        let (lines, following) = super::lines_since(next, MAX_LINES, MAX_BYTES);
        if lines.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        let texts: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        let body = json!({
            "agent_token": agent.token(),
            "run": run,
            "first": following - lines.len() as u64,
            "lines": texts,
        });
        let sent = agent
            .http
            .client
            .post(&url)
            .header("Content-Type", "application/json")
            .timeout(Duration::from_secs(10))
            .body(body.to_string())
            .send()
            .await;
        match sent.map(|response| response.status()) {
            Ok(status) if status.is_success() => {
                next = following;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Ok(status) if is_temporary(status) => tokio::time::sleep(RETRY_DELAY).await,
            Ok(status) => {
                tracing::warn!(
                    status = status.as_u16(),
                    "server rejected log lines, streaming stopped"
                );
                return;
            }
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

/// Whether a retry may succeed.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}
