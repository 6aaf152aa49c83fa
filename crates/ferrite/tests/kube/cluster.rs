// SPDX-License-Identifier: Apache-2.0
//! The cluster that all tests of this program share, one namespace per test, and waiting for
//! objects.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::runtime::watcher::watch_object;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use test_cluster::{TestCluster, TestClusterOptions, TestImage, TestNode};
use tokio::sync::OnceCell;

/// Time limit of most waits. Generous, because other programs may use the processors.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);
/// A node for host networks: no other pods run on it.
pub(crate) const JOB_NODE: &str = "jobs";
/// Between two connections to an API server that is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The shared cluster, started by the first test; `None` without a control plane, unless it is
/// required. The CRDs of Ferrite are installed.
pub(crate) async fn shared_cluster() -> Option<&'static TestCluster> {
    if TestCluster::program().is_none() {
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
        let variable = test_cluster::PROGRAM_VARIABLE;
        assert!(!required, "{variable} is not set, and FERRITE_TEST_SERVERS=required");
        println!("skipped: {variable} is not set");
        return None;
    }
    Some(CLUSTER.get_or_init(start_cluster).await)
}

/// A cluster with these CRDs that no other test uses; `None` without a control plane. It runs until
/// the test program ends.
pub(crate) async fn cluster_with_crds(crds: Vec<String>) -> Option<&'static TestCluster> {
    shared_cluster().await?;
    Some(Box::leak(Box::new(start_cluster_with(crds).await)))
}

async fn start_cluster() -> TestCluster {
    let documents = kube_resources::crds::all_crds();
    start_cluster_with(documents.iter().map(|document| document.yaml.to_owned()).collect()).await
}

async fn start_cluster_with(crds: Vec<String>) -> TestCluster {
    // One node for single pods, three for replicas of the service, one for the sample Job.
    let mut nodes = vec![TestNode::worker("worker-1")];
    nodes.extend((1..=3).map(|number| TestNode::control_plane(&format!("control-plane-{number}"))));
    let taints = vec![("ferrite-test/jobs".to_owned(), "NoSchedule".to_owned())];
    nodes.push(TestNode { taints, ..TestNode::worker(JOB_NODE) });
    let ferrite = TestImage::program("ferrite", env!("CARGO_BIN_EXE_ferrite").into());
    let images = vec![ferrite, TestImage::mariadb(), TestImage::postgres()];
    TestCluster::start(TestClusterOptions { crds, nodes, images }).await.unwrap()
}

/// A namespace of one test, deleted at its end.
pub(crate) struct TestNamespace {
    /// The name, with a random ending.
    pub(crate) name: String,
    /// All permissions in the whole cluster.
    pub(crate) client: Client,
    /// The cluster.
    pub(crate) cluster: &'static TestCluster,
}

impl TestNamespace {
    /// Creates a namespace whose name starts with `purpose`; `None` without a cluster.
    pub(crate) async fn create(purpose: &str) -> Option<Self> {
        Some(Self::in_cluster(shared_cluster().await?, purpose).await)
    }

    /// Like [`TestNamespace::create`] in a cluster that no other test uses, so that the test may stop
    /// its parts. It runs until the test program ends.
    pub(crate) async fn with_own_cluster(purpose: &str) -> Option<Self> {
        shared_cluster().await?;
        let cluster: &'static TestCluster = Box::leak(Box::new(start_cluster().await));
        Some(Self::in_cluster(cluster, purpose).await)
    }

    async fn in_cluster(cluster: &'static TestCluster, purpose: &str) -> Self {
        let client = cluster.client().await.unwrap();
        let metadata =
            ObjectMeta { generate_name: Some(format!("{purpose}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let api: Api<Namespace> = Api::all(client.clone());
        let created = api.create(&PostParams::default(), &namespace).await.unwrap();
        let name = created.metadata.name.unwrap();
        // Pods cannot be created before.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
        wait_for("the default ServiceAccount", &accounts, "default", Option::is_some).await;
        Self { name, client, cluster }
    }

    /// Objects of the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Deletes the namespace without waiting. Namespaces of failed tests stay for the other tests to
    /// ignore; the cluster ends with the test program.
    pub(crate) async fn delete(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::background()).await.unwrap();
    }
}

/// Waits until an object meets a condition, and returns it. Panics after [`TIMEOUT`].
pub(crate) async fn wait_for<K>(
    what: &str,
    api: &Api<K>,
    name: &str,
    is_met: impl Fn(&Option<K>) -> bool,
) -> Option<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    wait_within(TIMEOUT, what, api, name, is_met).await
}

/// Like [`wait_for`] with another time limit. The condition gets `None` if there is no such object.
pub(crate) async fn wait_within<K>(
    limit: Duration,
    what: &str,
    api: &Api<K>,
    name: &str,
    is_met: impl Fn(&Option<K>) -> bool,
) -> Option<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut last = None;
    let wait = async {
        let mut states = std::pin::pin!(watch_object(api.clone(), name));
        while let Some(state) = states.next().await {
            match state {
                Ok(object) if is_met(&object) => return object,
                Ok(object) => last = object,
                // The watch continues when the API server is back.
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
        panic!("the watch of {name} ended");
    };
    match tokio::time::timeout(limit, wait).await {
        Ok(object) => object,
        Err(_) => panic!("{what}: not within {limit:?}; {name} is {last:#?}"),
    }
}
