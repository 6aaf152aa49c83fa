// SPDX-License-Identifier: Apache-2.0
//! Requests that inspection rules ask for.
//!
//! Parts of an address may come from the machine that was inspected, and the request is made from
//! where we are: so only addresses are asked that the operator allowed by name, redirects are not
//! followed, the answer is not read, and nothing of it comes back to the machine. The requests are
//! made after the findings are stored, and how they ended is on the node's timeline.

use std::time::Duration;

use inspection::ApiCall;
use node_model::{Happening, JournalEntry, NodeId};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::Conductor;

/// More requests for one inspection are a mistake.
const MOST_CALLS: usize = 16;
/// The longest a try may take, in seconds.
const LONGEST_TRY: f64 = 60.0;
/// The most tries after the first.
const MOST_RETRIES: u32 = 10;
/// The longest pause before a try, in seconds.
const LONGEST_PAUSE: f64 = 30.0;
/// The longest all requests of one inspection may take.
const LONGEST: Duration = Duration::from_secs(600);

/// Answers after which another try may help.
const TRY_AGAIN: [u16; 5] = [429, 500, 502, 503, 504];

/// Whether `url` is, or is below, one of the `allowed` addresses: same scheme, host and port, and a
/// path that begins with whole parts of the allowed one.
#[must_use]
pub fn is_allowed(url: &str, allowed: &[String]) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    // The path was normalised by the parser: `..` is gone by now, unless it is written in code.
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
    /// The beginnings of the addresses that rules may ask; see [`is_allowed`].
    #[must_use]
    pub fn api_call_allowed(&self) -> &[String] {
        &self.inspection.api_call_allowed
    }

    /// Makes the requests that rules ask for, while nobody waits for them.
    pub(crate) fn make_calls(&self, node: NodeId, calls: Vec<ApiCall>) {
        if !calls.is_empty() {
            self.in_background(carry_out(self.clone(), node, calls));
        }
    }
}

/// Makes the requests, one after the other, and tells the timeline.
pub(crate) async fn carry_out(conductor: Conductor, node: NodeId, calls: Vec<ApiCall>) {
    let left_out = calls.len().saturating_sub(MOST_CALLS);
    let mut texts = Vec::new();
    let all = async {
        for call in calls.iter().take(MOST_CALLS) {
            let url = call.url.split('?').next().unwrap_or_default();
            texts.push(match ask(call, &conductor.inspection.api_call_allowed).await {
                Ok(status) => format!("asked for {url}: {status}"),
                Err(why) => format!("asked for {url} in vain: {why}"),
            });
        }
    };
    if tokio::time::timeout(LONGEST, all).await.is_err() {
        texts.push(format!("the rest took longer than {} s", LONGEST.as_secs()));
    }
    if left_out > 0 {
        texts.push(format!("{left_out} more requests were not made: {MOST_CALLS} are the most"));
    }
    let actor = conductor.actor();
    let written = conductor.store.write(move |tx| {
        let at = tx.now();
        for text in &texts {
            let what = Happening::Noted { by: "api-call".to_owned(), text: text.clone() };
            tx.append(JournalEntry { at, node_id: node, actor: actor.clone(), what });
        }
        Ok::<_, store::Error>(())
    });
    if let Err(error) = written.await {
        tracing::warn!(%node, %error, "what came of a rule's requests could not be written down");
    }
}

async fn ask(call: &ApiCall, allowed: &[String]) -> Result<u16, String> {
    for address in std::iter::once(&call.url).chain(call.proxies.values()) {
        if !is_allowed(address, allowed) {
            return Err("inspection.api_call_allowed does not allow this address".to_owned());
        }
    }
    let client = client(call)?;
    let headers = headers(call)?;
    let retries = call.retries.min(MOST_RETRIES);
    let mut tries = 0;
    loop {
        let why = match client.get(&call.url).headers(headers.clone()).send().await {
            Ok(answer) => {
                let status = answer.status();
                if status.is_success() {
                    return Ok(status.as_u16());
                }
                let why = format!("it answered {}", status.as_u16());
                if !TRY_AGAIN.contains(&status.as_u16()) {
                    return Err(why);
                }
                why
            }
            // Without its address: the query may hold a secret.
            Err(error) => crate::act::chain(&error.without_url()),
        };
        if tries == retries {
            return Err(format!("{why} ({} tries)", tries + 1));
        }
        tries += 1;
        tokio::time::sleep(pause(call.backoff_factor, tries)).await;
    }
}

/// None before the first retry, then `factor` times two to the number of retries before.
fn pause(factor: f64, retry: u32) -> Duration {
    if retry < 2 {
        return Duration::ZERO;
    }
    let exponent = i32::try_from(retry - 1).unwrap_or(i32::MAX);
    Duration::from_secs_f64((factor * 2_f64.powi(exponent)).clamp(0.0, LONGEST_PAUSE))
}

fn client(call: &ApiCall) -> Result<reqwest::Client, String> {
    let told = |error: reqwest::Error| crate::act::chain(&error.without_url());
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(server_trust::trusting_as_usual())
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .timeout(Duration::from_secs_f64(call.timeout.clamp(0.1, LONGEST_TRY)))
        .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")));
    for (scheme, address) in &call.proxies {
        let proxy = match scheme.as_str() {
            "http" => reqwest::Proxy::http(address),
            "https" => reqwest::Proxy::https(address),
            _ => return Err(format!("there are proxies for http and https only, not {scheme}")),
        };
        builder = builder.proxy(proxy.map_err(told)?);
    }
    builder.build().map_err(told)
}

fn headers(call: &ApiCall) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &call.headers {
        let wrong = || format!("header {name:?} cannot be sent");
        let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| wrong())?, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed() {
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
            assert_eq!(is_allowed(url, &allowed), expected, "{url}");
        }
        assert!(!is_allowed("http://10.0.0.1:8080/", &[]));
    }

    #[test]
    fn pauses_double_and_end() {
        let pauses: Vec<f64> = (1..=4).map(|retry| pause(0.5, retry).as_secs_f64()).collect();
        assert_eq!(pauses, [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(pause(1e300, 30).as_secs_f64(), LONGEST_PAUSE);
    }
}
