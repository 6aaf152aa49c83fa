// SPDX-License-Identifier: Apache-2.0
//! Rule for references to Secrets.

use k8s_openapi::api::core::v1::SecretReference;

use crate::field_error::FieldError;

/// A Secret of another namespace must not be readable through an object (GHSA-pqfh-xh7w-7h3p). A
/// reference without a namespace means the namespace of the object.
pub(super) fn same_namespace(
    namespace: Option<&str>,
    references: &[(&str, Option<&SecretReference>)],
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (path, reference) in references {
        let other = reference
            .and_then(|reference| reference.namespace.as_deref())
            .filter(|other| !other.is_empty() && Some(*other) != namespace);
        if let Some(other) = other {
            errors.push(FieldError::new(
                format!("{path}.namespace"),
                format!(
                    "{other:?} is not the namespace of this object; copy the Secret to {} and remove the field",
                    namespace.unwrap_or("that namespace")
                ),
            ));
        }
    }
    errors
}
