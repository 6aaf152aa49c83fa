// SPDX-License-Identifier: Apache-2.0
//! The controller of `BareMetalHost`: which changes of a host are a reason to reconcile it.

use std::time::Duration;

use async_trait::async_trait;
use kube::runtime::watcher::Event;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use tracing::{debug, warn};

use super::digest_of;
use super::host_pass::{HostPassError, HostPasses};
use super::host_slots::HostSlots;
use super::watching::{ObserverFactory, RelevantValues};
use crate::log_limit::API_FAILURES;
use crate::object_key::ObjectKey;
use crate::owned_objects::api_error_chain;
use crate::reconcile_loop::Reconciler;

#[async_trait]
impl Reconciler for HostPasses {
    type Kind = BareMetalHost;
    type Failure = HostPassError;
    const NAME: &'static str = "baremetalhost";

    async fn reconcile(&self, host: &BareMetalHost) -> Result<Option<Duration>, HostPassError> {
        self.pass(host).await
    }

    async fn report(&self, host: &BareMetalHost, failure: HostPassError, retry_in: Duration) {
        let key = ObjectKey::of(host);
        let (namespace, name) = (key.namespace(), key.name());
        let error = api_error_chain(&failure);
        match failure {
            // Another client changed the host at the same time; the next pass uses its change.
            HostPassError::Conflict => {
                debug!(namespace, name, error, "host changed during its pass")
            }
            HostPassError::Api(cause) => {
                if let Some(omitted) = API_FAILURES.admit_failure(Self::NAME, &cause) {
                    warn!(namespace, name, error, ?retry_in, omitted, "pass failed");
                }
            }
        }
    }
}

/// An observer that keeps the slots in step with the cache, and wakes hosts that changed, unless the
/// last pass did it.
pub(super) fn host_changes(
    slots: &HostSlots,
    wake: impl Fn(&ObjectKey) + Clone + Send + Sync + 'static,
) -> ObserverFactory<BareMetalHost> {
    let slots = slots.clone();
    Box::new(move || {
        let (slots, wake) = (slots.clone(), wake.clone());
        let mut hosts = RelevantValues::new(change_mark);
        Box::new(move |event| {
            let mut is_own = false;
            if let Event::Apply(host) | Event::InitApply(host) = event {
                let key = ObjectKey::of(host);
                slots.seen(&key, host);
                is_own = slots.is_own(&key, host);
            }
            for key in hosts.changed_by(event) {
                match hosts.get(&key) {
                    None => slots.remove(&key),
                    Some(_) if is_own => {}
                    Some(_) => wake(&key),
                }
            }
        })
    })
}

/// A number that differs if a pass is necessary. Status and labels are no reason for one. Not the values,
/// because annotations are large.
fn change_mark(host: &BareMetalHost) -> Option<u64> {
    let metadata = &host.metadata;
    let (uid, annotations) = (&metadata.uid, &metadata.annotations);
    Some(digest_of(&(uid, metadata.generation, annotations, &metadata.finalizers)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_are_woken_by_relevant_changes_of_others() {
        let host = |version: u64, generation: u64| -> BareMetalHost {
            let metadata = json!({"namespace": "n", "name": "h", "uid": "u",
                "resourceVersion": version.to_string(), "generation": generation});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let (slots, woken) = (HostSlots::default(), Arc::new(Mutex::new(0)));
        let counter = Arc::clone(&woken);
        let mut observer = host_changes(&slots, move |_| *counter.lock().unwrap() += 1)();
        let mut check = |event: Event<BareMetalHost>, expected: u32| {
            observer(&event);
            assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), expected, "{event:?}");
        };
        check(Event::Init, 0);
        check(Event::InitApply(host(1, 1)), 0);
        check(Event::InitDone, 1);
        check(Event::Apply(host(2, 1)), 0);
        check(Event::Apply(host(3, 2)), 1);
        slots.wrote(ObjectKey::new("n", "h"), &host(4, 3));
        check(Event::Apply(host(4, 3)), 0);
        check(Event::Apply(host(5, 4)), 1);
        let mut slot = slots.take(&ObjectKey::new("n", "h"), &host(5, 4));
        slot.memory.is_adopted = true;
        slots.put(ObjectKey::new("n", "h"), slot, |_| None);
        check(Event::Init, 0);
        check(Event::InitDone, 0);
        let slot = slots.take(&ObjectKey::new("n", "h"), &host(5, 4));
        assert!(!slot.memory.is_adopted, "the object was deleted while the watch was interrupted");
    }
}
