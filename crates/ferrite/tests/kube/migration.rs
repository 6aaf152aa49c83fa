// SPDX-License-Identifier: Apache-2.0
//! Migration from Metal3's operators, as docs/kubernetes-migration.md describes it.
//!
//! Hosts: the real baremetal-operator v0.13.2 provisions simulated machines with one service; `ferrite
//! operator` continues with its objects and another, empty service; the real operator takes them back.
//! Installations: ironic-standalone-operator is not available as a Go module, so the test writes the
//! objects that its version 0.11 creates, with the same field manager.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet_sim::machine::RunningSoftware;
use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine};
use http_probe::ServerProcess;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::ironic::service::Ironic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{TIMEOUT, TestNamespace, wait_for, wait_within};
use crate::hosts_lab::{error_of, is_on, operational, state_of, until_true};
use crate::hosts_service_lab::{DIGEST, serve, serve_files};
use crate::installation_lab::{INSTALLATION, InstallationLab, OPT_IN};

/// The variable with the path of Metal3's operator.
const METAL3_OPERATOR: &str = "FERRITE_TEST_METAL3_OPERATOR";
const LEASE: &str = "baremetal-operator";
/// Time limit of an operation with Metal3's operator, which polls.
const OPERATION: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The host of each machine and its state before and after the migration.
const HOSTS: [(&str, &str); 4] = [
    ("free", "available"),
    ("used", "provisioned"),
    ("external", "externally provisioned"),
    ("other", "provisioned"),
];

/// A process that is killed at the end of the test. Its output is printed if the test fails.
pub(crate) struct LoggedProcess {
    child: Child,
    log: PathBuf,
}

impl LoggedProcess {
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as Kubernetes ends a pod.
    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "does not end");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

/// A namespace with hosts for simulated machines.
struct MigrationLab {
    namespace: TestNamespace,
    metal3_operator: PathBuf,
    folder: TempDir,
    fleet: SimulatedFleet,
    files: String,
}

impl MigrationLab {
    /// `None` without a cluster.
    async fn start() -> Option<Self> {
        let namespace = TestNamespace::create("migration").await?;
        let metal3_operator = std::env::var_os(METAL3_OPERATOR);
        let metal3_operator = metal3_operator.unwrap_or_else(|| panic!("set {METAL3_OPERATOR}"));
        let folder = tempfile::Builder::new().prefix("ferrite-test-").tempdir().unwrap();
        for name in ["kernel", "ramdisk"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        // Each service sets the address of the API.
        let agents = SimulatedAgentConfig {
            tls: true,
            ..SimulatedAgentConfig::for_api("http://127.0.0.1:1")
        };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: u32::try_from(HOSTS.len()).unwrap(),
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        let metal3_operator = metal3_operator.into();
        Some(Self { namespace, metal3_operator, folder, fleet, files: serve_files() })
    }

    /// Starts a service without nodes.
    fn start_service(&self, name: &str) -> ServerProcess {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let config = format!(
            "boot.listen = [\"127.0.0.1:0\"]\nconductor.agent_boot_proof = \"none\"\n\
             drivers.agent.erase_devices_priority = 0\n\
             images.allow_local_urls = true\nimages.file_url_allowed_paths = [{:?}]\n",
            self.folder.path()
        );
        std::fs::write(folder.join("ferrite.toml"), config).unwrap();
        let server = serve(&folder, "127.0.0.1:0");
        self.fleet.set_agent_api(&server.url());
        server
    }

    /// The variables of both operators, as in the ConfigMap of Metal3's operator.
    fn configure(&self, command: &mut Command, service: &ServerProcess) {
        let file = |name: &str| format!("file://{}", self.folder.path().join(name).display());
        command.env("IRONIC_ENDPOINT", format!("{}/v1/", service.url()));
        command.env("DEPLOY_KERNEL_URL", file("kernel"));
        command.env("DEPLOY_RAMDISK_URL", file("ramdisk"));
        command.env("METAL3_AUTH_ROOT_DIR", self.folder.path().join("no-credentials"));
        command.env("POD_NAMESPACE", &self.namespace.name);
        command.env("KUBECONFIG", self.namespace.cluster.kubeconfig());
    }

    fn start_metal3_operator(&self, service: &ServerProcess, log: &str) -> LoggedProcess {
        let mut command = Command::new(&self.metal3_operator);
        command.args(["-namespace", &self.namespace.name, "-enable-leader-election", "-dev"]);
        command.args(["-webhook-port", "0", "-metrics-addr", "0", "-health-addr", "0"]);
        self.configure(&mut command, service);
        LoggedProcess::start(command, self.folder.path().join(log))
    }

    fn start_ferrite_operator(&self, service: &ServerProcess) -> LoggedProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
        command.args(["operator", "--controllers", "baremetalhost", "--leader-elect"]);
        command.args(["--namespace", &self.namespace.name, "--log-level", "info,operator=debug"]);
        command.args(["--webhook-listen", "off", "--metrics-listen", "off"]);
        command.args(["--health-listen", "off"]);
        self.configure(&mut command, service);
        LoggedProcess::start(command, self.folder.path().join("ferrite-operator.log"))
    }

    fn hosts(&self) -> Api<BareMetalHost> {
        self.namespace.api()
    }

    fn machine(&self, name: &str) -> SimulatedMachine {
        let index = HOSTS.iter().position(|(host, _)| *host == name).unwrap();
        self.fleet.machine(u32::try_from(index).unwrap()).unwrap()
    }

    async fn create_hosts(&self) {
        for (name, state) in HOSTS {
            let machine = self.machine(name);
            let mut spec = json!({
                "online": true,
                "bootMACAddress": machine.macs().first().unwrap().to_string(),
                "bmc": {
                    "address": format!("redfish+{}{}", machine.url(), machine.system_path()),
                    "credentialsName": format!("{name}-bmc"),
                },
                "externallyProvisioned": state == "externally provisioned",
            });
            if state == "provisioned" {
                spec["image"] = json!({"url": format!("{}/image.raw", self.files),
                    "checksum": DIGEST, "checksumType": "sha256", "format": "raw"});
            }
            let secret: Secret = serde_json::from_value(json!({
                "metadata": {"name": format!("{name}-bmc")},
                "stringData": {"username": "admin", "password": "password"},
            }))
            .unwrap();
            let secrets = self.namespace.api::<Secret>();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
            let host = json!({"metadata": {"name": name}, "spec": spec});
            let host = serde_json::from_value(host).unwrap();
            self.hosts().create(&PostParams::default(), &host).await.unwrap();
        }
    }

    async fn until(
        &self,
        name: &str,
        what: &str,
        is_met: impl Fn(&BareMetalHost) -> bool,
    ) -> BareMetalHost {
        let is_met = |host: &Option<BareMetalHost>| host.as_ref().is_some_and(&is_met);
        wait_within(OPERATION, what, &self.hosts(), name, is_met).await.unwrap()
    }

    async fn edit(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.hosts().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes a host and checks that its Secret can be deleted, too.
    async fn delete(&self, name: &str) {
        self.hosts().delete(name, &DeleteParams::default()).await.unwrap();
        wait_within(OPERATION, "deletion", &self.hosts(), name, Option::is_none).await;
        let is_free = |secret: &Option<Secret>| {
            secret.as_ref().is_none_or(|secret| secret.finalizers().is_empty())
        };
        let secret = format!("{name}-bmc");
        wait_for("no finalizer", &self.namespace.api::<Secret>(), &secret, is_free).await;
    }

    /// What the machines did.
    fn records(&self) -> Vec<(usize, u32, RunningSoftware)> {
        let records = self.fleet.machines().map(|machine| {
            let writes = machine.completed_step_count("write_image");
            (machine.boot_history().len(), writes, machine.running_software())
        });
        records.collect()
    }

    /// The holder of the Lease of the operators.
    async fn lease_holder(&self) -> String {
        let lease = self.namespace.api::<Lease>().get(LEASE).await.unwrap();
        lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }

    async fn until_lease_holder_is_not(&self, previous: &str) {
        let is_other = |lease: &Option<Lease>| {
            let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
            let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
            holder.is_some_and(|holder| !holder.is_empty() && holder != previous)
        };
        wait_for("another leader", &self.namespace.api::<Lease>(), LEASE, is_other).await;
    }
}

fn id_of(host: &BareMetalHost) -> String {
    host.status.as_ref().map(|status| status.provisioning.id.clone()).unwrap_or_default()
}

fn is_settled(host: &BareMetalHost, state: &str) -> bool {
    state_of(host) == state
        && is_on(host)
        && error_of(host).is_empty()
        && operational(host) == "OK"
        && !id_of(host).is_empty()
}

/// Provision states of all nodes, by host.
fn node_states(service: &ServerProcess, namespace: &str) -> Vec<(String, String)> {
    let mut client = service.client();
    let path = "/v1/nodes?fields=name,provision_state";
    let nodes = client.send_json("GET", path, None).unwrap().json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut states: Vec<(String, String)> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            let name = text(&node["name"]);
            let host = name.strip_prefix(&format!("{namespace}~")).unwrap_or(&name).to_owned();
            (host, text(&node["provision_state"]))
        })
        .collect();
    states.sort();
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_metal3_keep_their_state() {
    let Some(lab) = MigrationLab::start().await else { return };
    let old_service = lab.start_service("old");
    let metal3 = lab.start_metal3_operator(&old_service, "metal3-operator.log");
    lab.create_hosts().await;
    let mut ids = Vec::new();
    for (name, state) in HOSTS {
        let host = lab.until(name, state, |host| is_settled(host, state)).await;
        ids.push(id_of(&host));
    }
    for name in ["used", "other"] {
        let machine = lab.machine(name);
        until_true("the image runs", || machine.running_software() == RunningSoftware::Instance)
            .await;
    }
    let records = lab.records();
    let holder = lab.lease_holder().await;
    assert!(!holder.is_empty());

    // The new operator waits for the Lease, so both may run for some time.
    let service = lab.start_service("new");
    let operator = lab.start_ferrite_operator(&service);
    metal3.stop().await;
    old_service.kill().unwrap();
    lab.until_lease_holder_is_not(&holder).await;
    for ((name, state), id) in HOSTS.into_iter().zip(&ids) {
        let is_registered = |host: &BareMetalHost| {
            assert_eq!((state_of(host), error_of(host)), (state, ""), "{name}");
            id_of(host) != *id && is_settled(host, state)
        };
        lab.until(name, "registered with the new service", is_registered).await;
    }
    // As with Metal3, a node becomes available when an image is requested.
    let states =
        [("external", "active"), ("free", "manageable"), ("other", "active"), ("used", "active")];
    let states = states.map(|(host, state)| (host.to_owned(), state.to_owned()));
    until_true("adopted", || node_states(&service, &lab.namespace.name) == states).await;
    assert_eq!(lab.records(), records, "no machine was booted or written");

    // Hosts remain usable.
    lab.edit("used", json!({"image": null})).await;
    lab.until("used", "deprovisioned", |host| is_settled(host, "available")).await;
    assert_eq!(lab.machine("used").disk_image(), None);
    lab.delete("free").await;

    // Rollback.
    let before = lab.records();
    let holder = lab.lease_holder().await;
    operator.stop().await;
    let metal3 = lab.start_metal3_operator(&service, "metal3-operator-again.log");
    lab.until_lease_holder_is_not(&holder).await;
    lab.edit("other", json!({"online": false})).await;
    lab.until("other", "powered off", |host| !is_on(host)).await;
    lab.edit("other", json!({"online": true})).await;
    lab.until("other", "powered on", |host| is_settled(host, "provisioned")).await;
    lab.delete("external").await;
    let (_, writes, _) = before[1];
    assert_eq!(lab.machine("used").completed_step_count("write_image"), writes);
    assert_eq!(lab.machine("other").completed_step_count("write_image"), 1);
    for name in ["used", "other"] {
        lab.delete(name).await;
    }
    assert_eq!(node_states(&service, &lab.namespace.name), Vec::new());
    metal3.stop().await;
    lab.fleet.stop().await;
    lab.namespace.delete().await;
}

/// The Deployment of Metal3's operator, shortened.
fn metal3_deployment(owner: &Value) -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example/ironic:latest",
            "command": [format!("/bin/run{name}")],
            "env": [{"name": "IRONIC_LISTEN_PORT", "value": "6385"}],
            "volumeMounts": [{"name": "ironic-shared", "mountPath": "/shared"}]})
    };
    json!({
        "metadata": {"name": "ironic-service", "ownerReferences": [owner],
            "labels": {"ironic.metal3.io/ironic": "ironic", "ironic.metal3.io/version": "38.0"}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"ironic.metal3.io/app": "ironic-service"}},
            "template": {
                "metadata": {"labels": {"ironic.metal3.io/app": "ironic-service"}},
                "spec": {
                    "hostNetwork": true,
                    "dnsPolicy": "ClusterFirstWithHostNet",
                    "nodeSelector": {"ironic": "here"},
                    "initContainers": [container("ramdisk-downloader")],
                    "containers":
                        [container("ironic"), container("httpd"), container("ramdisk-logs")],
                    "volumes": [{"name": "ironic-shared", "emptyDir": {}}],
                },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_of_metal3_is_taken_over() {
    let Some(mut lab) = InstallationLab::start("takeover").await else { return };
    lab.stop_controllers().await;
    let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "ironic-service-x7x2v", "labels": {OPT_IN: "true"}},
        "type": "kubernetes.io/basic-auth",
        "stringData": {"username": "ironic", "password": "kept", "htpasswd": "ironic:outdated"},
    }))
    .unwrap();
    lab.namespace.api::<Secret>().create(&params, &secret).await.unwrap();
    lab.create_ironic(
        "ironic",
        json!({"version": "38.0", "apiCredentialsName": "ironic-service-x7x2v",
            "networking": {"disableHostNetwork": true}}),
    )
    .await;
    let patch = Patch::Merge(json!({
        "metadata": {"finalizers": ["ironic.metal3.io"]},
        "status": {"requestedVersion": "38.0", "installedVersion": "38.0", "conditions": [{
            "type": "Ready", "status": "True", "reason": "DeploymentAvailable", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }));
    let ironics = lab.ironics();
    ironics.patch("ironic", &PatchParams::default(), &patch).await.unwrap();
    let ironic = ironics.patch_status("ironic", &PatchParams::default(), &patch).await.unwrap();
    let owner = json!({"apiVersion": "ironic.metal3.io/v1alpha1", "kind": "Ironic",
        "name": "ironic", "uid": ironic.metadata.uid, "controller": true,
        "blockOwnerDeletion": true});
    let deployments = lab.namespace.api::<Deployment>();
    let deployment = serde_json::from_value(metal3_deployment(&owner)).unwrap();
    deployments.create(&params, &deployment).await.unwrap();
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "ironic", "ownerReferences": [owner]},
        "spec": {"selector": {"ironic.metal3.io/app": "ironic-service"}, "ports": [
            {"name": "ironic-api", "port": 80, "targetPort": "ironic-api"},
            {"name": "old", "port": 1234, "targetPort": "old"}]},
    }))
    .unwrap();
    let services = lab.namespace.api::<Service>();
    let old = services.create(&params, &service).await.unwrap().spec.unwrap();

    lab.start_controllers("0.1");
    wait_within(INSTALLATION, "ready again", &ironics, "ironic", is_ready_again).await;
    let taken = deployments.get("ironic-service").await.unwrap();
    let pod = taken.spec.unwrap().template.spec.unwrap();
    assert_eq!((pod.containers.len(), pod.containers[0].name.as_str()), (1, "ironic"));
    assert_eq!(pod.containers[0].command, None);
    assert!(pod.containers[0].env.iter().flatten().all(|it| it.name != "IRONIC_LISTEN_PORT"));
    assert!(pod.init_containers.unwrap_or_default().iter().all(|it| it.command.is_none()));
    assert_eq!((pod.host_network.unwrap_or_default(), pod.node_selector), (false, None));
    assert!(pod.volumes.iter().flatten().all(|volume| volume.name != "ironic-shared"));
    let new = services.get("ironic").await.unwrap().spec.unwrap();
    assert_eq!(new.cluster_ip, old.cluster_ip);
    assert!(new.ports.unwrap().iter().all(|port| port.name.as_deref() != Some("old")));
    let client = lab.service_client("ironic").await;
    assert_eq!(client.password, "kept");
    client.wait_response().await;
    lab.delete_ironic("ironic").await;
    wait_within(OPERATION, "deletion", &ironics, "ironic", Option::is_none).await;
    lab.namespace.delete().await;
}

/// Whether our operator reports that the installation is ready. Its message is not empty.
fn is_ready_again(ironic: &Option<Ironic>) -> bool {
    ironic.as_ref().is_some_and(|ironic| {
        let status = ironic.status.clone().unwrap_or_default();
        status.conditions.iter().any(|found| {
            found.type_ == "Ready" && found.status == "True" && !found.message.is_empty()
        })
    })
}
