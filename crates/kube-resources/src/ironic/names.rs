// SPDX-License-Identifier: Apache-2.0
//! Labels, annotations, finalizers and other fixed names of group `ironic.metal3.io`.

/// Group of the kinds.
pub const GROUP: &str = "ironic.metal3.io";
/// Version of the kinds.
pub const VERSION: &str = "v1alpha1";

/// Finalizer of an `Ironic`.
pub const IRONIC_FINALIZER: &str = "ironic.metal3.io";
/// Name of the Lease of the leader.
pub const LEADER_ELECTION_ID: &str = "ironic.metal3.io";

/// Label of pods: name of the workload that runs them.
pub const APP_LABEL: &str = "ironic.metal3.io/app";
/// Label of all objects of an installation: name of the `Ironic`.
pub const IRONIC_LABEL: &str = "ironic.metal3.io/ironic";
/// Label of all objects of an installation: its version.
pub const VERSION_LABEL: &str = "ironic.metal3.io/version";
/// Label of all objects of a database server: name of the `IronicDatabase`.
pub const DATABASE_LABEL: &str = "ironic.metal3.io/database";
/// Finalizer of an `IronicDatabase`.
pub const DATABASE_FINALIZER: &str = "ironic.metal3.io/database";
/// Label of Secrets that the operator created and may delete, and its value.
pub const MANAGED_LABEL: (&str, &str) = ("ironic.metal3.io/managed", "true");
/// Label that users set on each Secret and ConfigMap that the operator may read, and its value.
/// Caches select by it.
pub const OPT_IN_LABEL: (&str, &str) = ("environment.metal3.io/ironic-standalone-operator", "true");

/// Annotation of pods: hash of the Secret with the API credentials.
pub const API_SECRET_VERSION: &str = "ironic.metal3.io/api-secret-version";
/// Annotation of the workload: hash of the Secret with the certificate.
pub const TLS_SECRET_VERSION: &str = "ironic.metal3.io/tls-secret-version";
/// Annotation of pods: hash of the CA certificates for BMCs.
pub const BMC_CA_VERSION: &str = "ironic.metal3.io/bmc-ca-version";
/// Annotation of pods: hash of the CA certificates for image servers.
pub const TRUSTED_CA_VERSION: &str = "ironic.metal3.io/trusted-ca-version";
/// Annotation of pods: hash of the configuration.
pub const CONFIGURATION_VERSION: &str = "ironic.metal3.io/configuration-version";
/// Annotation of pods: hash of the Secret with the address and credentials of the database.
pub const DATABASE_SECRET_VERSION: &str = "ironic.metal3.io/database-secret-version";
/// Annotation of the workload: version and content hash of the Job that changed the database schema
/// for it.
pub const SCHEMA_JOB: &str = "ironic.metal3.io/schema-job";

/// Annotation of objects that the operator applies: hash of what it applied last.
pub const APPLIED_HASH: &str = "ironic.metal3.io/applied-hash";
/// Annotation of a Secret with a generated certificate: the names that it is valid for.
pub const CERTIFICATE_NAMES: &str = "ironic.metal3.io/certificate-names";

/// Keys of Secrets.
pub mod secret_keys {
    /// User name.
    pub const USERNAME: &str = "username";
    /// Password.
    pub const PASSWORD: &str = "password";
    /// User file: the name and the bcrypt hash of the password.
    pub const HTPASSWD: &str = "htpasswd";
    /// Certificate and its chain.
    pub const TLS_CERTIFICATE: &str = "tls.crt";
    /// Key of the certificate.
    pub const TLS_KEY: &str = "tls.key";
    /// CA certificates.
    pub const TLS_CA: &str = "ca.crt";
}

/// Reasons of events.
pub mod event_reason {
    /// The version cannot be installed.
    pub const VERSION_ERROR: &str = "VersionError";
    /// Another version was requested.
    pub const VERSION_CHANGE: &str = "VersionChange";
    /// An older version was requested, which the database does not support.
    pub const DOWNGRADE_REJECTED: &str = "DowngradeRejected";
    /// The Secret with API credentials was created.
    pub const API_SECRET_CREATED: &str = "APISecretCreated";
    /// A Secret or ConfigMap is missing or must not be read.
    pub const INVALID_LINKED_RESOURCE: &str = "InvalidLinkedResource";
    /// The service became ready.
    pub const IRONIC_READY: &str = "IronicReady";
    /// The database server became ready.
    pub const DATABASE_READY: &str = "DatabaseReady";
    /// The database server is no longer ready.
    pub const DATABASE_NOT_READY: &str = "DatabaseNotReady";
    /// The service is no longer ready.
    pub const IRONIC_NOT_READY: &str = "IronicNotReady";
    /// A certificate was issued or renewed.
    pub const CERTIFICATE_ISSUED: &str = "CertificateIssued";
    /// Objects of a deleted installation still exist.
    pub const DELETION_INCOMPLETE: &str = "DeletionIncomplete";
}
