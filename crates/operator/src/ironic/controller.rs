// SPDX-License-Identifier: Apache-2.0
//! The controller of `Ironic` objects: what it watches, and how it shows obstacles.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::reflector::{ObjectRef, Store};
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::names::{IRONIC_LABEL, OPT_IN_LABEL};
use kube_resources::ironic::service::Ironic;

use super::agent_ramdisks::RamdiskReader;
use super::references::{parsed, uses_linked};
use super::settings::IronicOperatorSettings;
use super::status::{StatusUpdate, obstacle_condition};
use crate::context::ControllerContext;
use crate::events::ObjectEventRecorder;
use crate::linked_objects::LinkedKind;
use crate::object_loop::{
    ObjectReconciler, Obstacle, TriggerStream, owned_objects, reconcile_objects, watched_metadata,
};

/// Source of events.
const EVENT_SOURCE: &str = "ironic-controller";

/// Reconciles all `Ironic` objects until the manager stops. It does not fail: each failure is that of an
/// object and in its status.
pub async fn run(
    context: ControllerContext,
    settings: IronicOperatorSettings,
) -> Result<(), Infallible> {
    let reconciler = IronicReconciler {
        events: ObjectEventRecorder::new(context.client.clone(), EVENT_SOURCE),
        context: context.clone(),
        settings,
        has_service_monitors: Mutex::default(),
        verified_secrets: Mutex::default(),
        ramdisks: Mutex::default(),
    };
    reconcile_objects(&context, Arc::new(reconciler)).await;
    Ok(())
}

/// Brings installations into their requested state.
pub(super) struct IronicReconciler {
    pub(super) context: ControllerContext,
    pub(super) settings: IronicOperatorSettings,
    pub(super) events: ObjectEventRecorder,
    /// Whether the cluster has the kind ServiceMonitor, and when that was read.
    pub(super) has_service_monitors: Mutex<Option<(Instant, bool)>>,
    /// Resource versions of Secrets whose user file was verified, by UID: that takes long on purpose.
    pub(super) verified_secrets: Mutex<HashMap<String, String>>,
    /// Connections to installations whose ramdisks are read, by UID of the `Ironic`.
    pub(super) ramdisks: Mutex<HashMap<String, RamdiskReader>>,
}

#[async_trait]
impl ObjectReconciler for IronicReconciler {
    const CONTROLLER: &'static str = "ironic";

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<Ironic>(&())
    }

    fn triggers(
        &self,
        namespace: Option<&str>,
        objects: &Store<DynamicObject>,
    ) -> Vec<TriggerStream> {
        let (label, value) = OPT_IN_LABEL;
        let opt_in = format!("{label}={value}");
        let client = &self.context.client;
        let secrets = watched_metadata::<Secret>(client, namespace, Some(&opt_in))
            .map(|found| (found.metadata.namespace, found.metadata.name, LinkedKind::Secret));
        let config_maps = watched_metadata::<ConfigMap>(client, namespace, Some(&opt_in))
            .map(|found| (found.metadata.namespace, found.metadata.name, LinkedKind::ConfigMap));
        let known = objects.clone();
        let linked = stream::select(secrets, config_maps).flat_map(move |(space, name, kind)| {
            let name = name.unwrap_or_default();
            let users = users(&known, space.as_deref(), |it| uses_linked(it, kind, &name));
            stream::iter(users)
        });
        let known = objects.clone();
        let databases = watched_metadata::<IronicDatabase>(client, namespace, None);
        let databases = databases.flat_map(move |database| {
            let name = database.metadata.name.unwrap_or_default();
            let uses = |it: &Ironic| {
                it.spec.database_ref.as_ref().is_some_and(|reference| reference.name == name)
            };
            stream::iter(users(&known, database.metadata.namespace.as_deref(), uses))
        });
        let (label, owner) = (IRONIC_LABEL, self.resource());
        vec![
            owned_objects::<ConfigMap>(client, namespace, label, owner.clone()),
            owned_objects::<DaemonSet>(client, namespace, label, owner.clone()),
            owned_objects::<Deployment>(client, namespace, label, owner.clone()),
            owned_objects::<Ingress>(client, namespace, label, owner.clone()),
            owned_objects::<Job>(client, namespace, label, owner.clone()),
            owned_objects::<PersistentVolumeClaim>(client, namespace, label, owner.clone()),
            owned_objects::<Secret>(client, namespace, label, owner.clone()),
            owned_objects::<Service>(client, namespace, label, owner.clone()),
            linked.boxed(),
            databases.boxed(),
        ]
    }

    async fn reconcile(&self, object: &DynamicObject) -> Result<Duration, Obstacle> {
        self.reconcile_installation(object.clone()).await
    }

    async fn write_obstacle(
        &self,
        object: &DynamicObject,
        obstacle: &Obstacle,
        next_attempt: Timestamp,
    ) -> Result<(), Obstacle> {
        let update = StatusUpdate {
            ready: obstacle_condition(obstacle, object.metadata.generation, next_attempt),
            notices: None,
            requested_version: None,
        };
        self.write_status(object, update).await
    }

    fn events(&self) -> &ObjectEventRecorder {
        &self.events
    }
}

/// What events are about. It has no spec, which may be malformed.
pub(super) fn event_subject(object: &DynamicObject) -> Ironic {
    Ironic { metadata: object.metadata.clone(), ..Ironic::default() }
}

/// Installations of a namespace for which a condition holds.
fn users(
    known: &Store<DynamicObject>,
    namespace: Option<&str>,
    condition: impl Fn(&Ironic) -> bool,
) -> Vec<ObjectRef<DynamicObject>> {
    let candidates = known.state().into_iter();
    candidates
        .filter(|object| object.metadata.namespace.as_deref() == namespace)
        .filter(|object| parsed(object).is_some_and(|ironic| condition(&ironic)))
        .map(|object| ObjectRef::from_obj_with(&*object, ApiResource::erase::<Ironic>(&())))
        .collect()
}
