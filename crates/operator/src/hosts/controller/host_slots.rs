// SPDX-License-Identifier: Apache-2.0
//! What the controller knows about each host beyond its object. It may be lost at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use kube_resources::hosts::bare_metal_host::{BareMetalHost, BmcDetails};

use super::super::decide::{BmcAccessState, HostMemory};
use super::super::provisioner::BmcAccess;
use crate::object_key::ObjectKey;

/// Knowledge about one host.
#[derive(Default)]
pub(super) struct HostSlot {
    /// UID of the object; another object with the same name starts afresh.
    uid: String,
    /// Memory of the state machine.
    pub(super) memory: HostMemory,
    /// The object as this process wrote it, until the cache has it.
    pub(super) written: Option<Box<BareMetalHost>>,
    /// The BMC details as they were checked last.
    pub(super) bmc: Option<CheckedBmc>,
    /// Whether it is known that there is no `HardwareData`.
    pub(super) has_no_hardware_data: bool,
    /// Whether the firmware objects were created.
    pub(super) has_firmware_objects: bool,
}

/// BMC details, and what the Secret with that version makes of them.
#[derive(Clone)]
pub(super) struct CheckedBmc {
    pub(super) details: BmcDetails,
    pub(super) version: String,
    pub(super) state: BmcAccessState,
    /// `None` while the host needs no access, so that credentials are not kept in memory.
    pub(super) access: Option<BmcAccess>,
}

/// Slots of all hosts.
#[derive(Clone, Default)]
pub(super) struct HostSlots {
    /// Boxed, because a map has more places than entries.
    slots: Arc<Mutex<HashMap<ObjectKey, Box<HostSlot>>>>,
    /// Versions that passes wrote and the watch did not report yet.
    own_versions: Arc<Mutex<HashMap<ObjectKey, String>>>,
}

impl HostSlots {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Box<HostSlot>>> {
        // The map is consistent after every statement.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the slot of a host for a pass. There is one pass at a time for each host.
    pub(super) fn take(&self, key: &ObjectKey, host: &BareMetalHost) -> HostSlot {
        let uid = host.uid().unwrap_or_default();
        match self.lock().remove(key) {
            Some(slot) if slot.uid == uid => *slot,
            Some(_) | None => HostSlot { uid, ..HostSlot::default() },
        }
    }

    /// Returns the slot after a pass. `cache` has the objects that the watch reported.
    pub(super) fn put(
        &self,
        key: ObjectKey,
        slot: HostSlot,
        cache: impl FnOnce(&ObjectKey) -> Option<Arc<BareMetalHost>>,
    ) {
        self.lock().insert(key.clone(), Box::new(slot));
        // The object may have been reported before the slot was here.
        if let Some(cached) = cache(&key) {
            self.seen(&key, &cached);
        }
    }

    /// The cache has a newer or the same object.
    pub(super) fn seen(&self, key: &ObjectKey, host: &BareMetalHost) {
        if let Some(slot) = self.lock().get_mut(key)
            && slot.written.as_ref().is_some_and(|written| !is_newer(written, host))
        {
            slot.written = None;
        }
    }

    fn lock_versions(&self) -> MutexGuard<'_, HashMap<ObjectKey, String>> {
        self.own_versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass wrote this version and continues with it.
    pub(super) fn wrote(&self, key: ObjectKey, host: &BareMetalHost) {
        self.lock_versions().insert(key, host.resource_version().unwrap_or_default());
    }

    /// Whether a version is the one that a pass wrote last, which needs no other pass.
    pub(super) fn is_own(&self, key: &ObjectKey, host: &BareMetalHost) -> bool {
        let mut versions = self.lock_versions();
        let is_own =
            versions.get(key).is_some_and(|own| host.resource_version().as_ref() == Some(own));
        if is_own {
            versions.remove(key);
        }
        is_own
    }

    /// The object does not exist any more.
    pub(super) fn remove(&self, key: &ObjectKey) {
        self.lock().remove(key);
        self.lock_versions().remove(key);
    }
}

/// Whether one version of an object is newer than another. Versions are numbers that increase.
pub(super) fn is_newer(one: &BareMetalHost, other: &BareMetalHost) -> bool {
    let number =
        |host: &BareMetalHost| host.resource_version().and_then(|text| text.parse::<u64>().ok());
    number(one) > number(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(uid: &str, version: &str) -> BareMetalHost {
        serde_json::from_value(json!({"metadata": {"uid": uid, "resourceVersion": version}}))
            .unwrap()
    }

    #[test]
    fn written_objects_are_kept_until_the_cache_has_them() {
        let (slots, key) = (HostSlots::default(), ObjectKey::new("n", "h"));
        let mut slot = slots.take(&key, &host("u", "1"));
        slot.written = Some(Box::new(host("u", "10")));
        slots.put(key.clone(), slot, |_| None);
        slots.seen(&key, &host("u", "9"));
        let slot = slots.take(&key, &host("u", "9"));
        assert!(slot.written.is_some(), "the cache is behind");
        slots.put(key.clone(), slot, |_| None);
        slots.seen(&key, &host("u", "10"));
        assert!(slots.take(&key, &host("u", "10")).written.is_none());
    }

    #[test]
    fn objects_that_were_reported_during_the_pass_are_not_kept() {
        let (slots, key) = (HostSlots::default(), ObjectKey::new("n", "h"));
        let mut slot = slots.take(&key, &host("u", "1"));
        slot.written = Some(Box::new(host("u", "10")));
        slots.seen(&key, &host("u", "10"));
        slots.put(key.clone(), slot, |_| Some(Arc::new(host("u", "10"))));
        assert!(slots.take(&key, &host("u", "10")).written.is_none());
    }

    #[test]
    fn only_the_last_own_version_needs_no_pass() {
        let (slots, key) = (HostSlots::default(), ObjectKey::new("n", "h"));
        slots.wrote(key.clone(), &host("u", "2"));
        slots.wrote(key.clone(), &host("u", "3"));
        assert!(!slots.is_own(&key, &host("u", "2")));
        assert!(slots.is_own(&key, &host("u", "3")));
        assert!(!slots.is_own(&key, &host("u", "4")));
    }

    #[test]
    fn another_object_with_the_same_name_starts_afresh() {
        let (slots, key) = (HostSlots::default(), ObjectKey::new("n", "h"));
        let mut slot = slots.take(&key, &host("u", "1"));
        slot.memory.is_adopted = true;
        slots.put(key.clone(), slot, |_| None);
        assert!(!slots.take(&key, &host("v", "2")).memory.is_adopted);
    }
}
