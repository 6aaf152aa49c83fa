// SPDX-License-Identifier: Apache-2.0
//! Hosts with a real service and simulated machines with agents.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use fleet_sim::{
    FaultRule, FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine,
};
use http_probe::ServerProcess;
use ironic_client::{Api, ApiTarget, Method};
use operator::hosts::controller::{HostControllerSettings, RamdiskImages};
use operator::hosts::provisioner::ironic::{IronicProvisioner, IronicProvisionerSettings};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::TestNamespace;
use crate::hosts_lab::{HostNamespace, SECRET};

/// Content of every file that the test serves, and its SHA-256.
const FILE: &[u8] = b"abc";
pub(crate) const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// An operator, a service and machines.
pub(crate) struct ServiceLab {
    pub(crate) hosts: HostNamespace,
    pub(crate) fleet: SimulatedFleet,
    /// A server that returns a small file for every path.
    pub(crate) files: String,
    /// The variables of the operator that select the ramdisk.
    ramdisk: Vec<(String, String)>,
    folder: TempDir,
    address: SocketAddr,
    server: Option<ServerProcess>,
}

impl ServiceLab {
    /// Starts all of it; `None` without a cluster.
    pub(crate) async fn start(purpose: &str, machines: u32) -> Option<Self> {
        Self::start_with(purpose, machines, false).await
    }

    /// Like [`ServiceLab::start`]. Hosts may request a ramdisk of their own.
    pub(crate) async fn start_with(
        purpose: &str,
        machines: u32,
        requests_ramdisks: bool,
    ) -> Option<Self> {
        let namespace = TestNamespace::create(purpose).await?;
        let folder = tempfile::Builder::new().prefix("ferrite-test-").tempdir().unwrap();
        // Simulated machines have no leases, so their agents have no boot proof. The images are on
        // loopback. Some BMCs never respond.
        let config = format!(
            "boot.listen = [\"127.0.0.1:0\"]\nconductor.agent_boot_proof = \"none\"\n\
             lifecycle.bmc_timeout = 5\ndrivers.redfish.read_timeout = 5\n\
             images.allow_local_urls = true\nimages.file_url_allowed_paths = [{:?}]\n",
            folder.path()
        );
        std::fs::write(folder.path().join("ferrite.toml"), config).unwrap();
        let server = serve(folder.path(), "127.0.0.1:0");
        let url = server.url();
        let agents = SimulatedAgentConfig { tls: true, ..SimulatedAgentConfig::for_api(&url) };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: machines,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        let files = serve_files();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            format!("file://{}", path.display())
        };
        let ramdisk = vec![
            ("DEPLOY_KERNEL_URL".to_owned(), file("kernel")),
            ("DEPLOY_RAMDISK_URL".to_owned(), file("ramdisk")),
            ("DEPLOY_ISO_URL".to_owned(), format!("{files}/ramdisk.iso")),
        ];
        let settings =
            IronicProvisionerSettings::from_variables(ramdisk.clone(), requests_ramdisks).unwrap();
        let ramdisk_images = match requests_ramdisks {
            true => RamdiskImages::Configured(settings.ramdisk.clone()),
            false => RamdiskImages::Shared,
        };
        let controllers =
            HostControllerSettings { ramdisk_images, ..HostControllerSettings::default() };
        let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
        let provisioner = Arc::new(IronicProvisioner::new(Arc::new(api), settings));
        let hosts = HostNamespace::with_settings(namespace, provisioner, controllers).await;
        let address = server.address();
        Some(Self { hosts, fleet, files, ramdisk, folder, address, server: Some(server) })
    }

    pub(crate) fn machine(&self, index: u32) -> SimulatedMachine {
        self.fleet.machine(index).unwrap()
    }

    /// The node of a host.
    pub(crate) async fn node(&self, host: &str) -> Value {
        self.get(&format!("/v1/nodes/{}~{host}", self.hosts.namespace.name)).await
    }

    /// The MAC addresses of the ports of a host.
    pub(crate) async fn port_addresses(&self, host: &str) -> Vec<String> {
        let path = format!("/v1/ports?node={}~{host}", self.hosts.namespace.name);
        let ports = self.get(&path).await;
        let ports = ports["ports"].as_array().unwrap().iter();
        ports.map(|port| port["address"].as_str().unwrap().to_owned()).collect()
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}", self.address);
        let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
        api.send(Method::GET, path, None).await.unwrap()
    }

    pub(crate) fn add_fault(&self, rule: &str) {
        self.fleet.faults().add(rule.parse::<FaultRule>().unwrap(), self.fleet.now());
    }

    /// A file in the folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn service_url(&self) -> String {
        self.server.as_ref().unwrap().url()
    }

    pub(crate) fn ramdisk_variables(&self) -> Vec<(String, String)> {
        self.ramdisk.clone()
    }

    /// The names of all nodes of the service.
    pub(crate) fn node_names(&self) -> Vec<String> {
        let mut client = self.server.as_ref().unwrap().client();
        let response = client.send_json("GET", "/v1/nodes?fields=name", None).unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        let nodes = response.json();
        let nodes = nodes["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The BMC address of a machine.
    pub(crate) fn address(&self, index: u32, scheme: &str) -> String {
        let machine = self.machine(index);
        format!("{scheme}+http://{}{}", machine.address(), machine.system_path())
    }

    /// Creates a host for a machine; `spec` is merged over the defaults.
    pub(crate) async fn create(&self, name: &str, index: u32, scheme: &str, spec: Value) {
        let mac = self.machine(index).macs().first().unwrap().to_string();
        let mut full = json!({"bootMACAddress": mac,
            "bmc": {"address": self.address(index, scheme), "credentialsName": SECRET}});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.hosts.create(name, full).await;
    }

    /// A spec that requests an image.
    pub(crate) fn image(&self, name: &str) -> Value {
        json!({"image": {"url": format!("{}/{name}", self.files), "checksum": DIGEST,
            "checksumType": "sha256", "format": "raw"}})
    }

    /// Ends the service at once and starts it again, without its database if requested.
    pub(crate) fn restart_service(&mut self, loses_database: bool) {
        self.server.take().unwrap().kill().unwrap();
        if loses_database {
            std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        }
        self.server = Some(serve(self.folder.path(), &self.address.to_string()));
    }

    /// Ends everything.
    pub(crate) async fn end(self) {
        self.hosts.end().await;
        self.fleet.stop().await;
    }
}

/// Starts the service with `ferrite.toml` of the folder.
pub(crate) fn serve(folder: &Path, listen: &str) -> ServerProcess {
    let path = |name: &str| folder.join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
    command.args(["serve", "--listen", listen, "--auth", "none", "--config"]);
    command.arg(path("ferrite.toml")).arg("--data-dir").arg(path("data"));
    let started = ServerProcess::start(&mut command, &path("log"));
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Serves files on loopback; returns the URL. See [`serve_files_at`].
pub(crate) fn serve_files() -> String {
    serve_files_at(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Serves a small file under every path, and an ISO 9660 image or a kernel for paths of this kind;
/// returns the URL.
pub(crate) fn serve_files_at(address: IpAddr) -> String {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(request)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let content = match &request {
                path if path.contains(".iso ") => iso_image(),
                path if path.contains("/kernel ") => kernel_image(),
                _ => FILE.to_vec(),
            };
            let size = content.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n");
            // The client may have gone.
            let _ = stream.write_all(head.as_bytes());
            if request.starts_with("GET") {
                let _ = stream.write_all(&content);
            }
        }
    });
    url
}

/// The system area, an empty volume descriptor and the end of descriptors.
fn iso_image() -> Vec<u8> {
    let mut image = vec![0; 18 * 2048];
    image[16 * 2048..][..7].copy_from_slice(b"\x01CD001\x01");
    image[17 * 2048..][..7].copy_from_slice(b"\xffCD001\x01");
    image
}

/// The first bytes of an EFI application, as which a kernel has to look like.
fn kernel_image() -> Vec<u8> {
    let mut kernel = vec![0; 512];
    kernel[..2].copy_from_slice(b"MZ");
    kernel[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
    kernel[0x40..0x44].copy_from_slice(b"PE\0\0");
    kernel[0x44..0x46].copy_from_slice(&0x8664_u16.to_le_bytes());
    kernel
}
