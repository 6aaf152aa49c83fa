// SPDX-License-Identifier: Apache-2.0
//! Names, labels and owners of the objects of an installation, and its generated Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_resources::ironic::names::{
    APP_LABEL, CERTIFICATE_NAMES, GROUP, IRONIC_LABEL, OPT_IN_LABEL, VERSION, VERSION_LABEL,
    secret_keys,
};
use kube_resources::ironic::service::Ironic;
use serde_json::{Map, Value, json};

use super::super::credentials::ApiCredentials;
use super::DesiredInput;
use crate::owned_objects::ObjectIdentity;

/// Key of the Secret with the URL of the database.
pub const DATABASE_URL_KEY: &str = "url";
/// Key of the Secret with the sealing keys.
pub const SEALING_KEYS_KEY: &str = "keys";

/// Names of the objects of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationNames {
    /// Deployment or DaemonSet.
    pub workload: String,
    /// Service and Ingress.
    pub service: String,
    /// ConfigMap with the configuration.
    pub config_map: String,
    /// Secret with the URL of the database.
    pub database_secret: String,
    /// Secret with the sealing keys, which the controller creates once.
    pub sealing_keys: String,
    /// Secret with the generated certificate.
    pub generated_certificate: String,
    /// Secret with the CA of the generated certificate, which pods do not get.
    pub certificate_authority: String,
    /// PersistentVolumeClaim.
    pub volume_claim: String,
    /// ServiceMonitor.
    pub service_monitor: String,
    /// Secret with the certificate of the Ingress.
    pub ingress_certificate: String,
}

/// The names of the objects of an installation.
#[must_use]
pub fn object_names(ironic: &Ironic) -> InstallationNames {
    let name = ironic.metadata.name.as_deref().unwrap_or_default();
    InstallationNames {
        workload: format!("{name}-service"),
        service: name.to_owned(),
        config_map: format!("{name}-config"),
        database_secret: format!("{name}-database"),
        sealing_keys: format!("{name}-sealing-keys"),
        generated_certificate: format!("{name}-tls"),
        certificate_authority: format!("{name}-ca"),
        volume_claim: format!("{name}-data"),
        service_monitor: format!("{name}-metrics"),
        ingress_certificate: format!("{name}-ingress-tls"),
    }
}

/// Objects that exist only for some specs. The volume is not among them: it has the state, and is
/// deleted only with the `Ironic`.
pub(super) fn possible_objects(
    names: &InstallationNames,
    has_service_monitors: bool,
) -> Vec<ObjectIdentity> {
    let mut objects = vec![
        ("apps/v1", "Deployment", &names.workload),
        ("apps/v1", "DaemonSet", &names.workload),
        ("networking.k8s.io/v1", "Ingress", &names.service),
        ("v1", "Secret", &names.database_secret),
    ];
    if has_service_monitors {
        objects.push(("monitoring.coreos.com/v1", "ServiceMonitor", &names.service_monitor));
    }
    objects
        .into_iter()
        .map(|(api_version, kind, name)| ObjectIdentity::new(api_version, kind, name))
        .collect()
}

/// Labels of all objects of an installation.
pub(super) fn labels(input: &DesiredInput<'_>) -> Map<String, Value> {
    let name = input.ironic.metadata.name.as_deref().unwrap_or_default();
    Map::from_iter([
        (IRONIC_LABEL.to_owned(), json!(name)),
        (VERSION_LABEL.to_owned(), json!(input.version.to_string())),
    ])
}

/// The label that selects the pods of the workload.
pub(super) fn selector(input: &DesiredInput<'_>) -> Value {
    json!({APP_LABEL: object_names(input.ironic).workload})
}

/// The Secret with generated API credentials, to be created with a generated name. Users may take it
/// over, so the `Ironic` owns it without being its controller.
#[must_use]
pub fn api_credentials_secret(ironic: &Ironic, credentials: &ApiCredentials) -> Value {
    let metadata = &ironic.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut secret = generated_secret(
        ironic,
        &[
            (secret_keys::USERNAME, &credentials.username),
            (secret_keys::PASSWORD, &credentials.password),
            (secret_keys::HTPASSWD, &credentials.htpasswd),
        ],
    );
    secret["metadata"]["generateName"] = json!(format!("{name}-service-"));
    secret["type"] = json!("kubernetes.io/basic-auth");
    secret
}

/// The Secret with the sealing keys. It is created once and never changed: without these keys the
/// secrets in the database cannot be read.
#[must_use]
pub fn sealing_keys_secret(ironic: &Ironic, keys: &str) -> Value {
    let mut secret = generated_secret(ironic, &[(SEALING_KEYS_KEY, keys)]);
    secret["metadata"]["name"] = json!(object_names(ironic).sealing_keys);
    secret["type"] = json!("Opaque");
    secret
}

/// The Secret with the CA of the generated certificate.
#[must_use]
pub fn certificate_authority_secret(ironic: &Ironic, certificate: &str, key: &str) -> Value {
    let mut secret = generated_secret(
        ironic,
        &[(secret_keys::TLS_CERTIFICATE, certificate), (secret_keys::TLS_KEY, key)],
    );
    secret["metadata"]["name"] = json!(object_names(ironic).certificate_authority);
    secret["type"] = json!("kubernetes.io/tls");
    secret
}

/// The Secret with the generated certificate. `names` are those that it is valid for.
#[must_use]
pub fn certificate_secret(ironic: &Ironic, pem: &CertificatePem<'_>, names: &str) -> Value {
    let mut secret = generated_secret(
        ironic,
        &[
            (secret_keys::TLS_CERTIFICATE, pem.certificate),
            (secret_keys::TLS_KEY, pem.key),
            (secret_keys::TLS_CA, pem.authority),
        ],
    );
    secret["metadata"]["name"] = json!(object_names(ironic).generated_certificate);
    secret["metadata"]["annotations"] = json!({CERTIFICATE_NAMES: names});
    secret["type"] = json!("kubernetes.io/tls");
    secret
}

/// A certificate, its key and its CA, in PEM.
#[derive(Clone, Copy)]
pub struct CertificatePem<'a> {
    /// The certificate.
    pub certificate: &'a str,
    /// Its key.
    pub key: &'a str,
    /// The certificate of its CA.
    pub authority: &'a str,
}

fn generated_secret(ironic: &Ironic, data: &[(&str, &str)]) -> Value {
    let metadata = &ironic.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let data: Map<String, Value> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value))))
        .collect();
    let (opt_in, is_set) = OPT_IN_LABEL;
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": metadata.namespace.as_deref().unwrap_or_default(),
            "labels": {opt_in: is_set, IRONIC_LABEL: name},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "Ironic",
                "name": name,
                "uid": metadata.uid.as_deref().unwrap_or_default(),
            }],
        },
        "data": data,
    })
}

/// An object that is owned by the `Ironic`, without a spec.
pub(super) fn object(input: &DesiredInput<'_>, api_version: &str, kind: &str, name: &str) -> Value {
    let metadata = &input.ironic.metadata;
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace.as_deref().unwrap_or_default(),
            "labels": labels(input),
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "Ironic",
                "name": metadata.name.as_deref().unwrap_or_default(),
                "uid": metadata.uid.as_deref().unwrap_or_default(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
    })
}
