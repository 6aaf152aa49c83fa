// SPDX-License-Identifier: Apache-2.0
//! The objects that run an installation, computed from its `Ironic` and from [facts](IronicFacts).
//!
//! Objects are JSON, as server-side apply sends them. So overrides of users are never reduced to the
//! fields that this version knows; tests read every object with the types of Kubernetes.

mod configuration;
mod database_secret;
mod dhcp;
mod extra_config;
mod keepalived;
mod metadata;
mod overrides;
mod pod;
mod provisioning;
mod schema_job;
mod service;
mod strategic_merge;
mod support;
mod workload;

use kube_resources::field_error::FieldError;
use kube_resources::ironic::conditions;
use kube_resources::ironic::defaults::{STORAGE_SIZE, enabled_exporter};
use kube_resources::ironic::service::Ironic;
use kube_resources::ironic::validation::{check_trusted_ca_key, validate_ironic};
use kube_resources::ironic::versions::{IronicVersion, IronicVersionError};
use serde_json::{Value, json};
use thiserror::Error;

pub use configuration::metal3_settings;
pub(super) use configuration::service_hosts;
pub use metadata::{
    CertificatePem, DATABASE_URL_KEY, InstallationNames, SEALING_KEYS_KEY, api_credentials_secret,
    certificate_authority_secret, certificate_secret, object_names, sealing_keys_secret,
};
pub use support::{FieldNotice, UnsupportedField};

use super::facts::IronicFacts;
use super::settings::IronicOperatorSettings;
use crate::owned_objects::ObjectIdentity;
use metadata::object;
use support::SupportReport;

/// The objects of an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObjects {
    /// The version that they run.
    pub version: IronicVersion,
    /// Objects to apply first: the Job uses them.
    pub prerequisites: Vec<Value>,
    /// A Job that has to finish before the other objects are applied. It is created and never changed:
    /// another content has another name.
    pub schema_job: Option<Value>,
    /// Objects to apply, in this order.
    pub objects: Vec<Value>,
    /// Objects to delete if they exist and are owned by the `Ironic`.
    pub absent: Vec<ObjectIdentity>,
    /// Fields that have no effect.
    pub notices: Vec<FieldNotice>,
}

/// Why there are no objects. A user has to change the `Ironic` or another object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DesiredObjectsError {
    /// Fields violate rules.
    #[error("{}", join(.0))]
    Invalid(Vec<FieldError>),
    /// Fields request what the service does not offer.
    #[error("{}", join(.0))]
    Unsupported(Vec<UnsupportedField>),
    /// The version cannot be installed.
    #[error("spec.version: {0}")]
    Version(IronicVersionError),
    /// An older version was requested.
    #[error("{}", conditions::DOWNGRADE_NOT_SUPPORTED)]
    Downgrade,
    /// The controller did not read an object that the spec names.
    #[error("cannot load {0}")]
    MissingFact(&'static str),
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Everything that objects are computed from.
#[derive(Clone, Copy)]
struct DesiredInput<'a> {
    ironic: &'a Ironic,
    facts: &'a IronicFacts,
    settings: &'a IronicOperatorSettings,
    version: IronicVersion,
}

/// Computes the objects of an installation. Fails if a user has to change something first.
pub fn desired_objects(
    ironic: &Ironic,
    facts: &IronicFacts,
    settings: &IronicOperatorSettings,
) -> Result<DesiredObjects, DesiredObjectsError> {
    check(ironic, facts, settings)?;
    let version = selected_version(ironic, settings)?;
    let input = DesiredInput { ironic, facts, settings, version };
    let names = object_names(ironic);
    let mut report = SupportReport::default();
    let configuration = configuration::configuration(&input, &mut report);
    let template = pod::template(&input, &configuration, &mut report);
    if !report.unsupported.is_empty() {
        return Err(DesiredObjectsError::Unsupported(report.unsupported));
    }
    let job = schema_job::schema_job(&input);
    let identity = job.as_ref().map(|job| job.identity.clone());
    let prerequisites: Vec<Value> = database_secret::secret(&input).into_iter().collect();
    let mut objects = vec![configuration.config_map(&input)];
    objects.extend(template.needs_volume_claim.then(|| volume_claim(&input)));
    objects.push(workload::workload(&input, &template, identity.as_deref()));
    objects.push(service::service(&input));
    objects.extend(service::ingress(&input));
    objects.extend(service::service_monitor(&input));
    let kept: Vec<ObjectIdentity> =
        prerequisites.iter().chain(&objects).filter_map(ObjectIdentity::of).collect();
    let absent = metadata::possible_objects(&names, facts.has_service_monitors)
        .into_iter()
        .filter(|candidate| !kept.contains(candidate))
        .collect();
    let is_finished = identity == facts.finished_schema_job;
    Ok(DesiredObjects {
        version,
        prerequisites,
        schema_job: job.filter(|_| !is_finished).map(|job| job.object),
        objects,
        absent,
        notices: report.notices,
    })
}

/// The version of an installation. Fails if it cannot be installed over the one that is.
pub fn selected_version(
    ironic: &Ironic,
    settings: &IronicOperatorSettings,
) -> Result<IronicVersion, DesiredObjectsError> {
    let requested = ironic.spec.version.as_deref();
    let version =
        settings.rules.versions.select(requested).map_err(DesiredObjectsError::Version)?;
    check_downgrade(ironic, version)?;
    Ok(version)
}

/// Webhooks may be disabled, so all rules are checked again.
fn check(
    ironic: &Ironic,
    facts: &IronicFacts,
    settings: &IronicOperatorSettings,
) -> Result<(), DesiredObjectsError> {
    let spec = &ironic.spec;
    let mut errors = validate_ironic(ironic, &settings.rules);
    if let (Some(reference), Some(content)) = (spec.tls.effective_trusted_ca(), &facts.trusted_ca) {
        let keys: Vec<&str> = content.keys.iter().map(String::as_str).collect();
        errors.extend(check_trusted_ca_key(&reference, &keys));
    }
    if !errors.is_empty() {
        return Err(DesiredObjectsError::Invalid(errors));
    }
    let needed = [
        ("the API credentials", true, !facts.api_credentials.name.is_empty()),
        ("the certificate", spec.has_tls(), facts.certificate.is_some()),
        ("the CA for BMCs", spec.tls.effective_bmc_ca().is_some(), facts.bmc_ca.is_some()),
        (
            "the CA for image servers",
            spec.tls.effective_trusted_ca().is_some(),
            facts.trusted_ca.is_some(),
        ),
        ("the database credentials", spec.has_database(), facts.database.is_some()),
    ];
    match needed.iter().find(|(_, is_needed, is_known)| *is_needed && !is_known) {
        Some((what, ..)) => Err(DesiredObjectsError::MissingFact(what)),
        None => Ok(()),
    }
}

/// The database of a newer version cannot be used. Without a database server an older version is
/// allowed, as in Metal3's operator, if the volume was never used by a newer one; the service checks
/// that itself.
fn check_downgrade(ironic: &Ironic, version: IronicVersion) -> Result<(), DesiredObjectsError> {
    let status = ironic.status.as_ref();
    let installed = status.and_then(|status| status.installed_version.as_deref());
    let installed = installed.and_then(|text| IronicVersion::parse(text).ok());
    match installed {
        Some(installed) if ironic.spec.has_database() && version.is_downgrade_from(installed) => {
            Err(DesiredObjectsError::Downgrade)
        }
        _ => Ok(()),
    }
}

/// The volume with the embedded database.
fn volume_claim(input: &DesiredInput<'_>) -> Value {
    let storage = input.ironic.spec.storage.clone().unwrap_or_default();
    let mut claim =
        object(input, "v1", "PersistentVolumeClaim", &object_names(input.ironic).volume_claim);
    claim["spec"] = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size.as_deref().unwrap_or(STORAGE_SIZE)}},
    });
    if let Some(class) = &storage.storage_class_name {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

impl DesiredInput<'_> {
    fn has_exporter(&self) -> bool {
        enabled_exporter(&self.ironic.spec).is_some()
    }
}
