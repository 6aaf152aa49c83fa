// SPDX-License-Identifier: Apache-2.0
//! Secrets of hosts: read on demand, labelled, and kept from being deleted while they are needed.
//!
//! Only metadata of Secrets with the label of Metal3 is watched; contents are never cached for the
//! whole cluster.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::names::{SECRET_FINALIZER, SECRET_LABEL};
use serde_json::{Map, Value, json};

use super::watching::{WatchDriver, warn_about_watch};
use crate::context::ControllerContext;
use crate::object_key::ObjectKey;

/// Kind of hosts in owner references.
const HOST_KIND: &str = "BareMetalHost";

/// Versions of the contents of Secrets that hosts use.
///
/// Many hosts may share a Secret, and each adds itself to the metadata. Only another content matters,
/// so its version is the resource version at which this process saw it first. After a restart of the operator
/// the version differs if the metadata has changed since, and the credentials are sent again. Nothing that depends
/// on a content is stored, because metadata is shown to more users than contents.
#[derive(Clone, Default)]
pub(super) struct SecretVersions {
    known: Arc<Mutex<HashMap<ObjectKey, KnownSecret>>>,
    /// Random keys of the digests.
    digests: RandomState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownSecret {
    version: String,
    content_version: String,
    digest: u64,
}

/// What a change of a Secret's metadata means.
#[derive(Debug, PartialEq, Eq)]
enum SecretNews {
    /// Nothing: this process wrote or read it.
    Known,
    /// The content may differ: it has to be read.
    Unread(Vec<ObjectKey>),
    /// It is gone.
    Deleted(Vec<ObjectKey>),
}

impl SecretVersions {
    /// The version of the content; `None` if the Secret does not exist or was not read yet.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<String> {
        self.lock().get(key).map(|known| known.content_version.clone())
    }

    /// Records a Secret that was read or written, and returns the version of its content. One that is
    /// older than the recorded one is not recorded, so that its user reads the Secret again.
    fn record(&self, key: &ObjectKey, secret: &Secret) -> String {
        let version = secret.resource_version().unwrap_or_default();
        let digest = self.digest(secret);
        let mut known = self.lock();
        let before = known.get(key);
        let same = before.filter(|before| before.digest == digest);
        let content_version = same.map_or_else(|| version.clone(), |it| it.content_version.clone());
        let is_outdated = before.is_some_and(|before| number(&version) < number(&before.version));
        if !is_outdated {
            let record = KnownSecret { version, content_version: content_version.clone(), digest };
            known.insert(key.clone(), record);
        }
        content_version
    }

    fn digest(&self, secret: &Secret) -> u64 {
        let mut hasher = self.digests.build_hasher();
        for (name, ByteString(value)) in secret.data.iter().flatten() {
            (name, value).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, KnownSecret>> {
        // The map is consistent after every statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the labelled Secrets. `on_change` gets the hosts that own one with another content.
    pub(super) fn follow(
        &self,
        context: &ControllerContext,
        on_change: impl Fn(&ObjectKey) + Clone + Send + Sync + 'static,
    ) -> WatchDriver {
        let selector = format!("{}={}", SECRET_LABEL.0, SECRET_LABEL.1);
        let apis = context.watched_apis::<PartialObjectMeta<Secret>>().into_iter();
        let drivers = apis.map(|api| {
            let (known, on_change) = (self.clone(), on_change.clone());
            let client = context.client.clone();
            let config = watcher::Config::default().labels(&selector);
            watcher(api, config).default_backoff().for_each(move |event| {
                let (known, client, on_change) = (known.clone(), client.clone(), on_change.clone());
                async move {
                    match event {
                        Ok(event) => {
                            known.changed_by(&event, client).await.iter().for_each(on_change);
                        }
                        Err(error) => warn_about_watch("Secret", &error),
                    }
                }
            })
        });
        let drivers: Vec<_> = drivers.collect();
        Box::pin(async move {
            join_all(drivers).await;
        })
    }

    /// The hosts that have to look at the Secret.
    async fn changed_by(
        &self,
        event: &Event<PartialObjectMeta<Secret>>,
        client: Client,
    ) -> Vec<ObjectKey> {
        let secret = match event {
            Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => secret,
            Event::Init | Event::InitDone => return Vec::new(),
        };
        let key = ObjectKey::of(secret);
        let owners = match self.news(&key, secret, matches!(event, Event::Delete(_))) {
            SecretNews::Known => return Vec::new(),
            SecretNews::Deleted(owners) => return owners,
            SecretNews::Unread(owners) => owners,
        };
        let Some(before) = self.get(&key) else { return owners };
        let api: Api<Secret> = Api::namespaced(client, key.namespace());
        match api.get_opt(key.name()).await {
            Ok(Some(read)) if self.record(&key, &read) == before => Vec::new(),
            // The hosts read it themselves.
            Ok(_) | Err(_) => owners,
        }
    }

    fn news(
        &self,
        key: &ObjectKey,
        secret: &PartialObjectMeta<Secret>,
        is_deleted: bool,
    ) -> SecretNews {
        let owners = secret.metadata.owner_references.iter().flatten();
        let owners = owners.filter(|owner| owner.kind == HOST_KIND);
        let owners = owners.map(|owner| ObjectKey::new(key.namespace(), &owner.name));
        if is_deleted {
            self.lock().remove(key);
            return SecretNews::Deleted(owners.collect());
        }
        let version = number(secret.metadata.resource_version.as_deref().unwrap_or_default());
        let known = self.lock().get(key).and_then(|known| number(&known.version));
        match known.is_some() && version <= known {
            true => SecretNews::Known,
            false => SecretNews::Unread(owners.collect()),
        }
    }
}

/// Resource versions are numbers that increase.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// How a Secret is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretUse {
    /// Labelled only.
    Read,
    /// Also owned by the host and kept until the host is gone.
    Owned,
}

/// A Secret that was read.
pub(super) struct AcquiredSecret {
    pub(super) data: BTreeMap<String, ByteString>,
    /// Version of the content.
    pub(super) version: String,
}

/// Reads and changes Secrets of hosts.
#[derive(Clone)]
pub(super) struct HostSecrets {
    client: Client,
    versions: SecretVersions,
}

impl HostSecrets {
    pub(super) fn new(client: Client, versions: SecretVersions) -> Self {
        Self { client, versions }
    }

    pub(super) fn versions(&self) -> &SecretVersions {
        &self.versions
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads a Secret of a host and marks it as used; `None` if it does not exist. A host that is
    /// deleted changes nothing.
    pub(super) async fn acquire(
        &self,
        host: &BareMetalHost,
        name: &str,
        usage: SecretUse,
    ) -> Result<Option<AcquiredSecret>, kube::Error> {
        let namespace = host.namespace().unwrap_or_default();
        let api = self.api(&namespace);
        let Some(secret) = api.get_opt(name).await? else { return Ok(None) };
        let key = ObjectKey::new(namespace, name);
        let marked = match host.metadata.deletion_timestamp.is_none() {
            true => marks(&secret.metadata, host, usage),
            false => None,
        };
        let secret = match marked {
            None => secret,
            // Merged with the changes of other hosts that use the same Secret.
            Some(patch) => {
                api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await?
            }
        };
        // With the version after the change, so that it is the same after a restart.
        let version = self.versions.record(&key, &secret);
        Ok(Some(AcquiredSecret { data: secret.data.unwrap_or_default(), version }))
    }

    /// Lets a Secret be deleted, unless another host needs it.
    pub(super) async fn release(
        &self,
        host: &BareMetalHost,
        name: &str,
        is_needed: impl Fn(&OwnerReference) -> bool,
    ) -> Result<(), kube::Error> {
        let api = self.api(&host.namespace().unwrap_or_default());
        let Some(secret) = api.get_opt(name).await? else { return Ok(()) };
        let other = |owner: &&OwnerReference| {
            owner.kind == HOST_KIND && Some(&owner.uid) != host.metadata.uid.as_ref()
        };
        let has_other_user = secret.owner_references().iter().filter(other).any(&is_needed);
        let is_held = secret.finalizers().iter().any(|name| name == SECRET_FINALIZER);
        if has_other_user || !is_held {
            return Ok(());
        }
        let left: Vec<&String> =
            secret.finalizers().iter().filter(|name| *name != SECRET_FINALIZER).collect();
        let patch = json!({"metadata": {
            "resourceVersion": secret.metadata.resource_version, "finalizers": left,
        }});
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The strategic merge patch that marks a Secret as used; `None` if it is marked already.
fn marks(metadata: &ObjectMeta, host: &BareMetalHost, usage: SecretUse) -> Option<Value> {
    let mut changes = Map::new();
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(SECRET_LABEL.0));
    if label.is_none_or(|label| label != SECRET_LABEL.1) {
        changes.insert("labels".to_owned(), json!({SECRET_LABEL.0: SECRET_LABEL.1}));
    }
    if usage == SecretUse::Owned {
        let mut owners = metadata.owner_references.iter().flatten();
        if let Some(owner) = host.owner_ref(&())
            && !owners.any(|existing| existing.uid == owner.uid)
        {
            changes.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let is_held = metadata.finalizers.iter().flatten().any(|name| name == SECRET_FINALIZER);
        // The API server rejects new finalizers of a deleted object.
        if !is_held && metadata.deletion_timestamp.is_none() {
            changes.insert("finalizers".to_owned(), json!([SECRET_FINALIZER]));
        }
    }
    // Only for this object, should the name be used again.
    changes.insert("uid".to_owned(), json!(metadata.uid));
    (changes.len() > 1).then(|| json!({"metadata": changes}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> BareMetalHost {
        serde_json::from_value(json!({"metadata": {"name": "h", "namespace": "n", "uid": "u"}}))
            .unwrap()
    }

    #[test]
    fn a_secret_is_marked_once() {
        let mut metadata: ObjectMeta =
            serde_json::from_value(json!({"name": "s", "uid": "s"})).unwrap();
        let read = marks(&metadata, &host(), SecretUse::Read).unwrap();
        assert_eq!(
            read,
            json!({"metadata": {"uid": "s", "labels": {"environment.metal3.io": "baremetal"}}})
        );
        let owned = marks(&metadata, &host(), SecretUse::Owned).unwrap();
        assert_eq!(owned["metadata"]["finalizers"], json!(["baremetalhost.metal3.io/secret"]));
        assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], json!("u"));
        // Nothing that depends on the content.
        assert_eq!(owned["metadata"]["annotations"], Value::Null);
        let patched = serde_json::to_value(&metadata).unwrap();
        let mut patched = patched.as_object().unwrap().clone();
        patched.extend(owned["metadata"].as_object().unwrap().clone());
        metadata = serde_json::from_value(Value::Object(patched)).unwrap();
        assert_eq!(marks(&metadata, &host(), SecretUse::Owned), None);
    }

    #[test]
    fn only_another_content_is_another_version() {
        let versions = SecretVersions::default();
        let key = ObjectKey::new("n", "s");
        let secret = |version: &str, password: &str| -> Secret {
            let data = BTreeMap::from([("password".to_owned(), ByteString(password.into()))]);
            let mut secret = Secret { data: Some(data), ..Secret::default() };
            secret.metadata.resource_version = Some(version.to_owned());
            secret
        };
        assert_eq!(versions.get(&key), None);
        assert_eq!(versions.record(&key, &secret("1", "a")), "1");
        assert_eq!(versions.record(&key, &secret("2", "a")), "1");
        assert_eq!(versions.record(&key, &secret("3", "b")), "3");
        assert_eq!(versions.get(&key).as_deref(), Some("3"));
        // Another task has read the Secret earlier and records it later.
        assert_eq!(versions.record(&key, &secret("2", "a")), "2");
        assert_eq!(versions.get(&key).as_deref(), Some("3"));
        assert_eq!(versions.record(&key, &secret("4", "b")), "3");
        // The operator restarts.
        assert_eq!(SecretVersions::default().record(&key, &secret("4", "b")), "4");
    }

    #[test]
    fn owners_are_informed_about_changes_of_others() {
        let versions = SecretVersions::default();
        let secret = |version: &str| -> PartialObjectMeta<Secret> {
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n",
            "resourceVersion": version, "ownerReferences": [
                {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "h",
                 "uid": "u"},
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v"},
            ]}}))
            .unwrap()
        };
        let (key, owners) = (ObjectKey::new("n", "s"), || vec![ObjectKey::new("n", "h")]);
        assert_eq!(versions.news(&key, &secret("1"), false), SecretNews::Unread(owners()));
        let mut read = Secret::default();
        read.metadata.resource_version = Some("10".to_owned());
        versions.record(&key, &read);
        for version in ["9", "10"] {
            assert_eq!(versions.news(&key, &secret(version), false), SecretNews::Known);
        }
        assert_eq!(versions.news(&key, &secret("11"), false), SecretNews::Unread(owners()));
        assert_eq!(versions.news(&key, &secret("11"), true), SecretNews::Deleted(owners()));
        assert_eq!(versions.get(&key), None);
    }
}
