// SPDX-License-Identifier: Apache-2.0
//! Fields that still work or are ignored, and what to use instead: warnings of the webhooks.
//!
//! Kubernetes recommends warnings of at most 120 characters.

use crate::hosts::bare_metal_host::BareMetalHost;
use crate::hosts::host_deploy_policy::HostDeployPolicy;
use crate::ironic::service::Ironic;

/// Warnings for an installation.
#[must_use]
pub fn ironic_warnings(ironic: &Ironic) -> Vec<String> {
    let spec = &ironic.spec;
    warnings([
        (
            spec.networking.ip_address_manager.is_some(),
            "spec.networking.ipAddressManager: deprecated; use spec.networking.keepalived",
        ),
        (spec.tls.bmc_ca_name.is_some(), "spec.tls.bmcCAName: deprecated; use spec.tls.bmcCA"),
        (
            spec.tls.trusted_ca_name.is_some(),
            "spec.tls.trustedCAName: deprecated; use spec.tls.trustedCA",
        ),
    ])
}

/// Warnings for a host.
#[must_use]
pub fn host_warnings(host: &BareMetalHost) -> Vec<String> {
    let spec = &host.spec;
    warnings([
        (
            spec.hardware_profile.is_some(),
            "spec.hardwareProfile: deprecated; use spec.rootDeviceHints",
        ),
        (!spec.taints.is_empty(), "spec.taints: has no effect"),
    ])
}

/// Warnings for a policy.
#[must_use]
pub fn host_deploy_policy_warnings(policy: &HostDeployPolicy) -> Vec<String> {
    warnings([(
        policy.spec.host_claim_namespaces.is_none(),
        "spec.hostClaimNamespaces: missing, so the policy admits no claim; {} admits all",
    )])
}

fn warnings<const N: usize>(rows: [(bool, &str); N]) -> Vec<String> {
    rows.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deprecated_fields_have_warnings() {
        let ironic = |spec| serde_json::from_value::<Ironic>(json!({"spec": spec})).unwrap();
        assert!(ironic_warnings(&ironic(json!({"tls": {"bmcCA": {"name": "a"}}}))).is_empty());
        let warnings = ironic_warnings(&ironic(json!({
            "networking": {"ipAddressManager": "keepalived"},
            "tls": {"bmcCAName": "a", "trustedCAName": "b"},
        })));
        assert_eq!(warnings.len(), 3);
        assert!(warnings.iter().all(|warning| warning.len() <= 120), "{warnings:?}");
        let policy = |spec| serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(host_deploy_policy_warnings(&policy(json!({}))).len(), 1);
        assert!(
            host_deploy_policy_warnings(&policy(json!({"hostClaimNamespaces": {}}))).is_empty()
        );
        let host = |spec| serde_json::from_value::<BareMetalHost>(json!({"spec": spec})).unwrap();
        assert!(host_warnings(&host(json!({"online": true}))).is_empty());
        let warnings = host_warnings(&host(json!({
            "online": true, "hardwareProfile": "dell", "taints": [{"key": "a", "effect": "b"}],
        })));
        assert_eq!(warnings.len(), 2);
    }
}
