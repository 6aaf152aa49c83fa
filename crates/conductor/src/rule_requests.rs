// SPDX-License-Identifier: Apache-2.0
//! HTTP requests of inspection rules.
//!
//! Parts of a URL may come from the inspected machine, and the request is sent from the conductor's
//! network. So only URLs that the operator allows are requested, redirects are not followed, the
//! response is not read, and nothing of it is returned to the machine. The requests are sent after
//! the inspection result is stored, and their results are in the node's journal.

use std::time::Duration;

use inspection::ApiCall;
use node_model::{JournalEntry, JournalEvent, NodeId};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::Conductor;
use crate::error::error_text;

/// The maximum number of requests of one inspection.
const MAX_REQUESTS: usize = 16;
/// The maximum timeout of an attempt, in seconds.
const MAX_TIMEOUT: f64 = 60.0;
/// The maximum number of retries.
const MAX_RETRIES: u32 = 10;
/// The longest delay before a retry, in seconds.
const MAX_DELAY: f64 = 30.0;
/// The timeout of all requests of one inspection.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(600);

/// Status codes after which the request is retried.
const RETRYABLE: [u16; 5] = [429, 500, 502, 503, 504];

/// Whether `url` is equal to or below one of the `allowed` URLs: same scheme, host and port, and a path
/// that begins with all segments of the allowed one.
#[must_use]
pub fn is_allowed_url(url: &str, allowed: &[String]) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    // The parser has normalised `..`, but not its percent-encoded form.
    if url.path().to_ascii_lowercase().contains("%2e") {
        return false;
    }
    allowed.iter().filter_map(|entry| Url::parse(entry).ok()).any(|entry| {
        let folder = entry.path().trim_end_matches('/');
        let rest = url.path().strip_prefix(folder);
        entry.origin() == url.origin()
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

impl Conductor {
    /// The URL prefixes that rules may request; see [`is_allowed_url`].
    #[must_use]
    pub fn allowed_rule_urls(&self) -> &[String] {
        &self.inspection.api_call_allowed
    }

    /// Sends the requests of rules in the background.
    pub(crate) fn send_rule_requests(&self, node: NodeId, requests: Vec<ApiCall>) {
        if !requests.is_empty() {
            self.in_background(send_all(self.clone(), node, requests));
        }
    }
}

/// Sends the requests one after the other, and records the results in the journal.
pub(crate) async fn send_all(conductor: Conductor, node: NodeId, requests: Vec<ApiCall>) {
    let skipped = requests.len().saturating_sub(MAX_REQUESTS);
    let mut texts = Vec::new();
    let all = async {
        for request in requests.iter().take(MAX_REQUESTS) {
            let url = request.url.split('?').next().unwrap_or_default();
            texts.push(match send(request, &conductor.inspection.api_call_allowed).await {
                Ok(status) => format!("requested {url}: {status}"),
                Err(error) => format!("request of {url} failed: {error}"),
            });
        }
    };
    if tokio::time::timeout(TOTAL_TIMEOUT, all).await.is_err() {
        texts.push(format!(
            "the remaining requests exceeded the timeout of {} s",
            TOTAL_TIMEOUT.as_secs()
        ));
    }
    if skipped > 0 {
        texts.push(format!("{skipped} requests were not sent: the limit is {MAX_REQUESTS}"));
    }
    let actor = conductor.actor();
    let written = conductor.store.write(move |tx| {
        let at = tx.now();
        for text in &texts {
            let event = JournalEvent::Note { by: "api-call".to_owned(), text: text.clone() };
            tx.append(JournalEntry { at, node_id: node, actor: actor.clone(), event });
        }
        Ok::<_, store::StoreError>(())
    });
    if let Err(error) = written.await {
        tracing::warn!(%node, error = error_text(&error), "results of rule requests could not be recorded");
    }
}

async fn send(request: &ApiCall, allowed: &[String]) -> Result<u16, String> {
    for url in std::iter::once(&request.url).chain(request.proxies.values()) {
        if !is_allowed_url(url, allowed) {
            return Err("inspection.api_call_allowed does not allow this URL".to_owned());
        }
    }
    let client = client(request)?;
    let headers = headers(request)?;
    let retries = request.retries.min(MAX_RETRIES);
    let mut attempt = 0;
    loop {
        let error = match client.get(&request.url).headers(headers.clone()).send().await {
            Ok(response) => {
                let status = response.status();
                if status.is_success() {
                    return Ok(status.as_u16());
                }
                let error = format!("the server returned {}", status.as_u16());
                if !RETRYABLE.contains(&status.as_u16()) {
                    return Err(error);
                }
                error
            }
            // Without the URL: its query may contain a secret.
            Err(error) => error_text(&error.without_url()),
        };
        if attempt == retries {
            return Err(format!("{error} ({} attempts)", attempt + 1));
        }
        attempt += 1;
        tokio::time::sleep(retry_delay(request.backoff_factor, attempt)).await;
    }
}

/// Zero before the first retry, then `factor` times two to the number of previous retries.
fn retry_delay(factor: f64, retry: u32) -> Duration {
    if retry < 2 {
        return Duration::ZERO;
    }
    let exponent = i32::try_from(retry - 1).unwrap_or(i32::MAX);
    Duration::from_secs_f64((factor * 2_f64.powi(exponent)).clamp(0.0, MAX_DELAY))
}

fn client(request: &ApiCall) -> Result<reqwest::Client, String> {
    let text = |error: reqwest::Error| error_text(&error.without_url());
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(server_trust::system_client_config())
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .timeout(Duration::from_secs_f64(request.timeout.clamp(0.1, MAX_TIMEOUT)))
        .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")));
    for (scheme, url) in &request.proxies {
        let proxy = match scheme.as_str() {
            "http" => reqwest::Proxy::http(url),
            "https" => reqwest::Proxy::https(url),
            _ => {
                return Err(format!("proxies are supported for http and https only, not {scheme}"));
            }
        };
        builder = builder.proxy(proxy.map_err(text)?);
    }
    builder.build().map_err(text)
}

fn headers(request: &ApiCall) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let invalid = || format!("header {name:?} is not valid");
        let value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| invalid())?, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_only_urls_below_an_allowed_one() {
        let allowed = ["https://cmdb.example/api/".to_owned(), "http://10.0.0.1:8080".to_owned()];
        for (url, expected) in [
            ("https://cmdb.example/api", true),
            ("https://cmdb.example/api/nodes?x=1", true),
            ("https://CMDB.example:443/api/nodes", true),
            ("http://10.0.0.1:8080/anything", true),
            ("https://cmdb.example/apis", false),
            ("https://cmdb.example/api/../admin", false),
            ("https://cmdb.example/api/%2e%2e/admin", false),
            ("https://cmdb.example.evil/api/", false),
            ("https://cmdb.example@evil/api/", false),
            ("http://cmdb.example/api/", false),
            ("http://10.0.0.1/", false),
            ("file:///etc/passwd", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_allowed_url(url, &allowed), expected, "{url}");
        }
        assert!(!is_allowed_url("http://10.0.0.1:8080/", &[]));
    }

    #[test]
    fn delays_double_and_are_limited() {
        let delays: Vec<f64> = (1..=4).map(|retry| retry_delay(0.5, retry).as_secs_f64()).collect();
        assert_eq!(delays, [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(retry_delay(1e300, 30).as_secs_f64(), MAX_DELAY);
    }
}
