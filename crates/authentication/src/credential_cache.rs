// SPDX-License-Identifier: Apache-2.0
//! Verified credentials, so that a password or token is verified once and not with every request.
//!
//! Keys are SHA-256 digests of the credentials and a random key of this process. Entries are compared
//! with the store again after [`RECHECK_INTERVAL`], and at once after a change in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use node_model::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::roles::Principal;

/// After how long an entry is compared with the store again: the delay with which changes made by
/// other replicas apply.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of entries. A full cache is emptied.
const MAX_ENTRIES: usize = 4096;

/// What an entry was verified against, to detect changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum VerifiedAgainst {
    /// An entry of the htpasswd file with this password hash.
    Htpasswd { hash: String },
    /// A user of the store with this password hash.
    User { hash: String },
    /// A token or session, which is found by the credential itself.
    Stored,
}

impl VerifiedAgainst {
    /// The password hash; empty for tokens and sessions.
    pub(crate) fn hash(&self) -> &str {
        match self {
            Self::Htpasswd { hash } | Self::User { hash } => hash,
            Self::Stored => "",
        }
    }
}

/// A verified credential.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedCredential {
    pub(crate) principal: Arc<Principal>,
    pub(crate) against: VerifiedAgainst,
    pub(crate) expires_at: Option<Timestamp>,
}

/// The key of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CredentialKey([u8; 32]);

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    /// Verified or compared recently.
    Fresh(VerifiedCredential),
    /// Must be compared with the store.
    Stale(VerifiedCredential),
    /// Not cached.
    Unknown,
}

/// A state of the stored identities as known to this process. Entries based on data that was read
/// before a change are not inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheVersion(u64);

#[derive(Debug)]
pub(crate) struct CredentialCache {
    key: [u8; 32],
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    entries: HashMap<CredentialKey, CacheEntry>,
    version: u64,
}

#[derive(Debug)]
struct CacheEntry {
    credential: VerifiedCredential,
    /// `None` if it must be compared with the store.
    checked_at: Option<Instant>,
}

impl std::fmt::Debug for CredentialKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialKey")
    }
}

impl CredentialCache {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        // Without a random key the cache still works: the digest of an unknown password stays unknown.
        let _ = getrandom::fill(&mut key);
        Self { key, state: Mutex::new(CacheState::default()) }
    }

    /// The key of credentials of one kind.
    pub(crate) fn key(&self, kind: &str, user: &str, secret: &str) -> CredentialKey {
        let mut hasher = Sha256::new();
        hasher.update(self.key);
        for part in [kind, user, secret] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        CredentialKey(hasher.finalize().into())
    }

    /// Looks up a credential.
    pub(crate) fn find(&self, key: &CredentialKey, now: Instant) -> CacheLookup {
        match self.lock().entries.get(key) {
            None => CacheLookup::Unknown,
            Some(CacheEntry { credential, checked_at }) => {
                let is_recent =
                    |at: &Instant| now.saturating_duration_since(*at) < RECHECK_INTERVAL;
                if checked_at.as_ref().is_some_and(is_recent) {
                    CacheLookup::Fresh(credential.clone())
                } else {
                    CacheLookup::Stale(credential.clone())
                }
            }
        }
    }

    /// The current version. Read it before the data that an entry is based on.
    pub(crate) fn version(&self) -> CacheVersion {
        CacheVersion(self.lock().version)
    }

    /// Inserts a credential that was verified or compared now.
    pub(crate) fn insert(
        &self,
        key: CredentialKey,
        credential: VerifiedCredential,
        version: CacheVersion,
        now: Instant,
    ) {
        let mut state = self.lock();
        if state.version != version.0 {
            return;
        }
        if state.entries.len() >= MAX_ENTRIES && !state.entries.contains_key(&key) {
            state.entries.clear();
        }
        state.entries.insert(key, CacheEntry { credential, checked_at: Some(now) });
    }

    /// Removes one entry.
    pub(crate) fn remove(&self, key: &CredentialKey) {
        self.lock().entries.remove(key);
    }

    /// Makes all entries be compared with the store. They are not removed: passwords would have to be
    /// verified again.
    pub(crate) fn expire(&self) {
        let mut state = self.lock();
        state.entries.values_mut().for_each(|entry| entry.checked_at = None);
        state.version += 1;
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use access_policy::AuthMethod;

    use super::*;
    use crate::roles::{DefaultCaller, RightsLimit, UserRights};

    fn credential() -> VerifiedCredential {
        VerifiedCredential {
            principal: Arc::new(Principal {
                user_id: Arc::from("id"),
                user_name: Arc::from("alice"),
                method: AuthMethod::Password,
                rights: UserRights::Unrestricted,
                limit: RightsLimit::default(),
                preferred_scope: None,
                default_caller: DefaultCaller::default(),
            }),
            against: VerifiedAgainst::Stored,
            expires_at: None,
        }
    }

    #[test]
    fn entries_are_checked_again_after_an_interval() {
        let (cache, now) = (CredentialCache::new(), Instant::now());
        let key = cache.key("password", "alice", "secret");
        assert!(matches!(cache.find(&key, now), CacheLookup::Unknown));
        cache.insert(key, credential(), cache.version(), now);
        assert!(matches!(cache.find(&key, now), CacheLookup::Fresh(_)));
        assert!(matches!(cache.find(&key, now + RECHECK_INTERVAL), CacheLookup::Stale(_)));
        for other in [
            cache.key("password", "alice", "secret2"),
            cache.key("password", "alices", "ecret"),
            cache.key("token", "alice", "secret"),
            CredentialCache::new().key("password", "alice", "secret"),
        ] {
            assert!(matches!(cache.find(&other, now), CacheLookup::Unknown));
        }
    }

    #[test]
    fn data_read_before_a_change_is_not_cached() {
        let (cache, now) = (CredentialCache::new(), Instant::now());
        let key = cache.key("password", "alice", "secret");
        let before = cache.version();
        cache.expire();
        cache.insert(key, credential(), before, now);
        assert!(matches!(cache.find(&key, now), CacheLookup::Unknown));
        cache.insert(key, credential(), cache.version(), now);
        cache.expire();
        assert!(matches!(cache.find(&key, now), CacheLookup::Stale(_)));
        cache.remove(&key);
        for number in 0..=MAX_ENTRIES {
            let key = cache.key("password", "alice", &number.to_string());
            cache.insert(key, credential(), cache.version(), now);
        }
        assert_eq!(cache.lock().entries.len(), 1);
    }
}
