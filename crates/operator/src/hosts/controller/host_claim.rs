// SPDX-License-Identifier: Apache-2.0
//! The controller of `HostClaim`: binds claims to hosts, passes their settings on, and releases hosts.
//!
//! Two claims never get the same host: the index reserves a host for one claim of this process, and the
//! reference to the claim is written only to the version of the host that was available.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_resources::hosts::annotations::REBOOT;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::host_claim_reason as reason;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::names::HOST_CLAIM_FINALIZER;
use kube_resources::hosts::validation::validate_host_claim;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::super::claims::binding::{consumer, is_available};
use super::super::claims::host_index::HostIndex;
use super::super::claims::mirror::{
    AnnotationChanges, bound_spec, has_single_reboot, reboot_changes, requested_spec,
};
use super::super::claims::policy::Admission;
use super::super::claims::report::{ClaimReport, SyncProblem, status_after};
use super::super::claims::selector::HostRequest;
use super::claim_watches::{ClaimWatches, NamespaceLabels};
use super::host_release::{HostRelease, change_host};
use super::merge_patch::{as_json, merge_patch};
use super::watching::ObjectCache;
use crate::events::ObjectEventRecorder;
use crate::object_key::ObjectKey;
use crate::owned_objects::{api_error_chain, is_not_found};
use crate::reconcile_loop::Reconciler;

/// Another client changed an object at the same time.
pub(super) const CONFLICT_RETRY: Duration = Duration::from_millis(200);
/// When a missing Secret or a host that could not be changed is tried again.
const PROBLEM_RETRY: Duration = Duration::from_secs(15);
/// When labels of a namespace are compared again.
const LABEL_RETRY: Duration = Duration::from_secs(60);

/// Controller of `HostClaim`.
pub(super) struct HostClaimReconciler {
    client: Client,
    hosts: ObjectCache<BareMetalHost>,
    watches: Arc<ClaimWatches>,
    namespaces: NamespaceLabels,
    release: HostRelease,
    events: ObjectEventRecorder,
}

#[async_trait]
impl Reconciler for HostClaimReconciler {
    type Kind = HostClaim;
    type Failure = kube::Error;
    const NAME: &'static str = "hostclaim";

    async fn reconcile(&self, claim: &HostClaim) -> Result<Option<Duration>, kube::Error> {
        let result = match claim.metadata.deletion_timestamp.is_some() {
            true => self.release(claim).await,
            false => self.provide(claim).await,
        };
        match result {
            Err(error) if is_conflict(&error) => Ok(Some(CONFLICT_RETRY)),
            other => other,
        }
    }
}

/// The host that a claim should have.
enum CurrentHost {
    /// It refers to the claim.
    Bound(Box<BareMetalHost>),
    /// It does not.
    Other,
    Missing,
}

/// The result of an attempt to bind a host.
enum BindingResult {
    Written(Box<BareMetalHost>),
    /// The host has changed, or is not available any more.
    Outdated,
    /// The API server refuses the change, with this message.
    Refused(String),
}

impl HostClaimReconciler {
    pub(super) fn new(hosts: ObjectCache<BareMetalHost>, release: HostRelease) -> Self {
        let HostRelease { client, watches, events, .. } = release.clone();
        let namespaces = NamespaceLabels::new(client.clone());
        Self { client, hosts, watches, namespaces, release, events }
    }

    fn claims(&self, claim: &HostClaim) -> Api<HostClaim> {
        Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default())
    }

    /// Finds a host, or follows the one that was found.
    async fn provide(&self, claim: &HostClaim) -> Result<Option<Duration>, kube::Error> {
        let status = claim.status.as_ref();
        let bound = status.and_then(|status| status.bare_metal_host.as_ref());
        match bound {
            Some(host) => {
                let key = ObjectKey::new(&host.namespace, &host.name);
                self.follow_known(claim, &key).await
            }
            None => {
                let result = self.associate(claim).await;
                let failed = |index: &mut HostIndex| index.claim_failed(&ObjectKey::of(claim));
                if result.as_ref().is_err_and(|error| !is_conflict(error)) {
                    self.watches.wake(&self.watches.state.with_index(failed));
                }
                result
            }
        }
    }

    /// Follows the host of the status, unless it does not refer to the claim any more.
    async fn follow_known(
        &self,
        claim: &HostClaim,
        key: &ObjectKey,
    ) -> Result<Option<Duration>, kube::Error> {
        let problem = match self.current_host(claim, key).await? {
            CurrentHost::Bound(host) => return self.follow(claim, key, *host).await,
            CurrentHost::Other => "is not used by this claim any more",
            CurrentHost::Missing => "does not exist any more",
        };
        let message = format!("the host {key} {problem}; delete the claim");
        let is_new = !has_reason(claim, reason::MISSING_BARE_METAL_HOST);
        self.write_status(claim, Some(key), &ClaimReport::Lost { message: message.clone() })
            .await?;
        if is_new {
            self.watches.state.metrics.lost.inc();
            self.events.warning(claim, reason::MISSING_BARE_METAL_HOST, &message).await;
        }
        Ok(None)
    }

    async fn current_host(
        &self,
        claim: &HostClaim,
        key: &ObjectKey,
    ) -> Result<CurrentHost, kube::Error> {
        let claim = ObjectKey::of(claim);
        let refers = |host: &BareMetalHost| consumer(host).as_ref() == Some(&claim);
        if let Some(host) = self.hosts.get(key).filter(|host| refers(host)) {
            return Ok(CurrentHost::Bound(Box::new((*host).clone())));
        }
        // The cache may be older than the binding.
        Ok(match self.host_api(key).get_opt(key.name()).await? {
            Some(host) if refers(&host) => CurrentHost::Bound(Box::new(host)),
            Some(_) => CurrentHost::Other,
            None => CurrentHost::Missing,
        })
    }

    /// Binds the claim to a host that refers to it already, or to an available one.
    async fn associate(&self, claim: &HostClaim) -> Result<Option<Duration>, kube::Error> {
        let key = ObjectKey::of(claim);
        let state = &self.watches.state;
        let errors = validate_host_claim(claim);
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return self.wait(claim, errors.join("; "), None).await;
        }
        let request = HostRequest::of(claim);
        let admission = self.watches.admission(&self.namespaces, key.namespace()).await?;
        let retry = admission.depends_on_labels.then_some(LABEL_RETRY);
        let is_wanted = |host: &&ObjectKey| {
            let namespace = request.namespace.as_ref();
            admission.namespaces.contains(host.namespace())
                && namespace.is_none_or(|namespace| namespace == host.namespace())
        };
        // The process ended between the binding and the status, the response to the binding was lost, or an
        // administrator bound the host.
        let (started, referring) =
            state.with_index(|index| (index.started(&key), index.hosts_of(&key)));
        if let Some(host) = started.as_ref().or_else(|| referring.iter().find(is_wanted)) {
            let CurrentHost::Bound(found) = self.current_host(claim, host).await? else {
                self.watches.wake(&state.with_index(|index| index.not_bound(host)));
                return Ok(Some(CONFLICT_RETRY));
            };
            let claim = match self.hold(claim).await {
                Ok(claim) => claim,
                Err(error) => return self.report_refusal(claim, error).await,
            };
            state.with_index(|index| index.bound(host, &found));
            return self.follow(&claim, host, *found).await;
        }
        let now = Instant::now();
        let (offered, choice, refused) = state.with_index(|index| {
            let offered = index.offer_refused(now);
            (offered, index.reserve(&key), index.refused_for(&key))
        });
        self.watches.wake(&offered);
        self.watches.wake(&choice.concerned);
        let Some(host) = choice.host else {
            let Some(refused) = refused else {
                return self.wait(claim, waiting_text(&key, &request, &admission), retry).await;
            };
            let retry = refused.until.saturating_duration_since(now).max(CONFLICT_RETRY);
            let message =
                format!("matching hosts cannot be bound ({}): {}", refused.count, refused.message);
            return self.wait(claim, message, Some(retry)).await;
        };
        self.bind(claim, &host).await
    }

    async fn wait(
        &self,
        claim: &HostClaim,
        message: String,
        retry: Option<Duration>,
    ) -> Result<Option<Duration>, kube::Error> {
        self.write_status(claim, None, &ClaimReport::Waiting { message }).await?;
        Ok(retry)
    }

    /// Binds the claim to a reserved host.
    async fn bind(
        &self,
        claim: &HostClaim,
        key: &ObjectKey,
    ) -> Result<Option<Duration>, kube::Error> {
        let state = &self.watches.state;
        let claim = match self.hold(claim).await {
            Ok(claim) => claim,
            Err(error) => {
                // The host can be bound to another claim.
                self.watches.wake(&state.with_index(|index| index.not_bound(key)));
                return self.report_refusal(claim, error).await;
            }
        };
        let Some(found) = self.hosts.get(key) else {
            self.watches.wake(&state.with_index(|index| index.not_bound(key)));
            return Ok(Some(CONFLICT_RETRY));
        };
        let host = match self.write_reference(&claim, &found).await {
            Ok(BindingResult::Written(host)) => *host,
            Ok(BindingResult::Outdated) => {
                self.watches.wake(&state.with_index(|index| index.host_outdated(key, &found)));
                return Ok(Some(CONFLICT_RETRY));
            }
            Ok(BindingResult::Refused(message)) => {
                let refused = |index: &mut HostIndex| {
                    index.host_refused(key, &found, message, Instant::now())
                };
                self.watches.wake(&state.with_index(refused));
                return Ok(Some(CONFLICT_RETRY));
            }
            // The reference may have been written. The reservation stays, so that the next attempt looks.
            Err(error) => return Err(error),
        };
        state.with_index(|index| index.bound(key, &host));
        state.metrics.associations.inc();
        let claim_key = ObjectKey::of(&claim);
        info!(
            claim_namespace = claim_key.namespace(),
            claim_name = claim_key.name(),
            namespace = key.namespace(),
            name = key.name(),
            "claim bound to a host"
        );
        let note = format!("bound to the host {key}");
        self.events.normal(&claim, reason::BARE_METAL_HOST_ASSOCIATED, &note).await;
        let note = format!("bound to the claim {claim_key}");
        self.events.normal(&host, "HostClaimAssociated", &note).await;
        self.follow(&claim, key, host).await
    }

    /// Writes the reference to the claim.
    async fn write_reference(
        &self,
        claim: &HostClaim,
        host: &BareMetalHost,
    ) -> Result<BindingResult, kube::Error> {
        if !is_available(host) {
            return Ok(BindingResult::Outdated);
        }
        let spec = bound_spec(claim, host);
        let error = match change_host(&self.client, host, &spec, &AnnotationChanges::new()).await {
            Ok(stored) => return Ok(BindingResult::Written(Box::new(stored))),
            Err(error) => error,
        };
        if is_conflict(&error) || is_not_found(&error) {
            return Ok(BindingResult::Outdated);
        }
        let Some(message) = refusal(&error) else { return Err(error) };
        let (namespace, name) = (host.namespace(), host.name_any());
        warn!(namespace, name, error = api_error_chain(&error), "host cannot be bound to a claim");
        Ok(BindingResult::Refused(message))
    }

    /// Shows on the claim that the API server refuses to change it. Other claims come first meanwhile.
    async fn report_refusal(
        &self,
        claim: &HostClaim,
        error: kube::Error,
    ) -> Result<Option<Duration>, kube::Error> {
        let Some(text) = refusal(&error) else {
            return if is_not_found(&error) { Ok(None) } else { Err(error) };
        };
        let failed = |index: &mut HostIndex| index.claim_failed(&ObjectKey::of(claim));
        self.watches.wake(&self.watches.state.with_index(failed));
        let message = format!("the API server refuses to add the finalizer of the claim: {text}");
        self.wait(claim, message, Some(PROBLEM_RETRY)).await
    }

    /// Adds the finalizer, so that the claim exists until its host is released.
    async fn hold(&self, claim: &HostClaim) -> Result<HostClaim, kube::Error> {
        if is_held(claim) {
            return Ok(claim.clone());
        }
        let names = claim.finalizers().iter().map(String::as_str);
        let finalizers: Vec<&str> = names.chain([HOST_CLAIM_FINALIZER]).collect();
        self.change_claim(claim, json!({"finalizers": finalizers})).await
    }

    async fn change_claim(
        &self,
        claim: &HostClaim,
        mut metadata: Value,
    ) -> Result<HostClaim, kube::Error> {
        metadata["resourceVersion"] = json!(claim.metadata.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.claims(claim).patch(&claim.name_any(), &PatchParams::default(), &patch).await
    }

    fn host_api(&self, key: &ObjectKey) -> Api<BareMetalHost> {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    /// Passes the settings of the claim on to its host, and reports the state of the host.
    async fn follow(
        &self,
        claim: &HostClaim,
        key: &ObjectKey,
        host: BareMetalHost,
    ) -> Result<Option<Duration>, kube::Error> {
        let mut claim = claim.clone();
        let (host, problem) = match validate_host_claim(&claim).first() {
            Some(error) => {
                let reason = reason::BARE_METAL_HOST_NOT_SYNCHRONIZED;
                (host, Some(SyncProblem { reason, message: error.to_string() }))
            }
            None => self.synchronise(&mut claim, host).await?,
        };
        let has_hardware_data = self.has_hardware_data(&claim, key).await?;
        let retry = problem.as_ref().map(|_| PROBLEM_RETRY);
        let report = ClaimReport::Bound { host: &host, has_hardware_data, problem };
        self.write_status(&claim, Some(key), &report).await?;
        Ok(retry)
    }

    async fn synchronise(
        &self,
        claim: &mut HostClaim,
        host: BareMetalHost,
    ) -> Result<(BareMetalHost, Option<SyncProblem>), kube::Error> {
        let problem = self.release.copies.copy(&self.watches.state, claim, &host).await?;
        let spec = requested_spec(claim, &host, problem.is_none());
        let stored = change_host(&self.client, &host, &spec, &reboot_changes(claim, &host)).await;
        let host = match stored {
            Ok(stored) => stored,
            Err(error) => match refusal(&error) {
                Some(message) => {
                    let reason = reason::BARE_METAL_HOST_NOT_SYNCHRONIZED;
                    return Ok((host, Some(SyncProblem { reason, message })));
                }
                None => return Err(error),
            },
        };
        if problem.is_none() {
            self.release.copies.remove_unused(claim, &host).await?;
        }
        if has_single_reboot(claim) {
            *claim = self.change_claim(claim, json!({"annotations": {REBOOT: null}})).await?;
        }
        Ok((host, problem))
    }

    /// Whether users can look up the hardware. It is created once.
    async fn has_hardware_data(
        &self,
        claim: &HostClaim,
        key: &ObjectKey,
    ) -> Result<bool, kube::Error> {
        if claim.status.as_ref().is_some_and(|status| status.hardware_data.is_some()) {
            return Ok(true);
        }
        let api: Api<HardwareData> = Api::namespaced(self.client.clone(), key.namespace());
        Ok(api.get_metadata_opt(key.name()).await?.is_some())
    }

    /// Releases the hosts of a claim that is deleted, then lets it go.
    async fn release(&self, claim: &HostClaim) -> Result<Option<Duration>, kube::Error> {
        let key = ObjectKey::of(claim);
        let mut hosts = self.watches.state.with_index(|index| index.hosts_of(&key));
        self.watches.wake(&self.watches.state.forget(&key));
        if !is_held(claim) {
            return Ok(None);
        }
        let known = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref());
        hosts.extend(known.map(|host| ObjectKey::new(&host.namespace, &host.name)));
        let mut waits = Vec::new();
        for host in &hosts {
            // The cache may be older than the binding.
            if let Some(found) = self.host_api(host).get_opt(host.name()).await? {
                waits.extend(self.release.advance(&key, &found).await?);
            }
        }
        if !waits.is_empty() {
            let report = ClaimReport::Releasing { message: waits.join("; ") };
            self.write_status(claim, None, &report).await?;
            // Changes of the host are reported.
            return Ok(None);
        }
        let left: Vec<&String> =
            claim.finalizers().iter().filter(|name| *name != HOST_CLAIM_FINALIZER).collect();
        match self.change_claim(claim, json!({"finalizers": left})).await {
            Ok(_) => Ok(None),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_status(
        &self,
        claim: &HostClaim,
        key: Option<&ObjectKey>,
        report: &ClaimReport<'_>,
    ) -> Result<(), kube::Error> {
        let before = claim.status.as_ref().map_or_else(|| json!({}), as_json);
        let after = status_after(claim, key, report, &Time(Timestamp::now()));
        let Some(status) = merge_patch(&before, &as_json(&after)) else { return Ok(()) };
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status,
        }));
        let api = self.claims(claim);
        match api.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_held(claim: &HostClaim) -> bool {
    claim.finalizers().iter().any(|name| name == HOST_CLAIM_FINALIZER)
}

fn has_reason(claim: &HostClaim, reason: &str) -> bool {
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.reason == reason)
}

pub(super) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// The message of the API server or a webhook that refuses a change; `None` for other errors.
fn refusal(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    // Authentication, timeouts and too many requests.
    let is_transient = matches!(status.code, 401 | 408 | 429);
    let is_refused = (400..500).contains(&status.code)
        && !is_conflict(error)
        && !is_not_found(error)
        && !is_transient;
    is_refused.then(|| status.message.clone())
}

/// Why no host was found.
fn waiting_text(claim: &ObjectKey, request: &HostRequest, admission: &Admission) -> String {
    let names: Vec<&str> = admission.namespaces.iter().map(String::as_str).collect();
    match &request.namespace {
        Some(name) if !admission.namespaces.contains(name) => {
            format!(
                "no HostDeployPolicy in namespace {name} admits namespace {}",
                claim.namespace()
            )
        }
        None if names.is_empty() => {
            format!("no HostDeployPolicy admits namespace {}", claim.namespace())
        }
        Some(name) => format!("no available host in namespace {name} matches the selector"),
        None => format!(
            "no available host matches the selector in the namespaces that admit the claim: {}",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_reason_to_wait_names_the_namespaces() {
        let claim = ObjectKey::new("team", "c");
        let text = |namespace: Option<&str>, admitted: &[&str]| {
            let claim_object = json!({"spec": {"hostSelector": {"inNamespace": namespace}}});
            let request = HostRequest::of(&serde_json::from_value(claim_object).unwrap());
            let namespaces: BTreeSet<String> = admitted.iter().map(|&name| name.into()).collect();
            waiting_text(&claim, &request, &Admission { namespaces, depends_on_labels: false })
        };
        assert_eq!(text(None, &[]), "no HostDeployPolicy admits namespace team");
        assert_eq!(
            text(Some("b"), &["a"]),
            "no HostDeployPolicy in namespace b admits namespace team"
        );
        assert_eq!(
            text(Some("a"), &["a"]),
            "no available host in namespace a matches the selector"
        );
        assert!(text(None, &["a", "b"]).ends_with("admit the claim: a, b"));
    }

    #[test]
    fn only_refusals_are_reported_to_users() {
        let error = |code: u16, reason: &str| {
            let status = kube::core::Status::failure("", reason).with_code(code);
            refusal(&kube::Error::Api(status.boxed())).is_some()
        };
        assert!(error(422, "Invalid") && error(403, "Forbidden") && error(400, "BadRequest"));
        assert!(!error(409, "Conflict") && !error(404, "NotFound"));
        assert!(!error(429, "TooManyRequests") && !error(500, "InternalError"));
    }
}
