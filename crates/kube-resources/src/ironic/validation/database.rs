// SPDX-License-Identifier: Apache-2.0
//! Rules for databases.

use super::super::database::{DatabaseEngine, DatabaseStorage, IronicDatabase};
use super::super::service::IronicSpec;
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(required(
        !spec.high_availability || spec.has_database(),
        "spec.highAvailability",
        "needs a database that all replicas share; set spec.database or spec.databaseRef",
    ));
    errors.extend(required(
        spec.database.is_none() || spec.database_ref.is_none(),
        "spec.databaseRef",
        "cannot be combined with spec.database; remove one of them",
    ));
    if let Some(database) = &spec.database {
        for (field, value) in [
            ("credentialsName", &database.credentials_name),
            ("host", &database.host),
            ("name", &database.name),
        ] {
            errors.extend(required(
                !value.is_empty(),
                &format!("spec.database.{field}"),
                "is empty; set it",
            ));
        }
    }
    if let Some(reference) = &spec.database_ref {
        errors.extend(required(
            !reference.name.is_empty(),
            "spec.databaseRef.name",
            "is empty; set it to the name of an IronicDatabase",
        ));
    }
    if let Some(storage) = &spec.storage {
        errors.extend(size("spec.storage.size", storage));
        errors.extend(required(
            !spec.has_database(),
            "spec.storage",
            "has no effect with a database; remove it",
        ));
    }
    errors
}

/// A database may be added or removed. Another one would have another state.
pub(super) fn check_update(old: &IronicSpec, new: &IronicSpec) -> Vec<FieldError> {
    const PROBLEM: &str = "cannot change to a new database; restore the previous value, or delete \
                           and create the Ironic";
    let mut errors = Vec::new();
    if !old.has_database() || !new.has_database() {
        return errors;
    }
    errors.extend(required(old.database == new.database, "spec.database", PROBLEM));
    errors.extend(required(old.database_ref == new.database_ref, "spec.databaseRef", PROBLEM));
    errors
}

/// Checks a database server.
#[must_use]
pub fn validate_ironic_database(database: &IronicDatabase) -> Vec<FieldError> {
    let spec = &database.spec;
    let mut errors = Vec::new();
    if let DatabaseEngine::Other(engine) = spec.effective_engine() {
        let engines = DatabaseEngine::VALUES.join(", ");
        let problem = format!("{engine:?} is not supported; use one of {engines}");
        errors.push(FieldError::new("spec.engine", problem));
    }
    for (path, reference) in
        [("spec.credentialsRef.name", &spec.credentials_ref), ("spec.tlsRef.name", &spec.tls_ref)]
    {
        let is_named = reference.as_ref().is_none_or(|reference| !reference.name.is_empty());
        errors.extend(required(is_named, path, "is empty; set it to the name of a Secret"));
    }
    if let Some(storage) = &spec.storage {
        errors.extend(size("spec.storage.size", storage));
    }
    errors
}

/// Kubernetes rejects other quantities only when the volume claim is created.
fn size(path: &str, storage: &DatabaseStorage) -> Option<FieldError> {
    const SUFFIXES: &[&str] = &["", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let size = storage.size.as_deref()?;
    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
    let is_valid = (1..=15).contains(&digits)
        && size[..digits].bytes().any(|digit| digit != b'0')
        && SUFFIXES.contains(&&size[digits..]);
    required(is_valid, path, format!("{size:?} is not a size; use one such as 10Gi"))
}
