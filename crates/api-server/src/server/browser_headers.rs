// SPDX-License-Identifier: Apache-2.0
//! Request headers that browsers send: session cookie, caching, compression.

use http::header::{ACCEPT, ACCEPT_ENCODING, COOKIE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use node_model::Secret;

/// Name of the session cookie.
pub(crate) const SESSION_COOKIE: &str = "ferrite_session";

/// Sent by the web UI with every request. Other sites can make a browser send our cookie, but a
/// custom header needs a CORS permission, which we never give.
pub(crate) const WEB_UI: HeaderName = HeaderName::from_static("x-ferrite-page");

/// Request headers that browsers send.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrowserHeaders {
    /// Value of the session cookie.
    pub(crate) session: Option<Secret<String>>,
    /// Whether the request comes from the web UI.
    pub(crate) is_web_ui: bool,
    /// Whether the response may be gzip-compressed.
    pub(crate) accepts_gzip: bool,
    /// `If-None-Match`.
    pub(crate) if_none_match: Option<String>,
}

impl BrowserHeaders {
    pub(crate) fn parse(headers: &HeaderMap) -> Self {
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        Self {
            session: session_token(headers).map(|token| Secret::new(token.to_owned())),
            is_web_ui: headers.contains_key(WEB_UI),
            accepts_gzip: text(&ACCEPT_ENCODING).is_some_and(|accepted| accepts_gzip(&accepted)),
            if_none_match: text(&IF_NONE_MATCH),
        }
    }
}

/// The value of the session cookie; `None` if absent.
pub(crate) fn session_token(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == SESSION_COOKIE)
        .map(|(_, value)| value)
}

/// Whether the request comes from a script of the web UI or from its event stream, which cannot send
/// custom headers. With `WWW-Authenticate` the browser would open its own password dialog over the
/// login form.
pub(crate) fn has_own_login_form(headers: &HeaderMap) -> bool {
    let is_event_stream =
        || headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream");
    headers.contains_key(WEB_UI) || session_token(headers).is_some() || is_event_stream()
}

fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_zero = |quality: &str| matches!(quality, "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        parts.next() == Some("gzip") && !parts.any(is_zero)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn finds_the_session_cookie() {
        for (cookies, expected) in [
            (&[][..], None),
            (&["ferrite_session=abc"], Some("abc")),
            (&["a=b; ferrite_session=abc; c=d"], Some("abc")),
            (&["a=b", "ferrite_session=abc"], Some("abc")),
            (&["not_ferrite_session=abc"], None),
            (&["ferrite_session"], None),
        ] {
            let mut headers = HeaderMap::new();
            for cookie in cookies {
                headers.append(COOKIE, HeaderValue::from_static(cookie));
            }
            assert_eq!(session_token(&headers), expected, "{cookies:?}");
        }
    }

    #[test]
    fn parses_accept_encoding() {
        for (accepted, expected) in [
            ("gzip", true),
            ("br, gzip;q=0.8", true),
            ("identity", false),
            ("gzip;q=0", false),
            ("x-gzip", false),
        ] {
            assert_eq!(accepts_gzip(accepted), expected, "{accepted}");
        }
    }
}
