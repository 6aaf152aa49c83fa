// SPDX-License-Identifier: Apache-2.0
//! Request ids: `req-<uuid>`, sent to the client and written to logs and journal.

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
    /// A new unique id.
    ///
    /// It is a keyed hash of a counter, because fetching random bytes would cost a system call per
    /// request. Request ids must be unique, not secret.
    #[must_use]
    pub fn generate() -> Self {
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
        Self::from_uuid(uuid)
    }

    /// Parses a caller's own request id. It is logged next to ours and never sent back as ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = text.strip_prefix("req-")?;
        (uuid.len() == uuid::fmt::Hyphenated::LENGTH)
            .then(|| Uuid::try_parse(uuid).ok())
            .flatten()
            .map(Self::from_uuid)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id as a header value, without a copy.
    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.0.clone()).expect("req-<uuid> is a valid header value")
    }

    fn from_uuid(uuid: Uuid) -> Self {
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
    fn generated_ids_are_unique_and_parse() {
        let (a, b) = (RequestId::generate(), RequestId::generate());
        assert_ne!(a, b);
        assert_eq!(RequestId::parse(a.as_str()), Some(a));
    }

    #[test]
    fn rejects_malformed_ids() {
        for text in ["", "req-", "req-1", "x\r\ny", "6d7cbe44-9a0b-4d4a-8f5b-e4ec8d90cf1f"] {
            assert_eq!(RequestId::parse(text), None, "{text}");
        }
    }
}
