// SPDX-License-Identifier: Apache-2.0
//! The objects that run a database server, computed from its `IronicDatabase` and its Secrets.
//!
//! The container starts the server with a script of ours. The script creates the database and the
//! account, and sets the password at each start, so a changed Secret needs a new pod and nothing else.
//! The pod is ready when a client in it can log in with the credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_resources::field_error::FieldError;
use kube_resources::ironic::database::{DatabaseEngine, IronicDatabase};
use kube_resources::ironic::defaults::STORAGE_SIZE;
use kube_resources::ironic::names::{
    APP_LABEL, DATABASE_LABEL, DATABASE_SECRET_VERSION, GROUP, OPT_IN_LABEL, TLS_SECRET_VERSION,
    VERSION, secret_keys,
};
use kube_resources::ironic::validation::validate_ironic_database;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::settings::IronicDatabaseSettings;
use super::setup::{AccountError, DATABASE_NAME, DatabaseAccount, setup_files};
use crate::ironic::facts::{LinkedContent, content_hash};

/// Scripts that start the servers.
const MARIADB_SCRIPT: &str = include_str!("scripts/mariadb.sh");
const POSTGRESQL_SCRIPT: &str = include_str!("scripts/postgresql.sh");

/// User and group of the official images.
const USER: i64 = 999;
/// Mode of files from Secrets, octal 0440: the group of the pod reads them.
const FILE_MODE: i32 = 0o440;
/// Folders in the container.
const DATA_FOLDER: &str = "/data";
const SETUP_FOLDER: &str = "/etc/database";
const CERTIFICATE_FOLDER: &str = "/certs/database";
/// Keys of the Secret of the container, besides its files.
pub const SETUP_USERNAME_KEY: &str = "username";
/// The server program that the data belongs to.
pub const SETUP_ENGINE_KEY: &str = "engine";
const SETUP_PASSWORD_KEY: &str = "password";

/// What the controller reads before.
#[derive(Clone)]
pub struct DatabaseFacts {
    /// Name of the Secret with credentials.
    pub credentials_name: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// The Secret with the certificate, if there is one.
    pub certificate: Option<LinkedContent>,
}

/// Why there are no objects. A user has to change something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DesiredDatabaseError {
    /// Fields violate rules.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    /// The credentials cannot be used.
    #[error("secret {secret}: {error}")]
    Account {
        /// Name of the Secret.
        secret: String,
        /// What is wrong.
        error: AccountError,
    },
    /// The Secret with the certificate lacks a key.
    #[error("secret {secret}: the key {key} is missing")]
    Certificate {
        /// Name of the Secret.
        secret: String,
        /// The key.
        key: &'static str,
    },
}

/// Names of the objects of a database server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseNames {
    /// StatefulSet and Service.
    pub server: String,
    /// Secret with generated credentials.
    pub credentials: String,
    /// Secret with the files of the container.
    pub setup: String,
    /// PersistentVolumeClaim.
    pub volume_claim: String,
}

/// The names of the objects of a database server.
#[must_use]
pub fn database_names(database: &IronicDatabase) -> DatabaseNames {
    let name = database.metadata.name.as_deref().unwrap_or_default();
    DatabaseNames {
        server: format!("{name}-database"),
        credentials: format!("{name}-database-credentials"),
        setup: format!("{name}-database-setup"),
        volume_claim: format!("{name}-database-data"),
    }
}

/// The host name for clients in the cluster.
#[must_use]
pub fn database_host(database: &IronicDatabase, settings: &IronicDatabaseSettings) -> String {
    let namespace = database.metadata.namespace.as_deref().unwrap_or_default();
    let host = format!("{}.{namespace}.svc", database_names(database).server);
    match &settings.cluster_domain {
        Some(domain) => format!("{host}.{domain}"),
        None => host,
    }
}

/// The Secret with generated credentials. It is created once and never changed by the operator.
#[must_use]
pub fn credentials_secret(database: &IronicDatabase, password: &str) -> Value {
    let (label, value) = OPT_IN_LABEL;
    let mut secret = object(database, "v1", "Secret", &database_names(database).credentials);
    secret["metadata"]["labels"][label] = json!(value);
    secret["type"] = json!("kubernetes.io/basic-auth");
    secret["data"] = json!({
        secret_keys::USERNAME: STANDARD.encode(DATABASE_NAME),
        secret_keys::PASSWORD: STANDARD.encode(password),
    });
    secret
}

/// Computes the objects of a database server, in the order in which they are applied.
pub fn desired_database(
    database: &IronicDatabase,
    facts: &DatabaseFacts,
    settings: &IronicDatabaseSettings,
) -> Result<Vec<Value>, DesiredDatabaseError> {
    let errors = validate_ironic_database(database);
    if !errors.is_empty() {
        return Err(DesiredDatabaseError::Invalid(errors));
    }
    if let Some(certificate) = &facts.certificate {
        for key in [secret_keys::TLS_CERTIFICATE, secret_keys::TLS_KEY] {
            if !certificate.has_key(key) {
                let secret = certificate.name.clone();
                return Err(DesiredDatabaseError::Certificate { secret, key });
            }
        }
    }
    let setup = setup_secret(database, facts)?;
    Ok(vec![
        setup.clone(),
        volume_claim(database),
        service(database),
        stateful_set(database, facts, settings, &setup),
    ])
}

fn setup_secret(
    database: &IronicDatabase,
    facts: &DatabaseFacts,
) -> Result<Value, DesiredDatabaseError> {
    let engine = database.spec.effective_engine();
    let account = DatabaseAccount { username: &facts.username, password: &facts.password };
    let files = setup_files(&engine, account, facts.certificate.is_some());
    let files = files.map_err(|error| DesiredDatabaseError::Account {
        secret: facts.credentials_name.clone(),
        error,
    })?;
    let engine = engine.to_string();
    let values = [
        (SETUP_USERNAME_KEY, facts.username.as_str()),
        (SETUP_PASSWORD_KEY, &facts.password),
        (SETUP_ENGINE_KEY, &engine),
    ];
    let data: Map<String, Value> = files
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .chain(values)
        .map(|(name, text)| (name.to_owned(), json!(STANDARD.encode(text))))
        .collect();
    let mut secret = object(database, "v1", "Secret", &database_names(database).setup);
    secret["type"] = json!("Opaque");
    secret["data"] = Value::Object(data);
    Ok(secret)
}

fn volume_claim(database: &IronicDatabase) -> Value {
    let storage = database.spec.storage.clone().unwrap_or_default();
    let name = database_names(database).volume_claim;
    let mut claim = object(database, "v1", "PersistentVolumeClaim", &name);
    claim["spec"] = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size.as_deref().unwrap_or(STORAGE_SIZE)}},
    });
    if let Some(class) = &storage.storage_class_name {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

fn port(engine: &DatabaseEngine) -> (&'static str, u16) {
    match engine {
        DatabaseEngine::PostgreSql => ("postgresql", 5432),
        DatabaseEngine::MariaDb | DatabaseEngine::Other(_) => ("mariadb", 3306),
    }
}

fn service(database: &IronicDatabase) -> Value {
    let (name, port) = port(&database.spec.effective_engine());
    let mut service = object(database, "v1", "Service", &database_names(database).server);
    service["spec"] = json!({
        "type": "ClusterIP",
        "selector": selector(database),
        "ports": [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"}],
    });
    service
}

fn stateful_set(
    database: &IronicDatabase,
    facts: &DatabaseFacts,
    settings: &IronicDatabaseSettings,
    setup: &Value,
) -> Value {
    let names = database_names(database);
    let mut set = object(database, "apps/v1", "StatefulSet", &names.server);
    let mut labels = set["metadata"]["labels"].clone();
    labels[APP_LABEL] = json!(names.server);
    // The server reads these at start.
    let hash = content_hash(&[("setup", setup["data"].to_string().as_bytes())]);
    let mut annotations = json!({DATABASE_SECRET_VERSION: hash});
    let mut volumes = vec![
        json!({"name": "data", "persistentVolumeClaim": {"claimName": names.volume_claim}}),
        json!({"name": "temporary", "emptyDir": {}}),
        json!({"name": "setup", "secret": {"secretName": names.setup, "defaultMode": FILE_MODE}}),
    ];
    if let Some(certificate) = &facts.certificate {
        annotations[TLS_SECRET_VERSION] = json!(certificate.hash);
        let item = |key: &str| json!({"key": key, "path": key});
        volumes.push(json!({"name": "certificate", "secret": {
            "secretName": certificate.name,
            "defaultMode": FILE_MODE,
            "items": [item(secret_keys::TLS_CERTIFICATE), item(secret_keys::TLS_KEY)],
        }}));
    }
    set["spec"] = json!({
        "replicas": 1,
        "serviceName": names.server,
        "selector": {"matchLabels": selector(database)},
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"},
                // A server that is killed has to recover at its next start.
                "terminationGracePeriodSeconds": 120,
                "containers": [container(database, facts, settings)],
                "volumes": volumes,
            },
        },
    });
    set
}

fn container(
    database: &IronicDatabase,
    facts: &DatabaseFacts,
    settings: &IronicDatabaseSettings,
) -> Value {
    let engine = database.spec.effective_engine();
    let has_tls = facts.certificate.is_some();
    let image = database.spec.image.as_deref().unwrap_or_else(|| settings.image(&engine));
    let (port_name, port) = port(&engine);
    let program = EngineProgram::of(&engine, &facts.username, has_tls);
    let mut mounts = vec![
        json!({"name": "data", "mountPath": DATA_FOLDER}),
        json!({"name": "temporary", "mountPath": "/tmp"}),
        json!({"name": "setup", "mountPath": SETUP_FOLDER, "readOnly": true}),
    ];
    if has_tls {
        let mount =
            json!({"name": "certificate", "mountPath": CERTIFICATE_FOLDER, "readOnly": true});
        mounts.push(mount);
    }
    // The name of the script, then its arguments.
    let mut command = vec!["/bin/sh", "-c", program.script, "start-database"];
    command.extend(program.arguments.iter().map(String::as_str));
    json!({
        "name": "database",
        "image": image,
        "command": command,
        "env": [
            {"name": "DATABASE_FOLDER", "value": format!("{DATA_FOLDER}/{port_name}")},
            {"name": "SETUP_FOLDER", "value": SETUP_FOLDER},
            // For the client of the probe.
            {"name": program.password_variable, "valueFrom": {"secretKeyRef": {
                "name": database_names(database).setup, "key": SETUP_PASSWORD_KEY,
            }}},
        ],
        "ports": [{"name": port_name, "containerPort": port, "protocol": "TCP"}],
        "volumeMounts": mounts,
        "readinessProbe": {
            "exec": {"command": program.login},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "securityContext": {
            "runAsUser": USER,
            "runAsGroup": USER,
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// How a server is started, and how a client logs in.
struct EngineProgram {
    script: &'static str,
    arguments: Vec<String>,
    login: Vec<String>,
    password_variable: &'static str,
}

impl EngineProgram {
    fn of(engine: &DatabaseEngine, username: &str, has_tls: bool) -> Self {
        match engine {
            DatabaseEngine::PostgreSql => Self::postgresql(username, has_tls),
            DatabaseEngine::MariaDb | DatabaseEngine::Other(_) => Self::mariadb(username, has_tls),
        }
    }

    fn mariadb(username: &str, has_tls: bool) -> Self {
        let mut arguments = Vec::new();
        if has_tls {
            arguments
                .push(format!("--ssl-cert={}", certificate_file(secret_keys::TLS_CERTIFICATE)));
            arguments.push(format!("--ssl-key={}", certificate_file(secret_keys::TLS_KEY)));
            arguments.push("--require-secure-transport=ON".to_owned());
        }
        // The certificate is not for the loopback address.
        let tls: &[&str] =
            if has_tls { &["--ssl", "--skip-ssl-verify-server-cert"] } else { &["--skip-ssl"] };
        let user = format!("--user={username}");
        let login = ["mariadb", "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", &user]
            .into_iter()
            .chain(tls.iter().copied())
            .chain(["--connect-timeout=4", "--execute=SELECT 1", DATABASE_NAME]);
        Self {
            script: MARIADB_SCRIPT,
            arguments,
            login: login.map(str::to_owned).collect(),
            password_variable: "MYSQL_PWD",
        }
    }

    fn postgresql(username: &str, has_tls: bool) -> Self {
        let mut arguments = Vec::new();
        if has_tls {
            for setting in [
                "ssl=on".to_owned(),
                format!("ssl_cert_file={}", certificate_file(secret_keys::TLS_CERTIFICATE)),
                format!("ssl_key_file={}", certificate_file(secret_keys::TLS_KEY)),
            ] {
                arguments.extend(["-c".to_owned(), setting]);
            }
        }
        let mode = if has_tls { "require" } else { "disable" };
        let connection = format!(
            "host=127.0.0.1 user={username} dbname={DATABASE_NAME} connect_timeout=4 sslmode={mode}"
        );
        let login = ["psql", "--no-psqlrc", "--no-password", "--command=SELECT 1", &connection];
        Self {
            script: POSTGRESQL_SCRIPT,
            arguments,
            login: login.map(str::to_owned).to_vec(),
            password_variable: "PGPASSWORD",
        }
    }
}

fn certificate_file(key: &str) -> String {
    format!("{CERTIFICATE_FOLDER}/{key}")
}

fn selector(database: &IronicDatabase) -> Value {
    json!({APP_LABEL: database_names(database).server})
}

/// An object that is owned by the `IronicDatabase`, without a spec.
fn object(database: &IronicDatabase, api_version: &str, kind: &str, name: &str) -> Value {
    let metadata = &database.metadata;
    let owner = metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace.as_deref().unwrap_or_default(),
            "labels": {DATABASE_LABEL: owner},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "IronicDatabase",
                "name": owner,
                "uid": metadata.uid.as_deref().unwrap_or_default(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
    })
}
