// SPDX-License-Identifier: Apache-2.0
//! Releases hosts: of claims that are deleted, and of claims that disappeared without releasing their host.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_resources::hosts::annotations::{DETACHED, PAUSED};
use kube_resources::hosts::bare_metal_host::{BareMetalHost, BareMetalHostSpec};
use kube_resources::hosts::host_claim::HostClaim;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::super::claims::binding::consumer;
use super::super::claims::mirror::{AnnotationChanges, ReleaseStep, release_step};
use super::claim_copies::ClaimCopies;
use super::claim_watches::ClaimWatches;
use super::host_claim::{CONFLICT_RETRY, is_conflict};
use super::merge_patch::{as_json, merge_patch};
use crate::events::ObjectEventRecorder;
use crate::object_key::ObjectKey;
use crate::reconcile_loop::Reconciler;

/// Reason of the event of a host whose claim does not exist.
const CLAIM_MISSING: &str = "HostClaimMissing";

/// Performs the steps of a release.
#[derive(Clone)]
pub(super) struct HostRelease {
    pub(super) client: Client,
    pub(super) copies: ClaimCopies,
    pub(super) watches: Arc<ClaimWatches>,
    pub(super) events: ObjectEventRecorder,
}

impl HostRelease {
    /// Performs the next step. Returns what to wait for.
    pub(super) async fn advance(
        &self,
        claim: &ObjectKey,
        host: &BareMetalHost,
    ) -> Result<Option<String>, kube::Error> {
        match release_step(claim, host) {
            ReleaseStep::NotUsed => {
                // The host was taken away from the claim.
                self.copies.remove_of_claim(claim, host).await?;
                Ok(None)
            }
            ReleaseStep::Wait => Ok(Some(release_text(host))),
            ReleaseStep::Clear(spec, annotations) => {
                let stored = change_host(&self.client, host, &spec, &annotations).await?;
                // A host without an image is free at once.
                match release_step(claim, &stored) {
                    ReleaseStep::Free(spec) => self.free(claim, &stored, &spec).await,
                    ReleaseStep::NotUsed => Ok(None),
                    ReleaseStep::Wait | ReleaseStep::Clear(..) => Ok(Some(release_text(&stored))),
                }
            }
            ReleaseStep::Free(spec) => self.free(claim, host, &spec).await,
        }
    }

    async fn free(
        &self,
        claim: &ObjectKey,
        host: &BareMetalHost,
        spec: &BareMetalHostSpec,
    ) -> Result<Option<String>, kube::Error> {
        // While the host refers to the claim, so that a failure is repeated.
        self.copies.remove_all(host).await?;
        change_host(&self.client, host, spec, &AnnotationChanges::new()).await?;
        self.watches.state.metrics.releases.inc();
        let note = format!("released by the claim {claim}");
        self.events.normal(host, "HostClaimReleased", &note).await;
        Ok(None)
    }
}

/// Changes the version of a host that was read; does nothing if nothing differs.
pub(super) async fn change_host(
    client: &Client,
    host: &BareMetalHost,
    spec: &BareMetalHostSpec,
    annotations: &AnnotationChanges,
) -> Result<BareMetalHost, kube::Error> {
    let spec = merge_patch(&as_json(&host.spec), &as_json(spec));
    if spec.is_none() && annotations.is_empty() {
        return Ok(host.clone());
    }
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(host.metadata.resource_version));
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    patch.extend(spec.map(|spec| ("spec".to_owned(), spec)));
    let api: Api<BareMetalHost> =
        Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
    let patch = Patch::Merge(Value::Object(patch));
    api.patch(&host.name_any(), &PatchParams::default(), &patch).await
}

/// What a claim that is deleted waits for.
fn release_text(host: &BareMetalHost) -> String {
    let name = format!("{}/{}", host.namespace().unwrap_or_default(), host.name_any());
    let status = host.status.as_ref();
    let error = status.map(|status| status.error_message.as_str()).unwrap_or_default();
    let stopped = [PAUSED, DETACHED].into_iter().find(|key| host.annotation(key).is_some());
    match stopped {
        Some(annotation) => format!("the host {name} has the annotation {annotation}; remove it"),
        None if error.is_empty() => format!("the host {name} removes its image"),
        None => format!("the host {name} cannot remove its image: {error}"),
    }
}

/// Releases hosts whose claim does not exist, because someone removed its finalizer.
///
/// A host may also be created or restored before its claim. So it is released only if this process has seen
/// that the claim was deleted. Otherwise the missing claim is reported.
pub(super) struct MissingClaimReconciler {
    pub(super) release: HostRelease,
}

#[async_trait]
impl Reconciler for MissingClaimReconciler {
    type Kind = BareMetalHost;
    type Failure = kube::Error;
    const NAME: &'static str = "hostclaim-missing";

    async fn reconcile(&self, host: &BareMetalHost) -> Result<Option<Duration>, kube::Error> {
        match self.release_unused(host).await {
            Err(error) if is_conflict(&error) => Ok(Some(CONFLICT_RETRY)),
            // Changes of the host are reported.
            other => other.map(|()| None),
        }
    }
}

impl MissingClaimReconciler {
    async fn release_unused(&self, cached: &BareMetalHost) -> Result<(), kube::Error> {
        let Some(claim) = consumer(cached) else { return Ok(()) };
        if !self.is_missing(&claim).await? {
            return Ok(());
        }
        let key = ObjectKey::of(cached);
        let api: Api<BareMetalHost> = Api::namespaced(self.release.client.clone(), key.namespace());
        // The cache may be older than the release.
        let Some(host) = api.get_opt(key.name()).await? else { return Ok(()) };
        if consumer(&host).as_ref() != Some(&claim) {
            return Ok(());
        }
        let state = &self.release.watches.state;
        let was_deleted = state.with_index(|index| index.has_deleted_claim(&key));
        let events = &self.release.events;
        // Objects that are moved to another cluster are paused.
        if host.annotation(PAUSED).is_some() || !was_deleted {
            let note = format!(
                "the claim {claim}, which uses the host, does not exist; create it, or remove \
                 the image and spec.consumerRef of the host"
            );
            events.warning(&host, CLAIM_MISSING, &note).await;
            return Ok(());
        }
        if let ReleaseStep::Clear(..) = release_step(&claim, &host) {
            warn!(
                namespace = key.namespace(),
                name = key.name(),
                claim_namespace = claim.namespace(),
                claim_name = claim.name(),
                "claim disappeared without releasing its host, releasing it"
            );
            let note = format!(
                "the claim {claim} was deleted without its finalizer; the host is released"
            );
            events.warning(&host, CLAIM_MISSING, &note).await;
        }
        self.release.advance(&claim, &host).await?;
        Ok(())
    }

    /// Whether a claim does not exist. Claims of namespaces that are not watched count as existing.
    async fn is_missing(&self, claim: &ObjectKey) -> Result<bool, kube::Error> {
        let claims = &self.release.watches.claims;
        if !claims.has_namespace(claim.namespace()) || claims.get(claim).is_some() {
            return Ok(false);
        }
        // The cache has no claims that cannot be read.
        let api: Api<HostClaim> = Api::namespaced(self.release.client.clone(), claim.namespace());
        Ok(api.get_metadata_opt(claim.name()).await?.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_to_wait_for_a_release_is_shown() {
        let text = |annotation: Option<&str>, error: &str| {
            let annotations = annotation.map(|key| json!({key: ""}));
            let host = json!({"metadata": {"name": "h", "namespace": "n",
                "annotations": annotations}, "status": {"errorMessage": error}});
            release_text(&serde_json::from_value(host).unwrap())
        };
        assert_eq!(text(None, ""), "the host n/h removes its image");
        assert_eq!(text(None, "no BMC"), "the host n/h cannot remove its image: no BMC");
        assert!(text(Some(PAUSED), "").contains("baremetalhost.metal3.io/paused; remove it"));
    }
}
