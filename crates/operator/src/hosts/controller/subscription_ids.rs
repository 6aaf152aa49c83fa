// SPDX-License-Identifier: Apache-2.0
//! Which subscriptions of a BMC belong to which `BMCEventSubscription`; the BMC does not show that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kube::ResourceExt;
use kube_resources::hosts::bmc_event_subscription::BMCEventSubscription;

use super::watching::{ObserverFactory, RelevantValues};
use crate::object_key::ObjectKey;

/// Identifiers of subscriptions, as objects have them and as this process has created them.
#[derive(Clone, Default)]
pub(super) struct SubscriptionIds(Arc<Inner>);

#[derive(Default)]
struct Inner {
    ids: Mutex<IdMaps>,
    /// Locks of the hosts for which a subscription is being created.
    locks: Mutex<HashMap<ObjectKey, Weak<HostLock>>>,
}

type HostLock = tokio::sync::Mutex<()>;

#[derive(Default)]
struct IdMaps {
    /// Identifiers by host and object.
    ids: HashMap<ObjectKey, BTreeMap<ObjectKey, String>>,
    /// Hosts by object.
    hosts: HashMap<ObjectKey, ObjectKey>,
}

/// The host of an object and the identifier of its subscription. `None` if the object does not exist.
type Subscribed = Option<(ObjectKey, Option<String>)>;

fn subscribed(object: &BMCEventSubscription) -> Subscribed {
    let id = object.status.as_ref().and_then(|status| status.subscription_id.clone());
    Some((host_of(object), id))
}

/// The host of a subscription.
pub(super) fn host_of(object: &BMCEventSubscription) -> ObjectKey {
    let name = object.spec.host_name.as_deref().unwrap_or_default();
    ObjectKey::new(object.namespace().unwrap_or_default(), name)
}

impl SubscriptionIds {
    /// An observer that keeps the identifiers up to date.
    pub(super) fn observer(&self) -> ObserverFactory<BMCEventSubscription> {
        let ids = self.clone();
        Box::new(move || {
            let ids = ids.clone();
            let mut known = RelevantValues::new(subscribed);
            Box::new(move |event| {
                for object in known.changed_by(event) {
                    match known.get(&object).cloned().flatten() {
                        Some((host, Some(id))) => ids.insert(object, host, id),
                        Some((_, None)) | None => ids.remove(&object),
                    }
                }
            })
        })
    }

    /// To be held while a subscription of a host is looked for, created and recorded.
    pub(super) async fn lock(&self, host: &ObjectKey) -> tokio::sync::OwnedMutexGuard<()> {
        self.host_lock(host).lock_owned().await
    }

    fn host_lock(&self, host: &ObjectKey) -> Arc<HostLock> {
        // Nothing panics while it is locked.
        let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(host).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(host.clone(), Arc::downgrade(&lock));
        lock
    }

    /// Records the subscription of an object.
    pub(super) fn insert(&self, object: ObjectKey, host: ObjectKey, id: String) {
        let mut maps = self.maps();
        maps.remove(&object);
        maps.hosts.insert(object.clone(), host.clone());
        maps.ids.entry(host).or_default().insert(object, id);
    }

    fn remove(&self, object: &ObjectKey) {
        self.maps().remove(object);
    }

    /// Subscriptions of other objects of a host.
    pub(super) fn of_others(&self, host: &ObjectKey, object: &ObjectKey) -> BTreeSet<String> {
        let maps = self.maps();
        let ids = maps.ids.get(host).into_iter().flatten();
        ids.filter(|(other, _)| *other != object).map(|(_, id)| id.clone()).collect()
    }

    fn maps(&self) -> MutexGuard<'_, IdMaps> {
        // Nothing panics while it is locked.
        self.0.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdMaps {
    fn remove(&mut self, object: &ObjectKey) {
        let Some(host) = self.hosts.remove(object) else { return };
        if let Some(ids) = self.ids.get_mut(&host) {
            ids.remove(object);
            if ids.is_empty() {
                self.ids.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn object(name: &str, host: &str, id: Option<&str>) -> BMCEventSubscription {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "lab"},
            "spec": {"hostName": host, "destination": "https://192.0.2.1/"},
            "status": {"subscriptionID": id}}))
        .unwrap()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("lab", name)
    }

    #[test]
    fn identifiers_follow_the_objects() {
        let ids = SubscriptionIds::default();
        let mut observe = ids.observer()();
        let others = |host: &str, name: &str| Vec::from_iter(ids.of_others(&key(host), &key(name)));
        for event in [
            Event::Init,
            Event::InitApply(object("a", "h1", Some("1"))),
            Event::InitApply(object("b", "h1", None)),
            Event::InitApply(object("c", "h2", Some("1"))),
            Event::InitDone,
        ] {
            observe(&event);
        }
        assert_eq!(others("h1", "b"), ["1"]);
        assert_eq!(others("h1", "a"), Vec::<String>::new());
        // The status of b is not observed yet; an older version of it changes nothing.
        ids.insert(key("b"), key("h1"), "2".to_owned());
        observe(&Event::Apply(object("b", "h1", None)));
        assert_eq!(others("h1", "a"), ["2"]);
        observe(&Event::Delete(object("b", "h1", None)));
        assert_eq!(others("h1", "a"), Vec::<String>::new());
        // A new list without a and c.
        for event in [Event::Init, Event::InitDone] {
            observe(&event);
        }
        assert!(ids.maps().ids.is_empty() && ids.maps().hosts.is_empty());
    }
}
