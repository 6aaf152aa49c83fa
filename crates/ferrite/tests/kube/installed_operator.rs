// SPDX-License-Identifier: Apache-2.0
//! The operator as its manifests install it: pods with the permissions of their ServiceAccount, and
//! webhooks that the API server calls through the Service.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::service::Ironic;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use test_cluster::TestCluster;
use tokio::sync::OnceCell;

use crate::cluster::{shared_cluster, wait_for, wait_within};

/// Namespace of the operator.
const OPERATOR: &str = "ferrite-system";
/// Namespace that it controls.
const CONTROLLED: &str = "metal3";
/// Time for the operator or the service to start, on two processors.
const START: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// Installs the operator for one namespace, once for all tests; `None` without a cluster.
async fn installed() -> Option<(&'static TestCluster, Client)> {
    let cluster = shared_cluster().await?;
    let client = cluster.client().await.unwrap();
    let install = || async {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifests = root.join("deploy/kubernetes/operator/namespaced");
        cluster.kubectl(&["create", "namespace", CONTROLLED]).unwrap();
        let folder = manifests.to_str().unwrap();
        cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", folder]).unwrap();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), OPERATOR);
        let is_ready = |deployment: &Option<Deployment>| {
            let status = deployment.as_ref().and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.ready_replicas == Some(2))
        };
        wait_within(START, "two replicas", &deployments, "ferrite-operator", is_ready).await;
    };
    INSTALLED.get_or_init(install).await;
    Some((cluster, client))
}

/// A row of `invalid_manifests.yaml`.
#[derive(Debug, Deserialize)]
struct InvalidManifest {
    kind: String,
    field: String,
    name: Option<String>,
    #[serde(default)]
    annotations: Map<String, Value>,
    from: Option<Map<String, Value>>,
    spec: Map<String, Value>,
}

impl InvalidManifest {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let group = match self.kind.as_str() {
            "Ironic" | "IronicDatabase" => "ironic.metal3.io",
            _ => "metal3.io",
        };
        let kind = GroupVersionKind::gvk(group, "v1alpha1", &self.kind);
        let plural = match self.kind.to_lowercase() {
            name if name == "hardwaredata" => name,
            name if name.ends_with('s') => name,
            name => name.strip_suffix('y').map_or(format!("{name}s"), |stem| format!("{stem}ies")),
        };
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        Api::namespaced_with(client.clone(), CONTROLLED, &resource)
    }

    /// The object with this spec, over a valid one.
    fn object(&self, name: &str, spec: &Map<String, Value>) -> DynamicObject {
        let mut annotations = self.annotations.clone();
        let mut complete = Map::new();
        if self.kind == "BareMetalHost" {
            // The controller ignores it.
            annotations.insert("baremetalhost.metal3.io/paused".to_owned(), json!(""));
            complete.insert("online".to_owned(), json!(true));
            let bmc =
                json!({"address": "redfish-virtualmedia://192.0.2.1", "credentialsName": "x"});
            complete.insert("bmc".to_owned(), bmc);
        }
        complete.extend(spec.clone());
        serde_json::from_value(json!({
            "apiVersion": self.api_version(),
            "kind": self.kind,
            "metadata": {"name": name, "annotations": annotations},
            "spec": complete,
        }))
        .unwrap()
    }

    fn api_version(&self) -> &'static str {
        match self.kind.as_str() {
            "Ironic" | "IronicDatabase" => "ironic.metal3.io/v1alpha1",
            _ => "metal3.io/v1alpha1",
        }
    }

    /// The message with which the API server rejects the object; empty if it accepts it. Another test
    /// replaces the CA, so webhooks may fail for a short time.
    async fn rejection(&self, client: &Client, name: &str) -> String {
        let deadline = Instant::now() + START;
        loop {
            let message = self.one_rejection(client, name).await;
            if !message.contains("failed calling webhook") || Instant::now() > deadline {
                return message;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn one_rejection(&self, client: &Client, name: &str) -> String {
        let api = self.api(client);
        let name = self.name.as_deref().unwrap_or(name);
        let outcome = match &self.from {
            None => {
                let params = PostParams { dry_run: true, ..PostParams::default() };
                api.create(&params, &self.object(name, &self.spec)).await
            }
            Some(from) => {
                let created = api.create(&PostParams::default(), &self.object(name, from)).await;
                if let Err(error) = created {
                    return error.to_string();
                }
                let params = PatchParams { dry_run: true, ..PatchParams::default() };
                let patch = Patch::Merge(json!({"spec": self.spec}));
                let outcome = api.patch(name, &params, &patch).await;
                api.delete(name, &DeleteParams::default()).await.unwrap();
                outcome
            }
        };
        outcome.err().map(|error| error.to_string()).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_manifests_are_rejected_with_the_field() {
    let Some((_, client)) = installed().await else { return };
    let rows: Vec<InvalidManifest> =
        serde_saphyr::from_str(include_str!("invalid_manifests.yaml")).unwrap();
    let mut failures = String::new();
    for (index, row) in rows.iter().enumerate() {
        let message = row.rejection(&client, &format!("invalid-{index}")).await;
        // The name and nothing longer.
        let is_named = message.match_indices(&row.field).any(|(at, _)| {
            let next = message[at + row.field.len()..].chars().next();
            next.is_none_or(|next| matches!(next, ':' | ' ' | '"'))
        });
        if !is_named {
            failures.push_str(&format!("{row:?}: {message:?}\n"));
        }
    }
    assert_eq!(failures, "");
    assert!(rows.len() > 150, "{}", rows.len());
    let kinds: BTreeSet<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
    assert_eq!(kinds.len(), kube_resources::crds::all_crds().len(), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_and_valid_objects_pass() {
    let Some((cluster, _)) = installed().await else { return };
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "valid", "namespace": CONTROLLED},
        "spec": {"online": true, "hardwareProfile": "dell"},
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), host.to_string()).unwrap();
    let mut command = cluster.kubectl_command();
    command.args(["apply", "--dry-run=server", "-f"]).arg(file.path());
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(
        error.contains("spec.hardwareProfile: deprecated; use spec.rootDeviceHints"),
        "{error}"
    );
}

/// Whether the ServiceAccount of the operator may do something.
fn is_allowed(cluster: &TestCluster, arguments: &str) -> bool {
    let mut command = cluster.kubectl_command();
    command.args(["auth", "can-i", "--quiet"]);
    command.arg(format!("--as=system:serviceaccount:{OPERATOR}:ferrite-operator"));
    command.args(arguments.split(' '));
    command.status().unwrap().success()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_has_only_the_permissions_that_it_needs() {
    let Some((cluster, _)) = installed().await else { return };
    for (arguments, expected) in [
        ("get secrets -n metal3", true),
        ("patch baremetalhosts.metal3.io --subresource=status -n metal3", true),
        ("create deployments.apps -n metal3", true),
        ("patch leases.coordination.k8s.io/baremetal-operator -n ferrite-system", true),
        ("get secrets/ferrite-operator-webhook-ca -n ferrite-system", true),
        ("patch hostclaims.metal3.io --subresource=status -n metal3", true),
        ("get namespaces/metal3 -n metal3", true),
        ("patch validatingwebhookconfigurations/ferrite-operator", true),
        // Other namespaces and the cluster.
        ("get secrets -n default", false),
        ("get secrets -n kube-system", false),
        ("get secrets/other -n ferrite-system", false),
        ("list secrets -A", false),
        ("list baremetalhosts.metal3.io -A", false),
        ("patch leases.coordination.k8s.io/other -n ferrite-system", false),
        ("delete leases.coordination.k8s.io/baremetal-operator -n ferrite-system", false),
        ("patch validatingwebhookconfigurations/other", false),
        ("delete validatingwebhookconfigurations/ferrite-operator", false),
        ("get nodes", false),
        // What the controllers leave to others.
        ("delete baremetalhosts.metal3.io -n metal3", false),
        ("patch hostupdatepolicies.metal3.io -n metal3", false),
        ("patch hostdeploypolicies.metal3.io -n metal3", false),
        ("create hostclaims.metal3.io -n metal3", false),
        ("delete hostclaims.metal3.io -n metal3", false),
        ("list namespaces", false),
        ("create pods -n metal3", false),
        ("create pods --subresource=exec -n metal3", false),
        ("create rolebindings -n metal3", false),
        ("impersonate serviceaccounts -n metal3", false),
        ("create serviceaccounts --subresource=token -n metal3", false),
        ("update secrets -n metal3", false),
        ("deletecollection secrets -n metal3", false),
    ] {
        assert_eq!(is_allowed(cluster, arguments), expected, "{arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_permissions_suffice_for_an_installation_and_hosts() {
    let Some((cluster, client)) = installed().await else { return };
    let ironics: Api<Ironic> = Api::namespaced(client.clone(), CONTROLLED);
    let ironic = json!({
        "metadata": {"name": "ironic"},
        "spec": {"networking": {"disableHostNetwork": true}, "tls": {"generate": true}},
    });
    let ironic = serde_json::from_value(ironic).unwrap();
    ironics.create(&PostParams::default(), &ironic).await.unwrap();
    let is_ready = |ironic: &Option<Ironic>| {
        let status = ironic.as_ref().and_then(|ironic| ironic.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    wait_within(START, "a ready Ironic", &ironics, "ironic", is_ready).await;
    let databases: Api<IronicDatabase> = Api::namespaced(client.clone(), CONTROLLED);
    let database = json!({"metadata": {"name": "database"}, "spec": {}});
    let database = serde_json::from_value(database).unwrap();
    databases.create(&PostParams::default(), &database).await.unwrap();
    let is_ready = |database: &Option<IronicDatabase>| {
        let status = database.as_ref().and_then(|database| database.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    wait_within(START, "a ready IronicDatabase", &databases, "database", is_ready).await;
    databases.delete("database", &DeleteParams::default()).await.unwrap();
    // The host is registered with that Ironic, which then tries to reach the BMC.
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CONTROLLED);
    let secret =
        json!({"metadata": {"name": "bmc"}, "stringData": {"username": "a", "password": "b"}});
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), CONTROLLED);
    let host = json!({
        "metadata": {"name": "unreachable"},
        "spec": {"online": true, "bmc": {
            "address": "redfish-virtualmedia+http://127.0.0.1:1/redfish/v1/Systems/1",
            "credentialsName": "bmc",
        }},
    });
    let host = serde_json::from_value(host).unwrap();
    hosts.create(&PostParams::default(), &host).await.unwrap();
    let is_registered = |host: &Option<BareMetalHost>| {
        let status = host.as_ref().and_then(|host| host.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.message.starts_with("verifying the BMC"))
    };
    wait_within(START, "a registered host", &hosts, "unreachable", is_registered).await;
    hosts.delete("unreachable", &DeleteParams::default()).await.unwrap();
    wait_within(START, "the deletion of the host", &hosts, "unreachable", Option::is_none).await;
    ironics.delete("ironic", &DeleteParams::default()).await.unwrap();
    wait_within(START, "the deletion of the Ironic", &ironics, "ironic", Option::is_none).await;
    let denied = cluster.denied_requests(OPERATOR, "ferrite-operator").await.unwrap();
    assert_eq!(denied, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_ca_is_replaced_while_the_webhooks_run() {
    let Some((_, client)) = installed().await else { return };
    let name = "ferrite-operator-webhook-ca";
    let secrets: Api<Secret> = Api::namespaced(client.clone(), OPERATOR);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let certificate = |secret: &Option<Secret>| {
        let data = secret.as_ref().and_then(|secret| secret.data.clone())?;
        data.get("ca.crt").map(|certificate| certificate.0.clone())
    };
    let old = certificate(&secrets.get_opt(name).await.unwrap()).unwrap();
    secrets.delete(name, &DeleteParams::default()).await.unwrap();
    let is_replaced =
        |secret: &Option<Secret>| certificate(secret).is_some_and(|certificate| certificate != old);
    let new = wait_for("another CA", &secrets, name, is_replaced).await;
    let new = certificate(&new).unwrap();
    let is_published = |configuration: &Option<ValidatingWebhookConfiguration>| {
        let mut webhooks =
            configuration.iter().flat_map(|configuration| configuration.webhooks.iter().flatten());
        webhooks.all(|webhook| {
            webhook.client_config.ca_bundle.as_ref().is_some_and(|bundle| bundle.0 == new)
        })
    };
    wait_for("the new bundle", &configurations, "ferrite-operator", is_published).await;
    // Each replica uses the new CA soon. Until then the API server cannot call it.
    let row: InvalidManifest = serde_json::from_value(json!({
        "kind": "DataImage", "field": "spec.url", "spec": {"url": "data.iso"},
    }))
    .unwrap();
    let deadline = Instant::now() + START;
    let mut rejections = 0;
    while rejections < 10 {
        let message = row.one_rejection(&client, "invalid").await;
        match message.contains("spec.url: ") {
            true => rejections += 1,
            false => rejections = 0,
        }
        assert!(Instant::now() < deadline, "{message}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
