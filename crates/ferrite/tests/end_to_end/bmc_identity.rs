// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/ferrite/bmc-identity` with simulated BMCs: responses, errors, and sessions on the BMC.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::{FleetConfig, Personality, SimulatedFleet};
use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::test_process::TestHome;

const PATH: &str = "/v1/ferrite/bmc-identity";
const LIMIT: Duration = Duration::from_secs(120);

fn start_fleet(runtime: &Runtime) -> SimulatedFleet {
    let _guard = runtime.enter();
    let personalities = vec![Personality::built_in("generic").unwrap()];
    SimulatedFleet::start(FleetConfig {
        bmcs: 1,
        speed: 1000.0,
        personalities,
        ..FleetConfig::default()
    })
    .unwrap()
}

/// A server that waits this many seconds for a BMC.
fn start_server(home: &TestHome, seconds: u64) -> ServerProcess {
    let mut command = home.command();
    command.args(["--auth", "none"]);
    command.env("FERRITE_CONDUCTOR__VALIDATE_TIMEOUT", seconds.to_string());
    ServerProcess::start(&mut command, &home.path("log")).unwrap()
}

/// Status and body of a request.
fn identify(client: &mut ProbeClient, driver: &str, driver_info: &Value) -> (u16, Value) {
    let body = json!({"driver": driver, "driver_info": driver_info});
    let response = client.send_json("POST", PATH, Some(&body)).unwrap();
    (response.status, response.json())
}

#[test]
fn a_machine_is_identified_and_errors_name_the_bmc() {
    let runtime = Runtime::new().unwrap();
    let fleet = start_fleet(&runtime);
    let machine = fleet.machine(0).unwrap();
    let home = TestHome::new();
    let server = start_server(&home, 300);
    let mut client = server.client().with_timeout(Duration::from_secs(400));
    let info = json!(machine.redfish_enrolment(None).driver_info);
    let (status, identity) = identify(&mut client, "redfish", &info);
    assert_eq!(status, 200, "{identity}");
    assert!(identity["serial_number"].is_string(), "{identity}");
    let mac = json!(machine.macs()[0].to_string());
    assert!(identity["mac_addresses"].as_array().unwrap().contains(&mac), "{identity}");

    // BMCs allow few sessions.
    let mut bmc = ProbeClient::new(machine.address())
        .with_header("Authorization", "Basic YWRtaW46cGFzc3dvcmQ=");
    let deadline = Instant::now() + LIMIT;
    loop {
        let sessions = bmc.send("GET", "/redfish/v1/SessionService/Sessions", None).unwrap();
        assert_eq!(sessions.status, 200, "{}", sessions.text());
        if sessions.json()["Members"] == json!([]) {
            break;
        }
        assert!(Instant::now() < deadline, "the session is not closed: {}", sessions.text());
        thread::sleep(Duration::from_millis(100));
    }

    // A port on which no program listens.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let with = |name: &str, value: Value| {
        let mut info = info.clone();
        info[name] = value;
        info
    };
    let unreachable = with("redfish_address", json!(format!("http://{closed}")));
    let address =
        format!("cannot identify the machine behind the BMC at http://{}", machine.address());
    for (driver, info, status, parts) in [
        ("redfish", &unreachable, 502, [&*format!("BMC at http://{closed}"), "check its address"]),
        ("redfish", &with("redfish_password", json!("wrong")), 400, [&*address, "password"]),
        ("redfish", &json!({}), 400, ["cannot identify the machine", "redfish_address"]),
        ("vax", &info, 400, [&*address, "hardware type vax is not enabled"]),
    ] {
        let (returned, error) = identify(&mut client, driver, info);
        let text = error.to_string();
        assert_eq!(returned, status, "{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} {text}");
        assert!(!text.contains("vendor method"), "{text}");
    }
    runtime.block_on(fleet.stop());
}

#[test]
fn a_bmc_that_does_not_respond_in_time_is_a_gateway_timeout() {
    let runtime = Runtime::new().unwrap();
    let fleet = start_fleet(&runtime);
    fleet.faults().add("hang bmcs=0".parse().unwrap(), fleet.now());
    let machine = fleet.machine(0).unwrap();
    let home = TestHome::new();
    let server = start_server(&home, 1);
    let mut client = server.client().with_timeout(LIMIT);
    let info = json!(machine.redfish_enrolment(None).driver_info);
    let (status, error) = identify(&mut client, "redfish", &info);
    let text = error.to_string();
    assert_eq!(status, 504, "{text}");
    let address = format!("behind the BMC at http://{}", machine.address());
    for part in [&*address, "did not respond within 1 s", "check its address"] {
        assert!(text.contains(part), "{text}");
    }
    runtime.block_on(fleet.stop());
}
