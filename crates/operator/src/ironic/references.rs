// SPDX-License-Identifier: Apache-2.0
//! Which other objects an `Ironic` names, so that their changes are a reason to reconcile it.

use kube::api::DynamicObject;
use kube_resources::ironic::service::{CaKind, Ironic};

use crate::linked_objects::LinkedKind;

/// An `Ironic` without its type; `None` if it does not match the type.
pub(super) fn parsed(object: &DynamicObject) -> Option<Ironic> {
    let value = serde_json::to_value(object).ok()?;
    serde_json::from_value(value).ok()
}

/// Whether an installation uses this Secret or ConfigMap. The credentials of an `IronicDatabase` are
/// known only to its controller, so each Secret may be theirs.
pub(super) fn uses_linked(ironic: &Ironic, kind: LinkedKind, name: &str) -> bool {
    let spec = &ironic.spec;
    let authorities = [spec.tls.effective_bmc_ca(), spec.tls.effective_trusted_ca()];
    let is_authority = authorities.into_iter().flatten().any(|reference| {
        let is_secret = reference.kind == CaKind::Secret;
        reference.name == name && is_secret == (kind == LinkedKind::Secret)
    });
    let database = spec.database.as_ref();
    let secrets = [
        spec.api_credentials_name.as_deref(),
        spec.tls.certificate_name.as_deref(),
        database.map(|database| database.credentials_name.as_str()),
        database.and_then(|database| database.tls_certificate_name.as_deref()),
    ];
    is_authority
        || kind == LinkedKind::Secret
            && (spec.database_ref.is_some() || secrets.contains(&Some(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn linked_objects_of_all_fields_are_known() {
        let ironic = |spec| -> Ironic { serde_json::from_value(json!({"spec": spec})).unwrap() };
        for (spec, kind, expected) in [
            (json!({}), LinkedKind::Secret, false),
            (json!({"apiCredentialsName": "x"}), LinkedKind::Secret, true),
            (json!({"apiCredentialsName": "x"}), LinkedKind::ConfigMap, false),
            (json!({"tls": {"certificateName": "x"}}), LinkedKind::Secret, true),
            (json!({"tls": {"bmcCAName": "x"}}), LinkedKind::Secret, true),
            (json!({"tls": {"trustedCAName": "x"}}), LinkedKind::Secret, false),
            (json!({"tls": {"trustedCAName": "x"}}), LinkedKind::ConfigMap, true),
            (
                json!({"tls": {"trustedCA": {"name": "x", "kind": "Secret"}}}),
                LinkedKind::Secret,
                true,
            ),
            (json!({"tls": {"bmcCA": {"name": "y", "kind": "Secret"}}}), LinkedKind::Secret, false),
            (json!({"database": {"credentialsName": "x"}}), LinkedKind::Secret, true),
            (json!({"database": {"tlsCertificateName": "x"}}), LinkedKind::Secret, true),
            (json!({"databaseRef": {"name": "db"}}), LinkedKind::Secret, true),
        ] {
            assert_eq!(uses_linked(&ironic(spec.clone()), kind, "x"), expected, "{spec} {kind:?}");
        }
    }
}
