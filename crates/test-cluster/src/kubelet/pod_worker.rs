// SPDX-License-Identifier: Apache-2.0
//! Runs one pod: volumes, network, init containers, containers, status, termination.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Error as KubeError, ResourceExt as _};
use rustix::process::Pid;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::KubeletContext;
use super::containers::ContainerRunner;
use super::progress::{ContainerPhase, PodProgress, RestartRule};
use super::volumes::PodVolumes;
use crate::network::ConnectedNamespace;
use crate::process::ChildProcess;

const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// One pod on one node.
pub(super) struct PodWorker {
    pub(super) context: Arc<KubeletContext>,
    pub(super) folder: PathBuf,
    pub(super) node_address: Ipv4Addr,
    pub(super) progress: watch::Sender<PodProgress>,
    /// The latest version of the object.
    updates: watch::Sender<Arc<Pod>>,
    /// The time that containers get to end, once the pod stops.
    stop: watch::Sender<Option<Duration>>,
    volumes: Mutex<PodVolumes>,
    /// Processes that hold the network, if it belongs to the pod, and run the containers.
    processes: Mutex<HashMap<String, ChildProcess>>,
    network: Mutex<Option<ConnectedNamespace>>,
}

/// The key of the process that holds the network: no container has this name.
const NETWORK_HOLDER: &str = "";

impl PodWorker {
    /// `node` is the network of the node, used by pods without a network of their own.
    pub(super) fn new(
        context: Arc<KubeletContext>,
        pod: Arc<Pod>,
        node: &ConnectedNamespace,
    ) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let folder = context.folder.join("pods").join(pod.uid().unwrap_or_default());
        let node_folder = context.folder.join("nodes").join(spec.node_name.unwrap_or_default());
        let on_host = spec.host_network == Some(true);
        Self {
            node_address: node.address,
            progress: watch::Sender::new(PodProgress::new(&pod)),
            stop: watch::Sender::new(None),
            volumes: Mutex::new(PodVolumes::new(&pod, &folder, &node_folder)),
            processes: Mutex::new(HashMap::new()),
            network: Mutex::new(on_host.then(|| node.clone())),
            updates: watch::Sender::new(pod),
            folder,
            context,
        }
    }

    /// The latest version of the object.
    pub(super) fn pod(&self) -> Arc<Pod> {
        Arc::clone(&self.updates.borrow())
    }

    /// Takes a new version of the object.
    pub(super) fn update(&self, pod: Arc<Pod>) {
        self.updates.send_replace(pod);
    }

    /// The address of the pod, once it has one.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        lock(&self.network).as_ref().map(|network| network.address)
    }

    /// A process in the network of the pod.
    pub(super) fn network_holder(&self) -> Option<Pid> {
        lock(&self.network).as_ref().map(|network| network.holder.pid())
    }

    pub(super) fn volume_path(&self, name: &str) -> Option<PathBuf> {
        lock(&self.volumes).path(name).map(PathBuf::from)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Waits until the pod stops, and returns the time its containers get.
    pub(super) async fn stopped(&self) -> Duration {
        let mut stop = self.stop.subscribe();
        let grace = stop.wait_for(Option::is_some).await;
        grace.ok().and_then(|grace| *grace).unwrap_or_default()
    }

    /// Registers a process to kill with the pod.
    pub(super) fn register(&self, name: &str, process: ChildProcess) {
        lock(&self.processes).insert(name.to_owned(), process);
    }

    /// The running process of a container.
    pub(super) fn process(&self, container: &str) -> Option<ChildProcess> {
        lock(&self.processes).get(container).filter(|found| found.exit_status().is_none()).cloned()
    }

    /// Kills all processes at once.
    pub(super) fn kill(&self) {
        self.stop.send_replace(Some(Duration::ZERO));
        lock(&self.processes).values().for_each(ChildProcess::kill);
    }

    /// The output of a container, also after the pod is gone.
    pub(super) fn log_file(&self, container: &str) -> PathBuf {
        let pod = self.pod();
        self.context.log_file(&pod.namespace().unwrap_or_default(), &pod.name_any(), container)
    }

    /// Adds a line of the kubelet to the output of a container.
    pub(super) fn log(&self, container: &str, line: &str) {
        append(&self.log_file(container), &format!("[kubelet] {line}"));
    }

    /// Runs the pod until its object can be deleted, and deletes it.
    pub(super) async fn run(self: Arc<Self>) {
        let mut updates = self.updates.subscribe();
        let deletion = async {
            let pod = updates.wait_for(|pod| pod.metadata.deletion_timestamp.is_some()).await;
            let seconds = pod.ok().and_then(|pod| pod.metadata.deletion_grace_period_seconds);
            Duration::from_secs(seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(0))
        };
        let worker = Arc::clone(&self);
        let stop = async {
            worker.stop.send_replace(Some(deletion.await));
        };
        let work = async {
            // In this order, so that nothing starts in a pod that is already deleted.
            tokio::join!(stop, self.run_containers());
        };
        tokio::select! {
            () = work => {}
            () = self.report() => {}
        }
        self.progress.send_modify(|progress| progress.is_terminated = true);
        self.finish().await;
    }

    async fn run_containers(self: &Arc<Self>) {
        if !self.set_up().await {
            return;
        }
        tokio::select! {
            () = self.run_in_order() => {}
            () = self.refresh_volumes() => {}
        }
        // The addresses of a finished pod are free.
        if let Some(holder) = self.process(NETWORK_HOLDER) {
            holder.kill();
        }
    }

    async fn run_in_order(self: &Arc<Self>) {
        let pod = self.pod();
        let spec = pod.spec.clone().unwrap_or_default();
        let runner = |container: &Container, rule| ContainerRunner {
            worker: Arc::clone(self),
            container: container.clone(),
            rule,
        };
        for container in spec.init_containers.iter().flatten() {
            if !runner(container, RestartRule::of_init_containers(&pod)).run().await {
                return;
            }
        }
        self.progress.send_modify(|progress| progress.is_initialized = true);
        let rule = RestartRule::of(&pod);
        let runners: Vec<_> = spec.containers.iter().map(|found| runner(found, rule)).collect();
        join_all(runners.iter().map(ContainerRunner::run)).await;
    }

    /// Creates volumes and network. Returns false if the pod stops before.
    async fn set_up(&self) -> bool {
        let mut changed = self.context.contents.files_changed();
        while !self.is_stopping() {
            changed.mark_unchanged();
            let attempt = self.try_set_up().await;
            let Err(error) = attempt else { return true };
            self.report_waiting(&format!("{error:#}"));
            let wait = async {
                tokio::select! {
                    _ = changed.changed() => {}
                    _ = self.stopped() => {}
                }
            };
            // Not everything that is missing is watched.
            let _elapsed = timeout(RETRY_INTERVAL, wait).await;
        }
        false
    }

    async fn try_set_up(&self) -> anyhow::Result<()> {
        let pod = self.pod();
        let mut volumes = {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let node_folder = self.context.folder.join("nodes").join(node.unwrap_or_default());
            PodVolumes::new(&pod, &self.folder, &node_folder)
        };
        volumes.prepare(&self.context.client, &self.context.contents, &pod).await?;
        *lock(&self.volumes) = volumes;
        if self.address().is_none() {
            let namespace = self.context.new_namespace().await?;
            self.register(NETWORK_HOLDER, namespace.holder.clone());
            *lock(&self.network) = Some(namespace);
        }
        let address = self.address();
        self.progress.send_modify(|progress| progress.address = address);
        Ok(())
    }

    fn report_waiting(&self, text: &str) {
        self.progress.send_modify(|progress| {
            for container in progress.containers.values_mut() {
                if let ContainerPhase::Waiting { message, .. } = &mut container.phase {
                    *message = Some(text.to_owned());
                }
            }
        });
    }

    /// Never ends.
    async fn refresh_volumes(&self) {
        let mut changed = self.context.contents.files_changed();
        while changed.changed().await.is_ok() {
            lock(&self.volumes).refresh(&self.context.contents, &self.pod());
        }
        std::future::pending().await
    }

    /// Writes the status after each change. Ends when the object does not exist any more.
    async fn report(&self) {
        let mut changes = self.progress.subscribe();
        let mut conditions = Vec::new();
        loop {
            let status = self.status(&changes.borrow_and_update().clone(), &conditions);
            if !self.write(&status).await {
                return;
            }
            conditions = status.conditions.unwrap_or_default();
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn status(&self, progress: &PodProgress, conditions: &[PodCondition]) -> PodStatus {
        progress.status(&self.pod(), self.node_address, conditions)
    }

    /// Writes a status, again and again until the API server accepts it. Returns false if the object
    /// does not exist any more.
    async fn write(&self, status: &PodStatus) -> bool {
        let pod = self.pod();
        let mut patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        // Otherwise the addresses would be added to those before a restart of the node.
        for list in ["podIPs", "hostIPs"] {
            if let Some(list) = patch["status"][list].as_array_mut() {
                list.push(json!({"$patch": "replace"}));
            }
        }
        loop {
            let patched = self
                .api()
                .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch))
                .await;
            match patched {
                Ok(_) => return true,
                Err(error) if is_gone(&error) => return false,
                Err(error) => self.wait_after("write the status", &error).await,
            }
        }
    }

    async fn wait_after(&self, action: &str, error: &KubeError) {
        let pod = self.pod();
        let namespace = pod.namespace().unwrap_or_default();
        self.context.log(&format!("cannot {action} of {namespace}/{}: {error}", pod.name_any()));
        sleep(RETRY_INTERVAL).await;
    }

    /// Writes the last status and deletes the object, once that was requested.
    async fn finish(&self) {
        self.kill();
        let last = self.status(&self.progress.borrow().clone(), &[]);
        if !self.write(&last).await {
            return;
        }
        let pod = self.pod();
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        loop {
            match self.api().delete(&pod.name_any(), &parameters).await {
                Ok(_) => break,
                Err(error) if is_gone(&error) => break,
                Err(error) => self.wait_after("delete the object", &error).await,
            }
        }
    }

    fn api(&self) -> Api<Pod> {
        let namespace = self.pod().namespace().unwrap_or_default();
        Api::namespaced(self.context.client.clone(), &namespace)
    }
}

impl Drop for PodWorker {
    fn drop(&mut self) {
        self.kill();
        // Volumes of processes that are just ending are removed with the cluster.
        let _left_over = fs::remove_dir_all(&self.folder);
    }
}

/// Adds a line to a file for people who look for the reason of a failed test.
pub(super) fn append(file: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(file);
    let _unimportant = file.and_then(|mut file| writeln!(file, "{line}"));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object does not exist, or another one has its name.
fn is_gone(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.code == 404 || status.code == 409)
}
