// SPDX-License-Identifier: Apache-2.0
//! Copies of the Secrets of a claim in the namespace of its host.
//!
//! A host reads Secrets of its own namespace only. The copies are named after the host, so that a host never
//! has more than one set of them, and are owned by it, so that they go with it.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::host_claim_reason as reason;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::names::{
    CLAIM_COPY_ANNOTATION, CLAIM_COPY_LABEL, CLAIM_SOURCE_ANNOTATION, SECRET_LABEL,
};
use serde_json::{Value, json};

use crate::object_key::ObjectKey;

/// A Secret that a claim refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hosts) enum ClaimSecret {
    UserData,
    NetworkData,
    MetaData,
    ImageAuth,
}

impl ClaimSecret {
    pub(in crate::hosts) const ALL: [Self; 4] =
        [Self::UserData, Self::NetworkData, Self::MetaData, Self::ImageAuth];

    /// The field that names it.
    pub(in crate::hosts) fn field(self) -> &'static str {
        match self {
            Self::UserData => "spec.userData",
            Self::NetworkData => "spec.networkData",
            Self::MetaData => "spec.metaData",
            Self::ImageAuth => "spec.image.ociAuthSecretName",
        }
    }

    /// Reason of the condition if it cannot be copied.
    pub(in crate::hosts) fn failure_reason(self) -> &'static str {
        match self {
            Self::UserData => reason::USER_DATA_SECRET_SYNC_FAILURE,
            Self::NetworkData => reason::NETWORK_DATA_SECRET_SYNC_FAILURE,
            Self::MetaData => reason::META_DATA_SECRET_SYNC_FAILURE,
            Self::ImageAuth => reason::IMAGE_AUTH_SECRET_SYNC_FAILURE,
        }
    }

    /// Its name in the namespace of the claim; `None` if the claim does not refer to one.
    pub(in crate::hosts) fn source_name(self, claim: &HostClaim) -> Option<&str> {
        let spec = &claim.spec;
        let name = match self {
            Self::UserData => spec.user_data.as_ref()?.name.as_deref(),
            Self::NetworkData => spec.network_data.as_ref()?.name.as_deref(),
            Self::MetaData => spec.meta_data.as_ref()?.name.as_deref(),
            Self::ImageAuth => spec.image.as_ref()?.oci_auth_secret_name.as_deref(),
        };
        name.filter(|name| !name.is_empty())
    }

    /// The name of the copy.
    pub(in crate::hosts) fn copy_name(self, host: &BareMetalHost) -> String {
        let purpose = match self {
            Self::UserData => "user-data",
            Self::NetworkData => "network-data",
            Self::MetaData => "meta-data",
            Self::ImageAuth => "image-auth",
        };
        format!("hostclaim-{}-{purpose}", host.uid().unwrap_or_default())
    }
}

/// The copy of a Secret, for server-side apply.
pub(in crate::hosts) fn copy_of(
    source: &Secret,
    purpose: ClaimSecret,
    claim: &HostClaim,
    host: &BareMetalHost,
) -> Value {
    let claim = ObjectKey::of(claim).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": purpose.copy_name(host),
            "namespace": host.namespace(),
            "labels": {
                SECRET_LABEL.0: SECRET_LABEL.1,
                CLAIM_COPY_LABEL: host.uid().unwrap_or_default(),
            },
            "annotations": {
                CLAIM_COPY_ANNOTATION: claim,
                CLAIM_SOURCE_ANNOTATION: source_version(&source.metadata),
            },
            "ownerReferences": Vec::from_iter(host.owner_ref(&())),
        },
        "data": source.data.clone().unwrap_or_default(),
    })
}

/// Whether a copy was made for a claim.
pub(in crate::hosts) fn is_of_claim(copy: &ObjectMeta, claim: &ObjectKey) -> bool {
    let annotations = copy.annotations.as_ref();
    let copied_for = annotations.and_then(|annotations| annotations.get(CLAIM_COPY_ANNOTATION));
    copied_for.is_some_and(|copied_for| *copied_for == claim.to_string())
}

/// Whether a copy has the content of its source.
pub(in crate::hosts) fn is_current(source: &ObjectMeta, copy: &ObjectMeta) -> bool {
    let annotations = copy.annotations.as_ref();
    let copied = annotations.and_then(|annotations| annotations.get(CLAIM_SOURCE_ANNOTATION));
    copied.is_some_and(|copied| *copied == source_version(source))
}

fn source_version(source: &ObjectMeta) -> String {
    let (uid, version) = (source.uid.as_deref(), source.resource_version.as_deref());
    format!("{}/{}", uid.unwrap_or_default(), version.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> BareMetalHost {
        let uid = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
        let metadata = json!({"name": "h", "namespace": "infra", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn claim() -> HostClaim {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "team"},
            "spec": {"userData": {"name": "user"}, "networkData": {"name": ""},
                "image": {"url": "oci://a", "ociAuthSecretName": "pull"}}}))
        .unwrap()
    }

    #[test]
    fn references_without_a_name_are_not_copied() {
        let names = ClaimSecret::ALL.map(|secret| secret.source_name(&claim()).map(str::to_owned));
        assert_eq!(names, [Some("user".to_owned()), None, None, Some("pull".to_owned())]);
    }

    #[test]
    fn a_copy_is_current_until_its_source_changes() {
        let mut source: Secret = serde_json::from_value(json!({
            "metadata": {"name": "user", "uid": "s", "resourceVersion": "7",
                "labels": {"private": "1"}, "annotations": {"private": "1"}},
            "data": {"userData": "YQ=="}}))
        .unwrap();
        let copy = copy_of(&source, ClaimSecret::UserData, &claim(), &host());
        let copy: Secret = serde_json::from_value(copy).unwrap();
        assert_eq!(copy.name_any(), "hostclaim-0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0-user-data");
        assert_eq!(copy.data, source.data);
        assert_eq!(copy.labels()["environment.metal3.io"], "baremetal");
        assert_eq!(copy.annotations()["hostclaim.metal3.io/claim"], "team/c");
        let key = |name: &str| ObjectKey::new("team", name);
        assert!(is_of_claim(&copy.metadata, &key("c")) && !is_of_claim(&copy.metadata, &key("d")));
        assert!(!is_of_claim(&source.metadata, &key("c")));
        assert!(!copy.labels().contains_key("private"), "metadata of users is not copied");
        assert_eq!(copy.owner_references()[0].kind, "BareMetalHost");
        assert_eq!(copy.owner_references()[0].block_owner_deletion, None);
        assert!(is_current(&source.metadata, &copy.metadata));
        source.metadata.resource_version = Some("8".to_owned());
        assert!(!is_current(&source.metadata, &copy.metadata));
        assert!(!is_current(&source.metadata, &ObjectMeta::default()));
    }

    #[test]
    fn names_of_copies_are_valid() {
        let names: Vec<String> =
            ClaimSecret::ALL.iter().map(|secret| secret.copy_name(&host())).collect();
        assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    }
}
