// SPDX-License-Identifier: Apache-2.0
//! A real Kubernetes cluster for tests: etcd, kube-apiserver and kube-controller-manager, and a small
//! kubelet that runs pods as processes of this machine.
//!
//! Needs root and a network namespace without other networks; `cargo xtask with-kube` and
//! `cargo xtask test` provide both. Not for production use.

mod control_plane;
mod folder;
mod images;
mod kubelet;
mod network;
mod process;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use control_plane::ControlPlane;
use folder::ClusterFolder;
pub use images::TestImage;
use kubelet::Kubelet;
pub use kubelet::TestNode;
use network::ClusterNetwork;
use process::dies_with_tests;

/// The variable with the path of the control plane's program.
pub const PROGRAM_VARIABLE: &str = "FERRITE_TEST_CONTROL_PLANE";
const CRD_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a cluster consists of.
#[derive(Clone, Debug, Default)]
pub struct TestClusterOptions {
    /// CRD documents in YAML, applied before the controllers start.
    pub crds: Vec<String>,
    /// The nodes. Without one, pods stay pending.
    pub nodes: Vec<TestNode>,
    /// The images that pods can use; the first whose name matches counts.
    pub images: Vec<TestImage>,
}

/// A running cluster. Everything stops and is removed when it is dropped, or when the test program
/// ends.
pub struct TestCluster {
    program: PathBuf,
    network: ClusterNetwork,
    control_plane: Mutex<ControlPlane>,
    kubeconfig: PathBuf,
    kubelet: Kubelet,
    /// Outlives the runtimes of single tests.
    _runtime: ClusterRuntime,
    /// Dropped last.
    folder: ClusterFolder,
}

impl TestCluster {
    /// The program of the control plane, if [`PROGRAM_VARIABLE`] is set.
    #[must_use]
    pub fn program() -> Option<PathBuf> {
        std::env::var_os(PROGRAM_VARIABLE).map(PathBuf::from)
    }

    /// Starts a cluster with the program of [`PROGRAM_VARIABLE`].
    ///
    /// # Errors
    /// The variable is not set, the process is not in a network of its own, or a part does not start.
    pub async fn start(options: TestClusterOptions) -> Result<Self> {
        let program = Self::program().with_context(|| format!("{PROGRAM_VARIABLE} is not set"))?;
        let network = ClusterNetwork::create()?;
        let folder = ClusterFolder::create(&network.bridge())?;
        let runtime = ClusterRuntime::create()?;
        let path = folder.path().join("control-plane");
        let mut control_plane = ControlPlane::start(&program, &path, network).await?;
        apply_crds(control_plane::client(&control_plane.kubeconfig()).await?, &options.crds)
            .await?;
        control_plane.start_controllers()?;
        let kubelet =
            runtime.start_kubelet(&control_plane, network, folder.path(), options).await?;
        Ok(Self {
            program,
            network,
            kubeconfig: control_plane.kubeconfig(),
            control_plane: Mutex::new(control_plane),
            kubelet,
            _runtime: runtime,
            folder,
        })
    }

    /// A new client with all permissions. It belongs to the calling runtime: each test needs its own.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        control_plane::client(&self.kubeconfig).await
    }

    /// A file with the address of the API server and the credentials of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address of the test program in the cluster: pods and the API server reach servers of the
    /// test here.
    #[must_use]
    pub fn host_address(&self) -> Ipv4Addr {
        self.network.host_address()
    }

    /// The certificate that the API server is verified with, in PEM.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub async fn ca(&self) -> Result<String> {
        self.control_plane.lock().await.ca()
    }

    /// The requests of a ServiceAccount that its roles do not permit: verb and path.
    ///
    /// # Errors
    /// The audit log cannot be read.
    pub async fn denied_requests(&self, namespace: &str, account: &str) -> Result<Vec<String>> {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        self.control_plane.lock().await.denied_requests(&user)
    }

    /// The folder of the cluster, with the logs of the control plane.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs kubectl with the permissions of the administrator and returns its output.
    ///
    /// # Errors
    /// kubectl fails; the error contains what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output =
            self.kubectl_command().args(arguments).output().context("cannot run kubectl")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("`kubectl {}` failed: {}", arguments.join(" "), error.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// kubectl with the permissions of the administrator, without arguments. It is killed when the thread
    /// that starts it ends.
    #[must_use]
    pub fn kubectl_command(&self) -> Command {
        let mut command = dies_with_tests(&self.program);
        command.arg("kubectl").env("KUBECONFIG", &self.kubeconfig);
        command.env("HOME", self.folder.path());
        command
    }

    /// Kills the first process of a container with SIGKILL.
    ///
    /// # Errors
    /// The container is not running.
    pub fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        self.kubelet.kill_container(namespace, pod, container)
    }

    /// Kills everything on a node and ends its heartbeats, as if it had lost its power.
    ///
    /// # Errors
    /// There is no such node.
    pub fn lose_node(&self, name: &str) -> Result<()> {
        self.kubelet.lose_node(name)
    }

    /// Starts a lost node again, with its pods.
    ///
    /// # Errors
    /// There is no such node, or its network cannot be created.
    pub async fn restore_node(&self, name: &str) -> Result<()> {
        self.kubelet.restore_node(name).await
    }

    /// The output of a container, of all its starts, also after the end of the pod. Empty if it never
    /// ran.
    #[must_use]
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> String {
        let file = self.kubelet.log_file(namespace, pod, container);
        String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
    }

    /// Kills the API server.
    pub async fn stop_api_server(&self) {
        self.control_plane.lock().await.stop_api_server().await;
    }

    /// Starts the API server again and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.control_plane.lock().await.restart_api_server().await
    }
}

/// A runtime that may be dropped inside another one.
struct ClusterRuntime(Option<Runtime>);

impl ClusterRuntime {
    fn create() -> Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().thread_name("test-cluster");
        Ok(Self(Some(builder.build()?)))
    }

    /// Starts the kubelet in this runtime.
    async fn start_kubelet(
        &self,
        control_plane: &ControlPlane,
        network: ClusterNetwork,
        folder: &Path,
        options: TestClusterOptions,
    ) -> Result<Kubelet> {
        let runtime = self.0.as_ref().context("the runtime has ended")?;
        let (kubeconfig, folder) = (control_plane.kubeconfig(), folder.to_owned());
        let started = runtime.spawn(async move {
            let client = control_plane::client(&kubeconfig).await?;
            Kubelet::start(client, network, &folder, &options.nodes, options.images).await
        });
        started.await?.context("cannot start the kubelet")
    }
}

impl Drop for ClusterRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Applies CRDs and waits until their resources are served.
async fn apply_crds(client: Client, documents: &[String]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let mut names = Vec::new();
    for document in documents {
        let crd: CustomResourceDefinition =
            serde_saphyr::from_str(document).context("not a CRD")?;
        let name = crd.name_any();
        let parameters = PatchParams::apply("test-cluster").force();
        api.patch(&name, &parameters, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("cannot apply the CRD {name}"))?;
        names.push(name);
    }
    let deadline = Instant::now() + CRD_TIMEOUT;
    for name in names {
        loop {
            let crd = api.get(&name).await?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|found| found.type_ == "Established" && found.status == "True")
            {
                break;
            }
            if Instant::now() >= deadline {
                bail!("the CRD {name} is not established: {conditions:?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}
