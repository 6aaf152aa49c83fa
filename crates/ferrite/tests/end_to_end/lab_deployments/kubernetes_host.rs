// SPDX-License-Identifier: Apache-2.0
//! A `BareMetalHost` for a lab machine: a real control plane, the operator, and an image that boots.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};
use test_cluster::{TestCluster, TestClusterOptions};
use tokio::runtime::Runtime;

use super::boot_methods::network_data;
use super::lab_machine::{
    DEPLOYED_MARKER, DeployedLabMachine, TestAgent, checksum, image, lock_machine,
};
use crate::netboot::boot_site::BootSite;
use crate::netboot::serial_console::SerialConsole;
use crate::real_bmcs::lab::{LabInventory, text};
use crate::test_process::ferrite;

const MACHINE: &str = "journey-media";
const ADDRESS: &str = "10.77.19.42";
const NAMESPACE: &str = "metal3";
const HOST: &str = "lab";
/// Time limit of a stage, on a busy host.
const STAGE_TIMEOUT: &str = "--timeout=900s";
/// In the metadata of the deployed system.
const HOST_NAME: &str = "provisioned-by-kubernetes";

/// A control plane without nodes; `None` if it is not available and not required.
fn start_cluster(runtime: &Runtime) -> Option<TestCluster> {
    let variable = test_cluster::PROGRAM_VARIABLE;
    if TestCluster::program().is_none() {
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
        assert!(!required, "{variable} is not set, and FERRITE_TEST_SERVERS=required");
        println!("skipped: {variable} is not set");
        return None;
    }
    let documents = kube_resources::crds::all_crds();
    let crds = documents.iter().map(|document| document.yaml.to_owned()).collect();
    let options = TestClusterOptions { crds, ..TestClusterOptions::default() };
    Some(runtime.block_on(TestCluster::start(options)).unwrap())
}

/// The operator's process. Killed when dropped.
struct LabHostOperator {
    child: Child,
    log: PathBuf,
}

impl LabHostOperator {
    fn start(cluster: &TestCluster, site: &BootSite<'_>) -> Self {
        let log = site.path("operator.log");
        let file = File::create(&log).unwrap();
        let mut command = ferrite();
        command.args(["operator", "--controllers", "baremetalhost", "--namespace", NAMESPACE]);
        for listen in ["--webhook-listen", "--metrics-listen", "--health-listen"] {
            command.args([listen, "off"]);
        }
        command.args(["--log-level", "info,operator=debug"]);
        command.env("IRONIC_ENDPOINT", format!("{}/v1/", site.operator.server.url()));
        command.env("IRONIC_CACERT_FILE", site.path("data/ca.pem"));
        command.env("METAL3_AUTH_ROOT_DIR", site.path("no-credentials"));
        command.env("KUBECONFIG", cluster.kubeconfig());
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }
}

impl Drop for LabHostOperator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            println!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The host in the cluster.
struct KubernetesHost<'a> {
    cluster: &'a TestCluster,
}

impl KubernetesHost<'_> {
    fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let arguments = [arguments, &["--namespace", NAMESPACE]].concat();
        self.cluster.kubectl(&arguments).map_err(|error| format!("{error:#}"))
    }

    /// Creates objects from a file of the site.
    fn apply(&self, site: &BootSite<'_>, objects: &[Value]) {
        let file = site.path("objects.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&file, list.to_string()).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]).unwrap();
    }

    /// Waits for a value of the host, or its deletion.
    fn wait(&self, condition: &str) {
        let arguments = ["wait", &format!("--for={condition}"), STAGE_TIMEOUT];
        let waited = self.kubectl(&[&arguments[..], &["baremetalhost", HOST]].concat());
        if let Err(error) = waited {
            let host = self.kubectl(&["get", "baremetalhost", HOST, "--output", "yaml"]);
            panic!("{condition}: {error}\n{}", host.unwrap_or_else(|error| error));
        }
    }

    fn wait_for_state(&self, state: &str) {
        self.wait(&format!("jsonpath={{.status.provisioning.state}}={state}"));
    }

    fn get(&self) -> Value {
        let host = self.kubectl(&["get", "baremetalhost", HOST, "--output", "json"]).unwrap();
        serde_json::from_str(&host).unwrap()
    }
}

/// Serves the image under every path, on the bridge of the machine; returns its URL.
fn serve_image(address: &str) -> String {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let url = format!("http://{}/image.raw", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(request)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let mut file = File::open(image()).unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                file.metadata().unwrap().len()
            );
            // The client may have gone.
            let _ = stream.write_all(head.as_bytes());
            if request.starts_with("GET") {
                let _ = std::io::copy(&mut file, &mut stream);
            }
        }
    });
    url
}

/// From creation through inspection, provisioning and deprovisioning to deletion. The agent keeps
/// running from inspection to deployment, and has the address of the Secret instead of DHCP.
#[test]
fn a_host_is_inspected_provisioned_and_deleted() {
    let Some(lab) = LabInventory::find() else { return };
    // While another test has the machine, the control plane would only use memory.
    let _lock = lock_machine(MACHINE);
    let runtime = Runtime::new().unwrap();
    let Some(cluster) = start_cluster(&runtime) else { return };
    let fast_track = "[lifecycle]\nfast_track = true";
    let parameters = "ipa-lldp-timeout=1";
    let site = DeployedLabMachine::start_site(
        &lab,
        MACHINE,
        TestAgent::Ferrite,
        "off",
        parameters,
        fast_track,
    );
    cluster.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
    let _operator = LabHostOperator::start(&cluster, &site);
    let host = KubernetesHost { cluster: &cluster };
    let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    let info = lab.redfish_info(MACHINE);
    let bmc = json!({"username": info["redfish_username"], "password": info["redfish_password"]});
    let network = network_data(lab.mac(MACHINE), ADDRESS).to_string();
    let disk = lab.disks(MACHINE)[0].clone();
    let address = format!(
        "redfish-virtualmedia+{}{}",
        text(&info["redfish_address"]),
        text(&info["redfish_system_id"])
    );
    host.apply(
        &site,
        &[
            secret("bmc", bmc),
            secret("network", json!({"networkData": network})),
            secret("metadata", json!({"metaData": format!("hostname: {HOST_NAME}\n")})),
            json!({
                "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                "metadata": {"name": HOST},
                "spec": {
                    "online": true,
                    "bootMACAddress": lab.mac(MACHINE),
                    "bmc": {"address": address, "credentialsName": "bmc"},
                    "preprovisioningNetworkDataName": "network",
                    "rootDeviceHints": {"serialNumber": disk["serial"]},
                },
            }),
        ],
    );
    host.wait_for_state("available");
    let hardware = host.get()["status"]["hardware"].clone();
    assert_eq!(hardware["cpu"]["arch"], "x86_64", "{hardware}");
    assert_eq!(hardware["nics"][0]["mac"], lab.mac(MACHINE), "{hardware}");
    assert_eq!(hardware["storage"][0]["serialNumber"], disk["serial"], "{hardware}");

    let console = SerialConsole::from_now(lab.console(MACHINE));
    let spec = json!({"spec": {
        "image": {"url": serve_image(site.address()), "checksum": checksum(&image()),
            "checksumType": "sha256", "format": "raw"},
        "metaData": {"name": "metadata", "namespace": NAMESPACE},
    }});
    let patch = ["patch", "baremetalhost", HOST, "--type=merge", "--patch", &spec.to_string()];
    host.kubectl(&patch).unwrap();
    host.wait_for_state("provisioned");
    console.wait_for(DEPLOYED_MARKER, || site.operator.log());
    let output = console.output();
    let mut lines = output.lines().filter(|line| line.contains("FERRITE-CONFIG-DRIVE"));
    assert!(lines.any(|line| line.contains(HOST_NAME)), "{}", console.last_lines(40));
    host.wait("jsonpath={.status.poweredOn}=true");

    host.kubectl(&["delete", "baremetalhost", HOST, "--wait=false"]).unwrap();
    host.wait("delete");
    assert!(DeployedLabMachine::is_disk_empty(&disk), "the disk was not erased");
    assert_eq!(lab.power(MACHINE), "shut off");
}
