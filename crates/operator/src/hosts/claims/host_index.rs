// SPDX-License-Identifier: Apache-2.0
//! Finds hosts for claims, and the claims that a changed host concerns, without a search through all hosts.
//!
//! Available hosts are indexed by namespace and label. A host that becomes available is compared once with
//! each waiting claim. A claim compares only hosts that have the rarest of its labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube_resources::hosts::annotations::is_reboot_annotation;
use kube_resources::hosts::bare_metal_host::BareMetalHost;

use super::binding::{consumer, is_available};
use super::report::reported_conditions;
use super::selector::{HostRequest, ObjectLabels};
use crate::object_key::ObjectKey;

/// The hosts, and the claims that wait for one.
#[derive(Debug, Default)]
pub(in crate::hosts) struct HostIndex {
    hosts: HashMap<ObjectKey, IndexedHost>,
    /// Available hosts by namespace.
    available: BTreeMap<String, AvailableHosts>,
    /// Hosts by the claim that uses them.
    used: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    reservations: HashMap<ObjectKey, BindingReservation>,
    waiting: HashMap<ObjectKey, WaitingClaim>,
    /// Comparisons of a host with a claim, which metrics show.
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
}

/// A host that is being bound.
#[derive(Debug)]
struct BindingReservation {
    claim: ObjectKey,
    /// The version with the reference to the claim, once it is written.
    written: Option<u64>,
}

#[derive(Debug)]
struct WaitingClaim {
    request: HostRequest,
    created: Option<Timestamp>,
}

impl HostIndex {
    /// Records a host and returns the claims that have to be reconciled. Versions that are older than a
    /// recorded one are ignored.
    pub(in crate::hosts) fn apply(&mut self, host: &BareMetalHost) -> Vec<ObjectKey> {
        let key = ObjectKey::new(host.namespace().unwrap_or_default(), host.name_any());
        let new = IndexedHost::of(host);
        if self.hosts.get(&key).is_some_and(|known| known.version > new.version) {
            return Vec::new();
        }
        let written = self.reservations.get(&key).and_then(|reservation| reservation.written);
        if written.is_some_and(|written| written <= new.version) {
            self.reservations.remove(&key);
        }
        let old = self.unlink(&key);
        let mut concerned = BTreeSet::new();
        let old_consumer = old.as_ref().and_then(|old| old.consumer.clone());
        if old_consumer != new.consumer || old.as_ref().is_none_or(|old| old.digest != new.digest) {
            concerned.extend(old_consumer);
            concerned.extend(new.consumer.clone());
        }
        let was_same = old.as_ref().is_some_and(|old| old.is_available && old.labels == new.labels);
        let mut claims = Vec::from_iter(concerned);
        let is_offered = new.is_available && !was_same;
        self.link(key.clone(), new);
        if is_offered {
            claims.extend(self.waiting_for(&key));
        }
        claims
    }

    /// Records that a host does not exist and returns the claims that have to be reconciled.
    pub(in crate::hosts) fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let reserved = self.reservations.remove(key).map(|reservation| reservation.claim);
        let used = self.unlink(key).and_then(|host| host.consumer);
        Vec::from_iter(reserved.into_iter().chain(used).collect::<BTreeSet<_>>())
    }

    /// Hosts that refer to a claim.
    pub(in crate::hosts) fn hosts_of(&self, claim: &ObjectKey) -> BTreeSet<ObjectKey> {
        let mut hosts = self.used.get(claim).cloned().unwrap_or_default();
        let reserved = self.reservations.iter();
        hosts.extend(
            reserved
                .filter(|(_, reservation)| reservation.claim == *claim)
                .map(|(key, _)| key.clone()),
        );
        hosts
    }

    /// Chooses an available host in one of the namespaces and reserves it, so that no other claim gets it.
    /// The caller writes the reference and calls [`HostIndex::bound`] or [`HostIndex::not_bound`].
    pub(in crate::hosts) fn reserve(
        &mut self,
        claim: &ObjectKey,
        request: &HostRequest,
        namespaces: &BTreeSet<String>,
    ) -> Option<ObjectKey> {
        let preferred = request.preferred();
        let key = preferred
            .and_then(|preferred| self.find(&preferred, namespaces))
            .or_else(|| self.find(request, namespaces))?;
        let reservation = BindingReservation { claim: claim.clone(), written: None };
        self.reservations.insert(key.clone(), reservation);
        Some(key)
    }

    /// The reference to the claim was written as this version of the host. The reservation ends when the
    /// watch reports it.
    pub(in crate::hosts) fn bound(&mut self, key: &ObjectKey, host: &BareMetalHost) {
        let version = version_of(host);
        let is_seen = self.hosts.get(key).is_some_and(|known| known.version >= version);
        match is_seen {
            true => _ = self.reservations.remove(key),
            false => {
                if let Some(reservation) = self.reservations.get_mut(key) {
                    reservation.written = Some(version);
                }
            }
        }
    }

    /// The reference was not written. Returns the waiting claims that can get the host.
    pub(in crate::hosts) fn not_bound(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.reservations.remove(key);
        match self.hosts.get(key).is_some_and(|host| host.is_available) {
            true => self.waiting_for(key),
            false => Vec::new(),
        }
    }

    /// The API server refuses to change the host, so it is not offered again before its next change.
    pub(in crate::hosts) fn refused(&mut self, key: &ObjectKey) {
        self.reservations.remove(key);
        if let Some(host) = self.unlink(key) {
            self.link(key.clone(), IndexedHost { is_available: false, ..host });
        }
    }

    /// From now on changes that may help the claim are reported.
    pub(in crate::hosts) fn wait(
        &mut self,
        claim: ObjectKey,
        request: HostRequest,
        created: Option<Timestamp>,
    ) {
        self.waiting.insert(claim, WaitingClaim { request, created });
    }

    pub(in crate::hosts) fn stop_waiting(&mut self, claim: &ObjectKey) {
        self.waiting.remove(claim);
    }

    /// Removes everything about a claim that is deleted. A host whose reservation is not certain to be used
    /// can be chosen again.
    pub(in crate::hosts) fn forget(&mut self, claim: &ObjectKey) {
        self.waiting.remove(claim);
        self.reservations
            .retain(|_, reservation| reservation.claim != *claim || reservation.written.is_some());
    }

    /// All waiting claims, the oldest first.
    pub(in crate::hosts) fn all_waiting(&self) -> Vec<ObjectKey> {
        oldest_first(self.waiting.iter())
    }

    pub(in crate::hosts) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Comparisons of a host with a claim since the start.
    pub(in crate::hosts) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Waiting claims that a host matches, the oldest first.
    fn waiting_for(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(host) = self.hosts.get(key) else { return Vec::new() };
        let mut compared = 0;
        let matching = self.waiting.iter().filter(|(_, claim)| {
            let is_elsewhere =
                claim.request.namespace.as_ref().is_some_and(|name| name != key.namespace());
            if is_elsewhere {
                return false;
            }
            compared += 1;
            claim.request.matches(&host.labels)
        });
        let claims = oldest_first(matching);
        self.comparisons += compared;
        claims
    }

    fn find(&mut self, request: &HostRequest, namespaces: &BTreeSet<String>) -> Option<ObjectKey> {
        let mut compared = 0;
        let wanted = namespaces
            .iter()
            .filter(|name| request.namespace.as_ref().is_none_or(|wanted| wanted == *name));
        let found = wanted
            .filter_map(|namespace| Some((namespace, self.available.get(namespace)?)))
            .flat_map(|(namespace, hosts)| {
                hosts.candidates(request).map(move |name| ObjectKey::new(namespace, name))
            })
            .find(|key| {
                let Some(host) = self.hosts.get(key) else { return false };
                if self.reservations.contains_key(key) {
                    return false;
                }
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
        if host.is_available {
            let hosts = self.available.entry(key.namespace().to_owned()).or_default();
            hosts.names.insert(key.name().to_owned());
            for (label, value) in &host.labels {
                let names = hosts.by_label.entry((label.clone(), value.clone())).or_default();
                names.insert(key.name().to_owned());
            }
        }
        self.hosts.insert(key, host);
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
        if host.is_available
            && let Some(hosts) = self.available.get_mut(key.namespace())
        {
            hosts.names.remove(key.name());
            for (label, value) in &host.labels {
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
    if let Some(status) = &host.status {
        status.powered_on.hash(&mut hasher);
        status.provisioning.state.as_str().hash(&mut hasher);
        status.provisioning.deployed_image().is_some().hash(&mut hasher);
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

fn oldest_first<'a>(
    claims: impl Iterator<Item = (&'a ObjectKey, &'a WaitingClaim)>,
) -> Vec<ObjectKey> {
    let mut claims: Vec<_> = claims.map(|(key, claim)| (claim.created, key)).collect();
    claims.sort_unstable();
    claims.into_iter().map(|(_, key)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host(name: &str, version: u64, changes: Value) -> BareMetalHost {
        let mut host = json!({
            "metadata": {"name": name, "namespace": "infra", "uid": name,
                "resourceVersion": version.to_string()},
            "spec": {"online": false},
            "status": {"operationalStatus": "OK", "provisioning": {"state": "available"}}});
        for (pointer, value) in changes.as_object().unwrap() {
            let (section, field) = pointer.split_once('/').unwrap();
            host[section][field] = value.clone();
        }
        serde_json::from_value(host).unwrap()
    }

    fn used_by(claim: &str) -> Value {
        json!({"spec/consumerRef": {"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
            "namespace": "team", "name": claim}})
    }

    fn claim(name: &str) -> ObjectKey {
        ObjectKey::new("team", name)
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("infra", name)
    }

    fn request(spec: Value) -> HostRequest {
        HostRequest::of(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    fn labels(pairs: &[(&str, &str)]) -> Value {
        json!({"hostSelector": {"matchLabels": BTreeMap::from_iter(pairs.iter().copied())}})
    }

    fn infra() -> BTreeSet<String> {
        BTreeSet::from(["infra".to_owned()])
    }

    #[test]
    fn a_host_is_reserved_for_one_claim() {
        let mut index = HostIndex::default();
        index.apply(&host("a", 1, json!({})));
        let any = request(json!({}));
        assert_eq!(index.reserve(&claim("c"), &any, &infra()), Some(key("a")));
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), None);
        assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
        index.bound(&key("a"), &host("a", 3, used_by("c")));
        // The watch is behind the own write.
        index.apply(&host("a", 2, json!({"status/poweredOn": true})));
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), None);
        assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
        index.apply(&host("a", 3, used_by("c")));
        assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
        assert!(index.reservations.is_empty());
        // A claim is deleted whose binding failed.
        index.apply(&host("b", 4, json!({})));
        assert_eq!(index.reserve(&claim("e"), &any, &infra()), Some(key("b")));
        index.forget(&claim("e"));
        // The write was reported before its response.
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), Some(key("b")));
        index.apply(&host("b", 5, used_by("d")));
        index.bound(&key("b"), &host("b", 5, used_by("d")));
        assert!(index.reservations.is_empty());
    }

    #[test]
    fn a_failed_binding_offers_the_host_again() {
        let mut index = HostIndex::default();
        index.apply(&host("a", 1, json!({})));
        let any = request(json!({}));
        index.wait(claim("d"), any.clone(), None);
        index.reserve(&claim("c"), &any, &infra());
        assert_eq!(index.not_bound(&key("a")), [claim("d")]);
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), Some(key("a")));
        index.refused(&key("a"));
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), None);
        assert_eq!(index.apply(&host("a", 2, json!({}))), [claim("d")]);
        assert_eq!(index.reserve(&claim("d"), &any, &infra()), Some(key("a")));
        // Something else uses it now.
        index.apply(&host("a", 3, json!({"spec/image": {"url": "http://a"}})));
        assert_eq!(index.not_bound(&key("a")), []);
    }

    #[test]
    fn only_admitted_namespaces_and_matching_hosts_are_used() {
        let mut index = HostIndex::default();
        index.apply(&host("a", 1, json!({"metadata/labels": {"rack": "1", "gpu": ""}})));
        index.apply(&host("b", 1, json!({"metadata/labels": {"rack": "2"}})));
        index.apply(&host(
            "c",
            1,
            json!({"metadata/labels": {"rack": "2"},
            "spec/image": {"url": "http://a"}}),
        ));
        let mut chosen = |spec: Value, namespaces: &BTreeSet<String>| {
            let found = index.reserve(&claim("x"), &request(spec), namespaces);
            if let Some(key) = &found {
                index.not_bound(key);
            }
            found.map(|key| key.name().to_owned())
        };
        for (spec, expected) in [
            (json!({}), Some("a")),
            (labels(&[("rack", "2")]), Some("b")),
            (labels(&[("rack", "3")]), None),
            (labels(&[("rack", "1"), ("gpu", "")]), Some("a")),
            (labels(&[("rack", "2"), ("gpu", "")]), None),
            (json!({"hostSelector": {"inNamespace": "infra"}}), Some("a")),
            (json!({"hostSelector": {"inNamespace": "other"}}), None),
            (
                json!({"hostSelector": {"matchExpressions": [
                    {"key": "rack", "operator": "in", "values": ["2", "3", "2"]}]}}),
                Some("b"),
            ),
            (
                json!({"hostSelector": {"matchExpressions": [
                    {"key": "gpu", "operator": "!", "values": []}]}}),
                Some("b"),
            ),
        ] {
            assert_eq!(chosen(spec.clone(), &infra()).as_deref(), expected, "{spec}");
        }
        assert_eq!(chosen(json!({}), &BTreeSet::new()), None);
        assert_eq!(chosen(json!({}), &BTreeSet::from(["other".to_owned()])), None);
    }

    #[test]
    fn the_failure_domain_is_preferred() {
        let mut index = HostIndex::default();
        let domain = |name: &str| json!({"metadata/labels": {"infrastructure.cluster.x-k8s.io/failure-domain": name}});
        index.apply(&host("a", 1, json!({})));
        index.apply(&host("b", 1, domain("east")));
        let east = request(json!({"failureDomain": "east"}));
        assert_eq!(index.reserve(&claim("c"), &east, &infra()), Some(key("b")));
        assert_eq!(index.reserve(&claim("d"), &east, &infra()), Some(key("a")));
    }

    #[test]
    fn claims_are_woken_by_what_concerns_them() {
        let mut index = HostIndex::default();
        let applied = |index: &mut HostIndex, version: u64, changes: Value| {
            index.apply(&host("a", version, changes))
        };
        index.wait(claim("young"), request(json!({})), Some(Timestamp::from_second(2).unwrap()));
        index.wait(claim("old"), request(json!({})), Some(Timestamp::from_second(1).unwrap()));
        index.wait(claim("other"), request(labels(&[("rack", "2")])), None);
        assert_eq!(applied(&mut index, 1, json!({})), [claim("old"), claim("young")]);
        assert_eq!(applied(&mut index, 2, json!({"status/poweredOn": true})), []);
        let labelled = json!({"metadata/labels": {"rack": "2"}});
        assert_eq!(
            applied(&mut index, 3, labelled),
            [claim("other"), claim("old"), claim("young")]
        );
        assert_eq!(applied(&mut index, 4, used_by("c")), [claim("c")]);
        assert_eq!(applied(&mut index, 5, used_by("c")), [], "nothing relevant changed");
        let mut changed = used_by("c");
        changed["status/poweredOn"] = json!(true);
        assert_eq!(applied(&mut index, 6, changed), [claim("c")]);
        assert_eq!(applied(&mut index, 7, used_by("d")), [claim("c"), claim("d")]);
        assert_eq!(applied(&mut index, 6, used_by("c")), [], "an old version");
        assert_eq!(index.remove(&key("a")), [claim("d")]);
        assert_eq!(index.remove(&key("a")), []);
        assert!(index.used.is_empty() && index.available.is_empty());
        index.forget(&claim("old"));
        assert_eq!(index.all_waiting(), [claim("other"), claim("young")]);
    }

    /// Ten thousand hosts and five hundred waiting claims must not cost millions of comparisons per change.
    #[test]
    fn a_change_costs_few_comparisons() {
        const HOSTS: u64 = 10_000;
        const CLAIMS: u64 = 500;
        let mut index = HostIndex::default();
        let rack = |number: u64| json!({"metadata/labels": {"rack": (number % 100).to_string()}});
        for number in 0..HOSTS {
            index.apply(&host(&format!("h{number}"), 1, rack(number)));
        }
        let wanted: Vec<HostRequest> = (0..CLAIMS)
            .map(|number| request(labels(&[("rack", &format!("none-{number}"))])))
            .collect();
        for (number, request) in wanted.iter().enumerate() {
            index.wait(claim(&number.to_string()), request.clone(), None);
        }
        let cost = |index: &mut HostIndex, change: &dyn Fn(&mut HostIndex)| {
            let before = index.comparisons();
            change(index);
            index.comparisons() - before
        };
        // Claims without a matching host compare nothing.
        for (number, request) in wanted.iter().enumerate() {
            let name = claim(&number.to_string());
            let compared = cost(&mut index, &|index| {
                assert_eq!(index.reserve(&name, request, &infra()), None);
            });
            assert_eq!(compared, 0);
        }
        // A host that becomes available is compared once with each waiting claim.
        let compared = cost(&mut index, &|index| {
            index.apply(&host("h0", 2, json!({"metadata/labels": {"rack": "none-7"}})));
        });
        assert_eq!(compared, CLAIMS);
        let compared = cost(&mut index, &|index| {
            assert_eq!(index.reserve(&claim("7"), &wanted[7], &infra()), Some(key("h0")));
        });
        assert_eq!(compared, 1);
        // A change of the status of an available or used host is compared with nothing.
        let compared = cost(&mut index, &|index| {
            let mut changed = rack(1);
            changed["status/poweredOn"] = json!(true);
            index.apply(&host("h1", 2, changed));
            index.apply(&host("h2", 2, used_by("c")));
        });
        assert_eq!(compared, 0);
        // The rarer of two labels is searched.
        let mut rare = rack(3);
        rare["metadata/labels"]["gpu"] = json!("yes");
        index.apply(&host("h3", 2, rare));
        let both = request(labels(&[("rack", "3"), ("gpu", "yes")]));
        let compared = cost(&mut index, &|index| {
            assert_eq!(index.reserve(&claim("x"), &both, &infra()), Some(key("h3")));
        });
        assert_eq!(compared, 1);
    }
}
