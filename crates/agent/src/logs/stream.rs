// SPDX-License-Identifier: Apache-2.0
//! Sends log lines home while the agent works, where the parameter `ferrite-log-url` says so.
//!
//! Until the agent knows its token nobody would believe it, so that the first message tells all that
//! happened before.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;

use crate::agent::Agent;
use crate::chance;

/// How often there is a look for new lines.
const PERIOD: Duration = Duration::from_secs(2);
/// The pause after a server could not take them.
const PAUSE: Duration = Duration::from_secs(10);
/// Lines in one message.
const MOST_LINES: usize = 500;
/// Bytes in one message, roughly.
const MOST_BYTES: usize = 128 << 10;

/// Posts new lines to the URL for ever: `{"agent_token", "run", "first", "lines"}`, where `run` names
/// this life of the agent, and `first` is the number of the first line. A server that does not want
/// them is not asked again; one that cannot be reached, or has too much to do, gets them later, as far
/// as they are still kept.
pub async fn stream_home(agent: Arc<Agent>, url: String) {
    let run = format!("{:08x}", chance::number());
    let mut next = 0;
    loop {
        let (lines, following) = super::lines_since(next, MOST_LINES, MOST_BYTES);
        if lines.is_empty() {
            tokio::time::sleep(PERIOD).await;
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
            .reach
            .client
            .post(&url)
            .header("Content-Type", "application/json")
            .timeout(Duration::from_secs(10))
            .body(body.to_string())
            .send()
            .await;
        match sent.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => {
                next = following;
                tokio::time::sleep(PERIOD).await;
            }
            Ok(status) if is_passing(status) => tokio::time::sleep(PAUSE).await,
            Ok(status) => {
                tracing::warn!(status = status.as_u16(), "the server takes no log lines");
                return;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Whether the same may be taken later.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}
