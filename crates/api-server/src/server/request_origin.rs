// SPDX-License-Identifier: Apache-2.0
//! Rejects requests that a web page of another site makes a browser send.
//!
//! A page can send requests to every address that its browser reaches. It can send them to another site
//! (`Origin`, `Sec-Fetch-Site`), or resolve its own name to the address of this server (DNS rebinding), so
//! that they seem to stay within its site; then only `Host` differs. The content type is checked
//! because a page needs no permission to send a body of another type than JSON.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN, USER_AGENT};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName};
use ironic_wire::WireError;

use crate::config::ApiConfig;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The host names under which this server is reached.
#[derive(Debug)]
pub(crate) struct HostPolicy {
    /// Names, and suffixes that start with a dot.
    allowed: Vec<String>,
    allows_all: bool,
    /// Host and port of the public endpoint.
    public: Option<Authority>,
}

impl HostPolicy {
    pub(crate) fn new(config: &ApiConfig) -> Self {
        let public = config.public_endpoint.as_deref().and_then(|endpoint| {
            let uri: http::Uri = endpoint.parse().ok()?;
            uri.authority().cloned()
        });
        let allowed = config
            .allowed_hosts
            .iter()
            .map(|host| host.trim().trim_end_matches('.').to_ascii_lowercase())
            .collect::<Vec<_>>();
        Self { allows_all: allowed.iter().any(|host| host == "*"), allowed, public }
    }

    /// Fails with 421 if the request is for a host name that is not this server's.
    ///
    /// Every IP address is accepted: a browser that uses an address resolves no name.
    pub(crate) fn check_host(&self, head: &Parts) -> Result<(), WireError> {
        let hosts = head.headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or("?"));
        for host in hosts.chain(head.uri.authority().map(Authority::as_str)) {
            if !self.is_own_host(host) {
                return Err(WireError::router(421, rejected_host(host)));
            }
        }
        Ok(())
    }

    /// Fails with 403 if a page of another site makes a browser send the request. With `allows_links` a user
    /// may follow links of other sites to this server.
    pub(crate) fn check_site(&self, head: &Parts, allows_links: bool) -> Result<(), WireError> {
        let text = |name: &HeaderName| head.headers.get(name).map(|it| it.to_str().unwrap_or("?"));
        let is_link =
            allows_links && head.method.is_safe() && text(&SEC_FETCH_MODE) == Some("navigate");
        let is_foreign_site =
            text(&SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
        let is_foreign_origin =
            text(&ORIGIN).is_some_and(|origin| !self.is_own_origin(origin, &head.headers));
        if (is_foreign_site && !is_link) || is_foreign_origin {
            return Err(WireError::forbidden(
                "A web page of another site sent this request; only the pages of this server may.",
            ));
        }
        Ok(())
    }

    fn is_own_host(&self, host: &str) -> bool {
        // Browsers always send a name.
        if host.is_empty() {
            return true;
        }
        let Ok(authority) = host.parse::<Authority>() else { return false };
        self.is_own_name(host_name(&authority))
    }

    fn is_own_name(&self, name: &str) -> bool {
        if self.allows_all || name.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost"
            || name.ends_with(".localhost")
            || self.is_configured(&name)
            || self.public.as_ref().is_some_and(|own| host_name(own).eq_ignore_ascii_case(&name))
    }

    fn is_configured(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| {
            allowed == name || (allowed.starts_with('.') && name.ends_with(allowed.as_str()))
        })
    }

    /// Whether an origin is that of the request's host, the public endpoint or a configured host.
    fn is_own_origin(&self, origin: &str, headers: &HeaderMap) -> bool {
        let Ok(uri) = origin.parse::<http::Uri>() else { return false };
        let (Some(scheme), Some(origin)) = (uri.scheme_str(), uri.authority()) else {
            return false;
        };
        let default_port = if scheme == "https" { 443 } else { 80 };
        let is_same = |host: &Authority| {
            // A proxy may serve https where this server uses http, so the scheme is not compared.
            host_name(host).eq_ignore_ascii_case(host_name(origin))
                && host.port_u16().unwrap_or(default_port)
                    == origin.port_u16().unwrap_or(default_port)
        };
        let requested = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        requested.as_ref().is_some_and(is_same)
            || self.public.as_ref().is_some_and(is_same)
            || self.is_configured(&host_name(origin).to_ascii_lowercase())
    }
}

/// Fails with 415 if a body is not declared as JSON. Clients that are not browsers may omit the type.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), WireError> {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return if is_browser(headers) { Err(not_json("no content type")) } else { Ok(()) };
    };
    let text = content_type.to_str().unwrap_or("?");
    let media_type = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.strip_prefix("application/") {
        Some(subtype) if subtype == "json" || subtype.ends_with("+json") => Ok(()),
        Some(_) | None => Err(not_json(&media_type)),
    }
}

fn not_json(given: &str) -> WireError {
    let given: String = given.chars().take(100).collect();
    WireError::new(
        415,
        format!("The body has {given}; send JSON with the header Content-Type: application/json."),
    )
}

fn rejected_host(host: &str) -> String {
    let host: String = host.chars().take(255).collect();
    format!(
        "{host:?} is not a name of this server; to use it, add it to api.allowed_hosts in the configuration."
    )
}

/// The host without the brackets of an IPv6 address.
fn host_name(authority: &Authority) -> &str {
    authority.host().trim_start_matches('[').trim_end_matches(']')
}

fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN)
        || headers.contains_key(SEC_FETCH_SITE)
        || headers.contains_key(COOKIE)
        || headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method, Request};

    use super::*;

    fn policy() -> HostPolicy {
        HostPolicy::new(&ApiConfig {
            public_endpoint: Some("https://public.example:8443/baremetal".to_owned()),
            allowed_hosts: vec!["Ferrite.Example".to_owned(), ".lab.example".to_owned()],
            ..ApiConfig::default()
        })
    }

    fn head(method: Method, uri: &str, headers: &[(HeaderName, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        request.into_parts().0
    }

    #[test]
    fn accepts_own_hosts_only() {
        for (host, accepted) in [
            ("127.0.0.1:6385", true),
            ("[::1]:6385", true),
            ("[2001:db8::1]", true),
            ("192.0.2.1", true),
            ("localhost:6385", true),
            ("LOCALHOST", true),
            ("ui.localhost", true),
            ("public.example", true),
            ("ferrite.example:1", true),
            ("ferrite.example.", true),
            ("a.lab.example", true),
            ("lab.example", false),
            ("xlab.example", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("ferrite", false),
            ("a b", false),
            ("", true),
        ] {
            let head = head(Method::GET, "/", &[(HOST, host)]);
            assert_eq!(policy().check_host(&head).is_ok(), accepted, "{host}");
        }
        assert!(policy().check_host(&head(Method::GET, "/", &[])).is_ok(), "HTTP/1.0");
        let absolute = head(Method::GET, "http://evil.example/", &[(HOST, "localhost")]);
        assert!(policy().check_host(&absolute).is_err());
        let twice = head(Method::GET, "/", &[(HOST, "localhost"), (HOST, "evil.example")]);
        assert!(policy().check_host(&twice).is_err());
        let any = HostPolicy::new(&ApiConfig {
            allowed_hosts: vec!["*".to_owned()],
            ..ApiConfig::default()
        });
        assert!(any.check_host(&head(Method::GET, "/", &[(HOST, "evil.example")])).is_ok());
    }

    #[test]
    fn rejects_pages_of_other_sites() {
        let host = (HOST, "127.0.0.1:6385");
        for (origin, accepted) in [
            ("http://127.0.0.1:6385", true),
            ("https://public.example:8443", true),
            ("https://ferrite.example", true),
            ("https://public.example", false),
            ("http://127.0.0.1:3000", false),
            ("http://127.0.0.1", false),
            ("http://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let head = head(Method::POST, "/v1/nodes", &[host.clone(), (ORIGIN, origin)]);
            assert_eq!(policy().check_site(&head, true).is_ok(), accepted, "{origin}");
        }
        for (site, mode, method, accepted) in [
            ("same-origin", "cors", Method::POST, true),
            ("none", "navigate", Method::GET, true),
            ("cross-site", "cors", Method::POST, false),
            ("same-site", "no-cors", Method::POST, false),
            ("cross-site", "no-cors", Method::GET, false),
            ("cross-site", "navigate", Method::GET, true),
            ("cross-site", "navigate", Method::POST, false),
            ("?", "navigate", Method::DELETE, false),
        ] {
            let headers = [host.clone(), (SEC_FETCH_SITE, site), (SEC_FETCH_MODE, mode)];
            let head = head(method.clone(), "/v1/nodes", &headers);
            assert_eq!(
                policy().check_site(&head, true).is_ok(),
                accepted,
                "{site} {mode} {method}"
            );
        }
        let link = [host, (SEC_FETCH_SITE, "cross-site"), (SEC_FETCH_MODE, "navigate")];
        assert!(policy().check_site(&head(Method::GET, "/v1/lookup", &link), false).is_err());
    }

    #[test]
    fn a_proxy_may_serve_https() {
        let headers = [(HOST, "ironic.test"), (ORIGIN, "https://ironic.test")];
        assert!(policy().check_site(&head(Method::POST, "/", &headers), true).is_ok());
    }

    #[test]
    fn requires_json() {
        for (content_type, accepted) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json-patch+json", true),
            ("text/plain", false),
            ("text/plain; application/json", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=x", false),
            ("", false),
        ] {
            let head = head(Method::POST, "/", &[(CONTENT_TYPE, content_type)]);
            assert_eq!(check_content_type(&head.headers).is_ok(), accepted, "{content_type}");
        }
        let without = |headers: &[(HeaderName, &str)]| {
            check_content_type(&head(Method::POST, "/", headers).headers).is_ok()
        };
        assert!(without(&[]));
        assert!(without(&[(USER_AGENT, "python-requests/2.32")]));
        assert!(!without(&[(USER_AGENT, "Mozilla/5.0")]));
        assert!(!without(&[(ORIGIN, "http://localhost")]));
    }
}
