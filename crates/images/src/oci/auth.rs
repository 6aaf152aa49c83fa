// SPDX-License-Identifier: Apache-2.0
//! The authentication challenge of a registry, from its `WWW-Authenticate` header.

/// The authentication that a registry requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AuthChallenge {
    /// Basic authentication with each request.
    Basic,
    /// A bearer token from a token server.
    Bearer {
        /// The URL of the token server.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
        /// The scope that the token must have.
        scope: Option<String>,
    },
}

impl AuthChallenge {
    /// Parses the header; `None` if the scheme is not supported.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, parameters) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        for (name, value) in ChallengeParameters(parameters) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

/// Parses `name="value"` pairs that are separated by commas. Quoted values may contain commas.
struct ChallengeParameters<'a>(&'a str);

impl<'a> Iterator for ChallengeParameters<'a> {
    type Item = (&'a str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_start_matches([' ', ',', '\t']);
        let (name, rest) = rest.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        self.0 = rest;
        Some((name.trim(), value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AuthChallenge;

    #[test]
    fn parses_challenges() {
        let challenge = AuthChallenge::parse(
            r#"Bearer realm="https://auth.example/token",service="r.example", scope="repository:a/b:pull,push""#,
        );
        let expected = AuthChallenge::Bearer {
            realm: "https://auth.example/token".to_owned(),
            service: Some("r.example".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(challenge, Some(expected));
        assert_eq!(AuthChallenge::parse(r#"Basic realm="x""#), Some(AuthChallenge::Basic));
        assert_eq!(AuthChallenge::parse("basic"), Some(AuthChallenge::Basic));
        assert_eq!(AuthChallenge::parse("Negotiate"), None);
        assert_eq!(AuthChallenge::parse(r#"Bearer service="x""#), None);
    }

    proptest! {
        #[test]
        fn arbitrary_headers_never_panic(text in "\\PC*") {
            let _ = AuthChallenge::parse(&format!("Bearer {text}"));
        }
    }
}
