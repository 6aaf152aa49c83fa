// SPDX-License-Identifier: Apache-2.0
//! Objects of a watch as JSON text, which needs a third of the memory of the structs and their strings.
//! Idle objects are rarely read, so decoding them costs little.

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tracing::error;

use crate::context::WatchedKind;
use crate::object_key::ObjectKey;

type EncodedObjects = HashMap<ObjectKey, Box<[u8]>>;

/// Reads the objects of one watch.
pub(super) struct CompactStore<K> {
    objects: Arc<RwLock<EncodedObjects>>,
    is_ready: watch::Receiver<bool>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for CompactStore<K> {
    fn clone(&self) -> Self {
        let (objects, is_ready) = (Arc::clone(&self.objects), self.is_ready.clone());
        Self { objects, is_ready, kind: PhantomData }
    }
}

impl<K: WatchedKind> CompactStore<K> {
    /// The object, if it exists.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().get(key).and_then(|encoded| decode(key, encoded))
    }

    /// All objects.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.read().iter().filter_map(|(key, encoded)| decode(key, encoded)).collect()
    }

    /// Waits until all objects were listed once, or the watch has ended, which only a shutdown does.
    pub(super) async fn ready(&self) {
        let _ = self.is_ready.clone().wait_for(|is_ready| *is_ready).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, EncodedObjects> {
        // The map is consistent after every statement.
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies the events of one watch.
pub(super) struct CompactStoreWriter<K> {
    objects: Arc<RwLock<EncodedObjects>>,
    /// The objects of a list that is being read.
    listed: HashSet<ObjectKey>,
    is_ready: watch::Sender<bool>,
    kind: PhantomData<fn() -> K>,
}

impl<K: WatchedKind> CompactStoreWriter<K> {
    pub(super) fn new() -> Self {
        let is_ready = watch::Sender::new(false);
        Self { objects: Arc::default(), listed: HashSet::new(), is_ready, kind: PhantomData }
    }

    pub(super) fn reader(&self) -> CompactStore<K> {
        let (objects, is_ready) = (Arc::clone(&self.objects), self.is_ready.subscribe());
        CompactStore { objects, is_ready, kind: PhantomData }
    }

    /// Applies an event. Objects of a list replace older ones at once, so that there are never two copies;
    /// those that do not exist any more are removed at its end.
    pub(super) fn apply(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.listed = HashSet::new(),
            Event::InitApply(object) => {
                let key = ObjectKey::of(object);
                self.listed.insert(key.clone());
                self.insert(key, object);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let mut objects = self.write();
                objects.retain(|key, _| listed.contains(key));
                objects.shrink_to_fit();
                drop(objects);
                self.is_ready.send_replace(true);
            }
            Event::Apply(object) => self.insert(ObjectKey::of(object), object),
            Event::Delete(object) => _ = self.write().remove(&ObjectKey::of(object)),
        }
    }

    fn insert(&self, key: ObjectKey, object: &K) {
        match serde_json::to_vec(object) {
            Ok(encoded) => _ = self.write().insert(key, encoded.into_boxed_slice()),
            Err(error) => error!(kind = %K::kind(&()), %key, %error, "object cannot be encoded"),
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, EncodedObjects> {
        // The map is consistent after every statement.
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode<K: WatchedKind>(key: &ObjectKey, encoded: &[u8]) -> Option<Arc<K>> {
    serde_json::from_slice(encoded)
        .inspect_err(|error| {
            error!(kind = %K::kind(&()), %key, %error, "object cannot be decoded");
        })
        .ok()
        .map(Arc::new)
}

#[cfg(test)]
mod tests {
    use kube_resources::hosts::bare_metal_host::BareMetalHost;
    use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
    use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
    use serde_json::{Value, json};

    use super::super::narrow::{narrow_components, narrow_host, narrow_settings};
    use super::*;

    /// Bytes of a host and its firmware objects. Ten thousand of them must fit into 150 MiB with all else.
    const MAX_ENCODED: usize = 4000;

    fn object<K: WatchedKind>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn host(name: &str, online: bool) -> BareMetalHost {
        object(json!({"metadata": {"namespace": "n", "name": name}, "spec": {"online": online}}))
    }

    #[tokio::test]
    async fn the_store_follows_the_watch() {
        let mut writer = CompactStoreWriter::<BareMetalHost>::new();
        let store = writer.reader();
        let online = |name: &str| Some(store.get(&ObjectKey::new("n", name))?.spec.online);
        let is_ready = || *store.is_ready.borrow();
        writer.apply(&Event::Init);
        writer.apply(&Event::InitApply(host("a", false)));
        writer.apply(&Event::InitApply(host("b", false)));
        assert!(!is_ready());
        writer.apply(&Event::InitDone);
        assert!(is_ready());
        store.ready().await;
        writer.apply(&Event::Apply(host("a", true)));
        writer.apply(&Event::Apply(host("c", true)));
        assert_eq!((online("a"), online("b"), online("c")), (Some(true), Some(false), Some(true)));
        writer.apply(&Event::Delete(host("b", false)));
        assert_eq!(online("b"), None);
        // The connection was lost; meanwhile c was deleted and d was created.
        writer.apply(&Event::Init);
        writer.apply(&Event::InitApply(host("d", false)));
        writer.apply(&Event::InitApply(host("a", false)));
        assert_eq!(store.all().len(), 3, "objects are kept until the list is complete");
        writer.apply(&Event::InitDone);
        assert_eq!((online("a"), online("c"), online("d")), (Some(false), None, Some(false)));
        assert_eq!(store.all().len(), 2);
    }

    #[tokio::test]
    async fn waiting_ends_with_the_watch() {
        let writer = CompactStoreWriter::<BareMetalHost>::new();
        let store = writer.reader();
        drop(writer);
        store.ready().await;
    }

    /// Condition of an idle object.
    fn condition(name: &str, reason: &str) -> Value {
        json!({"type": name, "status": "True", "reason": reason, "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-18T03:00:00Z"})
    }

    fn metadata(owner: bool) -> Value {
        let uid = "0b8a33a5-3c55-4b2f-8d5c-2c4d1ad5c0de";
        let mut metadata = json!({"name": "rack-12-unit-07", "namespace": "baremetal-hosts",
            "uid": uid, "resourceVersion": "12345678", "generation": 1,
            "creationTimestamp": "2026-11-18T03:00:00Z", "managedFields": [{"manager": "x"}],
            "finalizers": ["baremetalhost.metal3.io"]});
        if owner {
            metadata["ownerReferences"] = json!([{"apiVersion": "metal3.io/v1alpha1",
                "kind": "BareMetalHost", "name": "rack-12-unit-07", "uid": uid,
                "controller": true, "blockOwnerDeletion": true}]);
        }
        metadata
    }

    fn available_host() -> BareMetalHost {
        let credentials = json!({"credentials": {"name": "rack-12-unit-07-bmc",
            "namespace": "baremetal-hosts"}, "credentialsVersion": "12345600"});
        let operation = json!({"start": "2026-11-18T03:00:00Z", "end": "2026-11-18T03:10:00Z"});
        let nics: Vec<Value> = (0..4)
            .map(|port| {
                json!({"name": format!("eno{port}"), "mac": format!("52:54:00:00:00:0{port}"),
                    "ip": "192.0.2.1", "model": "0x8086 0x1572", "speedGbps": 25})
            })
            .collect();
        let flags: Vec<String> = (0..100).map(|number| format!("flag{number}")).collect();
        let conditions: Vec<Value> = ["Available", "Healthy", "Manageable", "Ready", "Registered"]
            .iter()
            .map(|name| condition(name, "Succeeded"))
            .collect();
        object(json!({
            "metadata": metadata(false),
            "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:00",
                "automatedCleaningMode": "metadata", "architecture": "x86_64",
                "bmc": {"address": "redfish-virtualmedia+https://192.0.2.77/redfish/v1/Systems/1",
                    "credentialsName": "rack-12-unit-07-bmc",
                    "disableCertificateVerification": true}},
            "status": {"operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
                "poweredOn": true, "lastUpdated": "2026-11-18T03:10:00Z",
                "hardware": {"hostname": "h", "cpu": {"flags": flags}, "nics": nics},
                "provisioning": {"state": "available", "bootMode": "UEFI",
                    "ID": "5d8a33a5-3c55-4b2f-8d5c-2c4d1ad5c0de",
                    "rootDeviceHints": {"deviceName": "/dev/sda"}, "image": {"url": ""}},
                "goodCredentials": credentials, "triedCredentials": credentials,
                "operationHistory": {"register": operation, "inspect": operation},
                "conditions": conditions},
        }))
    }

    /// Stores an object and returns what is read, and how many bytes are stored.
    fn stored<K: WatchedKind + PartialEq>(object: K) -> usize {
        let mut writer = CompactStoreWriter::new();
        writer.apply(&Event::Apply(object.clone()));
        let key = ObjectKey::of(&object);
        assert_eq!(writer.reader().get(&key).as_deref(), Some(&object), "nothing is lost");
        let objects = writer.objects.read().unwrap();
        objects[&key].len()
    }

    #[test]
    fn a_stored_host_is_small_and_complete() {
        let mut host = available_host();
        narrow_host(&mut host);
        let firmware = |conditions: [Value; 2], status: Value| {
            let mut object = json!({"metadata": metadata(true), "status": status});
            object["status"]["conditions"] = json!(conditions);
            object
        };
        let values: HashMap<String, String> =
            (0..200).map(|number| (format!("Setting{number}"), "Enabled".to_owned())).collect();
        let conditions = ["ChangeDetected", "Valid"].map(|name| condition(name, "Success"));
        let mut settings: HostFirmwareSettings = object(firmware(
            conditions.clone(),
            json!({"settings": values, "lastUpdated": "2026-11-18T03:10:00Z",
                "schema": {"name": "schema-0123456789", "namespace": "baremetal-hosts"}}),
        ));
        narrow_settings(&mut settings);
        let mut components: HostFirmwareComponents = object(firmware(
            conditions,
            json!({"components": [{"component": "bios", "initialVersion": "1.0"}]}),
        ));
        narrow_components(&mut components);
        let bytes = [stored(host), stored(settings), stored(components)];
        let total: usize = bytes.iter().sum();
        assert!(total <= MAX_ENCODED, "a host needs {bytes:?} bytes");
    }
}
