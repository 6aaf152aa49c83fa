// SPDX-License-Identifier: Apache-2.0
//! What a controller has to read before the objects of an installation can be computed.

use std::fmt;

use kube_resources::ironic::database::DatabaseEngine;

/// Content of other objects that an `Ironic` depends on.
#[derive(Clone, Debug, Default)]
pub struct IronicFacts {
    /// The Secret with API credentials.
    pub api_credentials: LinkedContent,
    /// The Secret with the certificate, if there is one.
    pub certificate: Option<LinkedContent>,
    /// The Secret or ConfigMap with CA certificates for BMCs, if there is one.
    pub bmc_ca: Option<LinkedContent>,
    /// The Secret or ConfigMap with CA certificates for image servers, if there is one.
    pub trusted_ca: Option<LinkedContent>,
    /// The database server, if there is one.
    pub database: Option<DatabaseEndpoint>,
    /// Identity of the Job that changed the database schema for the existing workload: its annotation
    /// [`SCHEMA_JOB`](kube_resources::ironic::names::SCHEMA_JOB).
    pub finished_schema_job: Option<String>,
    /// Whether the cluster has the kind ServiceMonitor.
    pub has_service_monitors: bool,
}

/// A Secret or ConfigMap, without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedContent {
    /// Name.
    pub name: String,
    /// [Hash](content_hash) of keys and values.
    pub hash: String,
    /// Keys, sorted.
    pub keys: Vec<String>,
}

impl LinkedContent {
    /// Describes an object with this data.
    #[must_use]
    pub fn new(name: impl Into<String>, data: &[(&str, &[u8])]) -> Self {
        let mut keys: Vec<String> = data.iter().map(|(key, _)| (*key).to_owned()).collect();
        keys.sort();
        Self { name: name.into(), hash: content_hash(data), keys }
    }

    /// Whether the object has this key.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|other| other == key)
    }
}

/// FNV-1a (64 bits, hexadecimal) over keys and values in the order of the keys, as in Metal3's
/// operator.
#[must_use]
pub fn content_hash(data: &[(&str, &[u8])]) -> String {
    let mut sorted: Vec<_> = data.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    let mut hash = Fnv1a::default();
    for (key, value) in sorted {
        hash.write(key.as_bytes());
        hash.write(value);
    }
    format!("{:x}", hash.0)
}

/// The hash function: fast, stable, and not for security.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// How to reach a database.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseEndpoint {
    /// Server program.
    pub engine: DatabaseEngine,
    /// Host name or address, with a port if it is not the default one.
    pub host: String,
    /// Name of the database.
    pub name: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// The CA certificate that verifies the server; no TLS if missing.
    pub ca: Option<DatabaseCa>,
}

/// A CA certificate in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseCa {
    /// Name of the Secret.
    pub secret_name: String,
    /// Key with the certificate. Other keys, such as that of the server, are not mounted.
    pub key: String,
    /// [Hash](content_hash) of the certificate.
    pub hash: String,
}

/// Without the password.
impl fmt::Debug for DatabaseEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DatabaseEndpoint")
            .field("engine", &self.engine)
            .field("host", &self.host)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_do_not_depend_on_the_order() {
        let hash = content_hash(&[("a", b"1"), ("b", b"2")]);
        assert_eq!(hash, content_hash(&[("b", b"2"), ("a", b"1")]));
        assert_ne!(hash, content_hash(&[("a", b"1"), ("b", b"3")]));
        // Test vector of FNV-1a.
        assert_eq!(content_hash(&[("foobar", b"")]), "85944171f73967e8");
    }

    #[test]
    fn passwords_are_not_printed() {
        let server = DatabaseEndpoint {
            engine: DatabaseEngine::MariaDb,
            host: "db.example".to_owned(),
            name: "ironic".to_owned(),
            username: "user".to_owned(),
            password: "hunter2".to_owned(),
            ca: None,
        };
        assert!(!format!("{server:?}").contains("hunter2"));
    }
}
