// SPDX-License-Identifier: Apache-2.0
//! `IronicDatabase`: a database server for an `Ironic`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// A database server.
    pub struct IronicDatabase in "ironic.metal3.io" / "v1alpha1", plural "ironicdatabases" {
        spec: IronicDatabaseSpec,
        status: IronicDatabaseStatus,
    }
}

/// Requested state of a database server. Every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicDatabaseSpec {
    /// Secret with `username` and `password`; generated if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<LocalReference>,
    /// Server program; MariaDB if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub engine: Option<DatabaseEngine>,
    /// Container image; by default that of the operator for the engine.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub image: Option<String>,
    /// Volume of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<DatabaseStorage>,
    /// Secret with the certificate and key of the server; no TLS if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ref: Option<LocalReference>,
}

impl IronicDatabaseSpec {
    /// The server program.
    #[must_use]
    pub fn effective_engine(&self) -> DatabaseEngine {
        self.engine.clone().unwrap_or(DatabaseEngine::MariaDb)
    }
}

text_enum! {
    /// Server program of a database.
    pub enum DatabaseEngine {
        /// MariaDB.
        MariaDb = "MariaDB",
        /// PostgreSQL.
        PostgreSql = "PostgreSQL",
    }
}

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalReference {
    /// Name.
    pub name: String,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DatabaseStorage {
    /// Size, such as `10Gi`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub size: Option<String>,
    /// Storage class; by default that of the cluster.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub storage_class_name: Option<String>,
}

/// Observed state of a database server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicDatabaseStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// Secret with the credentials that are in use.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub credentials_name: Option<String>,
    /// Name of the database.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub database_name: Option<String>,
    /// Host name for clients.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub host: Option<String>,
}
