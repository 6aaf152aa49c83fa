// SPDX-License-Identifier: Apache-2.0
//! What every controller receives from the manager.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::health::OperatorReadiness;
use crate::metrics::OperatorMetrics;

/// Client, namespaces and shutdown signal of a controller.
#[derive(Clone)]
pub struct ControllerContext {
    /// Client of the API server.
    pub client: Client,
    /// Namespaces whose objects are controlled.
    pub scope: WatchScope,
    /// Becomes true when the controller has to end.
    pub shutdown: watch::Receiver<bool>,
    /// Metrics of the process.
    pub metrics: OperatorMetrics,
    /// Gates that a controller opens when its caches are complete.
    pub readiness: OperatorReadiness,
}

/// Namespaces whose objects are controlled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// All of them.
    Cluster,
    /// These only; permissions outside them are not needed.
    Namespaces(Vec<String>),
}

/// A kind that can be watched in namespaces.
pub(crate) trait WatchedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> WatchedKind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

impl ControllerContext {
    /// One API per namespace to watch, or one for all.
    #[must_use]
    pub fn watched_apis<K>(&self) -> Vec<Api<K>>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.scope {
            WatchScope::Cluster => vec![Api::all(self.client.clone())],
            WatchScope::Namespaces(names) => {
                names.iter().map(|name| Api::namespaced(self.client.clone(), name)).collect()
            }
        }
    }

    /// Waits until the controller has to end.
    pub async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // An error means that the manager is gone.
        let _ = shutdown.wait_for(|is_stopping| *is_stopping).await;
    }
}
