// SPDX-License-Identifier: Apache-2.0
//! Copies the Secrets of claims into the namespaces of hosts, and removes the copies.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::names::SECRET_LABEL;
use serde_json::json;

use super::super::claims::report::SyncProblem;
use super::super::claims::secret_copies::{ClaimSecret, copy_of, is_current, is_of_claim};
use super::claim_watches::{ClaimState, SecretMetadata};
use crate::object_key::ObjectKey;

/// Field manager of the copies.
const FIELD_MANAGER: &str = "ferrite-hostclaim";

/// Copies and removes Secrets.
#[derive(Clone)]
pub(super) struct ClaimCopies {
    client: Client,
    known: SecretMetadata,
}

impl ClaimCopies {
    pub(super) fn new(client: Client, known: SecretMetadata) -> Self {
        Self { client, known }
    }

    /// Copies the Secrets of a claim that changed. Returns what prevents it; a Secret that does not exist has
    /// no label, so its creation is not reported.
    pub(super) async fn copy(
        &self,
        state: &ClaimState,
        claim: &HostClaim,
        host: &BareMetalHost,
    ) -> Result<Option<SyncProblem>, kube::Error> {
        let namespace = claim.namespace().unwrap_or_default();
        let wanted = ClaimSecret::ALL.into_iter().filter_map(|secret| {
            Some((secret, ObjectKey::new(&namespace, secret.source_name(claim)?)))
        });
        let wanted: Vec<(ClaimSecret, ObjectKey)> = wanted.collect();
        let sources: BTreeSet<ObjectKey> =
            wanted.iter().map(|(_, source)| source.clone()).collect();
        state.set_sources(&ObjectKey::of(claim), sources);
        for (secret, source) in wanted {
            if let Some(problem) = self.copy_one(claim, host, secret, &source).await? {
                return Ok(Some(problem));
            }
        }
        Ok(None)
    }

    async fn copy_one(
        &self,
        claim: &HostClaim,
        host: &BareMetalHost,
        secret: ClaimSecret,
        source: &ObjectKey,
    ) -> Result<Option<SyncProblem>, kube::Error> {
        let copy = ObjectKey::new(host.namespace().unwrap_or_default(), secret.copy_name(host));
        if let (Some(source), Some(copy)) = (self.known.get(source), self.known.get(&copy))
            && is_current(&source.metadata, &copy.metadata)
        {
            return Ok(None);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), source.namespace());
        let Some(mut content) = api.get_opt(source.name()).await? else {
            let message = format!(
                "the Secret {} of {} does not exist in namespace {}; create it",
                source.name(),
                secret.field(),
                source.namespace()
            );
            return Ok(Some(SyncProblem { reason: secret.failure_reason(), message }));
        };
        let (label, value) = SECRET_LABEL;
        if content.labels().get(label).is_none_or(|found| found != value) {
            // Changes of Secrets with the label are reported.
            let patch =
                json!({"metadata": {"uid": content.metadata.uid, "labels": {label: value}}});
            content =
                api.patch(source.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), copy.namespace());
        let object = copy_of(&content, secret, claim, host);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(copy.name(), &parameters, &Patch::Apply(object)).await?;
        Ok(None)
    }

    /// Removes copies of Secrets that the claim does not refer to any more.
    pub(super) async fn remove_unused(
        &self,
        claim: &HostClaim,
        host: &BareMetalHost,
    ) -> Result<(), kube::Error> {
        let namespace = host.namespace().unwrap_or_default();
        for secret in ClaimSecret::ALL {
            let key = ObjectKey::new(&namespace, secret.copy_name(host));
            if secret.source_name(claim).is_none() && self.known.get(&key).is_some() {
                self.delete(&key).await?;
            }
        }
        Ok(())
    }

    /// Removes all copies for a host.
    pub(super) async fn remove_all(&self, host: &BareMetalHost) -> Result<(), kube::Error> {
        let namespace = host.namespace().unwrap_or_default();
        for secret in ClaimSecret::ALL {
            self.delete(&ObjectKey::new(&namespace, secret.copy_name(host))).await?;
        }
        Ok(())
    }

    /// Removes copies for a host that a claim does not use any more. Those of its next claim stay.
    pub(super) async fn remove_of_claim(
        &self,
        claim: &ObjectKey,
        host: &BareMetalHost,
    ) -> Result<(), kube::Error> {
        let namespace = host.namespace().unwrap_or_default();
        for secret in ClaimSecret::ALL {
            let key = ObjectKey::new(&namespace, secret.copy_name(host));
            if let Some(copy) = self.known.get(&key).filter(|copy| is_of_claim(copy.meta(), claim))
            {
                let preconditions =
                    Preconditions { uid: copy.uid(), resource_version: copy.resource_version() };
                self.delete_with(&key, &DeleteParams::default().preconditions(preconditions))
                    .await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        self.delete_with(key, &DeleteParams::default()).await
    }

    async fn delete_with(
        &self,
        key: &ObjectKey,
        parameters: &DeleteParams,
    ) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), key.namespace());
        match api.delete(key.name(), parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
