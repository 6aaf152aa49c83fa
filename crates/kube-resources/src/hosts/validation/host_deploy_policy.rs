// SPDX-License-Identifier: Apache-2.0
//! Rules for a `HostDeployPolicy`.

use super::super::host_deploy_policy::{HostDeployPolicy, NamespacePattern};
use crate::field_error::FieldError;

/// Checks a policy.
#[must_use]
pub fn validate_host_deploy_policy(policy: &HostDeployPolicy) -> Vec<FieldError> {
    let constraints = policy.spec.host_claim_namespaces.as_ref();
    let pattern = constraints.and_then(|constraints| constraints.name_matches.as_deref());
    let problem = pattern.and_then(|pattern| NamespacePattern::compile(pattern).err());
    let error = problem.map(|problem| {
        FieldError::new(
            "spec.hostClaimNamespaces.nameMatches",
            format!(
                "is not a valid regular expression: {problem}; use RE2 syntax such as ^team-[a-z]+$"
            ),
        )
    });
    error.into_iter().collect()
}
