// SPDX-License-Identifier: Apache-2.0
//! `ferrite operator --with-service`: hosts with simulated machines from creation to deletion, with the
//! process killed in between.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fleet_sim::machine::RunningSoftware;
use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine};
use http_probe::{ProbeClient, ServerProcess};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{TIMEOUT, TestNamespace, wait_for, wait_within};
use crate::hosts_service_lab::{DIGEST, serve_files};

const MACHINES: u32 = 5;
/// Time limit of an operation on all machines.
const OPERATION_LIMIT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Simulated machines get no addresses from DHCP, so their agents have no boot proof. The image server of
/// the test listens on loopback.
const SERVICE_CONFIG: &str = r#"
api.listen = "127.0.0.1:0"
boot.listen = ["127.0.0.1:0"]
conductor.agent_boot_proof = "none"
images.allow_local_urls = true
"#;

/// A process with operator and service, and the machines that it manages.
struct WithServiceTest {
    namespace: TestNamespace,
    hosts: Api<BareMetalHost>,
    log: ProcessLog,
    folder: TempDir,
    /// Serves image, kernel and ramdisk.
    image_server: String,
    fleet: SimulatedFleet,
    process: Option<ServerProcess>,
}

impl WithServiceTest {
    async fn start() -> Option<Self> {
        let namespace = TestNamespace::create("with-service").await?;
        let folder = tempfile::Builder::new().prefix("ferrite-test-").tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let image_server = serve_files();
        let config = format!(
            "data_dir = {:?}\n{SERVICE_CONFIG}boot.deploy_kernel = \"{image_server}/kernel\"\n\
             boot.deploy_ramdisk = \"{image_server}/ramdisk\"\n",
            data_dir.to_str().unwrap()
        );
        std::fs::write(folder.path().join("ferrite.toml"), config).unwrap();
        let agents = SimulatedAgentConfig {
            tls: true,
            downloads_images: true,
            ..SimulatedAgentConfig::for_api("http://127.0.0.1:1")
        };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: MACHINES,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        let log = ProcessLog(folder.path().join("log"));
        let hosts = namespace.api();
        let mut test = Self { namespace, hosts, log, folder, image_server, fleet, process: None };
        test.run();
        Some(test)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FERRITE_") {
                command.env_remove(name);
            }
        }
        command.args(["operator", "--with-service", "--controllers", "baremetalhost"]);
        command.args(["--namespace", &self.namespace.name]);
        command.args(["--health-listen", "127.0.0.1:0", "--metrics-listen", "off"]);
        command.args(["--webhook-listen", "off", "--log-level", "info,operator=debug"]);
        command.arg("--config").arg(self.path("ferrite.toml"));
        command.arg("--kubeconfig").arg(self.namespace.cluster.kubeconfig());
        command
    }

    /// Starts the process; its agents call the new address.
    fn run(&mut self) {
        let started = ServerProcess::start(&mut self.command(), &self.log.0);
        let process = started.unwrap_or_else(|error| panic!("{error}"));
        self.fleet.set_agent_api(&process.url());
        self.process = Some(process);
    }

    fn kill_and_restart(&mut self) {
        self.process.take().unwrap().kill().unwrap();
        self.run();
    }

    /// The API of the service, on loopback.
    fn client(&self) -> ProbeClient {
        self.process.as_ref().unwrap().client()
    }

    fn machines(&self) -> Vec<SimulatedMachine> {
        self.fleet.machines().collect()
    }

    /// Creates a host for each machine.
    async fn create_hosts(&self) {
        let secrets: Api<Secret> = self.namespace.api();
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "bmc"},
            "stringData": {"username": "admin", "password": "password"},
        }))
        .unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        for machine in self.machines() {
            let host: BareMetalHost = serde_json::from_value(json!({
                "metadata": {"name": host_name(&machine)},
                "spec": {
                    "online": true,
                    "bootMACAddress": machine.macs().first().unwrap().to_string(),
                    "bmc": {
                        "address": format!("redfish+{}{}", machine.url(), machine.system_path()),
                        "credentialsName": "bmc",
                    },
                },
            }))
            .unwrap();
            self.hosts.create(&PostParams::default(), &host).await.unwrap();
        }
    }

    async fn patch_hosts(&self, spec: &Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        for machine in self.machines() {
            let name = host_name(&machine);
            self.hosts.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Waits until all hosts are in a state without an error.
    async fn wait_for_all(&self, state: &str) {
        for machine in self.machines() {
            self.wait_for_state(&machine, state).await;
        }
    }

    async fn wait_for_state(&self, machine: &SimulatedMachine, state: &str) {
        let is_reached = |host: &Option<BareMetalHost>| {
            let status = host.as_ref().and_then(|host| host.status.as_ref());
            status.is_some_and(|status| {
                status.provisioning.state.as_str() == state && status.error_message.is_empty()
            })
        };
        let name = host_name(machine);
        wait_within(OPERATION_LIMIT, state, &self.hosts, &name, is_reached).await;
    }

    async fn wait_until(&self, what: &str, is_met: impl Fn() -> bool) {
        let wait = async {
            while !is_met() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, wait).await;
        assert!(ended.is_ok(), "{what}: not within {TIMEOUT:?}");
    }
}

/// The log of the process, printed if the test fails.
struct ProcessLog(PathBuf);

impl ProcessLog {
    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for ProcessLog {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_live_in_one_process_although_it_is_killed() {
    let Some(mut test) = WithServiceTest::start().await else { return };
    let image = format!("{}/image.raw", test.image_server);
    test.create_hosts().await;
    test.wait_for_state(&test.machines()[0], "inspecting").await;
    test.kill_and_restart();
    test.wait_for_all("available").await;
    for machine in test.machines() {
        let name = host_name(&machine);
        let host = test.hosts.get(&name).await.unwrap();
        let hardware = host.status.and_then(|status| status.hardware);
        let vendor = hardware.and_then(|hardware| hardware.system_vendor.manufacturer);
        assert_eq!(vendor.as_deref(), Some("Ferrite"), "{name}");
    }

    test.patch_hosts(&json!({"image": {
        "url": image, "checksum": DIGEST, "checksumType": "sha256", "format": "raw",
    }}))
    .await;
    test.wait_for_state(&test.machines()[0], "provisioning").await;
    test.kill_and_restart();
    test.wait_for_all("provisioned").await;
    for machine in test.machines() {
        let name = host_name(&machine);
        assert_eq!(machine.completed_step_count("write_image"), 1, "{name}");
        // As with Metal3, hosts are cleaned before a deployment without overwriting their disks.
        assert!(machine.completed_step_count("erase_devices_metadata") > 0, "{name}");
        let disk = machine.disk_image().unwrap();
        assert_eq!((&*disk.source, disk.checksum.as_deref()), (&*image, Some(DIGEST)), "{name}");
        let runs = || machine.running_software() == RunningSoftware::Instance;
        test.wait_until(&format!("{name} runs its system"), runs).await;
    }
    assert_eq!(node_names(&mut test.client()).len(), test.machines().len());

    for machine in test.machines() {
        test.hosts.delete(&host_name(&machine), &DeleteParams::default()).await.unwrap();
    }
    test.wait_for_state(&test.machines()[0], "deprovisioning").await;
    test.kill_and_restart();
    for machine in test.machines() {
        let name = host_name(&machine);
        wait_for("deletion", &test.hosts, &name, Option::is_none).await;
        assert_eq!(machine.disk_image(), None, "{name}: the image was erased");
        assert_eq!(machine.completed_step_count("erase_devices"), 0, "{name}");
    }
    assert_eq!(node_names(&mut test.client()), Vec::<String>::new());

    let stopped = test.process.take().unwrap().stop(STOP_LIMIT).unwrap();
    assert!(stopped.status.success(), "{}", stopped.status);
    assert!(!test.log.text().contains("panicked"));
    test.fleet.stop().await;
    test.namespace.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_are_accepted() {
    let Some(namespace) = TestNamespace::create("with-service-manifests").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let manifests =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/operator/with-service");
    let objects = namespace.cluster.kubectl(&["kustomize", manifests]).unwrap();
    let path = folder.path().join("objects.yaml");
    std::fs::write(&path, objects.replace("ferrite-system", &namespace.name)).unwrap();
    let arguments = ["apply", "--dry-run=server", "-f", path.to_str().unwrap()];
    let output = namespace.cluster.kubectl(&arguments).unwrap();
    assert!(output.contains("deployment.apps/ferrite-operator created"), "{output}");
    namespace.delete().await;
}

fn host_name(machine: &SimulatedMachine) -> String {
    format!("host-{}", machine.index())
}

fn node_names(client: &mut ProbeClient) -> Vec<String> {
    let response = client.send_json("GET", "/v1/nodes?fields=name", None).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    let nodes = response.json();
    let nodes = nodes["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}
