// SPDX-License-Identifier: Apache-2.0
//! How a host is changed for its claim, and how it is released.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecretReference;
use kube::ResourceExt;
use kube_resources::hosts::annotations::{
    HostRebootMode, REBOOT, RebootRequest, is_reboot_annotation,
};
use kube_resources::hosts::bare_metal_host::{BareMetalHost, BareMetalHostSpec};
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::host_image::HostImage;
use kube_resources::hosts::host_status::HostProvisioningState;
use serde_json::{Map, json};

use super::binding::{consumer, consumer_reference};
use super::secret_copies::ClaimSecret;
use crate::object_key::ObjectKey;

/// Annotation of a host while its claim has reboot annotations with a suffix. Only claims use this suffix.
const HELD_REBOOT: &str = "reboot.metal3.io/hostclaim";

/// Annotations to set or to remove.
pub(in crate::hosts) type AnnotationChanges = BTreeMap<String, Option<String>>;

/// The spec of a host that a claim has just been bound to. Nothing is deployed before the Secrets are copied.
pub(in crate::hosts) fn bound_spec(claim: &HostClaim, host: &BareMetalHost) -> BareMetalHostSpec {
    BareMetalHostSpec { consumer_ref: Some(consumer_reference(claim)), ..host.spec.clone() }
}

/// The spec that the claim requests. Without the copies of all Secrets only the power state is changed.
pub(in crate::hosts) fn requested_spec(
    claim: &HostClaim,
    host: &BareMetalHost,
    are_secrets_copied: bool,
) -> BareMetalHostSpec {
    let requested = &claim.spec;
    let spec = BareMetalHostSpec { online: requested.powered_on, ..host.spec.clone() };
    if !are_secrets_copied {
        return spec;
    }
    let copy = |secret: ClaimSecret| secret.source_name(claim).map(|_| secret.copy_name(host));
    let reference = |secret: ClaimSecret| {
        copy(secret).map(|name| SecretReference { name: Some(name), namespace: host.namespace() })
    };
    let image = requested.image.clone().map(|image| HostImage {
        // Never a Secret that the claim's user cannot read.
        oci_auth_secret_name: copy(ClaimSecret::ImageAuth),
        ..image
    });
    BareMetalHostSpec {
        image,
        custom_deploy: requested.custom_deploy.clone(),
        user_data: reference(ClaimSecret::UserData),
        network_data: reference(ClaimSecret::NetworkData),
        meta_data: reference(ClaimSecret::MetaData),
        ..spec
    }
}

/// Changes of the reboot annotations of a host. A reboot that is requested once is removed from the claim
/// afterwards; see [`has_single_reboot`].
pub(in crate::hosts) fn reboot_changes(
    claim: &HostClaim,
    host: &BareMetalHost,
) -> AnnotationChanges {
    let mut changes = AnnotationChanges::new();
    if let Some(value) = claim.annotations().get(REBOOT)
        && host.annotation(REBOOT) != Some(value)
    {
        changes.insert(REBOOT.to_owned(), Some(value.clone()));
    }
    let held = held_reboot(claim);
    if host.annotation(HELD_REBOOT) != held.as_deref() {
        changes.insert(HELD_REBOOT.to_owned(), held);
    }
    changes
}

/// Whether a reboot is requested once.
pub(in crate::hosts) fn has_single_reboot(claim: &HostClaim) -> bool {
    claim.annotations().contains_key(REBOOT)
}

/// All annotations with a suffix, combined to one value.
fn held_reboot(claim: &HostClaim) -> Option<String> {
    let held = claim
        .annotations()
        .iter()
        .filter(|(key, _)| is_reboot_annotation(key) && *key != REBOOT)
        .map(|(_, value)| RebootRequest::parse(value).unwrap_or_default());
    let held: Vec<RebootRequest> = held.collect();
    if held.is_empty() {
        return None;
    }
    let mut value = Map::new();
    if held.iter().any(|request| request.mode == Some(HostRebootMode::Hard)) {
        value.insert("mode".to_owned(), json!(HostRebootMode::Hard.as_str()));
    }
    if held.iter().any(|request| request.force) {
        value.insert("force".to_owned(), json!(true));
    }
    Some(json!(value).to_string())
}

/// What is next to release a host.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::hosts) enum ReleaseStep {
    /// The claim does not use it.
    NotUsed,
    /// Remove the image and power the host off.
    Clear(Box<BareMetalHostSpec>, AnnotationChanges),
    /// The image is being removed.
    Wait,
    /// Remove the copies of Secrets, then the reference to the claim.
    Free(Box<BareMetalHostSpec>),
}

/// The next step of a claim that is deleted.
pub(in crate::hosts) fn release_step(claim: &ObjectKey, host: &BareMetalHost) -> ReleaseStep {
    use HostProvisioningState as State;
    if consumer(host).as_ref() != Some(claim) {
        return ReleaseStep::NotUsed;
    }
    let free = || {
        let spec = BareMetalHostSpec { consumer_ref: None, ..host.spec.clone() };
        ReleaseStep::Free(Box::new(spec))
    };
    // Its own deletion removes the image.
    if host.metadata.deletion_timestamp.is_some() {
        return free();
    }
    let cleared = BareMetalHostSpec {
        // Such a host rejects it.
        online: host.spec.online && host.spec.disable_power_off,
        image: None,
        custom_deploy: None,
        user_data: None,
        network_data: None,
        meta_data: None,
        ..host.spec.clone()
    };
    let is_annotated = host.annotation(HELD_REBOOT).is_some();
    if cleared != host.spec || is_annotated {
        let removed = is_annotated.then(|| (HELD_REBOOT.to_owned(), None));
        return ReleaseStep::Clear(Box::new(cleared), removed.into_iter().collect());
    }
    let Some(status) = &host.status else { return free() };
    let provisioning = &status.provisioning;
    let is_deployed = matches!(
        provisioning.state,
        State::Provisioning | State::Provisioned | State::Deprovisioning
    );
    let was_deployed =
        provisioning.deployed_image().is_some() || provisioning.custom_deploy.is_some();
    match is_deployed || was_deployed {
        true => ReleaseStep::Wait,
        false => free(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn claim(annotations: Value, spec: Value) -> HostClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "team", "annotations": annotations},
            "spec": spec}))
        .unwrap()
    }

    fn host(spec: Value) -> BareMetalHost {
        serde_json::from_value(json!({
            "metadata": {"name": "h", "namespace": "infra", "uid": "u"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn the_host_gets_the_settings_of_the_claim() {
        let claim = claim(
            Value::Null,
            json!({"poweredOn": true, "userData": {"name": "user"}, "networkData": {"name": "net"},
                "metaData": {"name": "meta", "namespace": "team"},
                "image": {"url": "oci://a/b", "ociAuthSecretName": "pull"},
                "consumerRef": {"kind": "Machine"}}),
        );
        let host = host(json!({"online": false, "bmc": {"address": "ipmi://192.0.2.1"},
            "consumerRef": {"kind": "HostClaim"}, "rootDeviceHints": {"deviceName": "/dev/sda"}}));
        let spec = serde_json::to_value(requested_spec(&claim, &host, true)).unwrap();
        assert_eq!(
            spec,
            json!({"online": true,
                "bmc": {"address": "ipmi://192.0.2.1", "credentialsName": ""},
                "consumerRef": {"kind": "HostClaim"},
                "rootDeviceHints": {"deviceName": "/dev/sda"},
                "image": {"url": "oci://a/b", "ociAuthSecretName": "hostclaim-u-image-auth"},
                "userData": {"name": "hostclaim-u-user-data", "namespace": "infra"},
                "networkData": {"name": "hostclaim-u-network-data", "namespace": "infra"},
                "metaData": {"name": "hostclaim-u-meta-data", "namespace": "infra"}})
        );
        let partial = requested_spec(&claim, &host, false);
        assert!(partial.online && partial.image.is_none() && partial.user_data.is_none());
    }

    #[test]
    fn reboots_are_passed_on() {
        let changes = |claim_annotations: Value, host_annotations: Value| {
            let mut host = host(json!({}));
            host.metadata.annotations = serde_json::from_value(host_annotations).unwrap();
            json!(reboot_changes(&claim(claim_annotations, json!({})), &host))
        };
        let held = "reboot.metal3.io/hostclaim";
        for (on_claim, on_host, expected) in [
            (json!({}), json!({}), json!({})),
            (json!({"other": ""}), json!({"reboot.metal3.io/admin": ""}), json!({})),
            (json!({REBOOT: ""}), json!({}), json!({REBOOT: ""})),
            (json!({REBOOT: ""}), json!({REBOOT: ""}), json!({})),
            (json!({"reboot.metal3.io/a": ""}), json!({}), json!({held: "{}"})),
            (
                json!({"reboot.metal3.io/a": "", "reboot.metal3.io/b": r#"{"mode": "hard"}"#}),
                json!({held: "{}"}),
                json!({held: r#"{"mode":"hard"}"#}),
            ),
            (
                json!({"reboot.metal3.io/a": r#"{"force": true}"#}),
                json!({held: r#"{"force":true}"#}),
                json!({}),
            ),
            (json!({}), json!({held: "{}"}), json!({held: null})),
        ] {
            assert_eq!(changes(on_claim.clone(), on_host), expected, "{on_claim}");
        }
    }

    #[test]
    fn a_host_is_free_when_its_image_is_removed() {
        let claim = ObjectKey::new("team", "c");
        let own = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
            "namespace": "team", "name": "c"});
        let step = |spec: Value, status: Value, metadata: Value| {
            let mut host = json!({"metadata": {"name": "h", "namespace": "infra"},
                "spec": {"online": false, "consumerRef": own}, "status": status});
            for (section, changes) in [("spec", spec), ("metadata", metadata)] {
                for (key, value) in changes.as_object().unwrap() {
                    host[section][key] = value.clone();
                }
            }
            match release_step(&claim, &serde_json::from_value(host).unwrap()) {
                ReleaseStep::NotUsed => "not used",
                ReleaseStep::Clear(spec, _) => {
                    assert!(spec.consumer_ref.is_some() && spec.image.is_none());
                    if spec.online { "clear but keep on" } else { "clear" }
                }
                ReleaseStep::Wait => "wait",
                ReleaseStep::Free(spec) => {
                    assert_eq!(spec.consumer_ref, None);
                    "free"
                }
            }
        };
        let state = |state: &str| json!({"provisioning": {"state": state}});
        let image = json!({"url": "http://a"});
        for (spec, status, metadata, expected) in [
            (json!({}), state("available"), json!({}), "free"),
            (json!({}), Value::Null, json!({}), "free"),
            (json!({"consumerRef": null}), state("available"), json!({}), "not used"),
            (json!({"online": true}), state("available"), json!({}), "clear"),
            (json!({"image": image}), state("provisioned"), json!({}), "clear"),
            (
                json!({"image": image, "online": true, "disablePowerOff": true}),
                state("provisioned"),
                json!({}),
                "clear but keep on",
            ),
            (
                json!({"online": true, "disablePowerOff": true}),
                state("available"),
                json!({}),
                "free",
            ),
            (json!({"userData": {"name": "a"}}), state("available"), json!({}), "clear"),
            (
                json!({}),
                state("available"),
                json!({"annotations": {"reboot.metal3.io/hostclaim": "{}"}}),
                "clear",
            ),
            (json!({}), state("provisioning"), json!({}), "wait"),
            (json!({}), state("provisioned"), json!({}), "wait"),
            (json!({}), state("deprovisioning"), json!({}), "wait"),
            (
                json!({}),
                json!({"provisioning": {"state": "preparing", "image": image}}),
                json!({}),
                "wait",
            ),
            (json!({}), state("preparing"), json!({}), "free"),
            (
                json!({"image": image}),
                state("provisioned"),
                json!({"deletionTimestamp": "2026-11-17T10:00:00Z"}),
                "free",
            ),
        ] {
            assert_eq!(step(spec.clone(), status.clone(), metadata), expected, "{spec} {status}");
        }
    }
}
