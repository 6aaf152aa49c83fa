// SPDX-License-Identifier: Apache-2.0
//! Simulated machines with agents, from enrolment to an instance and back, by the real program,
//! which is killed in the middle of the deployments.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::machine::{PowerState, Runs};
use fleet_sim::{AgentConfig, Fleet, FleetConfig, Personality};
use http_probe::{Client, Server};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::ferrite::Home;
use crate::random::Random;

const MACHINES: u32 = 40;
/// How often the server is killed while machines are deployed.
const KILLS: usize = 5;
/// How long one stage of the journey may take for all of them.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What is deployed, and its SHA-256.
const IMAGE: &[u8] = b"abc";
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The machines, and the server that looks after them.
struct World {
    home: Home,
    runtime: Runtime,
    fleet: Option<Fleet>,
    server: Option<Server>,
    address: SocketAddr,
}

impl World {
    fn new() -> Self {
        let home = Home::new();
        let server = serve(&home);
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let agents =
            AgentConfig { tls: true, downloads: true, ..AgentConfig::calling(&server.url()) };
        let fleet = Fleet::start(FleetConfig {
            bmcs: MACHINES,
            personalities: vec![Personality::named("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        drop(guard);
        let address = server.address();
        Self { home, runtime, fleet: Some(fleet), server: Some(server), address }
    }

    fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().unwrap()
    }

    fn client(&self) -> Client {
        Client::new(self.address).with_patience(Duration::from_secs(30))
    }

    /// Kills the server and starts another on the same data.
    fn kill(&mut self) {
        self.server.take().unwrap().kill().unwrap();
        let server = serve(&self.home);
        self.address = server.address();
        self.fleet().set_api(&server.url());
        self.server = Some(server);
    }

    /// Creates the machines as nodes.
    fn enrol(&self, image: &str) {
        let mut client = self.client();
        for machine in self.fleet().machines() {
            let enrolment = machine.enrolment(None);
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
            let made = client.ask("POST", "/v1/nodes", Some(&body)).unwrap();
            assert_eq!(made.status, 201, "{}", made.text());
            let uuid = made.json()["uuid"].clone();
            for port in enrolment.ports {
                let port = json!({"node_uuid": uuid, "address": port.address});
                let made = client.ask("POST", "/v1/ports", Some(&port)).unwrap();
                assert_eq!(made.status, 201, "{}", made.text());
            }
        }
    }

    /// Asks for the same of all of them.
    fn ask_all(&self, verb: &str) {
        let mut client = self.client();
        for machine in self.fleet().machines() {
            let path = format!("/v1/nodes/{}/states/provision", machine.enrolment(None).name);
            let asked = client.ask("PUT", &path, Some(&json!({"target": verb}))).unwrap();
            assert_eq!(asked.status, 202, "{verb}: {}", asked.text());
        }
    }

    /// Where the machines are, by name.
    fn look(&self) -> BTreeMap<String, Value> {
        let path = "/v1/nodes?fields=name,provision_state,target_provision_state,last_error";
        let answer = self.client().ask("GET", path, None).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let nodes = answer.json();
        let nodes = nodes["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["name"].as_str().unwrap().to_owned(), node.clone())).collect()
    }

    /// How many have arrived; those that went astray end the test.
    fn arrived(&self, state: &str) -> usize {
        let nodes = self.look();
        for node in nodes.values() {
            let now = node["provision_state"].as_str().unwrap();
            let is_astray = now.ends_with("failed") || now == "error";
            assert!(!is_astray, "{node}\n{}", self.home.log());
        }
        let is_there = |node: &&Value| {
            node["provision_state"] == state && node["target_provision_state"].is_null()
        };
        nodes.values().filter(is_there).count()
    }

    /// Waits until all of them have arrived.
    fn await_all(&self, state: &str) -> Duration {
        let began = Instant::now();
        while self.arrived(state) < usize::try_from(MACHINES).unwrap() {
            assert!(
                began.elapsed() < PATIENCE,
                "not all are {state}: {:#?}\n{}",
                self.look(),
                self.home.log()
            );
            thread::sleep(LOOK_EVERY);
        }
        began.elapsed()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

#[test]
fn machines_are_deployed_once_however_often_the_server_is_killed() {
    let mut random = Random::seeded();
    let image = serve_image();
    let mut world = World::new();
    world.enrol(&image);
    for (verb, state) in
        [("manage", "manageable"), ("inspect", "manageable"), ("provide", "available")]
    {
        world.ask_all(verb);
        let took = world.await_all(state);
        println!("{verb}: {took:.1?}");
    }
    for machine in world.fleet().machines() {
        assert_eq!(machine.carried_out("erase_devices_metadata"), 1, "it was cleaned");
        assert_eq!(machine.power(), PowerState::Off);
    }
    let inventory =
        world.client().ask("GET", "/v1/nodes/sim-00000/inventory", None).unwrap().json();
    assert_eq!(inventory["inventory"]["system_vendor"]["manufacturer"], "Ferrite", "{inventory}");

    world.ask_all("active");
    let began = Instant::now();
    for _ in 0..KILLS {
        thread::sleep(Duration::from_millis(random.below(1_500)));
        world.kill();
    }
    world.await_all("active");
    println!("active, with {KILLS} kills: {:.1?}", began.elapsed());
    for machine in world.fleet().machines() {
        let name = machine.enrolment(None).name;
        assert_eq!(machine.carried_out("write_image"), 1, "{name}");
        let disk = machine.disk().unwrap();
        assert_eq!((&*disk.source, disk.checksum.as_deref()), (&*image, Some(DIGEST)), "{name}");
        until(|| machine.runs() == Runs::Instance);
    }

    world.ask_all("deleted");
    let took = world.await_all("available");
    println!("deleted: {took:.1?}");
    for machine in world.fleet().machines() {
        assert_eq!(machine.disk(), None, "nothing of the instance is left");
        assert_eq!(machine.carried_out("erase_devices_metadata"), 2);
    }
}

/// A server without boot services: what simulated machines boot is nobody's business.
fn serve(home: &Home) -> Server {
    let config = home.path("ferrite.toml");
    std::fs::write(&config, "[boot]\nenabled = false\n").unwrap();
    home.serve_with(&["--auth", "none", "--config", config.to_str().unwrap()])
}

/// A machine that was switched on is not there at once.
fn until(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "it does not come to pass");
        thread::sleep(LOOK_EVERY);
    }
}

/// Serves the image to whoever asks for anything, and gives its URL.
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
            // Who asked may have gone.
            let _ = stream.write_all(head.as_bytes());
            if is_get {
                let _ = stream.write_all(IMAGE);
            }
        }
    });
    url
}
