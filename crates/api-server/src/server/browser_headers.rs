// SPDX-License-Identifier: Apache-2.0
//! Request headers that browsers send: session cookie, caching, compression.

use authentication::{named_cookie, session_cookie};
use http::header::{ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use node_model::Secret;

/// Sent by the web UI with every request. Other sites can make a browser send our cookie, but a
/// custom header needs a CORS permission, which we never give.
pub(crate) const WEB_UI: HeaderName = HeaderName::from_static("x-ferrite-page");

/// Name of the cookie of a sign-in with OpenID Connect that is not complete.
pub(crate) const LOGIN_COOKIE: &str = "ferrite_oidc_login";

/// Request headers that browsers send.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrowserHeaders {
    /// Value of the session cookie.
    pub(crate) session: Option<Secret<String>>,
    /// Value of the cookie of a sign-in with OpenID Connect.
    pub(crate) login: Option<Secret<String>>,
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
            session: session_cookie(headers).map(|cookie| Secret::new(cookie.to_owned())),
            login: named_cookie(headers, LOGIN_COOKIE).map(|it| Secret::new(it.to_owned())),
            is_web_ui: headers.contains_key(WEB_UI),
            accepts_gzip: text(&ACCEPT_ENCODING).is_some_and(|accepted| accepts_gzip(&accepted)),
            if_none_match: text(&IF_NONE_MATCH),
        }
    }
}

/// Whether the request comes from a script of the web UI or from its event stream, which cannot send
/// custom headers. With `WWW-Authenticate` the browser would open its own password dialog over the
/// login form.
pub(crate) fn has_own_login_form(headers: &HeaderMap) -> bool {
    let is_event_stream =
        || headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream");
    headers.contains_key(WEB_UI) || session_cookie(headers).is_some() || is_event_stream()
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
    use super::*;

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
