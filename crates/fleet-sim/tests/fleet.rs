// SPDX-License-Identifier: Apache-2.0
//! A fleet over real sockets: what goes wrong by rule, TLS, the control endpoint, recordings.

// Helpers of tests may unwrap and print as tests do.
#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use fleet_sim::machine::{BootTarget, PowerState};
use fleet_sim::{Control, FaultRule, Fleet, FleetConfig, Personality, Replay, SimulatedMachine};
use http_probe::{Answer, Client};
use redfish::recording::{self, Recording};
use redfish::{Endpoint, Timeouts, Trust};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

const BASIC: &str = "Basic YWRtaW46cGFzc3dvcmQ=";

/// Runs on the threads of a runtime while the test talks to it as a client would.
struct Rig {
    runtime: Runtime,
    fleet: Option<Fleet>,
}

impl Rig {
    fn start(config: FleetConfig) -> Self {
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let fleet = Fleet::start(config).unwrap();
        drop(guard);
        Self { runtime, fleet: Some(fleet) }
    }

    fn generic(bmcs: u32) -> Self {
        Self::start(FleetConfig {
            bmcs,
            personalities: vec![Personality::named("generic").unwrap()],
            speed: 1_000.0,
            ..FleetConfig::default()
        })
    }

    fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().unwrap()
    }

    fn machine(&self, index: u32) -> SimulatedMachine {
        self.fleet().machine(index).unwrap()
    }

    fn faults(&self, rules: &[&str]) {
        let rules = rules.iter().map(|rule| rule.parse::<FaultRule>().unwrap()).collect();
        self.fleet().faults().set(rules, self.fleet().now());
    }

    fn get(&self, index: u32) -> std::io::Result<Answer> {
        let machine = self.machine(index);
        client(&machine).send("GET", &machine.system_path(), None)
    }

    fn reset(&self, index: u32, how: &str) -> Answer {
        let machine = self.machine(index);
        let path = format!("{}/Actions/ComputerSystem.Reset", machine.system_path());
        client(&machine).ask("POST", &path, Some(&json!({"ResetType": how}))).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

fn client(machine: &SimulatedMachine) -> Client {
    Client::new(machine.address())
        .with_header("Authorization", BASIC)
        .with_patience(Duration::from_secs(5))
}

fn until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < end, "it does not come to pass");
        std::thread::yield_now();
    }
}

#[test]
fn every_bmc_is_its_own() {
    let rig = Rig::generic(3);
    let systems: Vec<Value> = (0..3).map(|index| rig.get(index).unwrap().json()).collect();
    assert_ne!(systems[0]["UUID"], systems[1]["UUID"]);
    assert_eq!(rig.reset(1, "On").status, 204);
    until(|| rig.machine(1).booted().is_some());
    assert_eq!(rig.machine(1).booted().unwrap().from, BootTarget::Hdd);
    assert_eq!(rig.machine(1).power(), PowerState::On);
    assert_eq!(rig.machine(0).power(), PowerState::Off);
    assert_eq!(rig.get(2).unwrap().json()["PowerState"], "Off");
}

#[test]
fn what_goes_wrong_goes_wrong_for_those_it_is_about() {
    let rig = Rig::generic(2);
    rig.faults(&["drop bmcs=0"]);
    assert!(rig.get(0).is_err());
    assert_eq!(rig.get(1).unwrap().status, 200);

    rig.faults(&["status=503 bmcs=0 retry_after=7"]);
    let busy = rig.get(0).unwrap();
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("7")));

    rig.faults(&["wrong-json"]);
    let garbled = rig.get(0).unwrap();
    assert_eq!(garbled.status, 200);
    assert!(serde_json::from_slice::<Value>(&garbled.body).is_err());

    rig.faults(&["wrong-password bmcs=1"]);
    assert_eq!(rig.get(0).unwrap().status, 200);
    assert_eq!(rig.get(1).unwrap().status, 401);

    rig.faults(&["power-stuck bmcs=0"]);
    assert_eq!(rig.reset(0, "On").status, 204);
    assert_eq!(rig.reset(1, "On").status, 204);
    until(|| rig.machine(1).power() == PowerState::On);
    assert_eq!(rig.machine(0).power(), PowerState::Off);
    rig.faults(&[]);
    assert_eq!(rig.reset(0, "On").status, 204);
    until(|| rig.machine(0).power() == PowerState::On);
}

#[test]
fn a_hanging_bmc_says_nothing_and_a_slow_one_something_later() {
    let rig = Rig::generic(1);
    let machine = rig.machine(0);
    rig.faults(&["hang"]);
    let silence = client(&machine)
        .with_patience(Duration::from_millis(200))
        .send("GET", "/redfish/v1", None)
        .unwrap_err();
    assert!(
        matches!(silence.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        "{silence}"
    );
    rig.faults(&["delay=150"]);
    let began = std::time::Instant::now();
    assert_eq!(rig.get(0).unwrap().status, 200);
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_bmc_that_restarts_is_away_and_comes_back() {
    let rig = Rig::generic(1);
    rig.faults(&["bmc-reboot=1 times=1"]);
    assert!(rig.get(0).is_err());
    assert!(rig.get(0).is_err(), "it is still away");
    until(|| rig.get(0).is_ok());
    assert_eq!(rig.machine(0).with(|machine, _| machine.bmc_restarts()), 1);
}

#[test]
fn bmcs_speak_https_with_a_certificate_that_can_be_verified() {
    let rig = Rig::start(FleetConfig { tls: true, ..FleetConfig::default() });
    let machine = rig.machine(0);
    assert!(machine.url().starts_with("https://"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, rig.fleet().ca_pem().unwrap()).unwrap();
    let root = |trust: Trust| {
        let mut endpoint = Endpoint::parse(&machine.url()).unwrap();
        endpoint.trust = trust;
        let turns = Arc::new(Semaphore::new(1));
        let client = redfish::Client::new(endpoint, Timeouts::default(), turns).unwrap();
        rig.runtime.block_on(client.root())
    };
    assert!(root(Trust::File(file)).is_ok());
    assert!(matches!(root(Trust::System), Err(redfish::Error::Certificate { .. })));
}

#[test]
fn the_control_endpoint_shows_machines_and_changes_faults() {
    let rig = Rig::generic(2);
    let guard = rig.runtime.enter();
    let control = Control::start(([127, 0, 0, 1], 0).into(), rig.fleet()).unwrap();
    drop(guard);
    let mut client = Client::new(control.address());
    let machines = client.ask("GET", "/machines", None).unwrap().json();
    assert_eq!(machines[1]["power"], "Off");
    assert_eq!(machines[1]["url"], rig.machine(1).url());
    let rule = json!({"effect": "drop", "bmcs": "1"});
    assert_eq!(client.ask("POST", "/faults", Some(&rule)).unwrap().status, 201);
    assert!(rig.get(1).is_err());
    let listed = client.ask("GET", "/faults", None).unwrap().json();
    assert_eq!(listed[0]["rule"]["effect"], "drop");
    // A client asks again on a fresh connection when the first one breaks.
    assert!(listed[0]["struck"].as_u64().unwrap() >= 1);
    assert_eq!(client.send("DELETE", "/faults", None).unwrap().status, 200);
    assert_eq!(rig.get(1).unwrap().status, 200);
    let wrong = client.send("POST", "/faults", Some(b"explode")).unwrap();
    assert_eq!(wrong.status, 400);
    assert!(wrong.json()["error"].as_str().unwrap().contains("explode"));
    assert_eq!(client.send("GET", "/machines/7", None).unwrap().status, 404);
    assert_eq!(client.send("GET", "/machines/1", None).unwrap().json()["index"], 1);
}

#[test]
fn a_fleet_that_cannot_be_says_why() {
    let runtime = Runtime::new().unwrap();
    let _guard = runtime.enter();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (config, expected) in [
        (FleetConfig { port, ..FleetConfig::default() }, "simulated BMC 0 cannot listen on"),
        (
            FleetConfig { port: 65_000, bmcs: 1_000, ..FleetConfig::default() },
            "not 1000 ports from 65000",
        ),
        (FleetConfig { speed: 0.0, ..FleetConfig::default() }, "the speed 0"),
    ] {
        let error = Fleet::start(config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A recording of a simulated BMC, made as one of a real BMC is.
fn recorded(rig: &Rig) -> Recording {
    let mut endpoint = Endpoint::parse(&rig.machine(0).url()).unwrap();
    endpoint.username = Some("admin".to_owned());
    endpoint.password = Some("password".to_owned());
    let turns = Arc::new(Semaphore::new(1));
    let client = redfish::Client::new(endpoint, Timeouts::default(), turns).unwrap();
    rig.runtime.block_on(recording::record(&client, |_| {})).unwrap()
}

#[test]
fn a_recording_is_served_and_can_be_changed() {
    let rig = Rig::start(FleetConfig {
        personalities: vec![Personality::named("dell-like").unwrap()],
        speed: 1_000.0,
        ..FleetConfig::default()
    });
    let recording = recorded(&rig);
    assert!(recording.resources.len() > 30);
    let guard = rig.runtime.enter();
    let replay = Replay::start(recording, ([127, 0, 0, 1], 0).into()).unwrap();
    drop(guard);
    let mut client = Client::new(replay.address());
    let systems = client.ask("GET", "/redfish/v1/Systems/", None).unwrap().json();
    let system = systems["Members"][0]["@odata.id"].as_str().unwrap().to_owned();
    let login = json!({"UserName": "any", "Password": "thing"});
    let session = client.ask("POST", "/redfish/v1/SessionService/Sessions", Some(&login)).unwrap();
    assert_eq!(session.status, 201);
    assert!(session.header("x-auth-token").is_some());

    let once =
        json!({"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}});
    assert_eq!(client.ask("PATCH", &system, Some(&once)).unwrap().status, 200);
    let bios = json!({"Attributes": {"LogicalProc": "Disabled"}});
    let settings = format!("{system}/Bios/Settings");
    assert_eq!(client.ask("PATCH", &settings, Some(&bios)).unwrap().status, 200);
    let attribute = |replay: &Replay| {
        replay.resource(&format!("{system}/Bios")).unwrap()["Attributes"]["LogicalProc"].clone()
    };
    assert_eq!(attribute(&replay), "Enabled");
    let shown = client.ask("GET", &system, None).unwrap().json();
    assert_eq!(shown["Boot"]["BootSourceOverrideTarget"], "Cd");
    assert!(shown["Boot"]["BootSourceOverrideMode"].is_string(), "the rest stays");

    let reset = format!("{system}/Actions/ComputerSystem.Reset");
    let mut power =
        |how: &str| client.ask("POST", &reset, Some(&json!({"ResetType": how}))).unwrap().status;
    assert_eq!(power("Explode"), 400);
    assert_eq!(power("On"), 204);
    let now = replay.resource(&system).unwrap();
    assert_eq!(now["PowerState"], "On");
    assert_eq!(now["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert_eq!(attribute(&replay), "Disabled");

    let managers = client.ask("GET", "/redfish/v1/Managers", None).unwrap().json();
    let manager = managers["Members"][0]["@odata.id"].as_str().unwrap();
    let slot = format!("{manager}/VirtualMedia/CD");
    let insert = format!("{slot}/Actions/VirtualMedia.InsertMedia");
    let image = json!({"Image": "http://x/a.iso", "Password": "hidden"});
    assert_eq!(client.ask("POST", &insert, Some(&image)).unwrap().status, 204);
    assert_eq!(replay.resource(&slot).unwrap()["Image"], "http://x/a.iso");

    let subscriptions = "/redfish/v1/EventService/Subscriptions";
    let made =
        client.ask("POST", subscriptions, Some(&json!({"Destination": "https://x"}))).unwrap();
    assert_eq!(made.status, 201);
    let made = made.header("location").unwrap().to_owned();
    assert_eq!(client.ask("GET", &made, None).unwrap().json()["Destination"], "https://x");
    assert_eq!(client.send("DELETE", &made, None).unwrap().status, 204);
    assert_eq!(replay.resource(subscriptions).unwrap()["Members@odata.count"], 0);

    let asked: Vec<String> = replay
        .requests()
        .into_iter()
        .map(|request| format!("{} {} {}", request.method, request.status, request.body))
        .collect();
    assert!(asked.contains(&"POST 204 {\"Image\":\"http://x/a.iso\"}".to_owned()), "{asked:#?}");
    assert_eq!(client.send("GET", "/redfish/v1/Nowhere", None).unwrap().status, 404);
    assert_eq!(client.send("POST", "/redfish/v1/Nowhere", Some(b"{}")).unwrap().status, 404);
    assert_eq!(client.send("PATCH", &system, Some(b"nonsense")).unwrap().status, 400);
}
