// SPDX-License-Identifier: Apache-2.0
//! Hosts in a namespace of their own, with an operator that runs in the test.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use operator::context::{ControllerContext, WatchScope};
use operator::health::OperatorReadiness;
use operator::hosts::controller::{HostControllerSettings, run};
use operator::hosts::provisioner::HostProvisioner;
use operator::metrics::OperatorMetrics;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{TIMEOUT, TestNamespace, wait_for, wait_within};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Name of the Secret with the credentials of the BMCs.
pub(crate) const SECRET: &str = "bmc";

/// A namespace with hosts.
pub(crate) struct HostNamespace {
    pub(crate) namespace: TestNamespace,
    provisioner: Arc<dyn HostProvisioner>,
    settings: HostControllerSettings,
    /// Other namespaces that the operator controls.
    tenants: Vec<String>,
    /// The client of the operator.
    client: Client,
    operator: Option<RunningOperator>,
}

struct RunningOperator {
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
    metrics: OperatorMetrics,
}

impl HostNamespace {
    /// Creates a namespace with a Secret, and starts an operator for it; `None` without a cluster.
    pub(crate) async fn start(
        purpose: &str,
        provisioner: Arc<dyn HostProvisioner>,
    ) -> Option<Self> {
        let namespace = TestNamespace::create(purpose).await?;
        Some(Self::in_namespace(namespace, provisioner).await)
    }

    pub(crate) async fn in_namespace(
        namespace: TestNamespace,
        provisioner: Arc<dyn HostProvisioner>,
    ) -> Self {
        Self::with_settings(namespace, provisioner, HostControllerSettings::default()).await
    }

    pub(crate) async fn with_settings(
        namespace: TestNamespace,
        provisioner: Arc<dyn HostProvisioner>,
        settings: HostControllerSettings,
    ) -> Self {
        let client = namespace.client.clone();
        Self::with_tenants(namespace, provisioner, settings, Vec::new(), client).await
    }

    /// Like [`HostNamespace::with_settings`] with an operator that also controls other namespaces and
    /// uses another client.
    pub(crate) async fn with_tenants(
        namespace: TestNamespace,
        provisioner: Arc<dyn HostProvisioner>,
        settings: HostControllerSettings,
        tenants: Vec<String>,
        client: Client,
    ) -> Self {
        // Logs only if RUST_LOG is set. Another test may have done it.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let mut hosts = Self { namespace, provisioner, settings, tenants, client, operator: None };
        hosts.create_secret(SECRET, "admin", "password").await;
        hosts.start_operator();
        hosts
    }

    pub(crate) fn start_operator(&mut self) {
        let (shutdown, receiver) = watch::channel(false);
        let metrics = OperatorMetrics::new();
        let mut namespaces = vec![self.namespace.name.clone()];
        namespaces.extend(self.tenants.clone());
        let context = ControllerContext {
            client: self.client.clone(),
            scope: WatchScope::Namespaces(namespaces),
            shutdown: receiver,
            metrics: metrics.clone(),
            readiness: OperatorReadiness::default(),
        };
        let (provisioner, settings) = (Arc::clone(&self.provisioner), self.settings.clone());
        let task = tokio::spawn(async move { run(context, provisioner, settings).await });
        self.operator = Some(RunningOperator { shutdown, task, metrics });
    }

    /// Ends the operator in the middle of whatever it does.
    pub(crate) async fn kill_operator(&mut self) {
        let operator = self.operator.take().unwrap();
        operator.task.abort();
        let _ = operator.task.await;
    }

    /// Ends the operator as a shutdown does.
    pub(crate) async fn stop_operator(&mut self) {
        let operator = self.operator.take().unwrap();
        operator.shutdown.send_replace(true);
        tokio::time::timeout(Duration::from_secs(60), operator.task).await.unwrap().unwrap();
    }

    /// The metrics of the operator.
    pub(crate) fn metrics(&self) -> String {
        self.operator.as_ref().unwrap().metrics.render().unwrap()
    }

    pub(crate) fn hosts(&self) -> Api<BareMetalHost> {
        self.namespace.api()
    }

    pub(crate) async fn create_secret(&self, name: &str, user: &str, password: &str) {
        let secret = json!({"metadata": {"name": name},
            "stringData": {"username": user, "password": password}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Creates a host with a virtual media BMC; `spec` is merged over the defaults.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> BareMetalHost {
        let mut full = json!({"online": true, "bootMACAddress": "52:54:00:00:00:01", "bmc": {
            "address": bmc_address(name), "credentialsName": SECRET}});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": name}, "spec": full});
        if host["spec"]["bmc"].is_null() {
            host["spec"].as_object_mut().unwrap().remove("bmc");
        }
        let host: BareMetalHost = serde_json::from_value(host).unwrap();
        self.hosts().create(&PostParams::default(), &host).await.unwrap()
    }

    pub(crate) async fn edit(&self, name: &str, spec: Value) {
        self.patch(name, json!({"spec": spec})).await;
    }

    pub(crate) async fn annotate(&self, name: &str, key: &str, value: Value) {
        self.patch(name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        let parameters = PatchParams::default();
        self.hosts().patch(name, &parameters, &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.hosts().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a host meets a condition.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is_met: impl Fn(&BareMetalHost) -> bool,
    ) -> BareMetalHost {
        let is_met = |host: &Option<BareMetalHost>| host.as_ref().is_some_and(&is_met);
        wait_for(what, &self.hosts(), name, is_met).await.unwrap()
    }

    /// Like [`HostNamespace::until`] with another time limit.
    pub(crate) async fn until_within(
        &self,
        limit: Duration,
        name: &str,
        what: &str,
        is_met: impl Fn(&BareMetalHost) -> bool,
    ) -> BareMetalHost {
        let is_met = |host: &Option<BareMetalHost>| host.as_ref().is_some_and(&is_met);
        wait_within(limit, what, &self.hosts(), name, is_met).await.unwrap()
    }

    pub(crate) async fn until_state(&self, name: &str, state: &str) -> BareMetalHost {
        self.until(name, state, |host| state_of(host) == state).await
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        wait_for("deletion", &self.hosts(), name, Option::is_none).await;
    }

    pub(crate) async fn until_gone_within(&self, limit: Duration, name: &str) {
        wait_within(limit, "deletion", &self.hosts(), name, Option::is_none).await;
    }

    /// Stops the operator, unless the test has done it, and deletes the namespace.
    pub(crate) async fn end(mut self) {
        if self.operator.is_some() {
            self.stop_operator().await;
        }
        self.namespace.delete().await;
    }
}

/// Waits for something that no object shows.
pub(crate) async fn until_true(what: &str, is_met: impl Fn() -> bool) {
    let wait = async {
        while !is_met() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let ended = tokio::time::timeout(TIMEOUT, wait).await;
    assert!(ended.is_ok(), "{what}: not within {TIMEOUT:?}");
}

pub(crate) fn state_of(host: &BareMetalHost) -> &str {
    host.status.as_ref().map_or("", |status| status.provisioning.state.as_str())
}

pub(crate) fn operational(host: &BareMetalHost) -> &str {
    host.status.as_ref().map_or("", |status| status.operational_status.as_str())
}

pub(crate) fn error_of(host: &BareMetalHost) -> &str {
    host.status.as_ref().map_or("", |status| status.error_message.as_str())
}

pub(crate) fn is_on(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| status.powered_on)
}

/// A spec that requests an image.
pub(crate) fn image(url: &str) -> Value {
    json!({"image": {"url": url, "checksum": "abc", "checksumType": "sha256"}})
}

/// The BMC address of a host that is not a machine: one system for each host.
pub(crate) fn bmc_address(name: &str) -> String {
    format!("redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/{name}")
}
