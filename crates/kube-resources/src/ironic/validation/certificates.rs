// SPDX-License-Identifier: Apache-2.0
//! Rules for certificates.

use super::super::service::{CaKind, CaReference, IronicSpec};
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    let tls = &spec.tls;
    let mut errors = Vec::new();
    errors.extend(required(
        tls.insecure_rpc.is_none() || spec.high_availability,
        "spec.tls.insecureRPC",
        "is for several replicas; remove it, or set highAvailability to true",
    ));
    errors.extend(required(
        !tls.generate || tls.certificate_name.is_none(),
        "spec.tls.generate",
        "cannot be combined with certificateName; remove one of them",
    ));
    for (field, reference, name, kind) in [
        ("bmcCA", &tls.bmc_ca, &tls.bmc_ca_name, CaKind::Secret),
        ("trustedCA", &tls.trusted_ca, &tls.trusted_ca_name, CaKind::ConfigMap),
    ] {
        if let Some(reference) = reference {
            errors.extend(ca_reference(field, reference, name.as_deref(), &kind));
        }
    }
    errors
}

fn ca_reference(
    field: &str,
    reference: &CaReference,
    older_name: Option<&str>,
    older_kind: &CaKind,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(required(
        !reference.name.is_empty(),
        &format!("spec.tls.{field}.name"),
        "is empty; set it to the name of a Secret or ConfigMap",
    ));
    if let CaKind::Other(kind) = &reference.kind {
        let problem =
            format!("{kind:?} is not supported; use one of {}", CaKind::VALUES.join(", "));
        errors.push(FieldError::new(format!("spec.tls.{field}.kind"), problem));
    }
    if let Some(older) = older_name {
        errors.extend(required(
            reference.name == older && reference.kind == *older_kind,
            &format!("spec.tls.{field}Name"),
            format!(
                "{older_kind} {older:?} contradicts {field}; remove {field}Name, its older form"
            ),
        ));
    }
    errors
}

/// Checks that the key of `trustedCA` exists in the object. `keys` are its keys.
///
/// Webhooks cannot check this, because the object may be created later.
#[must_use]
pub fn check_trusted_ca_key(reference: &CaReference, keys: &[&str]) -> Option<FieldError> {
    let key = reference.key.as_deref()?;
    required(
        keys.contains(&key),
        "spec.tls.trustedCA.key",
        format!(
            "{} {:?} has no key {key:?}; it has {}",
            reference.kind,
            reference.name,
            keys.join(", ")
        ),
    )
}
