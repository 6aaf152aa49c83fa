// SPDX-License-Identifier: Apache-2.0
//! A fleet over real sockets: fault rules, TLS, the control endpoint, replayed recordings.

// Test helpers may unwrap and print, as tests may.
#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use fleet_sim::machine::{BootTarget, PowerState};
use fleet_sim::{
    ControlServer, FaultRule, FleetConfig, Personality, Replay, SimulatedFleet, SimulatedMachine,
};
use http_probe::{ProbeClient, ProbeResponse};
use redfish::recording::{self, BmcRecording};
use redfish::{CertificateTrust, RedfishEndpoint, RedfishTimeouts};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

const BASIC: &str = "Basic YWRtaW46cGFzc3dvcmQ=";

/// A fleet that runs on the threads of its own runtime, for blocking clients.
struct FleetTestBench {
    runtime: Runtime,
    fleet: Option<SimulatedFleet>,
}

impl FleetTestBench {
    fn start(config: FleetConfig) -> Self {
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let fleet = SimulatedFleet::start(config).unwrap();
        drop(guard);
        Self { runtime, fleet: Some(fleet) }
    }

    fn generic(bmcs: u32) -> Self {
        Self::start(FleetConfig {
            bmcs,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 1_000.0,
            ..FleetConfig::default()
        })
    }

    fn fleet(&self) -> &SimulatedFleet {
        self.fleet.as_ref().unwrap()
    }

    fn machine(&self, index: u32) -> SimulatedMachine {
        self.fleet().machine(index).unwrap()
    }

    fn set_faults(&self, rules: &[&str]) {
        let rules = rules.iter().map(|rule| rule.parse::<FaultRule>().unwrap()).collect();
        self.fleet().faults().set(rules, self.fleet().now());
    }

    fn get_system(&self, index: u32) -> std::io::Result<ProbeResponse> {
        let machine = self.machine(index);
        bmc_client(&machine).send("GET", &machine.system_path(), None)
    }

    fn reset(&self, index: u32, how: &str) -> ProbeResponse {
        let machine = self.machine(index);
        let path = format!("{}/Actions/ComputerSystem.Reset", machine.system_path());
        bmc_client(&machine).send_json("POST", &path, Some(&json!({"ResetType": how}))).unwrap()
    }
}

impl Drop for FleetTestBench {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

fn bmc_client(machine: &SimulatedMachine) -> ProbeClient {
    ProbeClient::new(machine.address())
        .with_header("Authorization", BASIC)
        .with_timeout(Duration::from_secs(5))
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < end, "the condition is not met in time");
        std::thread::yield_now();
    }
}

#[test]
fn bmcs_are_independent() {
    let bench = FleetTestBench::generic(3);
    let systems: Vec<Value> = (0..3).map(|index| bench.get_system(index).unwrap().json()).collect();
    assert_ne!(systems[0]["UUID"], systems[1]["UUID"]);
    assert_eq!(bench.reset(1, "On").status, 204);
    wait_until(|| bench.machine(1).current_boot().is_some());
    assert_eq!(bench.machine(1).current_boot().unwrap().from, BootTarget::Hdd);
    assert_eq!(bench.machine(1).power_state(), PowerState::On);
    assert_eq!(bench.machine(0).power_state(), PowerState::Off);
    assert_eq!(bench.get_system(2).unwrap().json()["PowerState"], "Off");
}

#[test]
fn fault_rules_apply_to_the_selected_bmcs() {
    let bench = FleetTestBench::generic(2);
    bench.set_faults(&["drop bmcs=0"]);
    assert!(bench.get_system(0).is_err());
    assert_eq!(bench.get_system(1).unwrap().status, 200);

    bench.set_faults(&["status=503 bmcs=0 retry_after=7"]);
    let busy = bench.get_system(0).unwrap();
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("7")));

    bench.set_faults(&["wrong-json"]);
    let garbled = bench.get_system(0).unwrap();
    assert_eq!(garbled.status, 200);
    assert!(serde_json::from_slice::<Value>(&garbled.body).is_err());

    bench.set_faults(&["wrong-password bmcs=1"]);
    assert_eq!(bench.get_system(0).unwrap().status, 200);
    assert_eq!(bench.get_system(1).unwrap().status, 401);

    bench.set_faults(&["power-stuck bmcs=0"]);
    assert_eq!(bench.reset(0, "On").status, 204);
    assert_eq!(bench.reset(1, "On").status, 204);
    wait_until(|| bench.machine(1).power_state() == PowerState::On);
    assert_eq!(bench.machine(0).power_state(), PowerState::Off);
    bench.set_faults(&[]);
    assert_eq!(bench.reset(0, "On").status, 204);
    wait_until(|| bench.machine(0).power_state() == PowerState::On);
}

#[test]
fn hang_and_delay_affect_responses() {
    let bench = FleetTestBench::generic(1);
    let machine = bench.machine(0);
    bench.set_faults(&["hang"]);
    let timeout = bmc_client(&machine)
        .with_timeout(Duration::from_millis(200))
        .send("GET", "/redfish/v1", None)
        .unwrap_err();
    assert!(
        matches!(timeout.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        "{timeout}"
    );
    bench.set_faults(&["delay=150"]);
    let began = std::time::Instant::now();
    assert_eq!(bench.get_system(0).unwrap().status, 200);
    assert!(began.elapsed() >= Duration::from_millis(150));
}

#[test]
fn restarting_bmc_is_unreachable_for_a_while() {
    let bench = FleetTestBench::generic(1);
    bench.set_faults(&["bmc-reboot=1 times=1"]);
    assert!(bench.get_system(0).is_err());
    assert!(bench.get_system(0).is_err(), "the BMC is still restarting");
    wait_until(|| bench.get_system(0).is_ok());
    assert_eq!(bench.machine(0).with_model(|machine, _| machine.bmc_restarts()), 1);
}

#[test]
fn tls_certificate_can_be_verified() {
    let bench = FleetTestBench::start(FleetConfig { tls: true, ..FleetConfig::default() });
    let machine = bench.machine(0);
    assert!(machine.url().starts_with("https://"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, bench.fleet().ca_pem().unwrap()).unwrap();
    let root = |trust: CertificateTrust| {
        let mut endpoint = RedfishEndpoint::parse(&machine.url()).unwrap();
        endpoint.trust = trust;
        let permits = Arc::new(Semaphore::new(1));
        let client =
            redfish::RedfishClient::new(endpoint, RedfishTimeouts::default(), permits).unwrap();
        bench.runtime.block_on(client.root())
    };
    assert!(root(CertificateTrust::File(file)).is_ok());
    assert!(matches!(
        root(CertificateTrust::System),
        Err(redfish::RedfishError::Certificate { .. })
    ));
}

#[test]
fn control_endpoint_shows_machines_and_changes_fault_rules() {
    let bench = FleetTestBench::generic(2);
    let guard = bench.runtime.enter();
    let control = ControlServer::start(([127, 0, 0, 1], 0).into(), bench.fleet()).unwrap();
    drop(guard);
    let mut client = ProbeClient::new(control.address());
    let machines = client.send_json("GET", "/machines", None).unwrap().json();
    assert_eq!(machines[1]["power"], "Off");
    assert_eq!(machines[1]["url"], bench.machine(1).url());
    let rule = json!({"effect": "drop", "bmcs": "1"});
    assert_eq!(client.send_json("POST", "/faults", Some(&rule)).unwrap().status, 201);
    assert!(bench.get_system(1).is_err());
    let listed = client.send_json("GET", "/faults", None).unwrap().json();
    assert_eq!(listed[0]["rule"]["effect"], "drop");
    // The client retries on a new connection, so the rule may apply twice.
    assert!(listed[0]["applied"].as_u64().unwrap() >= 1);
    assert_eq!(client.send("DELETE", "/faults", None).unwrap().status, 200);
    assert_eq!(bench.get_system(1).unwrap().status, 200);
    let wrong = client.send("POST", "/faults", Some(b"explode")).unwrap();
    assert_eq!(wrong.status, 400);
    assert!(wrong.json()["error"].as_str().unwrap().contains("explode"));
    assert_eq!(client.send("GET", "/machines/7", None).unwrap().status, 404);
    assert_eq!(client.send("GET", "/machines/1", None).unwrap().json()["index"], 1);
}

#[test]
fn start_errors_name_the_cause() {
    let runtime = Runtime::new().unwrap();
    let _guard = runtime.enter();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied.local_addr().unwrap().port();
    for (config, expected) in [
        (FleetConfig { port, ..FleetConfig::default() }, "simulated BMC 0 cannot listen on"),
        (
            FleetConfig { port: 65_000, bmcs: 1_000, ..FleetConfig::default() },
            "not enough ports for 1000 BMCs from 65000 on",
        ),
        (FleetConfig { speed: 0.0, ..FleetConfig::default() }, "invalid speed 0"),
    ] {
        let error = SimulatedFleet::start(config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Records a simulated BMC, as a real one is recorded.
fn record_bmc(bench: &FleetTestBench) -> BmcRecording {
    let mut endpoint = RedfishEndpoint::parse(&bench.machine(0).url()).unwrap();
    endpoint.username = Some("admin".to_owned());
    endpoint.password = Some("password".to_owned());
    let permits = Arc::new(Semaphore::new(1));
    let client =
        redfish::RedfishClient::new(endpoint, RedfishTimeouts::default(), permits).unwrap();
    bench.runtime.block_on(recording::record(&client, |_| {})).unwrap()
}

#[test]
fn replayed_recording_can_be_changed() {
    let bench = FleetTestBench::start(FleetConfig {
        personalities: vec![Personality::built_in("dell-like").unwrap()],
        speed: 1_000.0,
        ..FleetConfig::default()
    });
    let recording = record_bmc(&bench);
    assert!(recording.resources.len() > 30);
    let guard = bench.runtime.enter();
    let replay = Replay::start(recording, ([127, 0, 0, 1], 0).into()).unwrap();
    drop(guard);
    let mut client = ProbeClient::new(replay.address());
    let systems = client.send_json("GET", "/redfish/v1/Systems/", None).unwrap().json();
    let system = systems["Members"][0]["@odata.id"].as_str().unwrap().to_owned();
    let login = json!({"UserName": "any", "Password": "thing"});
    let session =
        client.send_json("POST", "/redfish/v1/SessionService/Sessions", Some(&login)).unwrap();
    assert_eq!(session.status, 201);
    assert!(session.header("x-auth-token").is_some());

    let once =
        json!({"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}});
    assert_eq!(client.send_json("PATCH", &system, Some(&once)).unwrap().status, 200);
    let bios = json!({"Attributes": {"LogicalProc": "Disabled"}});
    let settings = format!("{system}/Bios/Settings");
    assert_eq!(client.send_json("PATCH", &settings, Some(&bios)).unwrap().status, 200);
    let attribute = |replay: &Replay| {
        replay.resource(&format!("{system}/Bios")).unwrap()["Attributes"]["LogicalProc"].clone()
    };
    assert_eq!(attribute(&replay), "Enabled");
    let shown = client.send_json("GET", &system, None).unwrap().json();
    assert_eq!(shown["Boot"]["BootSourceOverrideTarget"], "Cd");
    assert!(shown["Boot"]["BootSourceOverrideMode"].is_string(), "other properties stay");

    let reset = format!("{system}/Actions/ComputerSystem.Reset");
    let mut power = |how: &str| {
        client.send_json("POST", &reset, Some(&json!({"ResetType": how}))).unwrap().status
    };
    assert_eq!(power("Explode"), 400);
    assert_eq!(power("On"), 204);
    let now = replay.resource(&system).unwrap();
    assert_eq!(now["PowerState"], "On");
    assert_eq!(now["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert_eq!(attribute(&replay), "Disabled");

    let managers = client.send_json("GET", "/redfish/v1/Managers", None).unwrap().json();
    let manager = managers["Members"][0]["@odata.id"].as_str().unwrap();
    let slot = format!("{manager}/VirtualMedia/CD");
    let insert = format!("{slot}/Actions/VirtualMedia.InsertMedia");
    let image = json!({"Image": "http://x/a.iso", "Password": "hidden"});
    assert_eq!(client.send_json("POST", &insert, Some(&image)).unwrap().status, 204);
    assert_eq!(replay.resource(&slot).unwrap()["Image"], "http://x/a.iso");

    let subscriptions = "/redfish/v1/EventService/Subscriptions";
    let created = client
        .send_json("POST", subscriptions, Some(&json!({"Destination": "https://x"})))
        .unwrap();
    assert_eq!(created.status, 201);
    let location = created.header("location").unwrap().to_owned();
    assert_eq!(
        client.send_json("GET", &location, None).unwrap().json()["Destination"],
        "https://x"
    );
    assert_eq!(client.send("DELETE", &location, None).unwrap().status, 204);
    assert_eq!(replay.resource(subscriptions).unwrap()["Members@odata.count"], 0);

    let requests: Vec<String> = replay
        .requests()
        .into_iter()
        .map(|request| format!("{} {} {}", request.method, request.status, request.body))
        .collect();
    assert!(
        requests.contains(&"POST 204 {\"Image\":\"http://x/a.iso\"}".to_owned()),
        "{requests:#?}"
    );
    assert_eq!(client.send("GET", "/redfish/v1/Nowhere", None).unwrap().status, 404);
    assert_eq!(client.send("POST", "/redfish/v1/Nowhere", Some(b"{}")).unwrap().status, 404);
    assert_eq!(client.send("PATCH", &system, Some(b"nonsense")).unwrap().status, 400);
}
