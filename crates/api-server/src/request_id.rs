// SPDX-License-Identifier: Apache-2.0
//! The name of one request: `req-<uuid>`, told to the client and written into logs and journal.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use uuid::Uuid;

/// `req-<uuid>`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Bytes);

impl RequestId {
    /// A name no other request has.
    ///
    /// Made by hashing a counter with keys drawn at start, so that no request pays for a system
    /// call to fetch random bytes. Request ids need to be unique, not secret.
    #[must_use]
    pub fn fresh() -> Self {
        static KEYS: LazyLock<(RandomState, RandomState)> =
            LazyLock::new(|| (RandomState::new(), RandomState::new()));
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let uuid = uuid::Builder::from_u128(
            u128::from(KEYS.0.hash_one(count)) << 64 | u128::from(KEYS.1.hash_one(count)),
        )
        .with_variant(uuid::Variant::RFC4122)
        .with_version(uuid::Version::Random)
        .into_uuid();
        Self::of(uuid)
    }

    /// A caller's own id, if it has the form of one: it joins our logs to theirs and is never
    /// echoed as ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = text.strip_prefix("req-")?;
        (uuid.len() == uuid::fmt::Hyphenated::LENGTH)
            .then(|| Uuid::try_parse(uuid).ok())
            .flatten()
            .map(Self::of)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as a header value, without copying it.
    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.0.clone()).expect("req-<uuid> is a valid header value")
    }

    fn of(uuid: Uuid) -> Self {
        let mut text = vec![0; 4 + uuid::fmt::Hyphenated::LENGTH];
        text[..4].copy_from_slice(b"req-");
        uuid.hyphenated().encode_lower(&mut text[4..]);
        Self(Bytes::from(text))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_ones_differ_and_can_be_read_back() {
        let (a, b) = (RequestId::fresh(), RequestId::fresh());
        assert_ne!(a, b);
        assert_eq!(RequestId::parse(a.as_str()), Some(a));
    }

    #[test]
    fn foreign_ones_must_look_right() {
        for text in ["", "req-", "req-1", "x\r\ny", "6d7cbe44-9a0b-4d4a-8f5b-e4ec8d90cf1f"] {
            assert_eq!(RequestId::parse(text), None, "{text}");
        }
    }
}
