// SPDX-License-Identifier: Apache-2.0
//! `BMCEventSubscription`: subscriptions to events of a BMC.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::bmc_event_subscription::BMCEventSubscription;
use kube_resources::hosts::names::BMC_EVENT_SUBSCRIPTION_FINALIZER;
use kube_resources::hosts::validation::validate_bmc_event_subscription;
use serde_json::{Value, json};

use super::super::provisioner::{BmcEventRequest, HostProvisioner, ManagedHost, VerbStop};
use super::registered_host::registered_host;
use super::subscription_ids::{SubscriptionIds, host_of};
use super::watching::ObjectCache;
use crate::object_key::ObjectKey;
use crate::reconcile_loop::Reconciler;

/// When a missing or unregistered host is looked for again.
const HOST_WAIT: Duration = Duration::from_secs(60);
/// When a failed request is repeated.
const RETRY: Duration = Duration::from_secs(60);

/// Controller of `BMCEventSubscription`.
pub(super) struct EventSubscriptionReconciler {
    pub(super) client: Client,
    pub(super) hosts: ObjectCache<BareMetalHost>,
    pub(super) ids: SubscriptionIds,
    pub(super) provisioner: Arc<dyn HostProvisioner>,
}

#[async_trait]
impl Reconciler for EventSubscriptionReconciler {
    type Kind = BMCEventSubscription;
    type Failure = kube::Error;
    const NAME: &'static str = "bmceventsubscription";

    async fn reconcile(&self, subscription: &Self::Kind) -> Result<Option<Duration>, kube::Error> {
        let key = host_of(subscription);
        let host = registered_host(&self.hosts, &key).map(|(_, managed)| managed);
        if subscription.metadata.deletion_timestamp.is_some() {
            return self.remove(subscription, host, self.hosts.get(&key).is_none()).await;
        }
        if let Some(error) = validate_bmc_event_subscription(subscription).first() {
            self.report(subscription, &error.to_string()).await?;
            return Ok(None);
        }
        let Some(host) = host else {
            let message = format!("host {} does not exist or is not registered", key.name());
            self.report(subscription, &message).await?;
            return Ok(Some(HOST_WAIT));
        };
        if !is_held(subscription) {
            let names = subscription.finalizers().iter().map(String::as_str);
            let finalizers: Vec<&str> = names.chain([BMC_EVENT_SUBSCRIPTION_FINALIZER]).collect();
            // The change leads to the next look.
            self.patch_finalizers(subscription, json!(finalizers)).await?;
            return Ok(None);
        }
        let status = subscription.status.clone().unwrap_or_default();
        if status.subscription_id.is_some() {
            return Ok(None);
        }
        self.add(subscription, &host).await
    }
}

impl EventSubscriptionReconciler {
    fn api(&self, subscription: &BMCEventSubscription) -> Api<BMCEventSubscription> {
        Api::namespaced(self.client.clone(), &subscription.namespace().unwrap_or_default())
    }

    async fn add(
        &self,
        subscription: &BMCEventSubscription,
        host: &ManagedHost,
    ) -> Result<Option<Duration>, kube::Error> {
        let Some(http_headers) = self.headers(subscription).await? else {
            let message = "the Secret of spec.httpHeadersRef does not exist";
            self.report(subscription, message).await?;
            return Ok(Some(HOST_WAIT));
        };
        let (object, key) = (ObjectKey::of(subscription), host_of(subscription));
        let _lock = self.ids.lock(&key).await;
        let request = BmcEventRequest {
            destination: subscription.spec.destination.clone().unwrap_or_default(),
            context: subscription.spec.context.clone(),
            http_headers,
            used_ids: self.ids.of_others(&key, &object),
        };
        match self.provisioner.add_event_subscription(host, &request).await {
            Ok(id) => {
                self.ids.insert(object, key, id.clone());
                let status = json!({"subscriptionID": id, "error": null});
                self.patch_status(subscription, status).await?;
                Ok(None)
            }
            Err(stop) => {
                self.report(subscription, &stop.to_string()).await?;
                Ok(Some(RETRY))
            }
        }
    }

    /// Ends the subscription. One of a host that is gone cannot be ended and does not matter.
    async fn remove(
        &self,
        subscription: &BMCEventSubscription,
        host: Option<ManagedHost>,
        is_host_gone: bool,
    ) -> Result<Option<Duration>, kube::Error> {
        if !is_held(subscription) {
            return Ok(None);
        }
        let id = subscription.status.as_ref().and_then(|status| status.subscription_id.clone());
        match (host, id) {
            (_, None) => {}
            (None, Some(_)) if is_host_gone => {}
            (None, Some(_)) => return Ok(Some(HOST_WAIT)),
            (Some(host), Some(id)) => {
                match self.provisioner.remove_event_subscription(&host, &id).await {
                    Ok(()) | Err(VerbStop::NeedsRegistration) => {}
                    Err(stop) => {
                        self.report(subscription, &stop.to_string()).await?;
                        return Ok(Some(RETRY));
                    }
                }
            }
        }
        let names = subscription.finalizers().iter();
        let left: Vec<&String> =
            names.filter(|name| *name != BMC_EVENT_SUBSCRIPTION_FINALIZER).collect();
        self.patch_finalizers(subscription, json!(left)).await?;
        Ok(None)
    }

    /// The headers; `None` if their Secret does not exist.
    async fn headers(
        &self,
        subscription: &BMCEventSubscription,
    ) -> Result<Option<BTreeMap<String, String>>, kube::Error> {
        let reference = subscription.spec.http_headers_ref.as_ref();
        let Some(name) = reference.and_then(|reference| reference.name.as_deref()) else {
            return Ok(Some(BTreeMap::new()));
        };
        let namespace = subscription.namespace().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let Some(secret) = api.get_opt(name).await? else { return Ok(None) };
        let data = secret.data.unwrap_or_default().into_iter();
        let headers =
            data.map(|(name, value)| (name, String::from_utf8_lossy(&value.0).into_owned()));
        Ok(Some(headers.collect()))
    }

    async fn report(
        &self,
        subscription: &BMCEventSubscription,
        message: &str,
    ) -> Result<(), kube::Error> {
        let shown = subscription.status.as_ref().and_then(|status| status.error.as_deref());
        match shown == Some(message) {
            true => Ok(()),
            false => self.patch_status(subscription, json!({"error": message})).await,
        }
    }

    async fn patch_status(
        &self,
        subscription: &BMCEventSubscription,
        status: Value,
    ) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"status": status}));
        let api = self.api(subscription);
        let name = subscription.name_any();
        ignore_missing(api.patch_status(&name, &PatchParams::default(), &patch).await)
    }

    async fn patch_finalizers(
        &self,
        subscription: &BMCEventSubscription,
        finalizers: Value,
    ) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers,
            "resourceVersion": subscription.metadata.resource_version}}));
        let api = self.api(subscription);
        ignore_missing(api.patch(&subscription.name_any(), &PatchParams::default(), &patch).await)
    }
}

fn is_held(subscription: &BMCEventSubscription) -> bool {
    subscription.finalizers().iter().any(|name| name == BMC_EVENT_SUBSCRIPTION_FINALIZER)
}

fn ignore_missing<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
