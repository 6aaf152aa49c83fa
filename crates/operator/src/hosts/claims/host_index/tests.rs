// SPDX-License-Identifier: Apache-2.0
//! Which claim gets which host, which claims a change concerns, and what that costs.

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

fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp::from_second(second).unwrap())
}

/// An index of which all objects were listed.
fn complete_index() -> HostIndex {
    let mut index = HostIndex::default();
    index.completed();
    index
}

/// An index in which `infra` admits the claims of `team`, with claims that wait for any host, the oldest
/// first.
fn index_with(claims: &[&str]) -> HostIndex {
    let mut index = complete_index();
    for (age, name) in claims.iter().enumerate() {
        index.wait(claim(name), request(json!({})), at(i64::try_from(age).unwrap()));
    }
    index.admit("team", &infra());
    index
}

fn reserve(index: &mut HostIndex, name: &str) -> Option<String> {
    index.reserve(&claim(name)).host.map(|host| host.name().to_owned())
}

/// Adds a host that was listed before the claims, so that it is not planned for one.
fn add_listed(index: &mut HostIndex, name: &str) {
    index.is_complete = false;
    index.apply(&host(name, 1, json!({})));
    index.completed();
}

/// Each host wakes one claim, not all that wait.
#[test]
fn a_host_wakes_only_the_claim_that_gets_it() {
    const CLAIMS: usize = 1000;
    const HOSTS: usize = 100;
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("c{number:04}")).collect();
    let mut index = index_with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut woken = Vec::new();
    for number in 0..HOSTS {
        woken.extend(index.apply(&host(&format!("h{number:03}"), 1, json!({}))));
    }
    let oldest: Vec<ObjectKey> = names[..HOSTS].iter().map(|name| claim(name)).collect();
    assert_eq!(woken, oldest);
    for (number, key) in woken.iter().enumerate() {
        let choice = index.reserve(key);
        assert_eq!(choice.host.unwrap().name(), format!("h{number:03}"));
        assert_eq!(choice.concerned, []);
    }
    assert!(index.comparisons() <= 2 * u64::try_from(HOSTS).unwrap(), "{}", index.comparisons());
    // A claim that loses is woken by the next host.
    assert_eq!(reserve(&mut index, &names[HOSTS]), None);
    assert_eq!(index.apply(&host("next", 1, json!({}))), [claim(&names[HOSTS])]);
    // One that ends before it uses the host leaves it to others.
    assert_eq!(index.forget(&claim(&names[HOSTS])).len(), CLAIMS - HOSTS - 1);
    assert_eq!(reserve(&mut index, &names[HOSTS + 1]).as_deref(), Some("next"));
}

#[test]
fn a_host_is_reserved_for_one_claim() {
    let mut index = index_with(&["c", "e", "d"]);
    index.apply(&host("a", 1, json!({})));
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    assert_eq!(reserve(&mut index, "d"), None);
    assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
    index.bound(&key("a"), &host("a", 3, used_by("c")));
    // The watch is behind the own write.
    index.apply(&host("a", 2, json!({"status/poweredOn": true})));
    assert_eq!(reserve(&mut index, "d"), None);
    assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
    index.apply(&host("a", 3, used_by("c")));
    assert_eq!(index.hosts_of(&claim("c")), BTreeSet::from([key("a")]));
    assert!(index.reservations.is_empty());
    // A claim is deleted whose binding failed.
    index.apply(&host("b", 4, json!({})));
    assert_eq!(reserve(&mut index, "e").as_deref(), Some("b"));
    assert_eq!(index.forget(&claim("e")), [claim("c"), claim("d")]);
    assert_eq!(reserve(&mut index, "d").as_deref(), Some("b"));
    // The write was reported before its response.
    index.apply(&host("b", 5, used_by("d")));
    index.bound(&key("b"), &host("b", 5, used_by("d")));
    assert!(index.reservations.is_empty());
}

#[test]
fn a_host_is_not_reserved_for_a_deleted_claim() {
    let mut index = index_with(&["c", "d"]);
    index.apply(&host("a", 1, json!({})));
    // The claim was deleted while its namespace was read.
    index.forget(&claim("c"));
    index.admit("team", &infra());
    assert_eq!(reserve(&mut index, "c"), None);
    assert!(index.reservations.is_empty());
    assert_eq!(index.waiting_count(), 1);
    assert_eq!(reserve(&mut index, "d").as_deref(), Some("a"));
}

#[test]
fn the_oldest_claim_gets_a_host_first() {
    let mut index = index_with(&["old", "middle", "young"]);
    add_listed(&mut index, "a");
    // A claim is looked at before an older one.
    let choice = index.reserve(&claim("young"));
    assert_eq!(choice, HostChoice { host: None, concerned: vec![claim("old")] });
    assert_eq!(index.hosts_of(&claim("old")), BTreeSet::new(), "it is not written yet");
    assert_eq!(reserve(&mut index, "middle"), None);
    assert_eq!(reserve(&mut index, "old").as_deref(), Some("a"));
    index.bound(&key("a"), &host("a", 2, used_by("old")));
    // A claim with a host leaves the next ones to others, also before its status shows it.
    add_listed(&mut index, "b");
    add_listed(&mut index, "c");
    let choice = index.reserve(&claim("young"));
    assert_eq!(choice.host, Some(key("c")));
    assert_eq!(choice.concerned, [claim("middle")]);
    assert_eq!(reserve(&mut index, "middle").as_deref(), Some("b"));
    index.apply(&host("a", 2, used_by("old")));
    index.apply(&host("d", 1, json!({})));
    index.wait(claim("youngest"), request(json!({})), at(9));
    assert_eq!(reserve(&mut index, "youngest").as_deref(), Some("d"));
    // Claims of the same second are ordered by name.
    index.apply(&host("e", 1, json!({})));
    index.wait(claim("x"), request(json!({})), at(10));
    index.wait(claim("w"), request(json!({})), at(10));
    assert_eq!(index.reserve(&claim("x")).concerned, [claim("w")]);
}

#[test]
fn an_older_claim_only_gets_hosts_that_it_can_use() {
    let mut index = complete_index();
    let other = ObjectKey::new("other", "o");
    index.wait(other.clone(), request(json!({})), at(1));
    index.wait(claim("rack"), request(labels(&[("rack", "2")])), at(2));
    let elsewhere = json!({"hostSelector": {"inNamespace": "elsewhere"}});
    index.wait(claim("elsewhere"), request(elsewhere), at(3));
    index.wait(claim("young"), request(json!({})), at(4));
    index.admit("team", &infra());
    index.apply(&host("a", 1, json!({})));
    // Whether the oldest is admitted is not known.
    assert_eq!(index.reserve(&claim("young")), HostChoice::default());
    assert_eq!(index.admit("other", &BTreeSet::new()), [claim("young")]);
    assert_eq!(reserve(&mut index, "young").as_deref(), Some("a"));
    index.not_bound(&key("a"));
    // After a change of policies nothing is known.
    let all = [other.clone(), claim("rack"), claim("elsewhere"), claim("young")];
    assert_eq!(index.policies_changed(), all);
    assert_eq!(index.reserve(&claim("young")), HostChoice::default());
    index.admit("team", &infra());
    assert_eq!(index.reserve(&claim("young")), HostChoice::default());
    assert_eq!(index.admit("other", &infra()), [claim("young")]);
    assert_eq!(index.reserve(&claim("young")).concerned, std::slice::from_ref(&other));
    assert_eq!(index.reserve(&other).host, Some(key("a")));
    // A claim that waits for another one is woken although it is written meanwhile.
    index.policies_changed();
    index.admit("team", &infra());
    add_listed(&mut index, "b");
    index.not_bound(&key("a"));
    index.reserve(&claim("young"));
    index.wait(claim("young"), request(json!({})), at(4));
    assert_eq!(index.admit("other", &BTreeSet::new()), [claim("young")]);
    // It is also woken if the other one is deleted before more is known.
    index.policies_changed();
    index.admit("team", &infra());
    index.reserve(&claim("young"));
    assert_eq!(index.forget(&other), [claim("young")]);
    assert_eq!(reserve(&mut index, "young").as_deref(), Some("a"));
}

#[test]
fn an_older_claim_that_failed_does_not_delay_others() {
    let mut index = index_with(&["old", "young"]);
    index.apply(&host("a", 1, json!({})));
    assert_eq!(reserve(&mut index, "old").as_deref(), Some("a"));
    index.claim_failed(&claim("old"));
    assert_eq!(index.started(&claim("old")), Some(key("a")), "it may be written");
    assert_eq!(index.not_bound(&key("a")), [claim("young")]);
    assert_eq!(reserve(&mut index, "young").as_deref(), Some("a"));
    assert_eq!(index.not_bound(&key("a")), [], "not the one that failed");
    // Its next attempt counts again.
    assert_eq!(reserve(&mut index, "old").as_deref(), Some("a"));
    index.not_bound(&key("a"));
    assert_eq!(index.reserve(&claim("young")).concerned, [claim("old")]);
    // It fails before it uses the host that was planned for it.
    assert_eq!(index.claim_failed(&claim("old")), [claim("young")]);
    assert_eq!(reserve(&mut index, "young").as_deref(), Some("a"));
}

#[test]
fn a_plan_ends_with_its_reason() {
    let planned = || {
        let mut index = index_with(&["old", "young"]);
        assert_eq!(index.apply(&host("a", 1, json!({}))), [claim("old")]);
        index
    };
    let mut index = planned();
    assert_eq!(index.stop_waiting(&claim("old")), [claim("young")]);
    assert_eq!(reserve(&mut index, "young").as_deref(), Some("a"));
    let mut index = planned();
    assert_eq!(index.forget(&claim("old")), [claim("young")]);
    let mut index = planned();
    assert_eq!(index.apply(&host("a", 2, used_by("x"))), [claim("old"), claim("x")]);
    assert!(index.reservations.is_empty());
    let mut index = planned();
    assert_eq!(index.apply(&host("a", 2, json!({"status/poweredOn": true}))), []);
    assert_eq!(reserve(&mut index, "old").as_deref(), Some("a"));
    // The claim changed.
    let mut index = planned();
    index.wait(claim("old"), request(labels(&[("rack", "2")])), at(0));
    let choice = index.reserve(&claim("old"));
    assert_eq!(choice, HostChoice { host: None, concerned: vec![claim("young")] });
}

#[test]
fn a_failed_binding_offers_the_host_again() {
    let mut index = index_with(&["c", "d"]);
    index.apply(&host("a", 1, json!({})));
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    assert_eq!(index.not_bound(&key("a")), [claim("d")]);
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    assert_eq!(index.host_outdated(&key("a"), &host("a", 1, json!({}))), []);
    assert_eq!(reserve(&mut index, "c"), None);
    assert_eq!(index.apply(&host("a", 2, json!({}))), [claim("c")]);
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    // The next change of the host was reported before the response.
    assert_eq!(index.host_outdated(&key("a"), &host("a", 1, json!({}))), [claim("d")]);
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    // Something else uses it now.
    index.apply(&host("a", 3, json!({"spec/image": {"url": "http://a"}})));
    assert_eq!(index.not_bound(&key("a")), []);
}

#[test]
fn a_refused_host_is_offered_again_later() {
    let mut index = index_with(&["c", "d"]);
    index.apply(&host("a", 1, json!({})));
    let refuse = |index: &mut HostIndex, now: Instant| {
        index.host_refused(&key("a"), &host("a", 1, json!({})), "denied".to_owned(), now)
    };
    let start = Instant::now();
    let mut now = start;
    for delay in [1, 2, 4, 8, 10, 10].map(|minutes| Duration::from_secs(60 * minutes)) {
        assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
        // Also a claim that has not tried it has to wait for the next attempt.
        assert_eq!(refuse(&mut index, now), [claim("c"), claim("d")]);
        let refused = RefusedHosts { count: 1, message: "denied".to_owned(), until: now + delay };
        assert_eq!(index.refused_for(&claim("d")), Some(refused));
        assert_eq!(index.offer_refused(now), []);
        assert_eq!(reserve(&mut index, "c"), None);
        now += delay;
        assert_eq!(index.offer_refused(now), [claim("c")]);
        assert_eq!(index.refused_for(&claim("d")), None);
    }
    // A changed host is offered at once, and the delay starts from the beginning.
    index.apply(&host("a", 1, json!({"metadata/labels": {"rack": "1"}})));
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("a"));
    refuse(&mut index, now);
    assert_eq!(index.refused_for(&claim("c")).unwrap().until, now + Duration::from_secs(60));
    // A host that is gone is not offered.
    index.remove(&key("a"));
    assert_eq!(index.offer_refused(now + MAX_REFUSED_DELAY), []);
    assert_eq!(index.refused_for(&claim("c")), None);
}

#[test]
fn only_admitted_namespaces_and_matching_hosts_are_used() {
    let mut index = complete_index();
    index.apply(&host("a", 1, json!({"metadata/labels": {"rack": "1", "gpu": ""}})));
    index.apply(&host("b", 1, json!({"metadata/labels": {"rack": "2"}})));
    index.apply(&host(
        "c",
        1,
        json!({"metadata/labels": {"rack": "2"},
        "spec/image": {"url": "http://a"}}),
    ));
    let mut chosen = |spec: Value, namespaces: &BTreeSet<String>| {
        index.wait(claim("x"), request(spec), None);
        index.admit("team", namespaces);
        let found = index.reserve(&claim("x")).host;
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
fn hosts_of_deleted_claims_are_known_until_they_are_released() {
    let mut index = complete_index();
    index.apply(&host("a", 1, used_by("c")));
    assert!(!index.has_deleted_claim(&key("a")));
    assert_eq!(index.claim_deleted(&claim("d")), []);
    assert_eq!(index.claim_deleted(&claim("c")), [key("a")]);
    assert!(index.has_deleted_claim(&key("a")));
    let mut changed = used_by("c");
    changed["status/poweredOn"] = json!(true);
    assert_eq!(index.apply(&host("a", 2, changed)), [claim("c")]);
    assert!(index.has_deleted_claim(&key("a")));
    index.apply(&host("a", 3, used_by("d")));
    assert!(!index.has_deleted_claim(&key("a")));
}

#[test]
fn the_failure_domain_is_preferred() {
    let mut index = complete_index();
    let domain = |name: &str| json!({"metadata/labels": {"infrastructure.cluster.x-k8s.io/failure-domain": name}});
    index.apply(&host("a", 1, json!({})));
    index.apply(&host("b", 1, domain("east")));
    for (age, name) in ["c", "d"].into_iter().enumerate() {
        let east = request(json!({"failureDomain": "east"}));
        index.wait(claim(name), east, at(i64::try_from(age).unwrap()));
    }
    index.admit("team", &infra());
    // The older claim would get a, but prefers b.
    let choice = index.reserve(&claim("d"));
    assert_eq!((choice.host, choice.concerned), (Some(key("a")), vec![claim("c")]));
    assert_eq!(reserve(&mut index, "c").as_deref(), Some("b"));
}

#[test]
fn claims_are_woken_by_what_concerns_them() {
    let mut index = complete_index();
    let applied = |index: &mut HostIndex, version: u64, changes: Value| {
        index.apply(&host("a", version, changes))
    };
    index.wait(claim("young"), request(json!({})), at(2));
    index.wait(claim("old"), request(json!({})), at(1));
    index.wait(claim("other"), request(labels(&[("rack", "2")])), None);
    assert_eq!(applied(&mut index, 1, json!({})), [claim("old"), claim("young")]);
    assert_eq!(applied(&mut index, 2, json!({"status/poweredOn": true})), []);
    let labelled = json!({"metadata/labels": {"rack": "2"}});
    assert_eq!(applied(&mut index, 3, labelled), [claim("other"), claim("old"), claim("young")]);
    assert_eq!(applied(&mut index, 4, used_by("c")), [claim("c")]);
    assert_eq!(applied(&mut index, 5, used_by("c")), [], "nothing relevant changed");
    let mut changed = used_by("c");
    changed["status/poweredOn"] = json!(true);
    assert_eq!(applied(&mut index, 6, changed), [claim("c")]);
    assert_eq!(applied(&mut index, 7, used_by("d")), [claim("c"), claim("d")]);
    assert_eq!(applied(&mut index, 6, used_by("c")), [], "an old version");
    let mut changed = used_by("d");
    for (field, value) in [
        ("metadata/annotations", json!({"baremetalhost.metal3.io/paused": ""})),
        ("metadata/annotations", json!({"baremetalhost.metal3.io/detached": ""})),
        (
            "status/provisioning",
            json!({"state": "available", "customDeploy": {"method": "install"}}),
        ),
    ] {
        changed[field] = value;
        assert_eq!(applied(&mut index, 8, changed.clone()), [claim("d")], "{changed}");
    }
    assert_eq!(index.remove(&key("a")), [claim("d")]);
    assert_eq!(index.remove(&key("a")), []);
    assert!(index.used.is_empty() && index.available.is_empty());
    index.forget(&claim("old"));
    assert_eq!(index.policies_changed(), [claim("other"), claim("young")]);
}

/// Ten thousand hosts and five hundred waiting claims must not cost millions of comparisons per change.
#[test]
fn a_change_costs_few_comparisons() {
    const HOSTS: u64 = 10_000;
    const CLAIMS: u64 = 500;
    let mut index = complete_index();
    let rack = |number: u64| json!({"metadata/labels": {"rack": (number % 100).to_string()}});
    for number in 0..HOSTS {
        index.apply(&host(&format!("h{number}"), 1, rack(number)));
    }
    let wanted: Vec<HostRequest> =
        (0..CLAIMS).map(|number| request(labels(&[("rack", &format!("none-{number}"))]))).collect();
    for (number, request) in wanted.iter().enumerate() {
        index.wait(claim(&number.to_string()), request.clone(), None);
    }
    index.admit("team", &infra());
    let cost = |index: &mut HostIndex, change: &dyn Fn(&mut HostIndex)| {
        let before = index.comparisons();
        change(index);
        index.comparisons() - before
    };
    // Claims without a matching host compare nothing.
    for number in 0..CLAIMS {
        let compared = cost(&mut index, &|index| {
            assert_eq!(reserve(index, &number.to_string()), None);
        });
        assert_eq!(compared, 0);
    }
    // A host that becomes available is compared at most once with each waiting claim.
    let compared = cost(&mut index, &|index| {
        index.apply(&host("h0", 2, json!({"metadata/labels": {"rack": "none-7"}})));
    });
    assert!((1..=CLAIMS).contains(&compared), "{compared}");
    // The host is planned for the claim.
    let compared = cost(&mut index, &|index| {
        assert_eq!(reserve(index, "7").as_deref(), Some("h0"));
    });
    assert_eq!(compared, 0);
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
    for number in 0..CLAIMS {
        index.forget(&claim(&number.to_string()));
    }
    index.wait(claim("x"), request(labels(&[("rack", "3"), ("gpu", "yes")])), None);
    index.admit("team", &infra());
    let compared = cost(&mut index, &|index| {
        assert_eq!(reserve(index, "x").as_deref(), Some("h3"));
    });
    assert_eq!(compared, 1);
}

/// A young claim plans a host for an older one, which prefers the host that the oldest needs.
#[test]
fn an_older_claim_does_not_take_the_only_host_of_the_oldest() {
    let mut index = complete_index();
    let east =
        json!({"metadata/labels": {"infrastructure.cluster.x-k8s.io/failure-domain": "east"}});
    index.apply(&host("a", 1, json!({})));
    index.apply(&host("e", 1, east));
    let only_east = labels(&[("infrastructure.cluster.x-k8s.io/failure-domain", "east")]);
    index.wait(claim("oldest"), request(only_east), at(0));
    index.wait(claim("older"), request(json!({"failureDomain": "east"})), at(1));
    index.wait(claim("young"), request(json!({})), at(2));
    index.admit("team", &infra());
    index.reserve(&claim("young"));
    assert_eq!(reserve(&mut index, "oldest").as_deref(), Some("e"));
    assert_eq!(reserve(&mut index, "older").as_deref(), Some("a"));
}

/// The youngest claim is reconciled first: hosts are planned for all others, in parts.
#[test]
fn many_claims_and_hosts_cost_little_each() {
    const COUNT: u32 = 3000;
    let mut index = complete_index();
    for number in 0..COUNT {
        index.wait(claim(&number.to_string()), request(json!({})), at(number.into()));
        index.apply(&host(&number.to_string(), 1, json!({})));
    }
    index.admit("team", &infra());
    let youngest = claim(&(COUNT - 1).to_string());
    let mut rounds = 0;
    let before = index.comparisons();
    loop {
        let choice = index.reserve(&youngest);
        rounds += 1;
        assert!(choice.concerned.len() <= MAX_PLANS + 1);
        if choice.host.is_some() {
            break;
        }
    }
    assert!(rounds <= COUNT as usize / MAX_PLANS + 1, "{rounds}");
    let compared = index.comparisons() - before;
    assert!(compared < 10 * u64::from(COUNT), "{compared}");
}

#[test]
fn no_claim_is_woken_before_all_objects_are_known() {
    let mut index = HostIndex::default();
    index.wait(claim("c"), request(json!({})), at(0));
    assert_eq!(index.apply(&host("a", 1, json!({}))), []);
    index.completed();
    assert_eq!(index.apply(&host("b", 1, json!({}))), [claim("c")]);
}
