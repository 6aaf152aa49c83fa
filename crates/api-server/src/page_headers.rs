// SPDX-License-Identifier: Apache-2.0
//! The headers that only browsers send: what the web page is recognised and served by.

use http::header::{ACCEPT, ACCEPT_ENCODING, COOKIE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use node_model::Secret;

/// The cookie that stands for a sign-in.
pub(crate) const SESSION_COOKIE: &str = "ferrite_session";

/// Sent by our own page with every request. Other sites can make a browser send our cookie, but not
/// this: a header of one's own needs our permission, which nobody gets.
pub(crate) const PAGE: HeaderName = HeaderName::from_static("x-ferrite-page");

/// What browsers say.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageHeaders {
    /// The value of the session cookie.
    pub(crate) session: Option<Secret<String>>,
    /// Whether our own page asks.
    pub(crate) is_page: bool,
    /// Whether the answer may be compressed with gzip.
    pub(crate) accepts_gzip: bool,
    /// What the browser has already.
    pub(crate) if_none_match: Option<String>,
}

impl PageHeaders {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        Self {
            session: session_of(headers).map(|token| Secret::new(token.to_owned())),
            is_page: headers.contains_key(PAGE),
            accepts_gzip: text(&ACCEPT_ENCODING).is_some_and(|accepted| takes_gzip(&accepted)),
            if_none_match: text(&IF_NONE_MATCH),
        }
    }
}

/// The value of the session cookie, if there is one.
pub(crate) fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == SESSION_COOKIE)
        .map(|(_, value)| value)
}

/// Whether the answer goes to a script of the page, or to its event stream, which cannot send headers
/// of its own: a browser would ask for a password in a window of its own, over the page's form.
pub(crate) fn has_a_form_of_its_own(headers: &HeaderMap) -> bool {
    let streams =
        || headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"text/event-stream");
    headers.contains_key(PAGE) || session_of(headers).is_some() || streams()
}

fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let refused = |quality: &str| matches!(quality, "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        parts.next() == Some("gzip") && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn cookies() {
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
            assert_eq!(session_of(&headers), expected, "{cookies:?}");
        }
    }

    #[test]
    fn gzip() {
        for (accepted, expected) in [
            ("gzip", true),
            ("br, gzip;q=0.8", true),
            ("identity", false),
            ("gzip;q=0", false),
            ("x-gzip", false),
        ] {
            assert_eq!(takes_gzip(accepted), expected, "{accepted}");
        }
    }
}
