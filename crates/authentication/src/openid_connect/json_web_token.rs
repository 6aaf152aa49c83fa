// SPDX-License-Identifier: Apache-2.0
//! JSON web tokens (RFC 7519): format, signature, issuer, audience and times.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use node_model::Timestamp;
use serde_json::Value;

use super::signing_keys::{SigningAlgorithm, SigningKeys};

/// Longer tokens are rejected.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum length of `sub`, by the specification of OpenID Connect.
const MAX_SUBJECT_BYTES: usize = 255;

/// A token whose signature is not verified yet.
#[derive(Debug)]
pub(crate) struct UnverifiedToken<'t> {
    /// Header and claims as signed.
    signed: &'t [u8],
    signature: Vec<u8>,
    header: Value,
    claims: Value,
}

/// What a token must comply with.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenRequirements<'r> {
    pub(super) issuer: &'r str,
    /// The token must be for one of these.
    pub(super) audiences: &'r [String],
    pub(super) algorithms: &'r [SigningAlgorithm],
    /// Tolerated difference of the clocks.
    pub(super) leeway: Duration,
}

/// Claims of a valid token.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct VerifiedClaims {
    pub(super) claims: Value,
    /// When the token stops being accepted, including the tolerated difference of the clocks.
    pub(super) expires_at: Timestamp,
}

/// Why a token is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenProblem {
    Algorithm,
    CriticalHeader,
    Type,
    UnknownKey,
    Signature,
    Issuer,
    Audience,
    NoExpiry,
    Expired,
    NotYetValid,
    NoSubject,
    Nonce,
}

impl TokenProblem {
    /// For the log, and for the client: it can decode its token anyway.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Algorithm => "the signature algorithm is not allowed",
            Self::CriticalHeader => "the header has extensions that are not supported",
            Self::Type => "it is not an access token or ID token",
            Self::UnknownKey => "the provider has no such key",
            Self::Signature => "the signature is wrong",
            Self::Issuer => "it is from another issuer",
            Self::Audience => "it is for another audience",
            Self::NoExpiry => "it has no expiry time",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::NoSubject => "it has no valid subject",
            Self::Nonce => "it belongs to another sign-in",
        }
    }
}

impl fmt::Display for TokenProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl<'t> UnverifiedToken<'t> {
    /// Parses the compact format. Returns `None` if the text has another format.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        if text.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |part: &str| {
            let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()?;
            value.is_object().then_some(value)
        };
        Some(Self {
            signed: signed.as_bytes(),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            header: object(header)?,
            claims: object(claims)?,
        })
    }

    /// Whether the token claims to be from this issuer.
    pub(crate) fn is_from(&self, issuer: &str) -> bool {
        self.claims["iss"].as_str() == Some(issuer)
    }

    /// A claim that is not verified.
    pub(crate) fn unverified_text(&self, claim: &str) -> Option<&str> {
        self.claims[claim].as_str()
    }

    /// The claims, if the token complies with `required` at `now`.
    pub(super) fn verify(
        &self,
        keys: &SigningKeys,
        required: &TokenRequirements<'_>,
        now: Timestamp,
    ) -> Result<VerifiedClaims, TokenProblem> {
        let algorithm = self.header["alg"].as_str().and_then(SigningAlgorithm::named);
        let algorithm = algorithm
            .filter(|algorithm| required.algorithms.contains(algorithm))
            .ok_or(TokenProblem::Algorithm)?;
        if self.header.get("crit").is_some() {
            return Err(TokenProblem::CriticalHeader);
        }
        // Providers sign other kinds of tokens with the same keys, such as logout tokens.
        let kind = self.header["typ"].as_str().unwrap_or("JWT").to_ascii_lowercase();
        let kind = kind.strip_prefix("application/").unwrap_or(&kind);
        if !matches!(kind, "jwt" | "at+jwt") {
            return Err(TokenProblem::Type);
        }
        let key_id = self.header["kid"].as_str();
        if !keys.contains(key_id, algorithm) {
            return Err(TokenProblem::UnknownKey);
        }
        if !keys.verify(key_id, algorithm, self.signed, &self.signature) {
            return Err(TokenProblem::Signature);
        }
        let expires_at = self.check_claims(required, now)?;
        Ok(VerifiedClaims { claims: self.claims.clone(), expires_at })
    }

    fn check_claims(
        &self,
        required: &TokenRequirements<'_>,
        now: Timestamp,
    ) -> Result<Timestamp, TokenProblem> {
        if !self.is_from(required.issuer) {
            return Err(TokenProblem::Issuer);
        }
        let is_accepted = |audience: &Value| {
            audience.as_str().is_some_and(|name| required.audiences.iter().any(|own| own == name))
        };
        let audience = &self.claims["aud"];
        let is_for_us = match audience.as_array() {
            Some(audiences) => audiences.iter().any(is_accepted),
            None => is_accepted(audience),
        };
        if !is_for_us {
            return Err(TokenProblem::Audience);
        }
        let end = numeric_date(&self.claims["exp"]).ok_or(TokenProblem::NoExpiry)?;
        let end = end.plus(required.leeway);
        if end <= now {
            return Err(TokenProblem::Expired);
        }
        for name in ["nbf", "iat"] {
            let start = numeric_date(&self.claims[name]);
            if start.is_some_and(|start| start > now.plus(required.leeway)) {
                return Err(TokenProblem::NotYetValid);
            }
        }
        let is_subject = |text: &str| {
            (1..=MAX_SUBJECT_BYTES).contains(&text.len()) && !text.contains(char::is_control)
        };
        if !self.claims["sub"].as_str().is_some_and(is_subject) {
            return Err(TokenProblem::NoSubject);
        }
        Ok(end)
    }
}

/// Seconds since 1970, possibly with a fraction.
fn numeric_date(value: &Value) -> Option<Timestamp> {
    let seconds = value.as_i64().or_else(|| {
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite())?;
        #[expect(clippy::cast_possible_truncation, reason = "clamped, and checked below")]
        Some(seconds as i64)
    })?;
    // After the year 9999 there is no text form.
    (0..=253_402_300_799).contains(&seconds).then(|| Timestamp::from_secs(seconds))
}
