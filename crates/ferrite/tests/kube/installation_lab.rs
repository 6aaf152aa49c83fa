// SPDX-License-Identifier: Apache-2.0
//! Installations in a namespace of their own, with controllers that run in the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_resources::ironic::conditions::READY;
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::service::Ironic;
use kube_resources::ironic::versions::{IronicVersion, SupportedVersions};
use operator::context::{ControllerContext, WatchScope};
use operator::health::OperatorReadiness;
use operator::ironic::settings::IronicOperatorSettings;
use operator::ironic_database::settings::IronicDatabaseSettings;
use operator::metrics::OperatorMetrics;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{TestNamespace, wait_within};

/// Time for an installation to become ready: several programs start, on two processors.
pub(crate) const INSTALLATION: Duration = Duration::from_secs(240);
/// Between two requests to a service that is not ready yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The label that allows the operator to read a Secret.
pub(crate) const OPT_IN: &str = "environment.metal3.io/ironic-standalone-operator";

/// A namespace with the controllers of installations and databases.
pub(crate) struct InstallationLab {
    pub(crate) namespace: TestNamespace,
    shutdown: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl InstallationLab {
    /// Creates a namespace and starts the controllers; `None` without a cluster.
    pub(crate) async fn start(purpose: &str) -> Option<Self> {
        let namespace = TestNamespace::create(purpose).await?;
        let (shutdown, _) = watch::channel(false);
        let mut lab = Self { namespace, shutdown, tasks: Vec::new() };
        lab.start_controllers("0.1");
        Some(lab)
    }

    /// Starts controllers that install this version by default.
    pub(crate) fn start_controllers(&mut self, version: &str) {
        let (shutdown, receiver) = watch::channel(false);
        let context = ControllerContext {
            client: self.namespace.client.clone(),
            scope: WatchScope::Namespaces(vec![self.namespace.name.clone()]),
            shutdown: receiver,
            metrics: OperatorMetrics::new(),
            readiness: OperatorReadiness::default(),
        };
        let mut settings = IronicOperatorSettings {
            service_image: "registry.example/ferrite:test".to_owned(),
            ..IronicOperatorSettings::default()
        };
        let version = IronicVersion::parse(version).unwrap();
        settings.rules.versions = SupportedVersions::new(version);
        let databases = IronicDatabaseSettings::default();
        let own = context.clone();
        self.tasks = vec![
            tokio::spawn(async move {
                operator::ironic::controller::run(own, settings).await.unwrap();
            }),
            tokio::spawn(async move {
                operator::ironic_database::controller::run(context, databases).await.unwrap();
            }),
        ];
        self.shutdown = shutdown;
    }

    /// Ends the controllers as a shutdown does.
    pub(crate) async fn stop_controllers(&mut self) {
        self.shutdown.send_replace(true);
        for task in self.tasks.drain(..) {
            tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
        }
    }

    pub(crate) fn ironics(&self) -> Api<Ironic> {
        self.namespace.api()
    }

    pub(crate) fn databases(&self) -> Api<IronicDatabase> {
        self.namespace.api()
    }

    pub(crate) async fn create_ironic(&self, name: &str, spec: Value) {
        let ironic = json!({"metadata": {"name": name}, "spec": spec});
        let ironic: Ironic = serde_json::from_value(ironic).unwrap();
        self.ironics().create(&PostParams::default(), &ironic).await.unwrap();
    }

    pub(crate) async fn create_database(&self, name: &str, spec: Value) {
        let database = json!({"metadata": {"name": name}, "spec": spec});
        let database: IronicDatabase = serde_json::from_value(database).unwrap();
        self.databases().create(&PostParams::default(), &database).await.unwrap();
    }

    /// Changes the spec and returns the new generation.
    pub(crate) async fn patch_ironic(&self, name: &str, spec: Value) -> i64 {
        let patch = Patch::Merge(json!({"spec": spec}));
        let patched = self.ironics().patch(name, &PatchParams::default(), &patch).await.unwrap();
        patched.metadata.generation.unwrap()
    }

    pub(crate) async fn delete_ironic(&self, name: &str) {
        self.ironics().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the condition `Ready` of an installation holds for the generation or a later one.
    pub(crate) async fn wait_ready(&self, name: &str, generation: i64) -> Ironic {
        let is_ready = |ironic: &Option<Ironic>| {
            ready(ironic.as_ref())
                .is_some_and(|(status, observed, _)| status == "True" && observed >= generation)
        };
        let what = "the installation is ready";
        wait_within(INSTALLATION, what, &self.ironics(), name, is_ready).await.unwrap()
    }

    /// Waits until an installation is not ready and its message contains a text.
    pub(crate) async fn wait_not_ready(&self, name: &str, text: &str) -> Ironic {
        let is_met = |ironic: &Option<Ironic>| {
            ready(ironic.as_ref())
                .is_some_and(|(status, _, message)| status == "False" && message.contains(text))
        };
        let what = format!("the installation is not ready: {text}");
        wait_within(INSTALLATION, &what, &self.ironics(), name, is_met).await.unwrap()
    }

    pub(crate) async fn wait_database_ready(&self, name: &str) -> IronicDatabase {
        let is_ready = |database: &Option<IronicDatabase>| {
            let status = database.as_ref().and_then(|database| database.status.as_ref());
            status.is_some_and(|status| {
                let mut conditions = status.conditions.iter();
                conditions.any(|found| found.type_ == READY && found.status == "True")
            })
        };
        let what = "the database is ready";
        wait_within(INSTALLATION, what, &self.databases(), name, is_ready).await.unwrap()
    }

    /// The values of a Secret as text.
    pub(crate) async fn secret(&self, name: &str) -> BTreeMap<String, String> {
        let secret = self.namespace.api::<Secret>().get(name).await.unwrap();
        let data = secret.data.unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
    }

    pub(crate) async fn patch_secret(&self, name: &str, patch: Value) {
        let api = self.namespace.api::<Secret>();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Pods of the service that are not being deleted.
    pub(crate) async fn pods(&self, name: &str) -> Vec<Pod> {
        let label = format!("ironic.metal3.io/app={name}-service");
        let pods = self.namespace.api::<Pod>().list(&ListParams::default().labels(&label)).await;
        let pods = pods.unwrap().items.into_iter();
        pods.filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// Reasons of the events of the namespace.
    pub(crate) async fn event_reasons(&self) -> Vec<String> {
        let events = self.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
        events.items.into_iter().filter_map(|event| event.reason).collect()
    }

    /// A client of the API with the generated credentials and certificate.
    pub(crate) async fn service_client(&self, name: &str) -> ServiceClient {
        let ironic = self.ironics().get(name).await.unwrap();
        let credentials = self.secret(&ironic.spec.api_credentials_name.unwrap()).await;
        let service = self.namespace.api::<Service>().get(name).await.unwrap().spec.unwrap();
        let host = format!("{name}.{}.svc", self.namespace.name);
        let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(10)).no_proxy();
        let address = service.cluster_ip.unwrap();
        let url = if ironic.spec.tls.generate {
            let ca = self.secret(&format!("{name}-tls")).await;
            let ca = reqwest::Certificate::from_pem(ca["ca.crt"].as_bytes()).unwrap();
            builder = builder.tls_certs_only([ca]);
            format!("https://{host}")
        } else {
            format!("http://{host}")
        };
        let port = service.ports.unwrap()[0].port;
        let address: SocketAddr = format!("{address}:{port}").parse().unwrap();
        let client = builder.resolve(&host, address).build().unwrap();
        ServiceClient {
            client,
            url,
            user: credentials["username"].clone(),
            password: credentials["password"].clone(),
        }
    }
}

/// Status, observed generation and message of the condition `Ready`.
fn ready(ironic: Option<&Ironic>) -> Option<(&str, i64, &str)> {
    let status = ironic?.status.as_ref()?;
    let condition = status.conditions.iter().find(|condition| condition.type_ == READY)?;
    Some((&condition.status, condition.observed_generation?, &condition.message))
}

/// A client of an installed service.
pub(crate) struct ServiceClient {
    client: reqwest::Client,
    url: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

impl ServiceClient {
    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        request.header("X-OpenStack-Ironic-API-Version", "1.81")
    }

    /// Waits until the service accepts the credentials.
    pub(crate) async fn wait_response(&self) -> Value {
        self.wait_status(&self.password, 200).await
    }

    /// Waits until a request with this password gets this status code, and returns the body. The Service may still name a pod that has just ended.
    pub(crate) async fn wait_status(&self, password: &str, status: u16) -> Value {
        let response = async {
            loop {
                let request = self.request(reqwest::Method::GET, "/v1/nodes");
                match request.basic_auth(&self.user, Some(password)).send().await {
                    Ok(response) if response.status().as_u16() == status => {
                        return response.json().await.unwrap();
                    }
                    Ok(_) | Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                }
            }
        };
        tokio::time::timeout(INSTALLATION, response).await.unwrap()
    }

    pub(crate) async fn create_node(&self, name: &str) {
        let body = json!({"name": name, "driver": "fake-hardware"}).to_string();
        let request = self.request(reqwest::Method::POST, "/v1/nodes");
        let request = request.basic_auth(&self.user, Some(&self.password));
        let request = request.header("Content-Type", "application/json").body(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 201, "{}", response.text().await.unwrap());
    }
}
