// SPDX-License-Identifier: Apache-2.0
//! Simulated machines with agents are enrolled, inspected, cleaned, deployed and undeployed, while the
//! server is killed during the deployments.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::machine::{PowerState, RunningSoftware};
use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet};
use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::seeded_random::SeededRandom;
use crate::test_process::TestHome;

const MACHINES: u32 = 40;
/// Number of kills during the deployments.
const KILLS: usize = 5;
/// Timeout of a stage for all machines.
const TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The image and its SHA-256.
const IMAGE: &[u8] = b"abc";
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The machines and the server that manages them.
struct FleetTest {
    home: TestHome,
    runtime: Runtime,
    fleet: Option<SimulatedFleet>,
    server: Option<ServerProcess>,
    address: SocketAddr,
}

impl FleetTest {
    fn new() -> Self {
        let home = TestHome::new();
        let server = serve(&home);
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let agents = SimulatedAgentConfig {
            tls: true,
            downloads_images: true,
            ..SimulatedAgentConfig::for_api(&server.url())
        };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: MACHINES,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        drop(guard);
        let address = server.address();
        Self { home, runtime, fleet: Some(fleet), server: Some(server), address }
    }

    fn fleet(&self) -> &SimulatedFleet {
        self.fleet.as_ref().unwrap()
    }

    fn client(&self) -> ProbeClient {
        ProbeClient::new(self.address).with_timeout(Duration::from_secs(30))
    }

    /// Kills the server and starts another on the same data.
    fn kill_and_restart(&mut self) {
        self.server.take().unwrap().kill().unwrap();
        let server = serve(&self.home);
        self.address = server.address();
        self.fleet().set_agent_api(&server.url());
        self.server = Some(server);
    }

    /// Creates a node for each machine.
    fn enrol(&self, image: &str) {
        let mut client = self.client();
        for machine in self.fleet().machines() {
            let enrolment = machine.redfish_enrolment(None);
            let body = json!({
                "name": enrolment.name,
                "driver": enrolment.driver,
                "driver_info": enrolment.driver_info,
                "properties": enrolment.properties,
                "boot_interface": "pxe",
                "deploy_interface": "direct",
                "inspect_interface": "agent",
                "automated_clean": true,
                "instance_info": {"image_source": image, "image_checksum": DIGEST},
            });
            let created = client.send_json("POST", "/v1/nodes", Some(&body)).unwrap();
            assert_eq!(created.status, 201, "{}", created.text());
            let uuid = created.json()["uuid"].clone();
            for port in enrolment.ports {
                let port = json!({"node_uuid": uuid, "address": port.address});
                let created = client.send_json("POST", "/v1/ports", Some(&port)).unwrap();
                assert_eq!(created.status, 201, "{}", created.text());
            }
        }
    }

    /// Requests a verb for all nodes.
    fn request_all(&self, verb: &str) {
        let mut client = self.client();
        for machine in self.fleet().machines() {
            let path =
                format!("/v1/nodes/{}/states/provision", machine.redfish_enrolment(None).name);
            let response = client.send_json("PUT", &path, Some(&json!({"target": verb}))).unwrap();
            assert_eq!(response.status, 202, "{verb}: {}", response.text());
        }
    }

    /// The nodes by name.
    fn poll_nodes(&self) -> BTreeMap<String, Value> {
        let path = "/v1/nodes?fields=name,provision_state,target_provision_state,last_error";
        let response = self.client().send_json("GET", path, None).unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        let nodes = response.json();
        let nodes = nodes["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["name"].as_str().unwrap().to_owned(), node.clone())).collect()
    }

    /// Number of nodes in a stable state. Panics if a node has failed.
    fn count_in_state(&self, state: &str) -> usize {
        let nodes = self.poll_nodes();
        for node in nodes.values() {
            let now = node["provision_state"].as_str().unwrap();
            let is_failed = now.ends_with("failed") || now == "error";
            assert!(!is_failed, "{node}\n{}", self.home.log());
        }
        let is_in_state = |node: &&Value| {
            node["provision_state"] == state && node["target_provision_state"].is_null()
        };
        nodes.values().filter(is_in_state).count()
    }

    /// Waits until all nodes are in a stable state.
    fn wait_for_all(&self, state: &str) -> Duration {
        let started_at = Instant::now();
        while self.count_in_state(state) < usize::try_from(MACHINES).unwrap() {
            assert!(
                started_at.elapsed() < TIMEOUT,
                "not all are {state}: {:#?}\n{}",
                self.poll_nodes(),
                self.home.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
        started_at.elapsed()
    }
}

impl Drop for FleetTest {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

#[test]
fn images_are_written_once_although_the_server_is_killed() {
    let mut random = SeededRandom::seeded();
    let image = serve_image();
    let mut test = FleetTest::new();
    test.enrol(&image);
    for (verb, state) in
        [("manage", "manageable"), ("inspect", "manageable"), ("provide", "available")]
    {
        test.request_all(verb);
        let took = test.wait_for_all(state);
        println!("{verb}: {took:.1?}");
    }
    for machine in test.fleet().machines() {
        assert_eq!(machine.completed_step_count("erase_devices_metadata"), 1, "cleaned once");
        assert_eq!(machine.power_state(), PowerState::Off);
    }
    let inventory =
        test.client().send_json("GET", "/v1/nodes/sim-00000/inventory", None).unwrap().json();
    assert_eq!(inventory["inventory"]["system_vendor"]["manufacturer"], "Ferrite", "{inventory}");

    test.request_all("active");
    let started_at = Instant::now();
    for _ in 0..KILLS {
        thread::sleep(Duration::from_millis(random.below(1_500)));
        test.kill_and_restart();
    }
    test.wait_for_all("active");
    println!("active, with {KILLS} kills: {:.1?}", started_at.elapsed());
    for machine in test.fleet().machines() {
        let name = machine.redfish_enrolment(None).name;
        assert_eq!(machine.completed_step_count("write_image"), 1, "{name}");
        let disk = machine.disk_image().unwrap();
        assert_eq!((&*disk.source, disk.checksum.as_deref()), (&*image, Some(DIGEST)), "{name}");
        wait_until(|| machine.running_software() == RunningSoftware::Instance);
    }

    test.request_all("deleted");
    let took = test.wait_for_all("available");
    println!("deleted: {took:.1?}");
    for machine in test.fleet().machines() {
        assert_eq!(machine.disk_image(), None, "the image was erased");
        assert_eq!(machine.completed_step_count("erase_devices_metadata"), 2);
    }
}

/// Starts a server without boot services, which simulated machines do not use. So their agents have no
/// boot proof.
fn serve(home: &TestHome) -> ServerProcess {
    let config = home.path("ferrite.toml");
    std::fs::write(&config, "[boot]\nenabled = false\n[conductor]\nagent_boot_proof = \"none\"\n")
        .unwrap();
    home.serve_with(&["--auth", "none", "--config", config.to_str().unwrap()])
}

/// Waits until the condition is true.
fn wait_until(condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < TIMEOUT, "timed out");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Serves the image under every path; returns its URL.
fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/image.raw", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let is_get =
                lines.next().is_some_and(|line| line.is_ok_and(|it| it.starts_with("GET")));
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                IMAGE.len()
            );
            // Who response may have gone.
            let _ = stream.write_all(head.as_bytes());
            if is_get {
                let _ = stream.write_all(IMAGE);
            }
        }
    });
    url
}
