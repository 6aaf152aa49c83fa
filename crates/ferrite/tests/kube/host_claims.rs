// SPDX-License-Identifier: Apache-2.0
//! Claims in the namespace of a tenant, for hosts in another namespace, with the provisioner without hardware.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use kube_resources::hosts::annotations::REBOOT;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::host_deploy_policy::HostDeployPolicy;
use operator::hosts::controller::HostControllerSettings;
use operator::hosts::provisioner::fixture::FixtureProvisioner;
use operator::hosts::provisioner::{ProvisionerWaitReason, VerbStop};
use serde_json::{Value, json};

use crate::cluster::{TIMEOUT, TestNamespace, wait_for};
use crate::hosts_lab::{HostNamespace, is_on, state_of, until_true};

const FINALIZER: &str = "metal3.io/hostclaim";
const EVENT_POLL: Duration = Duration::from_millis(50);

/// A namespace with hosts, one with claims, and an operator for both.
struct ClaimLab {
    hosts: HostNamespace,
    tenant: TestNamespace,
    fixture: Arc<FixtureProvisioner>,
}

impl ClaimLab {
    /// Hosts and claims without a policy; `None` without a cluster.
    async fn start(purpose: &str) -> Option<Self> {
        let infra = TestNamespace::create(&format!("{purpose}-infra")).await?;
        let tenant = TestNamespace::create(&format!("{purpose}-team")).await?;
        let client = infra.client.clone();
        Some(Self::with_client(infra, tenant, client).await)
    }

    async fn with_client(infra: TestNamespace, tenant: TestNamespace, client: Client) -> Self {
        let fixture = Arc::new(FixtureProvisioner::quick());
        let settings =
            HostControllerSettings { host_claims: true, ..HostControllerSettings::default() };
        let provisioner = Arc::<FixtureProvisioner>::clone(&fixture);
        let tenants = vec![tenant.name.clone()];
        let hosts =
            HostNamespace::with_tenants(infra, provisioner, settings, tenants, client).await;
        Self { hosts, tenant, fixture }
    }

    /// Admits the namespace of the tenant.
    async fn admit(&self) {
        self.create_policy("team", json!({"names": [self.tenant.name]})).await;
    }

    async fn create_policy(&self, name: &str, constraints: Value) {
        let policy = json!({"metadata": {"name": name},
            "spec": {"hostClaimNamespaces": constraints}});
        let policy: HostDeployPolicy = serde_json::from_value(policy).unwrap();
        let api = self.hosts.namespace.api::<HostDeployPolicy>();
        api.create(&PostParams::default(), &policy).await.unwrap();
    }

    /// Creates a host and waits until it is available.
    async fn create_host(&self, name: &str) {
        self.hosts.create(name, json!({"online": false})).await;
        self.hosts.until_state(name, "available").await;
    }

    fn claims(&self) -> Api<HostClaim> {
        self.tenant.api()
    }

    async fn create_claim(&self, name: &str, spec: Value) {
        let mut full = json!({"poweredOn": true});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let claim = json!({"metadata": {"name": name}, "spec": full});
        let claim: HostClaim = serde_json::from_value(claim).unwrap();
        self.claims().create(&PostParams::default(), &claim).await.unwrap();
    }

    async fn edit_claim(&self, name: &str, patch: Value) {
        let parameters = PatchParams::default();
        self.claims().patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
    }

    async fn create_secret(&self, name: &str, value: &str) {
        let secret = json!({"metadata": {"name": name}, "stringData": {"userData": value}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.tenant.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn until(
        &self,
        name: &str,
        what: &str,
        is_met: impl Fn(&HostClaim) -> bool,
    ) -> HostClaim {
        let is_met = |claim: &Option<HostClaim>| claim.as_ref().is_some_and(&is_met);
        wait_for(what, &self.claims(), name, is_met).await.unwrap()
    }

    async fn until_condition(&self, name: &str, type_: &str, expected: &str) -> HostClaim {
        self.until(name, type_, |claim| condition(claim, type_).starts_with(expected)).await
    }

    /// Waits until a claim is bound, and returns its host.
    async fn until_bound(&self, name: &str) -> String {
        let claim = self.until_condition(name, "Associated", "True ").await;
        let host = claim.status.unwrap().bare_metal_host.unwrap();
        assert_eq!(host.namespace, self.hosts.namespace.name);
        host.name
    }

    async fn release(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
        wait_for("the release", &self.claims(), name, Option::is_none).await;
    }

    /// The names of the copies of Secrets.
    async fn copies(&self) -> Vec<String> {
        let selector = ListParams::default().labels("hostclaim.metal3.io/host-uid");
        let copies = self.hosts.namespace.api::<Secret>().list(&selector).await.unwrap();
        copies.iter().map(|copy| copy.name_any()).collect()
    }

    /// Waits for an event in the namespace of the hosts.
    async fn until_event(&self, reason: &str, text: &str) {
        let api = self.hosts.namespace.api::<Event>();
        let is_wanted = |event: &Event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && note.contains(text)
        };
        let reported = async {
            while !api.list(&ListParams::default()).await.unwrap().iter().any(is_wanted) {
                tokio::time::sleep(EVENT_POLL).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, reported).await;
        assert!(ended.is_ok(), "no event {reason} with \"{text}\" within {TIMEOUT:?}");
    }

    /// Hosts by the claim that they refer to.
    async fn bindings(&self) -> BTreeMap<String, Vec<String>> {
        let mut bindings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for host in self.hosts.hosts().list(&ListParams::default()).await.unwrap() {
            if let Some(reference) = &host.spec.consumer_ref {
                let claim = reference.name.clone().unwrap();
                bindings.entry(claim).or_default().push(host.name_any());
            }
        }
        bindings
    }

    async fn end(self, hosts: &[&str]) {
        for name in hosts {
            self.hosts.delete(name).await;
            self.hosts.until_gone(name).await;
        }
        self.hosts.end().await;
        self.tenant.delete().await;
    }
}

/// Status, reason and message of a condition.
fn condition(claim: &HostClaim, type_: &str) -> String {
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|condition| condition.type_ == type_);
    found.map_or_else(String::new, |found| {
        format!("{} {} {}", found.status, found.reason, found.message)
    })
}

fn is_free(host: &BareMetalHost) -> bool {
    host.spec.consumer_ref.is_none() && state_of(host) == "available"
}

fn image() -> Value {
    json!({"url": "http://images/a", "checksum": "abc", "checksumType": "sha256"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_a_host_and_releases_it() {
    let Some(lab) = ClaimLab::start("claim-life").await else { return };
    lab.admit().await;
    lab.create_host("a").await;
    // Nothing is deployed before the Secret exists.
    lab.create_claim("c", json!({"image": image(), "userData": {"name": "user"}})).await;
    let claim = lab
        .until_condition("c", "Synchronized", "False UserDataSecretSyncFailure the Secret user")
        .await;
    assert!(claim.finalizers().contains(&FINALIZER.to_owned()));
    assert_eq!(lab.until_bound("c").await, "a");
    let host = lab.hosts.hosts().get("a").await.unwrap();
    assert_eq!(host.spec.image, None);
    lab.create_secret("user", "first").await;
    let claim = lab.until_condition("c", "Ready", "True ").await;
    let status = claim.status.clone().unwrap();
    assert_eq!(status.hardware_data, status.bare_metal_host);
    assert_eq!(condition(&claim, "Synchronized"), "True ConfigurationSynced ");
    assert!(condition(&claim, "AvailableForProvisioning").starts_with("False "));
    let host = lab.hosts.until("a", "on", is_on).await;
    let reference = host.spec.consumer_ref.clone().unwrap();
    assert_eq!(
        serde_json::to_value(reference).unwrap(),
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
            "namespace": lab.tenant.name, "name": "c"})
    );
    lab.until("c", "on", |claim| claim.status.as_ref().unwrap().powered_on).await;

    // The copy follows its source, and is restored.
    let copy = host.spec.user_data.clone().unwrap().name.unwrap();
    let secrets = lab.hosts.namespace.api::<Secret>();
    let content = |secret: &Option<Secret>| {
        let data = secret.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
        data.get("userData").map(|value| String::from_utf8(value.0.clone()).unwrap())
    };
    assert_eq!(content(&secrets.get_opt(&copy).await.unwrap()).as_deref(), Some("first"));
    let patch = Patch::Merge(json!({"stringData": {"userData": "second"}}));
    let sources = lab.tenant.api::<Secret>();
    sources.patch("user", &PatchParams::default(), &patch).await.unwrap();
    let has = |text: &'static str| {
        move |secret: &Option<Secret>| content(secret).as_deref() == Some(text)
    };
    wait_for("the new content", &secrets, &copy, has("second")).await;
    secrets.delete(&copy, &DeleteParams::default()).await.unwrap();
    wait_for("the restored copy", &secrets, &copy, has("second")).await;

    // Power and reboots are passed on.
    lab.edit_claim("c", json!({"spec": {"poweredOn": false}})).await;
    lab.hosts.until("a", "off", |host| !is_on(host)).await;
    lab.edit_claim("c", json!({"spec": {"poweredOn": true}})).await;
    lab.hosts.until("a", "on again", is_on).await;
    let hold = "reboot.metal3.io/maintenance";
    lab.edit_claim("c", json!({"metadata": {"annotations": {hold: ""}}})).await;
    lab.hosts.until("a", "held off", |host| !is_on(host)).await;
    lab.edit_claim("c", json!({"metadata": {"annotations": {hold: null}}})).await;
    lab.hosts.until("a", "released", is_on).await;
    let key = (lab.hosts.namespace.name.as_str(), "a");
    let count = || lab.fixture.calls(key).iter().filter(|call| **call == "power_off").count();
    let before = count();
    lab.edit_claim("c", json!({"metadata": {"annotations": {REBOOT: ""}}})).await;
    lab.until("c", "the request is removed", |claim| !claim.annotations().contains_key(REBOOT))
        .await;
    until_true("the reboot", || count() > before).await;
    lab.hosts.until("a", "on after the reboot", is_on).await;

    // A reference that is removed needs no copy.
    lab.edit_claim("c", json!({"spec": {"userData": null}})).await;
    wait_for("no copy", &secrets, &copy, Option::is_none).await;
    lab.edit_claim("c", json!({"spec": {"userData": {"name": "user"}}})).await;
    wait_for("the copy", &secrets, &copy, Option::is_some).await;

    // The claim exists until the image is removed.
    let wait = VerbStop::running(ProvisionerWaitReason::StateChange, None);
    lab.fixture.inject(key, "deprovision", vec![wait; 1000]);
    lab.claims().delete("c", &DeleteParams::default()).await.unwrap();
    lab.until_condition("c", "Synchronized", "False HostClaimDeleting the host ").await;
    lab.fixture.release(key);
    wait_for("the release", &lab.claims(), "c", Option::is_none).await;
    let host = lab.hosts.until("a", "free", is_free).await;
    assert!(!host.spec.online && host.spec.user_data.is_none() && host.spec.image.is_none());
    assert_eq!(lab.copies().await, Vec::<String>::new());
    assert!(sources.get_opt("user").await.unwrap().is_some(), "the Secret of the tenant stays");
    let events = lab.tenant.api::<Event>().list(&ListParams::default()).await.unwrap();
    let reasons: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert!(reasons.contains(&"BareMetalHostAssociated"), "{reasons:?}");
    let metrics = lab.hosts.metrics();
    for metric in [
        "metal3_hostclaim_associations_total 1",
        "metal3_hostclaim_releases_total 1",
        "metal3_hostclaim_waiting 0",
    ] {
        assert!(metrics.contains(metric), "{metric} is not in {metrics}");
    }
    lab.end(&["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_wait_for_a_policy_and_a_matching_host() {
    let Some(lab) = ClaimLab::start("claim-wait").await else { return };
    lab.create_host("a").await;
    let selector = json!({"hostSelector": {"matchLabels": {"rack": "7"}}});
    lab.create_claim("c", selector).await;
    let text =
        format!("False NoBareMetalHost no HostDeployPolicy admits namespace {}", lab.tenant.name);
    let claim = lab.until_condition("c", "Associated", &text).await;
    assert_eq!(claim.finalizers(), Vec::<String>::new());
    // Policies that do not admit the namespace, and one that is invalid, change nothing.
    lab.create_policy("invalid", json!({"nameMatches": "("})).await;
    lab.create_policy("other", json!({"names": ["other"]})).await;
    let pattern = format!("^{}$", lab.tenant.name);
    lab.create_policy("pattern", json!({"nameMatches": pattern})).await;
    lab.until_condition("c", "Associated", "False NoBareMetalHost no available host").await;
    assert_eq!(lab.bindings().await, BTreeMap::new());
    lab.create_claim("elsewhere", json!({"hostSelector": {"inNamespace": "default"}})).await;
    let text = "False NoBareMetalHost no HostDeployPolicy in namespace default";
    lab.until_condition("elsewhere", "Associated", text).await;

    // A host that gets the label, and a host that is created.
    lab.hosts.patch("a", json!({"metadata": {"labels": {"rack": "7"}}})).await;
    assert_eq!(lab.until_bound("c").await, "a");
    lab.create_claim(
        "d",
        json!({"hostSelector": {"matchExpressions": [
        {"key": "rack", "operator": "!", "values": []}]}}),
    )
    .await;
    lab.until_condition("d", "Associated", "False NoBareMetalHost no available host").await;
    lab.create_host("b").await;
    assert_eq!(lab.until_bound("d").await, "b");

    // A policy is compared when a host is chosen, and not later.
    let policies = lab.hosts.namespace.api::<HostDeployPolicy>();
    policies.delete("pattern", &DeleteParams::default()).await.unwrap();
    lab.create_claim("e", json!({})).await;
    lab.until_condition("e", "Associated", "False NoBareMetalHost no HostDeployPolicy").await;
    lab.edit_claim("c", json!({"spec": {"image": image()}})).await;
    lab.until_condition("c", "Ready", "True ").await;
    for name in ["c", "d", "e", "elsewhere"] {
        lab.release(name).await;
    }
    lab.end(&["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_are_served_oldest_first() {
    let Some(mut lab) = ClaimLab::start("claim-age").await else { return };
    lab.create_host("a").await;
    // Claims of the same second are ordered by name.
    let claims = ["claim-1", "claim-2", "claim-3"];
    for name in claims {
        lab.create_claim(name, json!({})).await;
        lab.until_condition(name, "Associated", "False NoBareMetalHost no HostDeployPolicy").await;
    }
    // A policy wakes all of them at once.
    lab.admit().await;
    assert_eq!(lab.until_bound("claim-1").await, "a");
    assert_eq!(Vec::from_iter(lab.bindings().await.into_keys()), ["claim-1"]);
    // So does a host that is released.
    lab.release("claim-1").await;
    assert_eq!(lab.until_bound("claim-2").await, "a");
    lab.release("claim-2").await;
    assert_eq!(lab.until_bound("claim-3").await, "a");
    lab.release("claim-3").await;
    lab.hosts.until("a", "free", is_free).await;
    // An operator that starts finds claims and a host at once.
    lab.hosts.kill_operator().await;
    for name in claims {
        lab.create_claim(name, json!({})).await;
    }
    lab.hosts.start_operator();
    for name in claims {
        assert_eq!(lab.until_bound(name).await, "a");
        assert_eq!(Vec::from_iter(lab.bindings().await.into_keys()), [name]);
        lab.release(name).await;
    }
    lab.end(&["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_claims_can_be_stopped_before_its_caches_are_complete() {
    let Some(mut lab) = ClaimLab::start("claim-early-stop").await else { return };
    lab.create_claim("c", json!({})).await;
    for _ in 0..5 {
        lab.hosts.stop_operator().await;
        lab.hosts.start_operator();
    }
    lab.release("c").await;
    lab.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_released_although_the_finalizer_of_its_claim_was_removed() {
    let Some(mut lab) = ClaimLab::start("claim-finalizer").await else { return };
    lab.admit().await;
    lab.create_host("a").await;
    lab.create_secret("user", "data").await;
    let spec = json!({"image": image(), "userData": {"name": "user"}});
    let remove = async |lab: &ClaimLab| {
        lab.edit_claim("c", json!({"metadata": {"finalizers": null}})).await;
        lab.claims().delete("c", &DeleteParams::default()).await.unwrap();
        wait_for("the deletion", &lab.claims(), "c", Option::is_none).await;
    };
    lab.create_claim("c", spec.clone()).await;
    lab.until_condition("c", "Ready", "True ").await;
    remove(&lab).await;
    let host = lab.hosts.until("a", "free", is_free).await;
    assert!(!host.spec.online && host.spec.user_data.is_none() && host.spec.image.is_none());
    lab.until_event("HostClaimMissing", "was deleted without its finalizer").await;
    assert_eq!(lab.copies().await, Vec::<String>::new());

    // While the operator does not run, the claim may also be moved. So the image stays.
    lab.create_claim("c", spec).await;
    lab.until_condition("c", "Ready", "True ").await;
    lab.hosts.kill_operator().await;
    remove(&lab).await;
    lab.hosts.start_operator();
    lab.until_event("HostClaimMissing", "does not exist; create it").await;
    let host = lab.hosts.hosts().get("a").await.unwrap();
    assert!(host.spec.image.is_some() && host.spec.consumer_ref.is_some());
    // As the event advises.
    lab.hosts.edit("a", json!({"image": null, "consumerRef": null})).await;
    lab.hosts.until("a", "free", is_free).await;
    // The next claim does not get the Secrets of the last one.
    lab.create_claim("next", json!({"image": image()})).await;
    lab.until_condition("next", "Ready", "True ").await;
    assert_eq!(lab.copies().await, Vec::<String>::new());
    lab.release("next").await;
    lab.end(&["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_is_never_given_to_two_claims() {
    let Some(mut lab) = ClaimLab::start("claim-race").await else { return };
    lab.admit().await;
    let hosts = ["a", "b", "c"];
    for name in hosts {
        lab.create_host(name).await;
    }
    let claims: Vec<String> = (0..6).map(|number| format!("claim-{number}")).collect();
    for name in &claims {
        lab.create_claim(name, json!({})).await;
    }
    // The process is killed while it binds.
    let is_started = |claim: &HostClaim| !claim.finalizers().is_empty() || claim.status.is_some();
    lab.until("claim-0", "started", is_started).await;
    lab.hosts.kill_operator().await;
    lab.hosts.start_operator();
    let bound = async |lab: &ClaimLab| {
        let claims = lab.claims().list(&ListParams::default()).await.unwrap();
        let status = claims.iter().filter_map(|claim| {
            let host = claim.status.as_ref()?.bare_metal_host.as_ref()?;
            condition(claim, "Associated")
                .starts_with("True")
                .then(|| (claim.name_any(), vec![host.name.clone()]))
        });
        status.collect::<BTreeMap<String, Vec<String>>>()
    };
    let until_all_used = async |lab: &ClaimLab| {
        for name in hosts {
            lab.hosts.until(name, "used", |host| host.spec.consumer_ref.is_some()).await;
        }
        for claim in lab.bindings().await.keys() {
            lab.until_bound(claim).await;
        }
    };
    until_all_used(&lab).await;
    let first = lab.bindings().await;
    assert_eq!(first.len(), 3, "{first:?}");
    assert_eq!(bound(&lab).await, first);
    // A released host goes to another claim.
    for name in first.keys() {
        lab.release(name).await;
    }
    until_all_used(&lab).await;
    let second = lab.bindings().await;
    assert_eq!(second.len(), 3, "{second:?}");
    assert!(second.keys().all(|claim| !first.contains_key(claim)), "{first:?} {second:?}");
    assert_eq!(bound(&lab).await, second);
    for name in second.keys() {
        lab.release(name).await;
    }
    lab.end(&hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_without_a_status_is_continued() {
    let Some(mut lab) = ClaimLab::start("claim-kill").await else { return };
    lab.admit().await;
    for name in ["a", "b"] {
        lab.create_host(name).await;
    }
    // What a process leaves that is killed after it bound the claim to the host.
    lab.hosts.kill_operator().await;
    lab.create_claim("c", json!({"image": image()})).await;
    lab.edit_claim("c", json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    let reference = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
        "namespace": lab.tenant.name, "name": "c"});
    lab.hosts.edit("b", json!({"consumerRef": reference})).await;
    lab.hosts.start_operator();
    assert_eq!(lab.until_bound("c").await, "b");
    lab.until_condition("c", "Ready", "True ").await;
    assert_eq!(lab.bindings().await.len(), 1);
    // What a process leaves that is killed while it releases the host.
    lab.hosts.kill_operator().await;
    lab.claims().delete("c", &DeleteParams::default()).await.unwrap();
    lab.hosts.edit("b", json!({"image": null, "online": false})).await;
    lab.hosts.start_operator();
    wait_for("the release", &lab.claims(), "c", Option::is_none).await;
    lab.hosts.until("b", "free", is_free).await;
    lab.end(&["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_host_is_reported_and_not_replaced() {
    let Some(lab) = ClaimLab::start("claim-lost").await else { return };
    lab.admit().await;
    for name in ["a", "b", "spare"] {
        lab.create_host(name).await;
    }
    let on = |host: &str| {
        json!({"hostSelector": {"matchExpressions": [
            {"key": "name", "operator": "in", "values": [host, "spare"]}]}})
    };
    lab.create_secret("user", "data").await;
    for host in ["a", "b"] {
        lab.hosts.patch(host, json!({"metadata": {"labels": {"name": host}}})).await;
        let mut spec = on(host);
        spec["userData"] = json!({"name": "user"});
        lab.create_claim(host, spec).await;
        assert_eq!(lab.until_bound(host).await, host);
        lab.until_condition(host, "Synchronized", "True ").await;
    }
    lab.hosts.patch("spare", json!({"metadata": {"labels": {"name": "spare"}}})).await;
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    let missing = "False MissingBareMetalHost the host ";
    let claim = lab.until_condition("a", "Associated", missing).await;
    assert!(condition(&claim, "Associated").contains("does not exist any more"));
    assert_eq!(claim.status.unwrap().bare_metal_host.unwrap().name, "a");
    let other = json!({"kind": "Metal3Machine", "namespace": "x", "name": "y",
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1"});
    lab.hosts.edit("b", json!({"consumerRef": other})).await;
    let claim = lab.until_condition("b", "Associated", missing).await;
    assert!(condition(&claim, "Associated").contains("is not used by this claim any more"));
    lab.create_claim("c", json!({"hostSelector": {"matchLabels": {"name": "spare"}}})).await;
    assert_eq!(lab.until_bound("c").await, "spare", "only this claim requested it anew");
    // Claims without a host are deleted at once, and leave the host of another consumer alone.
    for name in ["a", "b", "c"] {
        lab.release(name).await;
    }
    let host = lab.hosts.hosts().get("b").await.unwrap();
    assert_eq!(host.spec.consumer_ref.clone().unwrap().kind.as_deref(), Some("Metal3Machine"));
    let copy = host.spec.user_data.unwrap().name.unwrap();
    let secrets = lab.hosts.namespace.api::<Secret>();
    assert_eq!(secrets.get_opt(&copy).await.unwrap(), None, "a copy of the claim's Secret");
    assert!(lab.hosts.metrics().contains("metal3_hostclaim_lost_hosts_total 2"));
    lab.end(&["b", "spare"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_claim_does_not_affect_others() {
    let Some(lab) = ClaimLab::start("claim-malformed").await else { return };
    lab.admit().await;
    let wrong = json!({"hostSelector": {"matchExpressions": [
        {"key": "rack", "operator": "gt", "values": ["1"]}]}});
    lab.create_claim("wrong", wrong).await;
    lab.create_claim("foreign", json!({"userData": {"name": "bmc", "namespace": "kube-system"}}))
        .await;
    lab.create_claim("valid", json!({})).await;
    let text = "False NoBareMetalHost spec.hostSelector.matchExpressions[0].operator: ";
    lab.until_condition("wrong", "Associated", text).await;
    let text = "False NoBareMetalHost spec.userData.namespace: ";
    lab.until_condition("foreign", "Associated", text).await;
    lab.create_host("a").await;
    assert_eq!(lab.until_bound("valid").await, "a");
    // A change that is not valid does not reach the host.
    lab.edit_claim("valid", json!({"spec": {"image": {"url": "http://images/a"}}})).await;
    let text = "False BareMetalHostNotSynchronized spec.image.checksum: ";
    lab.until_condition("valid", "Synchronized", text).await;
    let host = lab.hosts.hosts().get("a").await.unwrap();
    assert_eq!(host.spec.image, None);
    for name in ["wrong", "foreign", "valid"] {
        lab.release(name).await;
    }
    lab.end(&["a"]).await;
}

/// A client with the permissions of the manifests in two namespaces.
async fn limited_client(infra: &TestNamespace, tenant: &TestNamespace) -> (Client, String) {
    let (cluster, account) = (infra.cluster, &infra.name);
    let roles = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/kubernetes/operator/base/controller_roles.yaml");
    let roles = std::fs::read_to_string(roles).unwrap();
    let mut manifest = roles.replace("name: ferrite-operator-", &format!("name: {account}-"));
    for namespace in [infra, tenant] {
        for role in ["hosts", "hostclaims"] {
            manifest.push_str(&format!(
                "---\n{}\n",
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                    "metadata": {"name": role, "namespace": namespace.name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": format!("{account}-{role}")},
                    "subjects": [{"kind": "ServiceAccount", "name": "default",
                        "namespace": infra.name}],
                })
            ));
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &manifest).unwrap();
    cluster.kubectl(&["apply", "-f", file.path().to_str().unwrap()]).unwrap();
    let token = cluster.kubectl(&["create", "token", "default", "-n", &infra.name]).unwrap();
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.auth_info = serde_json::from_value(json!({"token": token.trim()})).unwrap();
    (Client::try_from(config).unwrap(), manifest)
}

#[tokio::test(flavor = "multi_thread")]
async fn its_permissions_suffice_for_claims() {
    let Some(infra) = TestNamespace::create("claim-rights-infra").await else { return };
    let tenant = TestNamespace::create("claim-rights-team").await.unwrap();
    let cluster = infra.cluster;
    let (client, manifest) = limited_client(&infra, &tenant).await;
    let lab = ClaimLab::with_client(infra, tenant, client.clone()).await;
    // The controller has no other permissions.
    let foreign: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    assert!(foreign.list(&ListParams::default()).await.is_err());
    let namespaces: Api<Namespace> = Api::all(client);
    assert!(namespaces.list(&ListParams::default()).await.is_err());
    assert!(namespaces.get("default").await.is_err());
    // The policy compares labels, which are read from the namespace of the tenant.
    let api: Api<Namespace> = Api::all(lab.tenant.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": "gold"}}}));
    api.patch(&lab.tenant.name, &PatchParams::default(), &patch).await.unwrap();
    let labels = json!({"hasLabels": [{"name": "tier", "value": "gold"}]});
    lab.create_policy("gold", labels).await;
    lab.create_host("a").await;
    lab.create_secret("user", "data").await;
    lab.create_claim("c", json!({"image": image(), "userData": {"name": "user"}})).await;
    let claim = lab.until_condition("c", "Ready", "True ").await;
    assert!(claim.status.unwrap().hardware_data.is_some());
    let copies = lab.copies().await;
    assert_eq!(copies.len(), 1, "{copies:?}");
    lab.release("c").await;
    lab.hosts.until("a", "free", is_free).await;
    assert_eq!(lab.copies().await, Vec::<String>::new());
    let of = |events: kube::core::ObjectList<Event>| -> Vec<String> {
        events.into_iter().filter_map(|event| event.reason).collect()
    };
    let on_claims = of(lab.tenant.api::<Event>().list(&ListParams::default()).await.unwrap());
    assert!(on_claims.contains(&"BareMetalHostAssociated".to_owned()), "{on_claims:?}");
    let events = lab.hosts.namespace.api::<Event>();
    let on_hosts = of(events.list(&ListParams::default()).await.unwrap());
    for reason in ["HostClaimAssociated", "HostClaimReleased"] {
        assert!(on_hosts.contains(&reason.to_owned()), "{on_hosts:?}");
    }
    lab.end(&["a"]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &manifest).unwrap();
    let path = file.path().to_str().unwrap();
    cluster.kubectl(&["delete", "--ignore-not-found", "--wait=false", "-f", path]).unwrap();
}
