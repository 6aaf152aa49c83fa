// SPDX-License-Identifier: Apache-2.0
//! References between claims and hosts, and which hosts can be chosen.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use kube_resources::hosts::annotations::{DETACHED, PAUSED, UNHEALTHY, UNHEALTHY_DEPRECATED};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::host_status::{HostProvisioningState, OperationalStatus};

use crate::object_key::ObjectKey;

/// The reference to a claim that makes it the user of a host.
pub(in crate::hosts) fn consumer_reference(claim: &HostClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some(HostClaim::api_version(&()).into_owned()),
        kind: Some(HostClaim::kind(&()).into_owned()),
        namespace: claim.namespace(),
        name: Some(claim.name_any()),
        ..ObjectReference::default()
    }
}

/// The claim that uses a host; `None` if nothing or something else does.
pub(in crate::hosts) fn consumer(host: &BareMetalHost) -> Option<ObjectKey> {
    let reference = host.spec.consumer_ref.as_ref()?;
    let group = reference.api_version.as_deref()?.split_once('/')?.0;
    let is_claim =
        reference.kind.as_deref() == Some(&HostClaim::kind(&())) && group == HostClaim::group(&());
    let (namespace, name) = (reference.namespace.as_deref()?, reference.name.as_deref()?);
    is_claim.then(|| ObjectKey::new(namespace, name))
}

/// Whether a claim can be bound to a host.
pub(in crate::hosts) fn is_available(host: &BareMetalHost) -> bool {
    use HostProvisioningState as State;
    let Some(status) = &host.status else { return false };
    let spec = &host.spec;
    let is_requested = spec.consumer_ref.is_some()
        || spec.image.is_some()
        || spec.custom_deploy.is_some()
        || spec.externally_provisioned;
    let is_excluded = [PAUSED, DETACHED, UNHEALTHY, UNHEALTHY_DEPRECATED]
        .iter()
        .any(|annotation| host.annotation(annotation).is_some());
    host.metadata.deletion_timestamp.is_none()
        && !is_requested
        && !is_excluded
        && matches!(status.provisioning.state, State::Available | State::Ready)
        && status.operational_status != OperationalStatus::Detached
        && status.error_message.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host(changes: Value) -> BareMetalHost {
        let mut host = json!({"metadata": {"name": "h", "namespace": "infra"},
            "spec": {"online": false},
            "status": {"operationalStatus": "OK", "provisioning": {"state": "available"}}});
        merge(&mut host, &changes);
        serde_json::from_value(host).unwrap()
    }

    fn merge(value: &mut Value, changes: &Value) {
        let Value::Object(fields) = changes else {
            *value = changes.clone();
            return;
        };
        for (key, change) in fields {
            merge(&mut value[key], change);
        }
    }

    #[test]
    fn only_unused_hosts_without_errors_are_available() {
        for (changes, expected) in [
            (json!({}), true),
            (json!({"status": {"provisioning": {"state": "ready"}}}), true),
            (json!({"status": null}), false),
            (json!({"status": {"provisioning": {"state": "provisioned"}}}), false),
            (json!({"status": {"provisioning": {"state": "preparing"}}}), false),
            (json!({"status": {"errorMessage": "no power"}}), false),
            (json!({"status": {"operationalStatus": "detached"}}), false),
            (json!({"metadata": {"deletionTimestamp": "2026-11-17T10:00:00Z"}}), false),
            (json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}), false),
            (json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}}), false),
            (json!({"metadata": {"annotations": {"capm3.metal3.io/unhealthy": ""}}}), false),
            (json!({"metadata": {"annotations": {"other": ""}}}), true),
            (json!({"spec": {"consumerRef": {"kind": "Metal3Machine"}}}), false),
            (json!({"spec": {"image": {"url": "http://a"}}}), false),
            (json!({"spec": {"customDeploy": {"method": "a"}}}), false),
            (json!({"spec": {"externallyProvisioned": true}}), false),
        ] {
            assert_eq!(is_available(&host(changes.clone())), expected, "{changes}");
        }
    }

    #[test]
    fn only_references_to_claims_count() {
        let claim: HostClaim =
            serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "team"}}))
                .unwrap();
        let own = serde_json::to_value(consumer_reference(&claim)).unwrap();
        assert_eq!(
            own,
            json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
                "namespace": "team", "name": "c"})
        );
        let with = |changes: Value| {
            let mut reference = own.clone();
            merge(&mut reference, &changes);
            consumer(&host(json!({"spec": {"consumerRef": reference}})))
        };
        assert_eq!(with(json!({})), Some(ObjectKey::of(&claim)));
        // The version may differ.
        assert_eq!(with(json!({"apiVersion": "metal3.io/v1beta1"})), Some(ObjectKey::of(&claim)));
        assert_eq!(with(json!({"apiVersion": "other.io/v1alpha1"})), None);
        assert_eq!(with(json!({"kind": "Metal3Machine"})), None);
        assert_eq!(with(json!({"namespace": null})), None);
        assert_ne!(with(json!({"name": "d"})), Some(ObjectKey::of(&claim)));
        assert_eq!(consumer(&host(json!({}))), None);
    }
}
