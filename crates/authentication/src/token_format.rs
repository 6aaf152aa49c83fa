// SPDX-License-Identifier: Apache-2.0
//! The text format of API tokens.
//!
//! `frt_`, 12 characters by which the token is found, 32 secret characters, and 6 characters of
//! checksum (CRC-32 of everything before it). All are letters and digits, so secret scanners find
//! tokens with `frt_[0-9A-Za-z]{50}` and reject other texts by the checksum. The secret has 190 random
//! bits, so a plain SHA-256 is enough to store it.

use node_model::Secret;
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "frt_";
const LOOKUP_CHARS: usize = 12;
const SECRET_CHARS: usize = 32;
const CHECKSUM_CHARS: usize = 6;
const TOKEN_CHARS: usize = PREFIX.len() + LOOKUP_CHARS + SECRET_CHARS + CHECKSUM_CHARS;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The random number generator of the operating system failed.
#[derive(Debug, thiserror::Error)]
#[error("the random number generator of the operating system failed")]
pub struct RandomError(#[source] getrandom::Error);

/// A generated token. It is shown once to its user; the store gets the other parts.
#[derive(Debug)]
pub struct GeneratedToken {
    /// The token.
    pub token: Secret<String>,
    /// Its public part, by which it is found.
    pub lookup: String,
    /// Its digest.
    pub digest: String,
}

/// A token with a valid checksum that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedToken<'t> {
    pub(crate) lookup: &'t str,
    text: &'t str,
}

impl GeneratedToken {
    /// Generates a token.
    ///
    /// # Errors
    /// Fails if the operating system has no random numbers.
    pub fn generate() -> Result<Self, RandomError> {
        let mut token = PREFIX.to_owned();
        push_random_digits(&mut token, LOOKUP_CHARS + SECRET_CHARS)?;
        token.push_str(&checksum(&token));
        let lookup = token[PREFIX.len()..PREFIX.len() + LOOKUP_CHARS].to_owned();
        Ok(Self { lookup, digest: sha256_hex(token.as_bytes()), token: Secret::new(token) })
    }
}

impl<'t> ParsedToken<'t> {
    /// Parses a token. Returns `None` if it has another format or a wrong checksum.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let is_well_formed =
            text.len() == TOKEN_CHARS && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_well_formed {
            return None;
        }
        let (payload, sum) = text.split_at(TOKEN_CHARS - CHECKSUM_CHARS);
        (checksum(payload) == sum).then(|| Self { lookup: &digits[..LOOKUP_CHARS], text })
    }

    /// Whether this is the token with the stored digest. Takes the same time for every digest.
    pub(crate) fn matches(&self, digest: &str) -> bool {
        let own = sha256_hex(self.text.as_bytes());
        let difference = own.bytes().zip(digest.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == digest.len() && difference == 0
    }
}

/// The SHA-256 of `data` as hex digits.
pub(crate) fn sha256_hex(data: &[u8]) -> String {
    hex::encode(Sha256::digest(data))
}

/// Appends random letters and digits.
pub(crate) fn push_random_digits(text: &mut String, count: usize) -> Result<(), RandomError> {
    let end = text.len() + count;
    let mut random = [0; 64];
    while text.len() < end {
        getrandom::fill(&mut random).map_err(RandomError)?;
        // 248 is a multiple of 62: every digit is equally likely.
        let usable = random.iter().filter(|byte| **byte < 248);
        let digits = usable.map(|byte| char::from(DIGITS[usize::from(byte % 62)]));
        text.extend(digits.take(end - text.len()));
    }
    Ok(())
}

fn checksum(payload: &str) -> String {
    let mut rest = crc32fast::hash(payload.as_bytes());
    let mut digits = [b'0'; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    digits.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_are_valid_and_different() {
        let (one, other) =
            (GeneratedToken::generate().unwrap(), GeneratedToken::generate().unwrap());
        let parsed = ParsedToken::parse(one.token.reveal()).unwrap();
        assert_eq!(parsed.lookup, one.lookup);
        assert!(parsed.matches(&one.digest));
        assert!(!parsed.matches(&other.digest));
        assert!(!parsed.matches(""));
        assert_ne!(one.lookup, other.lookup);
        assert!(!format!("{one:?}").contains(&one.token.reveal()[20..]));
    }

    /// The format is documented for secret scanners and must not change.
    #[test]
    fn format_is_stable() {
        let payload = "frt_0123456789ABabcdefghijklmnopqrstuvwxyzABCDEF";
        let token = format!("{payload}{}", checksum(payload));
        assert_eq!(token.len(), 54);
        assert_eq!(checksum(payload).len(), 6);
        assert_eq!(ParsedToken::parse(&token).unwrap().lookup, "0123456789AB");
        let wrong_sum = format!("{payload}000000");
        for text in [
            "",
            "frt_",
            &token[..53],
            &format!("{token}0"),
            &wrong_sum,
            &token.replace("frt_", "xrt_"),
            &token.replace('a', "-"),
            &token.replace('a', "ä"),
        ] {
            assert_eq!(ParsedToken::parse(text), None, "{text}");
        }
    }
}
