// SPDX-License-Identifier: Apache-2.0
//! Installations, facts and settings for tests.

use kube_resources::ironic::database::DatabaseEngine;
use kube_resources::ironic::service::Ironic;
use kube_resources::ironic::versions::{IronicVersion, SupportedVersions};
use operator::ironic::facts::{DatabaseCa, DatabaseEndpoint, IronicFacts, LinkedContent};
use operator::ironic::settings::IronicOperatorSettings;
use serde_json::{Value, json};

/// Settings that do not change with releases.
pub(crate) fn settings() -> IronicOperatorSettings {
    let mut settings = IronicOperatorSettings {
        service_image: "registry.example/ferrite:0.1".to_owned(),
        ..IronicOperatorSettings::default()
    };
    settings.rules.versions = SupportedVersions::new(IronicVersion::parse("0.1").unwrap());
    settings
}

pub(crate) fn ironic(spec: &Value) -> Ironic {
    from_object(&json!({"metadata": {"name": "ironic", "namespace": "metal"}, "spec": spec}))
}

/// Reads an object and adds the UID that the API server would add.
pub(crate) fn from_object(object: &Value) -> Ironic {
    let mut ironic: Ironic = serde_json::from_value(object.clone()).unwrap();
    ironic.metadata.uid = Some("0c5f4a52-7b0e-4c5e-9d1a-0c7f5f3f8a11".to_owned());
    ironic
}

/// The facts that a controller reads for this installation.
pub(crate) fn facts(ironic: &Ironic) -> IronicFacts {
    let spec = &ironic.spec;
    let credentials = spec.api_credentials_name.as_deref().unwrap_or("ironic-service-x7k2p");
    let pem = b"-----BEGIN CERTIFICATE-----".as_slice();
    let content = |name: &str, keys: &[&str]| {
        let data: Vec<(&str, &[u8])> = keys.iter().map(|key| (*key, pem)).collect();
        LinkedContent::new(name, &data)
    };
    let certificate =
        spec.tls.certificate_name.as_deref().or(spec.tls.generate.then_some("ironic-tls"));
    let database = spec.database.as_ref().map(|database| DatabaseEndpoint {
        engine: DatabaseEngine::MariaDb,
        host: database.host.clone(),
        name: database.name.clone(),
        username: database.credentials_name.clone(),
        password: "p@ssword".to_owned(),
        ca: database.tls_certificate_name.clone().map(|secret_name| DatabaseCa {
            secret_name,
            key: "tls.crt".to_owned(),
            hash: "5d1c".to_owned(),
        }),
    });
    let reference = spec.database_ref.as_ref().map(|reference| DatabaseEndpoint {
        engine: DatabaseEngine::PostgreSql,
        host: format!("{}.metal.svc", reference.name),
        name: "ironic".to_owned(),
        username: "ironic".to_owned(),
        password: "p@ssword".to_owned(),
        ca: None,
    });
    IronicFacts {
        api_credentials: content(credentials, &["htpasswd", "password", "username"]),
        certificate: certificate.map(|name| content(name, &["ca.crt", "tls.crt", "tls.key"])),
        bmc_ca: spec.tls.effective_bmc_ca().map(|ca| content(&ca.name, &["a.pem"])),
        trusted_ca: spec
            .tls
            .effective_trusted_ca()
            .map(|ca| content(&ca.name, &["a.pem", "b.pem"])),
        database: database.or(reference),
        finished_schema_job: None,
        has_service_monitors: true,
    }
}
