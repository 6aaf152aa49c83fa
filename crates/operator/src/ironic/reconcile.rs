// SPDX-License-Identifier: Apache-2.0
//! One pass over an `Ironic`: read what it depends on, apply its objects, write its status.

use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube_resources::hosts::conditions::is_true;
use kube_resources::ironic::conditions::{
    DEPLOYMENT_IN_PROGRESS, NEW_VERSION_REQUESTED, READY, RESOURCES_UPDATING,
};
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::names::{
    IRONIC_FINALIZER, IRONIC_LABEL, SCHEMA_JOB, event_reason, secret_keys,
};
use kube_resources::ironic::service::{CaKind, CaReference, Ironic, IronicStatus};
use kube_resources::ironic::validation::validate_ironic;
use serde_json::Value;

use super::controller::{IronicReconciler, event_subject};
use super::desired::{
    DesiredObjects, DesiredObjectsError, desired_objects, object_names, selected_version,
};
use super::facts::{DatabaseCa, DatabaseEndpoint, IronicFacts, content_hash};
use super::readiness::{ObjectReadiness, not_ready, object_readiness, ready_condition};
use super::status::{StatusUpdate, changed_status};
use crate::linked_objects::{LabelRule, LinkedKind, LinkedObject, LinkedObjects};
use crate::object_loop::{ObjectReconciler as _, Obstacle};
use crate::object_patches::ObjectPatches;
use crate::owned_objects::{
    ComparedObject, DeletionState, ObjectIdentity, OwnedObjects, is_not_found,
};
use crate::reconcile_loop::RESYNC;

/// Field manager of the objects of an installation.
const FIELD_MANAGER: &str = "ferrite-ironic-controller";
/// Time for which the list of kinds of the cluster is used.
const KINDS_LIFETIME: Duration = Duration::from_secs(60);
/// Time after which a failed Job is started again.
const JOB_RETRY: Duration = Duration::from_secs(300);
/// Time after which objects that are being deleted are looked at again without a change.
pub(super) const DELETION_POLL: Duration = Duration::from_secs(10);
/// Longest wait for the renewal of a certificate, so that a pass is not forgotten.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What a pass works with.
pub(super) struct InstallationPass {
    /// The object as stored.
    pub(super) object: DynamicObject,
    pub(super) ironic: Ironic,
    pub(super) patches: ObjectPatches,
    pub(super) owned: OwnedObjects,
    pub(super) linked: LinkedObjects,
    pub(super) namespace: String,
}

impl IronicReconciler {
    /// Reconciles an installation and returns when it has to be done again without a change.
    pub(super) async fn reconcile_installation(
        &self,
        object: DynamicObject,
    ) -> Result<Duration, Obstacle> {
        let client = &self.context.client;
        let patches = ObjectPatches::new(client.clone(), &self.resource(), &object);
        let owned = OwnedObjects::new(client.clone(), &object, "Ironic", FIELD_MANAGER);
        if object.metadata.deletion_timestamp.is_some() {
            return self.delete_installation(&object, &patches, &owned).await;
        }
        let object = patches.ensure_finalizer(object, IRONIC_FINALIZER).await?;
        let ironic = read_ironic(&object)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let linked = LinkedObjects::new(client.clone(), &namespace);
        let mut pass = InstallationPass { object, ironic, patches, owned, linked, namespace };
        self.install(&mut pass).await
    }

    async fn install(&self, pass: &mut InstallationPass) -> Result<Duration, Obstacle> {
        let version = selected_version(&pass.ironic, &self.settings)
            .map_err(|error| invalid(&error))?
            .to_string();
        let errors = validate_ironic(&pass.ironic, &self.settings.rules);
        if !errors.is_empty() {
            return Err(invalid(&DesiredObjectsError::Invalid(errors)));
        }
        let credentials = self.api_credentials(pass).await?;
        self.announce_version(pass, &version).await?;
        self.ensure_sealing_keys(pass).await?;
        let (certificate, renew_at) = self.certificate(pass).await?;
        let facts = IronicFacts {
            api_credentials: credentials.content(),
            certificate: certificate.map(|secret| secret.content()),
            bmc_ca: read_ca(pass, pass.ironic.spec.tls.effective_bmc_ca()).await?,
            trusted_ca: read_ca(pass, pass.ironic.spec.tls.effective_trusted_ca()).await?,
            database: self.database(pass).await?,
            finished_schema_job: finished_schema_job(pass).await?,
            has_service_monitors: self.has_service_monitors().await?,
        };
        let desired = desired_objects(&pass.ironic, &facts, &self.settings)
            .map_err(|error| invalid(&error))?;
        let readiness = self.apply_all(pass, &desired).await;
        let is_ready =
            readiness.as_ref().is_ok_and(|all| all.iter().all(ObjectReadiness::is_ready));
        if !is_ready {
            self.expire_ramdisks(&pass.object);
        }
        let readiness = readiness?;
        let update = StatusUpdate {
            ready: ready_condition(&readiness, pass.object.metadata.generation),
            notices: Some(&desired.notices),
            requested_version: Some(version),
        };
        self.write_status(&pass.object, update).await?;
        let renewal = renew_at.map(|time| {
            time.duration_since(SystemTime::now()).unwrap_or_default().max(SHORTEST_WAIT)
        });
        let refresh = match is_ready {
            true => self.refresh_ramdisks(&pass.object).await,
            false => RESYNC,
        };
        Ok(renewal.unwrap_or(RESYNC).min(refresh).min(RESYNC))
    }

    /// Shows that another version is being installed, before anything changes.
    async fn announce_version(
        &self,
        pass: &InstallationPass,
        version: &str,
    ) -> Result<(), Obstacle> {
        let status = pass.ironic.status.clone().unwrap_or_default();
        let is_version = |other: &Option<String>| other.as_deref() == Some(version);
        if is_version(&status.requested_version) || is_version(&status.installed_version) {
            return Ok(());
        }
        let installed = status.installed_version.as_deref().unwrap_or("none");
        let note = format!("version {version} is requested, {installed} is installed");
        let subject = event_subject(&pass.object);
        self.events.normal(&subject, event_reason::VERSION_CHANGE, &note).await;
        let generation = pass.object.metadata.generation;
        let update = StatusUpdate {
            ready: not_ready(DEPLOYMENT_IN_PROGRESS, NEW_VERSION_REQUESTED, generation),
            notices: None,
            requested_version: Some(version.to_owned()),
        };
        self.write_status(&pass.object, update).await
    }

    /// Writes the status if it changes, with the event that belongs to the change. The stored status may
    /// be newer than that of `object` by the writes of this pass, so it is read again.
    pub(super) async fn write_status(
        &self,
        object: &DynamicObject,
        update: StatusUpdate<'_>,
    ) -> Result<(), Obstacle> {
        let Some(stored) = self.stored(object).await? else { return Ok(()) };
        let current: IronicStatus =
            serde_json::from_value(stored.data["status"].clone()).unwrap_or_default();
        let Some(changed) = changed_status(&current, update, Timestamp::now()) else {
            return Ok(());
        };
        let patches = ObjectPatches::new(self.context.client.clone(), &self.resource(), object);
        let status = serde_json::to_value(&changed.status)
            .map_err(|error| Obstacle::transient(format!("cannot write the status: {error}")))?;
        patches.patch_status(&status).await?;
        if let Some(event) = changed.event {
            let subject = event_subject(object);
            if event.is_warning {
                self.events.warning(&subject, event.reason, &event.note).await;
            } else {
                self.events.normal(&subject, event.reason, &event.note).await;
            }
        }
        Ok(())
    }

    /// The object as it is stored now; `None` if it was deleted.
    pub(super) async fn stored(
        &self,
        object: &DynamicObject,
    ) -> Result<Option<DynamicObject>, Obstacle> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), namespace, &self.resource());
        let stored = api.get_opt(name).await;
        stored.map_err(|error| Obstacle::request("cannot read the status", &error))
    }

    /// Applies the objects in their order, and returns what they wait for. Stops before the first step
    /// that needs an earlier one to be finished.
    async fn apply_all(
        &self,
        pass: &InstallationPass,
        desired: &DesiredObjects,
    ) -> Result<Vec<ObjectReadiness>, Obstacle> {
        for object in &desired.prerequisites {
            pass.owned.apply(object).await?;
        }
        if let Some(job) = &desired.schema_job {
            let readiness = run_schema_job(pass, job).await?;
            if readiness != ObjectReadiness::Ready {
                return Ok(vec![readiness]);
            }
        }
        // Before the workload: another kind of workload has the same ports and database.
        for identity in &desired.absent {
            if pass.owned.delete(identity).await? == DeletionState::Deleting {
                let ObjectIdentity { kind, name, .. } = identity;
                let text = format!("waiting until {kind} {name} is deleted");
                return Ok(vec![ObjectReadiness::Waiting(text)]);
            }
        }
        let mut compared = Vec::new();
        for object in &desired.objects {
            compared.push(pass.owned.compare(object).await?);
        }
        if !compared.iter().all(ComparedObject::is_equal) {
            // Before the change, so that the condition is never stale.
            let generation = pass.object.metadata.generation;
            let update = StatusUpdate {
                ready: not_ready(DEPLOYMENT_IN_PROGRESS, RESOURCES_UPDATING, generation),
                notices: None,
                requested_version: None,
            };
            self.write_status(&pass.object, update).await?;
        }
        let mut readiness = Vec::new();
        for object in compared {
            let stored = pass.owned.apply_compared(object).await?;
            readiness.push(object_readiness(&stored));
        }
        Ok(readiness)
    }

    /// Whether the cluster has the kind ServiceMonitor. It may be installed at any time.
    async fn has_service_monitors(&self) -> Result<bool, Obstacle> {
        let known = *self.has_service_monitors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, has)) = known.filter(|(read_at, _)| read_at.elapsed() < KINDS_LIFETIME) {
            return Ok(has);
        }
        let kinds = self.context.client.list_api_group_resources("monitoring.coreos.com/v1").await;
        let has = match kinds {
            Ok(list) => list.resources.iter().any(|kind| kind.kind == "ServiceMonitor"),
            Err(error) if is_not_found(&error) => false,
            Err(error) => {
                return Err(Obstacle::request("cannot list the kinds of the cluster", &error));
            }
        };
        let mut known = self.has_service_monitors.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((Instant::now(), has));
        Ok(has)
    }

    async fn database(
        &self,
        pass: &InstallationPass,
    ) -> Result<Option<DatabaseEndpoint>, Obstacle> {
        let spec = &pass.ironic.spec;
        if let Some(connection) = &spec.database {
            let ca = match &connection.tls_certificate_name {
                Some(name) => Some(database_ca(pass, name, &[secret_keys::TLS_CERTIFICATE]).await?),
                None => None,
            };
            let secret = &connection.credentials_name;
            let (username, password) = database_credentials(pass, secret).await?;
            return Ok(Some(DatabaseEndpoint {
                engine: kube_resources::ironic::database::DatabaseEngine::MariaDb,
                host: connection.host.clone(),
                name: connection.name.clone(),
                username,
                password,
                ca,
            }));
        }
        match &spec.database_ref {
            Some(reference) => self.referenced_database(pass, &reference.name).await.map(Some),
            None => Ok(None),
        }
    }

    /// The address of an `IronicDatabase`. Nothing is changed until it is ready.
    async fn referenced_database(
        &self,
        pass: &InstallationPass,
        name: &str,
    ) -> Result<DatabaseEndpoint, Obstacle> {
        let resource = ApiResource::erase::<IronicDatabase>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &pass.namespace, &resource);
        let found = api.get_opt(name).await;
        let found = found.map_err(|error| Obstacle::request("cannot read the database", &error))?;
        let Some(found) = found else {
            let text = format!("IronicDatabase {name} does not exist; create it");
            return Err(Obstacle::for_user(text).with_event(event_reason::INVALID_LINKED_RESOURCE));
        };
        let database: IronicDatabase = serde_json::to_value(found)
            .and_then(serde_json::from_value)
            .map_err(|error| Obstacle::for_user(format!("IronicDatabase {name}: {error}")))?;
        let status = database.status.clone().unwrap_or_default();
        let (Some(host), Some(database_name), Some(credentials)) =
            (status.host, status.database_name, status.credentials_name)
        else {
            return Err(Obstacle::transient(format!("IronicDatabase {name} is not ready yet")));
        };
        if !is_true(&status.conditions, READY) {
            let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
            let text = ready.map(|condition| condition.message.as_str()).unwrap_or_default();
            return Err(Obstacle::transient(format!("IronicDatabase {name} is not ready: {text}")));
        }
        let ca = match &database.spec.tls_ref {
            Some(secret) => {
                let keys = [secret_keys::TLS_CA, secret_keys::TLS_CERTIFICATE];
                Some(database_ca(pass, &secret.name, &keys).await?)
            }
            None => None,
        };
        let (username, password) = database_credentials(pass, &credentials).await?;
        let engine = database.spec.effective_engine();
        Ok(DatabaseEndpoint { engine, host, name: database_name, username, password, ca })
    }
}

/// An `Ironic` that the API server accepts may still not match the type, if the CRD is a newer one.
fn read_ironic(object: &DynamicObject) -> Result<Ironic, Obstacle> {
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .map_err(|error| Obstacle::for_user(format!("the object cannot be read: {error}")))
}

fn invalid(error: &DesiredObjectsError) -> Obstacle {
    let obstacle = Obstacle::for_user(error.to_string());
    match error {
        DesiredObjectsError::Version(_) => obstacle.with_event(event_reason::VERSION_ERROR),
        DesiredObjectsError::Downgrade => obstacle.with_event(event_reason::DOWNGRADE_REJECTED),
        DesiredObjectsError::Invalid(_)
        | DesiredObjectsError::Unsupported(_)
        | DesiredObjectsError::MissingFact(_) => obstacle,
    }
}

/// Reads CA certificates, if the spec names some.
async fn read_ca(
    pass: &InstallationPass,
    reference: Option<CaReference>,
) -> Result<Option<super::facts::LinkedContent>, Obstacle> {
    let Some(reference) = reference else { return Ok(None) };
    let kind = match reference.kind {
        CaKind::Secret => LinkedKind::Secret,
        CaKind::ConfigMap | CaKind::Other(_) => LinkedKind::ConfigMap,
    };
    let found = pass.linked.read(kind, &reference.name, LabelRule::Required).await?;
    Ok(Some(found.content()))
}

async fn database_credentials(
    pass: &InstallationPass,
    name: &str,
) -> Result<(String, String), Obstacle> {
    let secret = pass.linked.read(LinkedKind::Secret, name, LabelRule::NotRequired).await?;
    let text = |key: &str| secret.required_text(&pass.namespace, key).map(str::to_owned);
    Ok((text(secret_keys::USERNAME)?, text(secret_keys::PASSWORD)?))
}

/// The first of the keys that the Secret has.
async fn database_ca(
    pass: &InstallationPass,
    name: &str,
    keys: &[&str],
) -> Result<DatabaseCa, Obstacle> {
    let secret: LinkedObject =
        pass.linked.read(LinkedKind::Secret, name, LabelRule::NotRequired).await?;
    let key = keys.iter().find(|key| secret.data.contains_key(**key)).or(keys.last());
    let key = key.copied().unwrap_or_default();
    let certificate = secret.required_text(&pass.namespace, key)?;
    Ok(DatabaseCa {
        secret_name: name.to_owned(),
        key: key.to_owned(),
        hash: content_hash(&[(key, certificate.as_bytes())]),
    })
}

/// The Job that changed the database schema for the existing pods.
async fn finished_schema_job(pass: &InstallationPass) -> Result<Option<String>, Obstacle> {
    let spec = &pass.ironic.spec;
    if !spec.has_database() {
        return Ok(None);
    }
    let kind = if spec.high_availability { "DaemonSet" } else { "Deployment" };
    let name = object_names(&pass.ironic).workload;
    let workload = pass.owned.read(&ObjectIdentity::new("apps/v1", kind, name)).await?;
    let annotation = workload.as_ref().map(|object| &object["metadata"]["annotations"][SCHEMA_JOB]);
    Ok(annotation.and_then(Value::as_str).map(str::to_owned))
}

/// Starts the Job, if it does not exist. A failed one is started again after a time: the database may
/// have been unreachable.
async fn run_schema_job(pass: &InstallationPass, job: &Value) -> Result<ObjectReadiness, Obstacle> {
    let identity = ObjectIdentity::of(job)
        .ok_or_else(|| Obstacle::transient("the Job of the database schema has no name"))?;
    let name = pass.ironic.metadata.name.as_deref().unwrap_or_default();
    let label = format!("{IRONIC_LABEL}={name}");
    // Jobs of an earlier spec must not run at the same time.
    for other in pass.owned.list(&identity.api_version, &identity.kind, &label).await? {
        if other == identity {
            continue;
        }
        let is_running =
            pass.owned.read(&other).await?.is_some_and(|object| {
                matches!(object_readiness(&object), ObjectReadiness::Waiting(_))
            });
        if is_running && pass.owned.delete(&other).await? == DeletionState::Deleting {
            let text = format!("waiting until job {} is deleted", other.name);
            return Ok(ObjectReadiness::Waiting(text));
        }
    }
    let stored = pass.owned.create(job).await?;
    let readiness = object_readiness(&stored);
    if let (ObjectReadiness::Failed(text), Some(failed_at)) = (&readiness, failure_time(&stored)) {
        let retry_at = failed_at + JOB_RETRY;
        if Timestamp::now() >= retry_at {
            pass.owned.delete(&identity).await?;
            return Ok(ObjectReadiness::Waiting(format!("{text}. It is started again")));
        }
        return Ok(ObjectReadiness::Failed(format!("{text}. It is started again at {retry_at}")));
    }
    Ok(readiness)
}

fn failure_time(job: &Value) -> Option<Timestamp> {
    let conditions = job["status"]["conditions"].as_array()?;
    let failed = conditions.iter().find(|it| it["type"] == "Failed" && it["status"] == "True")?;
    failed["lastTransitionTime"].as_str()?.parse().ok()
}
