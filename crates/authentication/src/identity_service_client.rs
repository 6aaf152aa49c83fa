// SPDX-License-Identifier: Apache-2.0
//! HTTP requests to identity services (OpenID Connect, Keystone): JSON responses of limited size,
//! no redirects.

use std::path::Path;
use std::time::Duration;

use error_chain::error_chain;
use http::{HeaderMap, HeaderName, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use serde_json::Value;

/// Maximum size of a response. Key sets and tokens have a few KiB.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Characters that are encoded in forms: all except letters, digits and `-._~`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client for one identity service.
#[derive(Clone, Debug)]
pub(crate) struct IdentityServiceClient(reqwest::Client);

/// A response with a JSON body.
#[derive(Debug)]
pub(crate) struct IdentityServiceResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// `Null` if the body is not JSON.
    pub(crate) body: Value,
}

impl IdentityServiceClient {
    /// A client that verifies the server with the certificates of `ca_file`, or with those of the
    /// system.
    ///
    /// # Errors
    /// Fails if the certificates cannot be read.
    pub(crate) fn new(ca_file: Option<&Path>, timeout: Duration) -> Result<Self, String> {
        let tls = server_trust::client_config_for_ca_file(ca_file)?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout)
            .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error_chain(&error))?;
        Ok(Self(client))
    }

    pub(crate) async fn get(
        &self,
        url: &Url,
        headers: &[(HeaderName, &str)],
    ) -> Result<IdentityServiceResponse, String> {
        let mut request = self.0.get(url.clone());
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        read(request).await
    }

    pub(crate) async fn post_json(
        &self,
        url: &Url,
        body: &Value,
    ) -> Result<IdentityServiceResponse, String> {
        read(self.0.post(url.clone()).json(body)).await
    }

    /// Posts a form. `basic` is the user name and password of the client.
    pub(crate) async fn post_form(
        &self,
        url: &Url,
        fields: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<IdentityServiceResponse, String> {
        let mut request = self
            .0
            .post(url.clone())
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(fields));
        if let Some((user, password)) = basic {
            // RFC 6749 section 2.3.1: both are encoded as in a form.
            request = request.basic_auth(encode(user), Some(encode(password)));
        }
        read(request).await
    }
}

/// Parses the URL of an identity service. Plain HTTP is accepted only for this host.
pub(crate) fn service_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    let is_this_host = match url.host_str() {
        None => return Err(format!("{text:?} has no host")),
        Some(host) => {
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    };
    match url.scheme() {
        "https" => {}
        "http" if is_this_host => {}
        "http" => return Err(format!("{text:?} must be an https URL")),
        _ => return Err(format!("{text:?} is not an https URL")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("the URL of {} contains a user name", url.host_str().unwrap_or("")));
    }
    Ok(url)
}

/// Fields in the format `application/x-www-form-urlencoded`.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

async fn read(request: reqwest::RequestBuilder) -> Result<IdentityServiceResponse, String> {
    let request = request.header(http::header::ACCEPT, "application/json");
    let mut response = request.send().await.map_err(|error| error_chain(&error))?;
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| error_chain(&error))? {
        if body.len() + part.len() > MAX_RESPONSE_BYTES {
            return Err(format!("the response exceeds {MAX_RESPONSE_BYTES} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(IdentityServiceResponse {
        status: response.status(),
        headers: response.headers().clone(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_urls() {
        for (text, accepted) in [
            ("https://id.example/realm", true),
            ("http://127.0.0.1:5000/v3", true),
            ("http://[::1]:5000/v3", true),
            ("http://localhost:5000/v3", true),
            ("http://id.example/", false),
            ("ftp://id.example/", false),
            ("https://me:secret@id.example/", false),
            ("id.example", false),
        ] {
            assert_eq!(service_url(text).is_ok(), accepted, "{text}");
        }
    }

    #[test]
    fn encodes_forms() {
        assert_eq!(form(&[("a_b", "b c&d"), ("e", "")]), "a_b=b%20c%26d&e=");
    }
}
