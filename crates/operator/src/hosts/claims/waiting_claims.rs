// SPDX-License-Identifier: Apache-2.0
//! The claims that wait for a host, by age, and which namespaces with hosts admit them.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::jiff::Timestamp;

use super::selector::HostRequest;
use crate::object_key::ObjectKey;

/// The waiting claims.
#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    claims: HashMap<ObjectKey, WaitingClaim>,
    by_age: BTreeSet<ClaimAge>,
    /// Those without a reserved host.
    without_host: BTreeSet<ClaimAge>,
    /// Namespaces with hosts that admit claims, by the namespace of the claims. Without an entry it is not
    /// known yet.
    admissions: HashMap<String, BTreeSet<String>>,
    /// Claims that left a host to an older claim of which it is not known whether it is admitted.
    deferred: BTreeSet<ObjectKey>,
}

/// Order of claims: the oldest first, then by namespace and name.
type ClaimAge = (Option<Timestamp>, ObjectKey);

/// What a waiting claim requests.
#[derive(Debug)]
pub(super) struct WaitingClaim {
    pub(super) request: HostRequest,
    created: Option<Timestamp>,
    /// The last attempt to give the claim a host failed. Others come first until its next attempt.
    pub(super) has_failed: bool,
}

impl WaitingClaims {
    /// Adds a claim, or changes its request.
    pub(super) fn insert(
        &mut self,
        key: ObjectKey,
        request: HostRequest,
        created: Option<Timestamp>,
    ) {
        let earlier = self.claims.remove(&key);
        let mut has_host = false;
        if let Some(earlier) = &earlier {
            let age = (earlier.created, key.clone());
            self.by_age.remove(&age);
            has_host = !self.without_host.remove(&age);
        }
        let has_failed = earlier.is_some_and(|earlier| earlier.has_failed);
        self.by_age.insert((created, key.clone()));
        if !has_host {
            self.without_host.insert((created, key.clone()));
        }
        self.claims.insert(key, WaitingClaim { request, created, has_failed });
    }

    /// Removes a claim. Returns the claims that left a host to an older one, which may be this.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(claim) = self.claims.remove(key) else { return Vec::new() };
        let age = (claim.created, key.clone());
        self.by_age.remove(&age);
        self.without_host.remove(&age);
        self.deferred.remove(key);
        if self.claims.is_empty() {
            self.admissions.clear();
        }
        Vec::from_iter(std::mem::take(&mut self.deferred))
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&WaitingClaim> {
        self.claims.get(key)
    }

    pub(super) fn set_failed(&mut self, key: &ObjectKey, has_failed: bool) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.has_failed = has_failed;
        }
    }

    /// Records whether a host is reserved for a claim.
    pub(super) fn set_has_host(&mut self, key: &ObjectKey, has_host: bool) {
        let Some(claim) = self.claims.get(key) else { return };
        let age = (claim.created, key.clone());
        match has_host {
            true => _ = self.without_host.remove(&age),
            false => _ = self.without_host.insert(age),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// All claims, the oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (&ObjectKey, &WaitingClaim)> {
        self.by_age.iter().filter_map(|(_, key)| Some((key, self.claims.get(key)?)))
    }

    /// The claims without a reserved host, the oldest first.
    pub(super) fn without_host(&self) -> impl Iterator<Item = (&ObjectKey, &WaitingClaim)> {
        self.without_host.iter().filter_map(|(_, key)| Some((key, self.claims.get(key)?)))
    }

    /// Claims without a reserved host that are older than a waiting one, the oldest first.
    pub(super) fn older_than(
        &self,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectKey, &WaitingClaim)> {
        let created = self.claims.get(key).and_then(|claim| claim.created);
        let older = self.without_host.range(..(created, key.clone()));
        older.filter_map(|(_, key)| Some((key, self.claims.get(key)?)))
    }

    /// Records which namespaces admit the claims of a namespace. Returns the claims that waited for it.
    pub(super) fn admit(
        &mut self,
        namespace: &str,
        admitting: &BTreeSet<String>,
    ) -> Vec<ObjectKey> {
        let is_known = self.admissions.get(namespace).is_some_and(|known| known == admitting);
        if is_known {
            return Vec::new();
        }
        self.admissions.insert(namespace.to_owned(), admitting.clone());
        Vec::from_iter(std::mem::take(&mut self.deferred))
    }

    /// The policies changed.
    pub(super) fn forget_admissions(&mut self) {
        self.admissions.clear();
    }

    /// The namespaces that admit a claim; `None` if they are not known.
    pub(super) fn admitting(&self, key: &ObjectKey) -> Option<&BTreeSet<String>> {
        self.admissions.get(key.namespace())
    }

    /// [`WaitingClaims::admit`] returns the claim when more is known.
    pub(super) fn defer(&mut self, key: ObjectKey) {
        self.deferred.insert(key);
    }
}
