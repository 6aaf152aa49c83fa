// SPDX-License-Identifier: Apache-2.0
//! Sends log lines home every few seconds, where the parameter `ferrite-log-url` says so.

use std::time::Duration;

use serde_json::json;

/// How often.
const PERIOD: Duration = Duration::from_secs(3);
/// Lines in one message.
const BATCH: usize = 500;

/// Posts new lines to the URL for ever: `{"lines": [...]}`. A server that refuses them is not asked
/// again; one that cannot be reached gets them later, as far as they are still kept.
pub async fn stream_home(client: reqwest::Client, url: String) {
    let mut next = 0;
    loop {
        tokio::time::sleep(PERIOD).await;
        let (lines, following) = super::lines_since(next, BATCH);
        if lines.is_empty() {
            continue;
        }
        let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        let sent = client
            .post(&url)
            .header("Content-Type", "application/json")
            .timeout(Duration::from_secs(10))
            .body(json!({ "lines": lines }).to_string())
            .send()
            .await;
        match sent {
            Ok(answer) if answer.status().is_success() => next = following,
            Ok(answer) => {
                tracing::warn!(status = answer.status().as_u16(), "the server takes no log lines");
                return;
            }
            Err(_) => {}
        }
    }
}
