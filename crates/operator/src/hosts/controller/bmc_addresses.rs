// SPDX-License-Identifier: Apache-2.0
//! Which hosts have the same BMC address. Only one of them is registered: two would command one machine.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_resources::hosts::annotations::DETACHED;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::bmc_address::BmcAddress;

use super::digest_of;
use super::watching::{ObserverFactory, RelevantValues};
use crate::object_key::ObjectKey;

/// The BMC addresses of all hosts.
#[derive(Clone, Default)]
pub(super) struct BmcAddressIndex(Arc<Mutex<HostsByMachine>>);

#[derive(Default)]
struct HostsByMachine {
    hosts: HashMap<ObjectKey, IndexedAddress>,
    by_machine: HashMap<u64, BTreeSet<ObjectKey>>,
}

/// The machine of a host, and its rank among the hosts with the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IndexedAddress {
    /// Digest of what selects the machine; `None` if the host has no valid address or is detached.
    machine: Option<u64>,
    is_unregistered: bool,
    created_at_second: i64,
}

impl BmcAddressIndex {
    fn lock(&self) -> MutexGuard<'_, HostsByMachine> {
        // The index is consistent after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other host that controls the machine behind the address of this one: the one that is registered, or
    /// else the oldest.
    pub(super) fn owner(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let index = self.lock();
        let machine = index.hosts.get(key)?.machine?;
        let rank = |key: &&ObjectKey| {
            let address = index.hosts.get(*key).copied().unwrap_or_default();
            (address.is_unregistered, address.created_at_second, (*key).clone())
        };
        let owner = index.by_machine.get(&machine)?.iter().min_by_key(rank)?;
        (owner != key).then(|| owner.clone())
    }

    /// An observer that keeps the index in step with the hosts, and wakes those with the same address as one
    /// that changed.
    pub(super) fn observer(
        &self,
        wake: impl Fn(&ObjectKey) + Clone + Send + Sync + 'static,
    ) -> ObserverFactory<BareMetalHost> {
        let addresses = self.clone();
        Box::new(move || {
            let (addresses, wake) = (addresses.clone(), wake.clone());
            let mut hosts = RelevantValues::new(indexed_address);
            Box::new(move |event| {
                let changed = hosts.changed_by(event);
                let others: Vec<ObjectKey> = {
                    let mut index = addresses.lock();
                    let set = |key: ObjectKey| index.set(&key, hosts.get(&key).copied());
                    changed.into_iter().flat_map(set).collect()
                };
                others.iter().for_each(&wake);
            })
        })
    }
}

impl HostsByMachine {
    /// Records a host. Returns the other hosts with its previous address, one of which may be registered now.
    fn set(&mut self, key: &ObjectKey, address: Option<IndexedAddress>) -> Vec<ObjectKey> {
        let before = match address {
            Some(address) => self.hosts.insert(key.clone(), address),
            None => self.hosts.remove(key),
        };
        let mut waiting = Vec::new();
        if let Some(machine) = before.and_then(|before| before.machine)
            && let Some(keys) = self.by_machine.get_mut(&machine)
        {
            keys.remove(key);
            waiting.extend(keys.iter().cloned());
            if keys.is_empty() {
                self.by_machine.remove(&machine);
            }
        }
        if let Some(machine) = address.and_then(|address| address.machine) {
            self.by_machine.entry(machine).or_default().insert(key.clone());
        }
        waiting
    }
}

fn indexed_address(host: &BareMetalHost) -> IndexedAddress {
    let address = host.spec.bmc.as_ref().and_then(|bmc| BmcAddress::parse(&bmc.address).ok());
    // A detached host is moved: another one controls its machine.
    let address = address.filter(|_| host.annotation(DETACHED).is_none());
    let created_at = host.metadata.creation_timestamp.as_ref();
    IndexedAddress {
        machine: address.map(|address| digest_of(&address.machine())),
        is_unregistered: !is_registered(host),
        created_at_second: created_at.map_or(0, |created_at| created_at.0.as_second()),
    }
}

/// Whether the service has a node for the host.
pub(super) fn is_registered(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty())
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn host(name: &str, address: &str, created: &str, id: &str) -> BareMetalHost {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "creationTimestamp": created},
            "spec": {"bmc": {"address": address, "credentialsName": "bmc"}},
            "status": {"provisioning": {"state": "", "ID": id}},
        }))
        .unwrap()
    }

    #[test]
    fn one_host_owns_the_machine_of_an_address() {
        let (addresses, woken) = (BmcAddressIndex::default(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&woken);
        let wake = move |key: &ObjectKey| log.lock().unwrap().push(key.name().to_owned());
        let mut observer = addresses.observer(wake)();
        let owner = |name: &str| {
            addresses.owner(&ObjectKey::new("n", name)).map(|key| key.name().to_owned())
        };
        let (old, new) = ("2026-11-17T10:00:00Z", "2026-11-17T11:00:00Z");
        let address = "redfish://192.0.2.1/redfish/v1/Systems/1";
        observer(&Event::Apply(host("new", address, new, "")));
        assert_eq!(owner("new"), None);
        // The same machine with another way to boot.
        let other = "redfish-virtualmedia://192.0.2.1:443/redfish/v1/Systems/1/";
        observer(&Event::Apply(host("old", other, old, "")));
        assert_eq!((owner("new").as_deref(), owner("old")), (Some("old"), None));
        // The registered one stays.
        observer(&Event::Apply(host("new", address, new, "n1")));
        assert_eq!((owner("new"), owner("old").as_deref()), (None, Some("new")));
        woken.lock().unwrap().clear();
        observer(&Event::Delete(host("new", address, new, "n1")));
        assert_eq!(owner("old"), None);
        assert_eq!(*woken.lock().unwrap(), ["old"]);
        // Other systems of the same BMC are other machines.
        let second = "redfish://192.0.2.1/redfish/v1/Systems/2";
        observer(&Event::Apply(host("second", second, new, "")));
        assert_eq!(owner("second"), None);
        // A detached host is moved to another one.
        let mut detached = host("old", other, old, "n1");
        detached.metadata.annotations = Some([(DETACHED.to_owned(), String::new())].into());
        observer(&Event::Apply(detached));
        observer(&Event::Apply(host("moved", address, new, "")));
        assert_eq!(owner("moved"), None);
    }
}
