// SPDX-License-Identifier: Apache-2.0
//! The controller of `IronicDatabase` objects.
//!
//! Ready means that a login succeeds: the readiness probe of the pod runs the client of the image with
//! the credentials against the server. So the operator needs no network access to databases.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::reflector::{ObjectRef, Store};
use kube_resources::hosts::conditions::{ConditionStatus, ConditionUpdate, is_true, set_condition};
use kube_resources::ironic::conditions::{
    DEPLOYMENT_AVAILABLE, DEPLOYMENT_FAILED, DEPLOYMENT_IN_PROGRESS, READY,
};
use kube_resources::ironic::database::{IronicDatabase, IronicDatabaseStatus};
use kube_resources::ironic::names::{
    DATABASE_FINALIZER, DATABASE_LABEL, OPT_IN_LABEL, event_reason, secret_keys,
};
use kube_resources::ironic::service::Ironic;

use super::desired::{
    DatabaseFacts, SETUP_ENGINE_KEY, SETUP_USERNAME_KEY, credentials_secret, database_host,
    database_names, desired_database,
};
use super::settings::IronicDatabaseSettings;
use super::setup::DATABASE_NAME;
use crate::context::ControllerContext;
use crate::events::ObjectEventRecorder;
use crate::ironic::credentials::{PASSWORD_RANDOM_BYTES, random_password};
use crate::ironic::random;
use crate::ironic::readiness::{object_readiness, worst};
use crate::ironic::status::obstacle_text;
use crate::linked_objects::{LabelRule, LinkedKind, LinkedObject, LinkedObjects};
use crate::object_loop::{
    ObjectReconciler, Obstacle, TriggerStream, owned_objects, reconcile_objects, watched_metadata,
};
use crate::object_patches::ObjectPatches;
use crate::owned_objects::{OwnedObjects, is_not_found};
use crate::reconcile_loop::RESYNC;

/// Source of events.
const EVENT_SOURCE: &str = "ironic-database-controller";
/// Field manager of the objects of a database server.
const FIELD_MANAGER: &str = "ferrite-ironic-database-controller";
/// Time after which a deleted database is looked at again while an installation uses it.
const DELETION_POLL: Duration = Duration::from_secs(10);

/// Reconciles all `IronicDatabase` objects until the manager stops. It does not fail: each failure is
/// that of an object and in its status.
pub async fn run(
    context: ControllerContext,
    settings: IronicDatabaseSettings,
) -> Result<(), Infallible> {
    let reconciler = DatabaseReconciler {
        events: ObjectEventRecorder::new(context.client.clone(), EVENT_SOURCE),
        context: context.clone(),
        settings,
    };
    reconcile_objects(&context, Arc::new(reconciler)).await;
    Ok(())
}

/// Brings database servers into their requested state.
struct DatabaseReconciler {
    context: ControllerContext,
    settings: IronicDatabaseSettings,
    events: ObjectEventRecorder,
}

/// Where clients find a database; part of the status.
struct DatabaseServerAddress {
    credentials_name: String,
    host: String,
}

#[async_trait]
impl ObjectReconciler for DatabaseReconciler {
    const CONTROLLER: &'static str = "ironicdatabase";

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<IronicDatabase>(&())
    }

    fn triggers(
        &self,
        namespace: Option<&str>,
        objects: &Store<DynamicObject>,
    ) -> Vec<TriggerStream> {
        let (label, value) = OPT_IN_LABEL;
        let known = objects.clone();
        let opt_in = format!("{label}={value}");
        let linked = watched_metadata::<Secret>(&self.context.client, namespace, Some(&opt_in))
            .flat_map(move |secret| {
                let name = secret.metadata.name.unwrap_or_default();
                let users = users(&known, secret.metadata.namespace.as_deref(), &name);
                stream::iter(users)
            });
        let (client, owner) = (&self.context.client, self.resource());
        vec![
            owned_objects::<PersistentVolumeClaim>(
                client,
                namespace,
                DATABASE_LABEL,
                owner.clone(),
            ),
            owned_objects::<Secret>(client, namespace, DATABASE_LABEL, owner.clone()),
            owned_objects::<Service>(client, namespace, DATABASE_LABEL, owner.clone()),
            owned_objects::<StatefulSet>(client, namespace, DATABASE_LABEL, owner.clone()),
            linked.boxed(),
        ]
    }

    async fn reconcile(&self, object: &DynamicObject) -> Result<Duration, Obstacle> {
        let client = &self.context.client;
        let patches = ObjectPatches::new(client.clone(), &self.resource(), object);
        if object.metadata.deletion_timestamp.is_some() {
            return self.delete(object, &patches).await;
        }
        let object = patches.ensure_finalizer(object.clone(), DATABASE_FINALIZER).await?;
        let database = read_database(&object)?;
        self.install(&object, &database).await
    }

    async fn write_obstacle(
        &self,
        object: &DynamicObject,
        obstacle: &Obstacle,
        next_attempt: Timestamp,
    ) -> Result<(), Obstacle> {
        let reason = if obstacle.needs_user { DEPLOYMENT_FAILED } else { DEPLOYMENT_IN_PROGRESS };
        let text = obstacle_text(obstacle, next_attempt);
        let ready = condition(ConditionStatus::False, reason, text, object);
        self.write_status(object, ready, None).await
    }

    fn events(&self) -> &ObjectEventRecorder {
        &self.events
    }
}

impl DatabaseReconciler {
    async fn install(
        &self,
        object: &DynamicObject,
        database: &IronicDatabase,
    ) -> Result<Duration, Obstacle> {
        let client = &self.context.client;
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let linked = LinkedObjects::new(client.clone(), namespace);
        let owned = OwnedObjects::new(client.clone(), object, "IronicDatabase", FIELD_MANAGER);
        let credentials = read_credentials(database, &linked, &owned).await?;
        let certificate = match &database.spec.tls_ref {
            Some(reference) => {
                let name = &reference.name;
                Some(linked.read(LinkedKind::Secret, name, LabelRule::Required).await?)
            }
            None => None,
        };
        let text = |key: &str| credentials.required_text(namespace, key).map(str::to_owned);
        let facts = DatabaseFacts {
            credentials_name: credentials.name.clone(),
            username: text(secret_keys::USERNAME)?,
            password: text(secret_keys::PASSWORD)?,
            certificate: certificate.map(|secret| secret.content()),
        };
        let objects = desired_database(database, &facts, &self.settings)
            .map_err(|error| Obstacle::for_user(error.to_string()))?;
        check_unchanged(database, &facts, &linked).await?;
        let mut readiness = Vec::new();
        for desired in &objects {
            let stored = owned.apply(desired).await?;
            readiness.push(object_readiness(&stored));
        }
        let ready = match worst(&readiness) {
            Some((reason, text)) => {
                condition(ConditionStatus::False, reason, text.to_owned(), object)
            }
            None => {
                let text = "a login with the credentials succeeds".to_owned();
                condition(ConditionStatus::True, DEPLOYMENT_AVAILABLE, text, object)
            }
        };
        let address = DatabaseServerAddress {
            credentials_name: facts.credentials_name,
            host: database_host(database, &self.settings),
        };
        self.write_status(object, ready, Some(address)).await?;
        Ok(RESYNC)
    }

    /// Deletes nothing while an installation uses the database. The garbage collector deletes its
    /// objects after it.
    async fn delete(
        &self,
        object: &DynamicObject,
        patches: &ObjectPatches,
    ) -> Result<Duration, Obstacle> {
        let mut finalizers = object.metadata.finalizers.iter().flatten();
        if !finalizers.any(|finalizer| finalizer == DATABASE_FINALIZER) {
            return Ok(RESYNC);
        }
        let users = self.installations(object).await?;
        if users.is_empty() {
            patches.remove_finalizer(object, DATABASE_FINALIZER).await?;
            return Ok(RESYNC);
        }
        let text = format!(
            "deletion waits until no Ironic uses the database: {}; delete it, or remove its databaseRef",
            users.join(", ")
        );
        let ready = condition(ConditionStatus::False, DEPLOYMENT_IN_PROGRESS, text, object);
        self.write_status(object, ready, None).await?;
        Ok(DELETION_POLL)
    }

    /// Names of the installations that use the database.
    async fn installations(&self, object: &DynamicObject) -> Result<Vec<String>, Obstacle> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let resource = ApiResource::erase::<Ironic>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), namespace, &resource);
        let found = match api.list(&ListParams::default()).await {
            // The cluster has no such kind.
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            found => found.map_err(|error| Obstacle::request("cannot list Ironics", &error))?,
        };
        let name = object.metadata.name.as_deref();
        let using = found.items.into_iter().filter(|ironic| {
            ironic.data.pointer("/spec/databaseRef/name").and_then(|it| it.as_str()) == name
        });
        Ok(using.filter_map(|ironic| ironic.metadata.name).collect())
    }

    async fn write_status(
        &self,
        object: &DynamicObject,
        ready: ConditionUpdate,
        address: Option<DatabaseServerAddress>,
    ) -> Result<(), Obstacle> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), namespace, &self.resource());
        let stored = api.get_opt(name).await;
        let stored = stored.map_err(|error| Obstacle::request("cannot read the status", &error))?;
        let Some(stored) = stored else { return Ok(()) };
        let current: IronicDatabaseStatus =
            serde_json::from_value(stored.data["status"].clone()).unwrap_or_default();
        let was_ready = is_true(&current.conditions, READY);
        let note = ready.message.clone();
        let next = next_status(&current, ready, address, Timestamp::now());
        if next == current {
            return Ok(());
        }
        let is_ready = is_true(&next.conditions, READY);
        let status = serde_json::to_value(&next)
            .map_err(|error| Obstacle::transient(format!("cannot write the status: {error}")))?;
        let patches = ObjectPatches::new(self.context.client.clone(), &self.resource(), object);
        patches.patch_status(&status).await?;
        let subject = event_subject(object);
        match (was_ready, is_ready) {
            (false, true) => {
                self.events.normal(&subject, event_reason::DATABASE_READY, &note).await;
            }
            (true, false) => {
                self.events.warning(&subject, event_reason::DATABASE_NOT_READY, &note).await;
            }
            (true, true) | (false, false) => {}
        }
        Ok(())
    }
}

fn next_status(
    current: &IronicDatabaseStatus,
    ready: ConditionUpdate,
    address: Option<DatabaseServerAddress>,
    now: Timestamp,
) -> IronicDatabaseStatus {
    let mut next = current.clone();
    set_condition(&mut next.conditions, ready, &Time(now));
    if let Some(address) = address {
        next.credentials_name = Some(address.credentials_name);
        next.host = Some(address.host);
        next.database_name = Some(DATABASE_NAME.to_owned());
    }
    next
}

fn condition(
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    object: &DynamicObject,
) -> ConditionUpdate {
    let observed_generation = object.metadata.generation;
    ConditionUpdate { type_: READY, status, reason, message, observed_generation }
}

/// The Secret with credentials. If the spec names none, it is generated once.
async fn read_credentials(
    database: &IronicDatabase,
    linked: &LinkedObjects,
    owned: &OwnedObjects,
) -> Result<LinkedObject, Obstacle> {
    if let Some(reference) = &database.spec.credentials_ref {
        return linked.read(LinkedKind::Secret, &reference.name, LabelRule::Required).await;
    }
    let name = database_names(database).credentials;
    if linked.read_optional(LinkedKind::Secret, &name).await?.is_none() {
        let password = random_password(&random::<PASSWORD_RANDOM_BYTES>()?);
        owned.create(&credentials_secret(database, &password)).await?;
    }
    linked.read(LinkedKind::Secret, &name, LabelRule::Required).await
}

/// The data belongs to one server program and one account.
async fn check_unchanged(
    database: &IronicDatabase,
    facts: &DatabaseFacts,
    linked: &LinkedObjects,
) -> Result<(), Obstacle> {
    let name = database_names(database).setup;
    let Some(stored) = linked.read_optional(LinkedKind::Secret, &name).await? else {
        return Ok(());
    };
    let engine = database.spec.effective_engine().to_string();
    let previous = stored.text(SETUP_ENGINE_KEY);
    if !previous.is_empty() && previous != engine {
        return Err(Obstacle::for_user(format!(
            "spec.engine: cannot change from {previous} to {engine}, because the volume has the data \
             of {previous}; restore the value, or create another IronicDatabase"
        )));
    }
    let previous = stored.text(SETUP_USERNAME_KEY);
    if !previous.is_empty() && previous != facts.username {
        return Err(Obstacle::for_user(format!(
            "secret {}: the user name cannot change from {previous} to {}; change only the password",
            facts.credentials_name, facts.username
        )));
    }
    Ok(())
}

fn read_database(object: &DynamicObject) -> Result<IronicDatabase, Obstacle> {
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .map_err(|error| Obstacle::for_user(format!("the object cannot be read: {error}")))
}

/// What events are about. It has no spec, which may be malformed.
fn event_subject(object: &DynamicObject) -> IronicDatabase {
    IronicDatabase { metadata: object.metadata.clone(), ..IronicDatabase::default() }
}

/// Databases of a namespace that use this Secret.
fn users(
    known: &Store<DynamicObject>,
    namespace: Option<&str>,
    secret: &str,
) -> Vec<ObjectRef<DynamicObject>> {
    let uses = |object: &DynamicObject, pointer: &str| {
        object.data.pointer(pointer).and_then(|name| name.as_str()) == Some(secret)
    };
    let candidates = known.state().into_iter();
    candidates
        .filter(|object| object.metadata.namespace.as_deref() == namespace)
        .filter(|object| {
            uses(object, "/spec/credentialsRef/name") || uses(object, "/spec/tlsRef/name")
        })
        .map(|object| ObjectRef::from_obj_with(&*object, ApiResource::erase::<IronicDatabase>(&())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_keeps_the_address() {
        let object = DynamicObject {
            types: None,
            metadata: kube::api::ObjectMeta { generation: Some(4), ..Default::default() },
            data: serde_json::Value::Null,
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let update = |status| condition(status, "Reason", "text".to_owned(), &object);
        let address =
            DatabaseServerAddress { credentials_name: "c".to_owned(), host: "h".to_owned() };
        let ready = next_status(
            &IronicDatabaseStatus::default(),
            update(ConditionStatus::True),
            Some(address),
            at(1),
        );
        assert!(is_true(&ready.conditions, READY));
        assert_eq!(ready.conditions[0].observed_generation, Some(4));
        let later = next_status(&ready, update(ConditionStatus::False), None, at(2));
        assert!(!is_true(&later.conditions, READY));
        assert_eq!(
            (later.host.as_deref(), later.credentials_name.as_deref()),
            (Some("h"), Some("c"))
        );
        assert_eq!(later.database_name.as_deref(), Some("ironic"));
    }
}
