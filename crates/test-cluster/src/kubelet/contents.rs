// SPDX-License-Identifier: Apache-2.0
//! Secrets, ConfigMaps, Services and endpoints of the cluster, kept up to date by watches.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, Event, Result as WatchResult};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// Between two connections to an API server that is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The kind of an object with named contents.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentSource {
    Secret,
    ConfigMap,
}

impl ContentSource {
    /// As in messages of the kubelet.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::ConfigMap => "configmap",
        }
    }
}

/// Copies of objects.
pub(super) struct Contents {
    secrets: Store<Secret>,
    config_maps: Store<ConfigMap>,
    services: Store<Service>,
    endpoints: Store<EndpointSlice>,
    files_changed: watch::Receiver<()>,
    routes_changed: watch::Receiver<()>,
}

impl Contents {
    /// Starts the watches and waits until they have all objects.
    pub(super) async fn watch(client: &Client) -> anyhow::Result<Self> {
        let (files, files_changed) = watch::channel(());
        let (routes, routes_changed) = watch::channel(());
        let contents = Self {
            secrets: reflect(client, files.clone()),
            config_maps: reflect(client, files),
            services: reflect(client, routes.clone()),
            endpoints: reflect(client, routes),
            files_changed,
            routes_changed,
        };
        contents.secrets.wait_until_ready().await?;
        contents.config_maps.wait_until_ready().await?;
        contents.services.wait_until_ready().await?;
        contents.endpoints.wait_until_ready().await?;
        Ok(contents)
    }

    /// The entries of a Secret or ConfigMap; `None` if it does not exist.
    pub(super) fn get(
        &self,
        kind: ContentSource,
        namespace: &str,
        name: &str,
    ) -> Option<BTreeMap<String, Vec<u8>>> {
        match kind {
            ContentSource::Secret => {
                let secret = self.secrets.get(&ObjectRef::new(name).within(namespace))?;
                let data = secret.data.clone().unwrap_or_default();
                Some(data.into_iter().map(|(key, value)| (key, value.0)).collect())
            }
            ContentSource::ConfigMap => {
                let map = self.config_maps.get(&ObjectRef::new(name).within(namespace))?;
                let text = map.data.clone().unwrap_or_default();
                let binary = map.binary_data.clone().unwrap_or_default();
                let text = text.into_iter().map(|(key, value)| (key, value.into_bytes()));
                Some(text.chain(binary.into_iter().map(|(key, value)| (key, value.0))).collect())
            }
        }
    }

    pub(super) fn services(&self) -> Vec<Arc<Service>> {
        self.services.state()
    }

    pub(super) fn endpoints(&self) -> Vec<Arc<EndpointSlice>> {
        self.endpoints.state()
    }

    /// Notified when a Secret or ConfigMap changes.
    pub(super) fn files_changed(&self) -> watch::Receiver<()> {
        self.files_changed.clone()
    }

    /// Notified when a Service or its endpoints change.
    pub(super) fn routes_changed(&self) -> watch::Receiver<()> {
        self.routes_changed.clone()
    }
}

/// A watch that reconnects for ever.
pub(super) fn events<K>(api: Api<K>) -> impl Stream<Item = WatchResult<Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, Config::default()).backoff(FixedDelay)
}

fn reflect<K>(client: &Client, changed: watch::Sender<()>) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Clone + Eq + Hash + Unpin + Send + Sync,
{
    let (reader, writer) = store::<K>();
    let mut stream = Box::pin(events(Api::<K>::all(client.clone())).reflect(writer));
    tokio::spawn(async move {
        while let Some(event) = stream.next().await {
            // Errors are followed by another attempt.
            if event.is_ok() {
                changed.send_replace(());
            }
        }
    });
    reader
}

/// Always the same short delay: the API server of a test is away on purpose, and comes back.
struct FixedDelay;

impl Iterator for FixedDelay {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(RETRY_INTERVAL)
    }
}

impl Backoff for FixedDelay {
    fn reset(&mut self) {}
}
