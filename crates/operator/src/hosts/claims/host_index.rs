// SPDX-License-Identifier: Apache-2.0
//! Finds hosts for claims, and the claims that a changed host concerns, without a search through all hosts.
//!
//! Available hosts without a reservation are indexed by namespace and label. A host that becomes available is
//! planned for the oldest waiting claim that can get it, and only that claim is reconciled. If a claim returns a
//! host that was reserved for it, all other claims that can get the host are reconciled. A claim compares only hosts
//! that have the rarest of its labels, and a host that it could get with the older claims, which come first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube_resources::hosts::annotations::{DETACHED, PAUSED, is_reboot_annotation};
use kube_resources::hosts::bare_metal_host::BareMetalHost;

use super::binding::{consumer, is_available};
use super::report::reported_conditions;
use super::reservations::{BindingProgress, HostReservations};
use super::selector::{HostRequest, ObjectLabels};
use super::waiting_claims::WaitingClaims;
use crate::object_key::ObjectKey;

/// The number of hosts that one search reserves for older claims.
const MAX_PLANS: usize = 100;
/// When a host that the API server refuses to change is offered again. The time doubles with each refusal.
const FIRST_REFUSED_DELAY: Duration = Duration::from_secs(60);
const MAX_REFUSED_DELAY: Duration = Duration::from_secs(600);

/// The hosts, and the claims that wait for one.
#[derive(Debug, Default)]
pub(in crate::hosts) struct HostIndex {
    hosts: HashMap<ObjectKey, IndexedHost>,
    /// Available hosts without a reservation, by namespace.
    available: BTreeMap<String, AvailableHosts>,
    /// Hosts by the claim that uses them.
    used: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    reservations: HostReservations,
    /// Hosts that the API server refuses to change.
    refused: HashMap<ObjectKey, HostRefusal>,
    waiting: WaitingClaims,
    /// Whether all hosts and claims were listed once. Until then no claim is woken for a host.
    is_complete: bool,
    /// Claims that were visited for a host and hosts that were visited for a claim, which metrics show.
    comparisons: u64,
}

#[derive(Debug, Default)]
struct AvailableHosts {
    names: BTreeSet<String>,
    /// Names by label key and value.
    by_label: HashMap<(String, String), BTreeSet<String>>,
}

#[derive(Debug)]
struct IndexedHost {
    version: u64,
    labels: ObjectLabels,
    is_available: bool,
    consumer: Option<ObjectKey>,
    /// Hash of what the claim that uses the host depends on.
    digest: u64,
    /// The claim was deleted while it used the host.
    has_deleted_claim: bool,
}

/// The API server refused to bind a host.
#[derive(Debug)]
struct HostRefusal {
    message: String,
    delay: Duration,
    /// When the host is offered again.
    until: Instant,
    /// Whether it was offered again.
    is_offered: bool,
}

/// Hosts that a claim could get if the API server did not refuse to change them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::hosts) struct RefusedHosts {
    pub(in crate::hosts) count: usize,
    /// The message of the API server for one of them.
    pub(in crate::hosts) message: String,
    /// When the first of them is offered again.
    pub(in crate::hosts) until: Instant,
}

/// The result of a search for a host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::hosts) struct HostChoice {
    /// The host that is reserved for the claim.
    pub(in crate::hosts) host: Option<ObjectKey>,
    /// Other claims that have to be reconciled.
    pub(in crate::hosts) concerned: Vec<ObjectKey>,
}

/// Which claim gets a host.
enum NextClaim {
    /// The claim for which a host is searched.
    Same,
    /// An older one.
    Older(ObjectKey),
    /// An older one, if its namespace is admitted, which is not known yet.
    Unknown,
}

impl HostIndex {
    /// All hosts and claims were listed once.
    pub(in crate::hosts) fn completed(&mut self) {
        self.is_complete = true;
    }

    /// Records a host and returns the claims that have to be reconciled. Versions that are older than a
    /// recorded one are ignored.
    pub(in crate::hosts) fn apply(&mut self, host: &BareMetalHost) -> Vec<ObjectKey> {
        let key = ObjectKey::new(host.namespace().unwrap_or_default(), host.name_any());
        let mut new = IndexedHost::of(host);
        if self.hosts.get(&key).is_some_and(|known| known.version > new.version) {
            return Vec::new();
        }
        let old = self.unlink(&key);
        self.refused.remove(&key);
        let was_same = old.as_ref().is_some_and(|old| old.is_available && old.labels == new.labels);
        let mut concerned = BTreeSet::new();
        match self.reservations.progress(&key) {
            // The claim may not match the host any more.
            Some(BindingProgress::Planned) if !(new.is_available && was_same) => {
                concerned.extend(self.end_reservation(&key));
            }
            Some(BindingProgress::Written(version)) if version <= new.version => {
                self.end_reservation(&key);
            }
            Some(_) | None => {}
        }
        let old_consumer = old.as_ref().and_then(|old| old.consumer.clone());
        new.has_deleted_claim =
            old.as_ref().is_some_and(|old| old.has_deleted_claim) && old_consumer == new.consumer;
        if old_consumer != new.consumer || old.as_ref().is_none_or(|old| old.digest != new.digest) {
            concerned.extend(old_consumer);
            concerned.extend(new.consumer.clone());
        }
        let mut claims = Vec::from_iter(concerned);
        let is_offered = new.is_available && !was_same;
        self.link(key.clone(), new);
        if is_offered {
            claims.extend(self.plan(&key));
        }
        claims
    }

    /// Records that a host does not exist and returns the claims that have to be reconciled.
    pub(in crate::hosts) fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let reserved = self.end_reservation(key);
        self.refused.remove(key);
        let used = self.unlink(key).and_then(|host| host.consumer);
        Vec::from_iter(reserved.into_iter().chain(used).collect::<BTreeSet<_>>())
    }

    /// Hosts that refer to a claim, or may do so soon.
    pub(in crate::hosts) fn hosts_of(&self, claim: &ObjectKey) -> BTreeSet<ObjectKey> {
        let mut hosts = self.used.get(claim).cloned().unwrap_or_default();
        hosts.extend(self.started(claim));
        hosts
    }

    /// The host to which a reference to the claim was perhaps written.
    pub(in crate::hosts) fn started(&self, claim: &ObjectKey) -> Option<ObjectKey> {
        let (host, progress) = self.reservations.host_of(claim)?;
        (progress != BindingProgress::Planned).then(|| host.clone())
    }

    /// Records which namespaces with hosts admit the claims of a namespace. Returns the claims that have to be
    /// reconciled.
    pub(in crate::hosts) fn admit(
        &mut self,
        claim_namespace: &str,
        admitting: &BTreeSet<String>,
    ) -> Vec<ObjectKey> {
        self.waiting.admit(claim_namespace, admitting)
    }

    /// Records that policies changed. Returns the waiting claims, the oldest first.
    pub(in crate::hosts) fn policies_changed(&mut self) -> Vec<ObjectKey> {
        self.waiting.forget_admissions();
        self.waiting.oldest_first().map(|(key, _)| key.clone()).collect()
    }

    /// Chooses an available host for a waiting claim and reserves it, so that no other claim gets it. Hosts
    /// that older claims can use are reserved for those. The caller writes the reference and calls
    /// [`HostIndex::bound`], [`HostIndex::not_bound`] or [`HostIndex::host_refused`].
    pub(in crate::hosts) fn reserve(&mut self, claim: &ObjectKey) -> HostChoice {
        let mut choice = HostChoice::default();
        self.waiting.set_failed(claim, false);
        if let Some((host, BindingProgress::Planned)) = self.reservations.host_of(claim) {
            let host = host.clone();
            if self.can_use(claim, &host) {
                self.reservations.set_progress(&host, BindingProgress::Started);
                choice.host = Some(host);
                return choice;
            }
            choice.concerned = self.not_bound(&host);
        }
        for _ in 0..MAX_PLANS {
            let Some(host) = self.find_for(claim) else { return choice };
            let Some((first, host)) = self.first_claim(claim, host) else {
                self.waiting.defer(claim.clone());
                return choice;
            };
            if first == *claim {
                self.reserve_host(host.clone(), first, BindingProgress::Started);
                choice.host = Some(host);
                return choice;
            }
            self.reserve_host(host, first.clone(), BindingProgress::Planned);
            choice.concerned.push(first);
        }
        // Other tasks run before the rest.
        choice.concerned.push(claim.clone());
        choice
    }

    /// The claim that gets a host first if `claim` requests `host`, and the host that it gets: an older claim may
    /// prefer another one, for which a still older claim waits. `None` if that depends on an admission that is
    /// not known yet.
    fn first_claim(
        &mut self,
        claim: &ObjectKey,
        host: ObjectKey,
    ) -> Option<(ObjectKey, ObjectKey)> {
        let (mut claim, mut host) = (claim.clone(), host);
        loop {
            match self.next_claim(&claim, &host) {
                NextClaim::Same => return Some((claim, host)),
                NextClaim::Unknown => return None,
                NextClaim::Older(older) => {
                    host = self.find_for(&older).unwrap_or(host);
                    claim = older;
                }
            }
        }
    }

    /// The reference to the claim was written as this version of the host. The reservation ends when the
    /// watch reports it.
    pub(in crate::hosts) fn bound(&mut self, key: &ObjectKey, host: &BareMetalHost) {
        let version = version_of(host);
        self.refused.remove(key);
        match self.hosts.get(key).is_some_and(|known| known.version >= version) {
            true => _ = self.end_reservation(key),
            false => self.reservations.set_progress(key, BindingProgress::Written(version)),
        }
    }

    /// The reference was not written. Returns the other waiting claims that can get the host.
    pub(in crate::hosts) fn not_bound(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let reserved = self.end_reservation(key);
        let is_available = self.hosts.get(key).is_some_and(|host| host.is_available);
        let mut claims = if is_available { self.waiting_for(key) } else { Vec::new() };
        claims.retain(|claim| Some(claim) != reserved.as_ref());
        claims
    }

    /// This version of a host cannot be changed any more, so it is not offered before the next one is observed.
    /// Returns the claims that can get the host because it has changed already.
    pub(in crate::hosts) fn host_outdated(
        &mut self,
        key: &ObjectKey,
        outdated: &BareMetalHost,
    ) -> Vec<ObjectKey> {
        let version = version_of(outdated);
        if self.hosts.get(key).is_some_and(|known| known.version > version) {
            return self.not_bound(key);
        }
        self.end_reservation(key);
        self.set_available(key, false);
        Vec::new()
    }

    /// The API server refuses to change this version of a host, so it is not offered before its next change or
    /// some time. Returns the claims that have to be reconciled: those which can get the host because it has
    /// changed already, or which wait for it.
    pub(in crate::hosts) fn host_refused(
        &mut self,
        key: &ObjectKey,
        refused: &BareMetalHost,
        message: String,
        now: Instant,
    ) -> Vec<ObjectKey> {
        let version = version_of(refused);
        if self.hosts.get(key).is_some_and(|known| known.version > version) {
            return self.not_bound(key);
        }
        self.end_reservation(key);
        let claims = self.waiting_for(key);
        if self.set_available(key, false) {
            let earlier = self.refused.get(key).map(|refusal| refusal.delay * 2);
            let delay = earlier.unwrap_or(FIRST_REFUSED_DELAY).min(MAX_REFUSED_DELAY);
            let refusal = HostRefusal { message, delay, until: now + delay, is_offered: false };
            self.refused.insert(key.clone(), refusal);
        }
        claims
    }

    /// The hosts that the API server refuses to change and a waiting claim could use.
    pub(in crate::hosts) fn refused_for(&self, claim: &ObjectKey) -> Option<RefusedHosts> {
        let waiting = self.waiting.get(claim)?;
        let admitting = self.waiting.admitting(claim)?;
        let mut found: Option<RefusedHosts> = None;
        for (key, refusal) in self.refused.iter().filter(|(_, refusal)| !refusal.is_offered) {
            let is_wanted = admitting.contains(key.namespace())
                && waiting.request.is_in(key.namespace())
                && self.hosts.get(key).is_some_and(|host| waiting.request.matches(&host.labels));
            if !is_wanted {
                continue;
            }
            let hosts = found.get_or_insert_with(|| RefusedHosts {
                count: 0,
                message: refusal.message.clone(),
                until: refusal.until,
            });
            hosts.count += 1;
            hosts.until = hosts.until.min(refusal.until);
        }
        found
    }

    /// Offers refused hosts again whose time has come. Returns the claims that can get one.
    pub(in crate::hosts) fn offer_refused(&mut self, now: Instant) -> Vec<ObjectKey> {
        let mut due = Vec::new();
        for (key, refusal) in &mut self.refused {
            if !refusal.is_offered && refusal.until <= now {
                refusal.is_offered = true;
                due.push(key.clone());
            }
        }
        let mut claims = BTreeSet::new();
        for key in due {
            self.set_available(&key, true);
            claims.extend(self.plan(&key));
        }
        claims.into_iter().collect()
    }

    /// Changes whether a host can be chosen. False if there is no such host.
    fn set_available(&mut self, key: &ObjectKey, is_available: bool) -> bool {
        let Some(host) = self.unlink(key) else { return false };
        self.link(key.clone(), IndexedHost { is_available, ..host });
        true
    }

    /// An attempt to give the claim a host failed, not because of the host. So other claims come first until
    /// its next attempt. Returns those that can get the host that was planned for it.
    pub(in crate::hosts) fn claim_failed(&mut self, claim: &ObjectKey) -> Vec<ObjectKey> {
        self.waiting.set_failed(claim, true);
        self.end_plan(claim)
    }

    /// From now on the claim waits for a host.
    pub(in crate::hosts) fn wait(
        &mut self,
        claim: ObjectKey,
        request: HostRequest,
        created: Option<Timestamp>,
    ) {
        self.waiting.insert(claim, request, created);
    }

    /// The claim has a host, or cannot get one. Returns the claims that may get the host that was planned for
    /// it.
    pub(in crate::hosts) fn stop_waiting(&mut self, claim: &ObjectKey) -> Vec<ObjectKey> {
        let mut claims = self.waiting.remove(claim);
        claims.extend(self.end_plan(claim));
        claims
    }

    /// Removes everything about a claim that is deleted. A host whose reservation is not certain to be used
    /// can be chosen again; returns the claims that can get it.
    pub(in crate::hosts) fn forget(&mut self, claim: &ObjectKey) -> Vec<ObjectKey> {
        let mut claims = self.stop_waiting(claim);
        if let Some((host, BindingProgress::Started)) = self.reservations.host_of(claim) {
            let host = host.clone();
            claims.extend(self.not_bound(&host));
        }
        claims
    }

    /// Records that a claim does not exist any more. Returns the hosts that it did not release.
    pub(in crate::hosts) fn claim_deleted(&mut self, claim: &ObjectKey) -> Vec<ObjectKey> {
        let hosts = Vec::from_iter(self.used.get(claim).into_iter().flatten().cloned());
        for key in &hosts {
            if let Some(host) = self.hosts.get_mut(key) {
                host.has_deleted_claim = true;
            }
        }
        hosts
    }

    /// Whether the claim that a host refers to was deleted, as far as this process has seen it.
    pub(in crate::hosts) fn has_deleted_claim(&self, key: &ObjectKey) -> bool {
        self.hosts.get(key).is_some_and(|host| host.has_deleted_claim)
    }

    pub(in crate::hosts) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Claims and hosts that were visited since the start.
    pub(in crate::hosts) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Ends the reservation of a host that the claim has not used.
    fn end_plan(&mut self, claim: &ObjectKey) -> Vec<ObjectKey> {
        match self.reservations.host_of(claim) {
            Some((host, BindingProgress::Planned)) => {
                let host = host.clone();
                self.not_bound(&host)
            }
            Some((_, BindingProgress::Started | BindingProgress::Written(_))) | None => Vec::new(),
        }
    }

    /// Plans a free host for the oldest waiting claim that can get it, and returns that claim. If it is not known
    /// whether an older one is admitted, nothing is planned, and all claims that may get the host are returned.
    fn plan(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let is_free = self.reservations.progress(key).is_none();
        let Some(host) = self.hosts.get(key).filter(|_| self.is_complete && is_free) else {
            return Vec::new();
        };
        let mut visited = 0;
        let (mut first, mut is_unknown) = (None, false);
        for (name, claim) in self.waiting.without_host() {
            visited += 1;
            let may_get = !claim.has_failed
                && !self.used.contains_key(name)
                && claim.request.is_in(key.namespace())
                && claim.request.matches(&host.labels);
            match self.waiting.admitting(name) {
                None if may_get => {
                    is_unknown = true;
                    break;
                }
                Some(names) if may_get && names.contains(key.namespace()) => {
                    first = Some(name.clone());
                    break;
                }
                Some(_) | None => {}
            }
        }
        self.comparisons += visited;
        let Some(claim) = first else {
            return if is_unknown { self.waiting_for(key) } else { Vec::new() };
        };
        self.reserve_host(key.clone(), claim.clone(), BindingProgress::Planned);
        vec![claim]
    }

    /// Claims without a host that may get a host, the oldest first. Each claim is reconciled at the start anyway.
    fn waiting_for(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(host) = self.hosts.get(key).filter(|_| self.is_complete) else {
            return Vec::new();
        };
        let mut visited = 0;
        let matching = self.waiting.without_host().filter(|(name, claim)| {
            visited += 1;
            let admitting = self.waiting.admitting(name);
            let is_admitted = admitting.is_none_or(|names| names.contains(key.namespace()));
            is_admitted
                && !claim.has_failed
                && claim.request.is_in(key.namespace())
                && claim.request.matches(&host.labels)
        });
        let claims = matching.map(|(key, _)| key.clone()).collect();
        self.comparisons += visited;
        claims
    }

    /// Which claim gets an available host that `claim` requests: the oldest that can use it and has none.
    fn next_claim(&mut self, claim: &ObjectKey, key: &ObjectKey) -> NextClaim {
        let Some(host) = self.hosts.get(key) else { return NextClaim::Same };
        for (older, waiting) in self.waiting.older_than(claim) {
            self.comparisons += 1;
            let admitting = self.waiting.admitting(older);
            let is_admitted = admitting.is_none_or(|names| names.contains(key.namespace()));
            let has_host = self.used.contains_key(older);
            if waiting.has_failed
                || has_host
                || !is_admitted
                || !waiting.request.is_in(key.namespace())
            {
                continue;
            }
            if waiting.request.matches(&host.labels) {
                return match admitting {
                    Some(_) => NextClaim::Older(older.clone()),
                    None => NextClaim::Unknown,
                };
            }
        }
        NextClaim::Same
    }

    /// Whether a waiting claim is admitted to an available host and matches it.
    fn can_use(&self, claim: &ObjectKey, key: &ObjectKey) -> bool {
        let (Some(waiting), Some(host)) = (self.waiting.get(claim), self.hosts.get(key)) else {
            return false;
        };
        let admitting = self.waiting.admitting(claim);
        host.is_available
            && admitting.is_some_and(|names| names.contains(key.namespace()))
            && waiting.request.is_in(key.namespace())
            && waiting.request.matches(&host.labels)
    }

    /// The best host for a waiting claim that is not reserved.
    fn find_for(&mut self, claim: &ObjectKey) -> Option<ObjectKey> {
        let request = self.waiting.get(claim)?.request.clone();
        let admitting = self.waiting.admitting(claim)?.clone();
        let preferred = request.preferred();
        preferred
            .and_then(|preferred| self.find(&preferred, &admitting))
            .or_else(|| self.find(&request, &admitting))
    }

    fn find(&mut self, request: &HostRequest, namespaces: &BTreeSet<String>) -> Option<ObjectKey> {
        let mut compared = 0;
        let wanted = namespaces.iter().filter(|name| request.is_in(name));
        let found = wanted
            .filter_map(|namespace| Some((namespace, self.available.get(namespace)?)))
            .flat_map(|(namespace, hosts)| {
                hosts.candidates(request).map(move |name| ObjectKey::new(namespace, name))
            })
            .find(|key| {
                let Some(host) = self.hosts.get(key) else { return false };
                compared += 1;
                request.matches(&host.labels)
            });
        self.comparisons += compared;
        found
    }

    fn link(&mut self, key: ObjectKey, host: IndexedHost) {
        if let Some(claim) = &host.consumer {
            self.used.entry(claim.clone()).or_default().insert(key.clone());
        }
        self.hosts.insert(key.clone(), host);
        self.offer(&key);
    }

    /// Adds a host to the available ones, unless it is used or reserved.
    fn offer(&mut self, key: &ObjectKey) {
        let Some(host) = self.hosts.get(key).filter(|host| host.is_available) else { return };
        if self.reservations.progress(key).is_some() {
            return;
        }
        let hosts = self.available.entry(key.namespace().to_owned()).or_default();
        hosts.names.insert(key.name().to_owned());
        for (label, value) in &host.labels {
            let names = hosts.by_label.entry((label.clone(), value.clone())).or_default();
            names.insert(key.name().to_owned());
        }
    }

    /// Removes a host from the available ones.
    fn withdraw(&mut self, key: &ObjectKey, labels: &ObjectLabels) {
        let Some(hosts) = self.available.get_mut(key.namespace()) else { return };
        hosts.names.remove(key.name());
        for (label, value) in labels {
            let label = (label.clone(), value.clone());
            if let Some(names) = hosts.by_label.get_mut(&label) {
                names.remove(key.name());
                if names.is_empty() {
                    hosts.by_label.remove(&label);
                }
            }
        }
        if hosts.names.is_empty() {
            self.available.remove(key.namespace());
        }
    }

    /// Reserves an available host for a waiting claim.
    fn reserve_host(&mut self, host: ObjectKey, claim: ObjectKey, progress: BindingProgress) {
        let labels = self.hosts.get(&host).map(|host| host.labels.clone()).unwrap_or_default();
        self.withdraw(&host, &labels);
        self.waiting.set_has_host(&claim, true);
        if let Some(earlier) = self.reservations.insert(host, claim, progress) {
            self.offer(&earlier);
        }
    }

    /// Ends the reservation of a host and returns its claim.
    fn end_reservation(&mut self, host: &ObjectKey) -> Option<ObjectKey> {
        let claim = self.reservations.remove(host)?;
        self.waiting.set_has_host(&claim, false);
        self.offer(host);
        Some(claim)
    }

    fn unlink(&mut self, key: &ObjectKey) -> Option<IndexedHost> {
        let host = self.hosts.remove(key)?;
        if let Some(claim) = &host.consumer
            && let Some(hosts) = self.used.get_mut(claim)
        {
            hosts.remove(key);
            if hosts.is_empty() {
                self.used.remove(claim);
            }
        }
        self.withdraw(key, &host.labels);
        Some(host)
    }
}

impl AvailableHosts {
    /// The shortest list of hosts that contains all that match.
    fn candidates<'a>(
        &'a self,
        request: &HostRequest,
    ) -> Box<dyn Iterator<Item = &'a String> + 'a> {
        let mut shortest: Option<Vec<&BTreeSet<String>>> = None;
        let count = |sets: &[&BTreeSet<String>]| sets.iter().map(|set| set.len()).sum::<usize>();
        for (key, values) in request.required_labels() {
            let with = |value: &String| self.by_label.get(&(key.to_owned(), value.clone()));
            let sets: Vec<&BTreeSet<String>> =
                BTreeSet::from_iter(values).into_iter().filter_map(with).collect();
            if shortest.as_ref().is_none_or(|shortest| count(&sets) < count(shortest)) {
                shortest = Some(sets);
            }
        }
        match shortest {
            Some(sets) => Box::new(sets.into_iter().flatten()),
            None => Box::new(self.names.iter()),
        }
    }
}

impl IndexedHost {
    fn of(host: &BareMetalHost) -> Self {
        let consumer = consumer(host);
        Self {
            version: version_of(host),
            labels: host.labels().clone(),
            is_available: is_available(host),
            digest: consumer.as_ref().map_or(0, |_| digest(host)),
            consumer,
            has_deleted_claim: false,
        }
    }
}

/// Hash of what the claim that uses a host depends on.
fn digest(host: &BareMetalHost) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.metadata.generation.hash(&mut hasher);
    host.metadata.uid.hash(&mut hasher);
    host.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    for annotation in host.annotations().iter().filter(|(key, _)| is_reboot_annotation(key)) {
        annotation.hash(&mut hasher);
    }
    // A release waits for them.
    [PAUSED, DETACHED].map(|key| host.annotation(key).is_some()).hash(&mut hasher);
    if let Some(status) = &host.status {
        status.powered_on.hash(&mut hasher);
        status.provisioning.state.as_str().hash(&mut hasher);
        status.provisioning.deployed_image().is_some().hash(&mut hasher);
        status.provisioning.custom_deploy.is_some().hash(&mut hasher);
        status.operational_status.as_str().hash(&mut hasher);
        status.error_message.hash(&mut hasher);
        status.hardware.is_some().hash(&mut hasher);
        for condition in reported_conditions(&status.conditions) {
            (&condition.type_, &condition.status).hash(&mut hasher);
            (&condition.reason, &condition.message).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Versions are numbers that increase.
fn version_of(host: &BareMetalHost) -> u64 {
    host.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
