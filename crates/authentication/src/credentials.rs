// SPDX-License-Identifier: Apache-2.0
//! The credentials in the headers of a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use node_model::{AccessScope, Secret, is_identity_name};

use crate::error::AuthError;
use crate::openid_connect::UnverifiedToken;
use crate::token_format::ParsedToken;

/// Name of the session cookie.
pub const SESSION_COOKIE: &str = "ferrite_session";

/// Carries an API token or a token of Keystone.
pub const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Carries the token of a service that sends a request for a user, in addition to the user's token.
const SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");

/// Selects the scope of a request: `system` or the name of a project.
pub const PROJECT: HeaderName = HeaderName::from_static("x-ferrite-project");

/// The headers of a request that authenticate it.
#[derive(Clone, Default)]
pub struct CredentialHeaders(HeaderMap);

impl CredentialHeaders {
    /// Copies the headers of a request.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut copied = HeaderMap::new();
        for name in [AUTHORIZATION, AUTH_TOKEN, SERVICE_TOKEN, PROJECT, COOKIE] {
            for value in headers.get_all(&name) {
                copied.append(name.clone(), value.clone());
            }
        }
        Self(copied)
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

impl std::fmt::Debug for CredentialHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialHeaders")
    }
}

/// What a client presents.
#[derive(Debug)]
pub(crate) enum PresentedCredential {
    /// User name and password.
    Password { user: String, password: Secret<String> },
    /// A token, from `X-Auth-Token` or `Authorization: Bearer`; also an API token or JWT that is sent as
    /// the password of any user.
    Token(Secret<String>),
    /// A session cookie.
    Session(Secret<String>),
}

/// The credential of a request. `X-Auth-Token` is ignored unless `accepts_tokens`. The headers
/// `X-Auth-Token` and `Authorization` take precedence over the cookie.
pub(crate) fn presented_credential(
    headers: &HeaderMap,
    accepts_tokens: bool,
) -> Result<PresentedCredential, AuthError> {
    if let Some(token) = headers.get(AUTH_TOKEN).filter(|_| accepts_tokens) {
        let token = token.to_str().map_err(|_| AuthError::Malformed)?;
        return Ok(PresentedCredential::Token(Secret::new(token.trim().to_owned())));
    }
    if let Some(header) = headers.get(AUTHORIZATION) {
        return authorization(header, accepts_tokens);
    }
    match session_cookie(headers) {
        Some(cookie) => Ok(PresentedCredential::Session(Secret::new(cookie.to_owned()))),
        None => Err(AuthError::Missing),
    }
}

/// The token of the service that sends the request for a user.
pub(crate) fn service_token(headers: &HeaderMap) -> Result<Option<Secret<String>>, AuthError> {
    let Some(value) = headers.get(SERVICE_TOKEN) else { return Ok(None) };
    let token = value.to_str().map_err(|_| AuthError::Malformed)?.trim();
    Ok(Some(Secret::new(token.to_owned())))
}

/// The scope that a request selects.
pub(crate) fn requested_scope(headers: &HeaderMap) -> Result<Option<AccessScope>, AuthError> {
    let Some(value) = headers.get(PROJECT) else { return Ok(None) };
    let name = value.to_str().map_err(|_| AuthError::InvalidScope)?.trim();
    if is_identity_name(name) {
        Ok(Some(AccessScope::named(name)))
    } else {
        Err(AuthError::InvalidScope)
    }
}

/// The value of the session cookie; `None` if absent.
#[must_use]
pub fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    named_cookie(headers, SESSION_COOKIE)
}

/// The value of a cookie; `None` if absent.
#[must_use]
pub fn named_cookie<'h>(headers: &'h HeaderMap, cookie: &str) -> Option<&'h str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == cookie)
        .map(|(_, value)| value)
}

fn authorization(
    header: &HeaderValue,
    accepts_tokens: bool,
) -> Result<PresentedCredential, AuthError> {
    let text = header.to_str().map_err(|_| AuthError::Malformed)?;
    let (scheme, value) = text.trim().split_once(' ').ok_or(AuthError::Malformed)?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") && accepts_tokens {
        return Ok(PresentedCredential::Token(Secret::new(value.to_owned())));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(AuthError::UnsupportedScheme);
    }
    let decoded = STANDARD.decode(value).map_err(|_| AuthError::Malformed)?;
    let decoded = String::from_utf8(decoded).map_err(|_| AuthError::Malformed)?;
    let (user, password) = decoded.split_once(':').ok_or(AuthError::Malformed)?;
    if accepts_tokens && is_token(password) {
        return Ok(PresentedCredential::Token(Secret::new(password.to_owned())));
    }
    Ok(PresentedCredential::Password {
        user: user.to_owned(),
        password: Secret::new(password.to_owned()),
    })
}

/// Whether a password is an API token or a JWT.
fn is_token(password: &str) -> bool {
    ParsedToken::parse(password).is_some() || UnverifiedToken::parse(password).is_some()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::token_format::GeneratedToken;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(pairs: &[(&str, &str)], accepts_tokens: bool) -> String {
        match presented_credential(&headers(pairs), accepts_tokens) {
            Ok(PresentedCredential::Password { user, password }) => {
                format!("{user} {}", password.reveal())
            }
            Ok(PresentedCredential::Token(token)) => format!("token {}", token.reveal()),
            Ok(PresentedCredential::Session(cookie)) => format!("session {}", cookie.reveal()),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn finds_the_credential() {
        let token = GeneratedToken::generate().unwrap();
        let token = token.token.reveal().as_str();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let as_password = basic(&format!("anything:{token}"));
        let jwt = format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#));
        let jwt_as_password = basic(&format!("anything:{jwt}"));
        let cookie = ("cookie", "a=b; ferrite_session=abc");
        for (pairs, with_tokens, without_tokens) in [
            (&[][..], "Missing".to_owned(), "Missing".to_owned()),
            (&[("x-auth-token", " t ")], "token t".into(), "Missing".into()),
            (&[("authorization", "Bearer t")], "token t".into(), "UnsupportedScheme".into()),
            (
                &[("authorization", "Digest t")],
                "UnsupportedScheme".into(),
                "UnsupportedScheme".into(),
            ),
            (&[("authorization", &basic("me:p:w"))], "me p:w".into(), "me p:w".into()),
            (
                &[("authorization", &as_password)],
                format!("token {token}"),
                format!("anything {token}"),
            ),
            (
                &[("authorization", &jwt_as_password)],
                format!("token {jwt}"),
                format!("anything {jwt}"),
            ),
            (&[("authorization", &basic("me:a.b.c"))], "me a.b.c".into(), "me a.b.c".into()),
            (&[("authorization", &basic("nocolon"))], "Malformed".into(), "Malformed".into()),
            (&[("authorization", "Basic ???")], "Malformed".into(), "Malformed".into()),
            (&[("authorization", "Basic")], "Malformed".into(), "Malformed".into()),
            (&[cookie], "session abc".into(), "session abc".into()),
            (&[cookie, ("x-auth-token", "t")], "token t".into(), "session abc".into()),
            (&[cookie, ("authorization", &basic("me:p"))], "me p".into(), "me p".into()),
        ] {
            assert_eq!(shown(pairs, true), with_tokens, "{pairs:?}");
            assert_eq!(shown(pairs, false), without_tokens, "{pairs:?}");
        }
    }

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
            let pairs: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
            assert_eq!(session_cookie(&headers(&pairs)), expected, "{cookies:?}");
        }
    }

    #[test]
    fn parses_the_scope() {
        for (value, expected) in [
            ("storage", Ok(Some(AccessScope::named("storage")))),
            ("system", Ok(Some(AccessScope::System))),
            ("a b", Err(AuthError::InvalidScope)),
            ("", Err(AuthError::InvalidScope)),
        ] {
            assert_eq!(requested_scope(&headers(&[("x-ferrite-project", value)])), expected);
        }
        assert_eq!(requested_scope(&HeaderMap::new()), Ok(None));
    }
}
