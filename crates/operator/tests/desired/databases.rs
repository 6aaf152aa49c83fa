// SPDX-License-Identifier: Apache-2.0
//! Objects of database servers, compared with files.
//!
//! Each folder of `tests/database-goldens` has `database.yaml` and the expected `objects.yaml`.
//! `UPDATE_EXPECT=1` writes the latter.

use std::path::Path;

use expect_test::expect_file;
use kube_resources::ironic::database::IronicDatabase;
use operator::ironic::facts::LinkedContent;
use operator::ironic_database::desired::{
    DatabaseFacts, DesiredDatabaseError, credentials_secret, database_host, desired_database,
};
use operator::ironic_database::settings::IronicDatabaseSettings;
use serde_json::{Value, json};

use crate::goldens::check_object;

fn database(object: &Value) -> IronicDatabase {
    let mut database: IronicDatabase = serde_json::from_value(object.clone()).unwrap();
    database.metadata.uid = Some("5d6c1b6e-2f0c-4f0e-8f4e-7f0a3f1a2b3c".to_owned());
    database
}

fn facts(database: &IronicDatabase) -> DatabaseFacts {
    let certificate = database.spec.tls_ref.as_ref();
    let pem = b"-----BEGIN".as_slice();
    let data = [("ca.crt", pem), ("tls.crt", pem), ("tls.key", pem)];
    DatabaseFacts {
        credentials_name: "login".to_owned(),
        username: "ironic".to_owned(),
        password: "p@ss'word".to_owned(),
        certificate: certificate.map(|reference| LinkedContent::new(&reference.name, &data)),
    }
}

fn settings() -> IronicDatabaseSettings {
    IronicDatabaseSettings {
        mariadb_image: "registry.example/mariadb:1".to_owned(),
        ..IronicDatabaseSettings::default()
    }
}

#[test]
fn objects_equal_the_files() {
    for case in ["mariadb", "postgresql-tls"] {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/database-goldens").join(case);
        let text = std::fs::read_to_string(folder.join("database.yaml")).unwrap();
        let database = database(&serde_saphyr::from_str(&text).unwrap());
        let objects = desired_database(&database, &facts(&database), &settings()).unwrap();
        let mut text = String::from("# SPDX-License-Identifier: Apache-2.0\n");
        for object in &objects {
            check_object(object);
            text += "---\n";
            text += &serde_saphyr::to_string(object).unwrap();
        }
        expect_file![folder.join("objects.yaml")].assert_eq(&text);
        check_object(&credentials_secret(&database, "x"));
    }
}

#[test]
fn a_changed_password_or_certificate_rolls_the_pod() {
    let database = database(&json!({
        "metadata": {"name": "db", "namespace": "metal"}, "spec": {"tlsRef": {"name": "tls"}},
    }));
    let template = |facts: &DatabaseFacts| {
        let objects = desired_database(&database, facts, &settings()).unwrap();
        let set = objects.iter().find(|object| object["kind"] == "StatefulSet").unwrap();
        set["spec"]["template"].clone()
    };
    let facts = facts(&database);
    let other_password = DatabaseFacts { password: "other".to_owned(), ..facts.clone() };
    let data = [("tls.crt", b"2".as_slice()), ("tls.key", b"2")];
    let certificate = Some(LinkedContent::new("tls", &data));
    let other_certificate = DatabaseFacts { certificate, ..facts.clone() };
    let template_of = template(&facts);
    assert_ne!(template_of, template(&other_password));
    assert_ne!(template_of, template(&other_certificate));
    // The password is only in Secrets.
    let objects = desired_database(&database, &other_password, &settings()).unwrap();
    let others = objects.iter().filter(|object| object["kind"] != "Secret");
    assert!(others.into_iter().all(|object| !object.to_string().contains("other")));
}

#[test]
fn unusable_secrets_are_rejected() {
    let plain = database(&json!({"metadata": {"name": "db"}}));
    let root = DatabaseFacts { username: "root".to_owned(), ..facts(&plain) };
    let error = desired_database(&plain, &root, &settings()).unwrap_err();
    assert!(error.to_string().starts_with("secret login: the user name \"root\""), "{error}");
    let incomplete = DatabaseFacts {
        certificate: Some(LinkedContent::new("tls", &[("tls.crt", b"1")])),
        ..facts(&plain)
    };
    assert_eq!(
        desired_database(&plain, &incomplete, &settings()),
        Err(DesiredDatabaseError::Certificate { secret: "tls".to_owned(), key: "tls.key" })
    );
    let oracle = database(&json!({"metadata": {"name": "db"}, "spec": {"engine": "Oracle"}}));
    let error = desired_database(&oracle, &facts(&oracle), &settings()).unwrap_err();
    assert!(error.to_string().starts_with("spec.engine: "), "{error}");
}

#[test]
fn hosts_may_have_a_domain() {
    let database = database(&json!({"metadata": {"name": "db", "namespace": "metal"}}));
    assert_eq!(database_host(&database, &settings()), "db-database.metal.svc");
    let settings =
        IronicDatabaseSettings { cluster_domain: Some("cluster.local".to_owned()), ..settings() };
    assert_eq!(database_host(&database, &settings), "db-database.metal.svc.cluster.local");
}
