// SPDX-License-Identifier: Apache-2.0
//! A kubelet and scheduler for all nodes of a cluster. Containers are processes of this machine with
//! namespaces of their own.
//!
//! Not supported, because no test needs it: hooks, sidecars among the init containers, ephemeral
//! containers, limits of resources, `kubectl exec` and `kubectl logs`, UDP and session affinity of
//! Services. DNS is `/etc/hosts`.

mod claims;
mod container_root;
mod containers;
mod contents;
mod environment;
mod nodes;
mod pod_worker;
mod probes;
mod progress;
mod scheduler;
mod service_proxy;
mod volumes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};
use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::images::TestImage;
use crate::network::{ClusterNetwork, ConnectedNamespace};
use contents::Contents;
pub use nodes::TestNode;
use pod_worker::PodWorker;

/// Between two attempts to find nodes for pods.
const SCHEDULING_INTERVAL: Duration = Duration::from_millis(300);
/// The first address of nodes, and of pods.
const FIRST_NODE: u16 = 10;
const FIRST_POD: u16 = 256;

/// What all parts of the kubelet share.
struct KubeletContext {
    client: Client,
    network: ClusterNetwork,
    folder: PathBuf,
    images: Vec<TestImage>,
    contents: Contents,
    next_address: AtomicU16,
    state: Mutex<KubeletState>,
    /// The runtime of the cluster. Tests have others.
    runtime: Handle,
}

#[derive(Default)]
struct KubeletState {
    /// All pods of the cluster, by uid.
    pods: HashMap<String, Arc<Pod>>,
    workers: HashMap<String, RunningPod>,
    nodes: BTreeMap<String, KubeletNode>,
}

struct RunningPod {
    worker: Arc<PodWorker>,
    task: JoinHandle<()>,
}

struct KubeletNode {
    network: ConnectedNamespace,
    is_lost: bool,
}

/// The running kubelet.
pub(crate) struct Kubelet {
    context: Arc<KubeletContext>,
}

impl Kubelet {
    /// Creates the nodes and starts running pods, in the current runtime.
    pub(crate) async fn start(
        client: Client,
        network: ClusterNetwork,
        folder: &Path,
        test_nodes: &[TestNode],
        images: Vec<TestImage>,
    ) -> Result<Self> {
        for name in ["logs", "pods", "nodes", "volumes"] {
            fs::create_dir_all(folder.join(name))?;
        }
        claims::create_class(&client).await?;
        let context = Arc::new(KubeletContext {
            contents: Contents::watch(&client).await?,
            client: client.clone(),
            network,
            folder: folder.to_owned(),
            images,
            next_address: AtomicU16::new(FIRST_POD),
            state: Mutex::default(),
            runtime: Handle::current(),
        });
        fs::write(context.hosts_file(), "")?;
        for (node, number) in test_nodes.iter().zip(FIRST_NODE..) {
            let network = ConnectedNamespace::create(network, number).await?;
            nodes::register(&client, node).await?;
            nodes::heartbeat(&client, &node.name, network.address).await?;
            let state = KubeletNode { network, is_lost: false };
            context.state().nodes.insert(node.name.clone(), state);
        }
        tokio::spawn(nodes::send_heartbeats(Arc::clone(&context)));
        tokio::spawn(service_proxy::run(Arc::clone(&context)));
        tokio::spawn(claims::provide(client.clone(), folder.join("volumes")));
        tokio::spawn(claims::reclaim(client));
        tokio::spawn(follow_pods(Arc::clone(&context)));
        tokio::spawn(schedule(Arc::clone(&context)));
        Ok(Self { context })
    }

    /// Kills the first process of a container with SIGKILL.
    pub(crate) fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        let state = self.context.state();
        let found = state.workers.values().map(|running| &running.worker).find(|worker| {
            let object = worker.pod();
            object.name_any() == pod && object.namespace().as_deref() == Some(namespace)
        });
        let process = found.and_then(|worker| worker.process(container));
        let process = process.with_context(|| format!("{pod}/{container} is not running"))?;
        containers::signal_first_process(&process, Signal::KILL);
        Ok(())
    }

    /// Kills everything on a node and ends its heartbeats, as if it had lost its power.
    pub(crate) fn lose_node(&self, name: &str) -> Result<()> {
        let mut state = self.context.state();
        let node = state.nodes.get_mut(name).with_context(|| format!("there is no node {name}"))?;
        node.is_lost = true;
        node.network.holder.kill();
        let on_node: Vec<String> = state
            .workers
            .iter()
            .filter(|(_, running)| node_name(&running.worker.pod()).as_deref() == Some(name))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in on_node {
            if let Some(running) = state.workers.remove(&uid) {
                running.task.abort();
                running.worker.kill();
            }
        }
        Ok(())
    }

    /// Starts a lost node again, with its pods.
    pub(crate) async fn restore_node(&self, name: &str) -> Result<()> {
        let address = {
            let state = self.context.state();
            let node = state.nodes.get(name).with_context(|| format!("there is no node {name}"))?;
            node.network.address
        };
        let number = u16::from_be_bytes([address.octets()[2], address.octets()[3]]);
        let network = ConnectedNamespace::create(self.context.network, number).await?;
        let pods: Vec<Arc<Pod>> = {
            let mut state = self.context.state();
            state.nodes.insert(name.to_owned(), KubeletNode { network, is_lost: false });
            state
                .pods
                .values()
                .filter(|pod| node_name(pod).as_deref() == Some(name))
                .cloned()
                .collect()
        };
        pods.into_iter().for_each(|pod| update_pod(&self.context, pod));
        Ok(())
    }

    /// The file with the output of a container. It stays after the end of the pod.
    pub(crate) fn log_file(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        self.context.log_file(namespace, pod, container)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let mut state = self.context.state();
        for (_, running) in state.workers.drain() {
            running.task.abort();
            running.worker.kill();
        }
        state.nodes.values().for_each(|node| node.network.holder.kill());
    }
}

impl KubeletContext {
    fn state(&self) -> MutexGuard<'_, KubeletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that is `/etc/hosts` in all containers.
    fn hosts_file(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    fn log_file(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{namespace}_{pod}_{container}.log"))
    }

    /// Adds a line to the log of the kubelet.
    fn log(&self, line: &str) {
        pod_worker::append(&self.folder.join("kubelet.log"), line);
    }

    /// A network for a pod.
    async fn new_namespace(&self) -> Result<ConnectedNamespace> {
        let number = self.next_address.fetch_add(1, Ordering::Relaxed);
        ConnectedNamespace::create(self.network, number).await
    }

    fn running_nodes(&self) -> Vec<(String, Ipv4Addr)> {
        let state = self.state();
        let running = state.nodes.iter().filter(|(_, node)| !node.is_lost);
        running.map(|(name, node)| (name.clone(), node.network.address)).collect()
    }
}

fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
}

/// Starts, updates and ends the workers of pods, for ever.
async fn follow_pods(context: Arc<KubeletContext>) {
    let mut stream = Box::pin(contents::events(Api::<Pod>::all(context.client.clone())));
    let mut listed = HashSet::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(pod)) => update_pod(&context, Arc::new(pod)),
            Ok(Event::Delete(pod)) => remove_pod(&context, &pod.uid().unwrap_or_default()),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.insert(pod.uid().unwrap_or_default());
                update_pod(&context, Arc::new(pod));
            }
            Ok(Event::InitDone) => {
                let known: Vec<String> = context.state().pods.keys().cloned().collect();
                for uid in known.iter().filter(|uid| !listed.contains(*uid)) {
                    remove_pod(&context, uid);
                }
            }
            // The watch is repeated.
            Err(_) => {}
        }
    }
}

fn update_pod(context: &Arc<KubeletContext>, pod: Arc<Pod>) {
    let uid = pod.uid().unwrap_or_default();
    let mut state = context.state();
    state.pods.insert(uid.clone(), Arc::clone(&pod));
    if let Some(running) = state.workers.get(&uid) {
        running.worker.update(pod);
        return;
    }
    let node = node_name(&pod).and_then(|name| state.nodes.get(&name)).filter(|node| !node.is_lost);
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    let is_finished = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    if let Some(node) = node.filter(|_| !is_finished || is_deleted) {
        let worker = Arc::new(PodWorker::new(Arc::clone(context), pod, &node.network));
        let task = context.runtime.spawn(Arc::clone(&worker).run());
        state.workers.insert(uid, RunningPod { worker, task });
    }
}

fn remove_pod(context: &KubeletContext, uid: &str) {
    let mut state = context.state();
    state.pods.remove(uid);
    if let Some(running) = state.workers.remove(uid) {
        running.task.abort();
        running.worker.kill();
    }
}

/// Finds nodes for pods, for ever.
async fn schedule(context: Arc<KubeletContext>) {
    loop {
        let pending: Vec<Arc<Pod>> = {
            let state = context.state();
            let pods = state.pods.values().filter(|pod| {
                node_name(pod).is_none() && pod.metadata.deletion_timestamp.is_none()
            });
            pods.cloned().collect()
        };
        if !pending.is_empty() {
            // Repeated soon in any case.
            let _retried = bind_all(&context, pending).await;
        }
        tokio::time::sleep(SCHEDULING_INTERVAL).await;
    }
}

async fn bind_all(context: &KubeletContext, pending: Vec<Arc<Pod>>) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    for pod in pending {
        let chosen = {
            let state = context.state();
            scheduler::choose_node(&pod, &nodes, state.pods.values().map(AsRef::as_ref))
        };
        let Some(node) = chosen else { continue };
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name_any()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let api: Api<Pod> =
            Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
        let bound: Result<serde_json::Value, _> = api
            .create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding)
            .await;
        // The next pod has to know about this one. A failed binding is tried again.
        if bound.is_ok() {
            let mut assigned = Pod::clone(&pod);
            assigned.spec.get_or_insert_default().node_name = Some(node);
            let uid = pod.uid().unwrap_or_default();
            let mut state = context.state();
            let known = state.pods.get(&uid).is_some_and(|known| node_name(known).is_none());
            if known {
                state.pods.insert(uid, Arc::new(assigned));
            }
        }
    }
    Ok(())
}
