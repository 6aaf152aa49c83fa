// SPDX-License-Identifier: Apache-2.0
//! Hanging and unreachable BMCs in a simulated fleet.
//!
//! Of a thousand BMCs a tenth accepts connections and never responds. The others must all be polled within
//! one interval and must not be slower. An unreachable BMC sets a fault, which is cleared when it is back.

use std::time::{Duration, Instant};

use fleet_sim::machine::ResetType;
use fleet_sim::{FleetConfig, SimulatedFleet};
use http_probe::ProbeClient;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::test_process::TestHome;

const BMCS: u32 = 1000;
const HANGING: u32 = 100;
/// Seconds between two polls of a machine.
const INTERVAL: u64 = 20;
/// Polls start every second, and a busy host may delay some.
const SLACK: u64 = 4;
/// Before this version nodes are created in `available`, which avoids verifying a thousand nodes.
const OLD_MICROVERSION: &str = "1.6";

#[test]
fn hanging_bmcs_do_not_delay_others() {
    let runtime = Runtime::new().unwrap();
    let fleet = start_fleet(&runtime, BMCS);
    let home = TestHome::new();
    let mut command = home.command();
    command
        .args(["--auth", "none"])
        .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", INTERVAL.to_string())
        .env("FERRITE_LIFECYCLE__FORCE_POWER_STATE_DURING_SYNC", "false");
    let server = http_probe::ServerProcess::start(&mut command, &home.path("log")).unwrap();
    let mut client = server.client().with_microversion(OLD_MICROVERSION);
    for machine in fleet.machines() {
        enrol(&mut client, &machine);
    }
    let mut client = server.client();
    let all = usize::try_from(BMCS).unwrap();
    // The first poll may be slow on a busy host.
    let timeout = Duration::from_secs(400);
    let seen = poll_until(timeout, || {
        Some(()).filter(|()| count_in_power_state(&mut client, "power off") == all)
    });
    assert!(
        seen.is_some(),
        "only {} of {all} were polled",
        count_in_power_state(&mut client, "power off")
    );
    let before = slowest_response(&fleet, &mut client);

    // A tenth hangs and the others are powered on without Ferrite: they must be polled within one interval.
    let hang = format!("hang bmcs=0-{}", HANGING - 1);
    fleet.faults().add(hang.parse().unwrap(), fleet.now());
    for machine in fleet.machines().skip(usize::try_from(HANGING).unwrap()) {
        machine
            .with_model(|machine, now| machine.reset(ResetType::On, now))
            .expect("it can be powered on");
    }
    let healthy = all - usize::try_from(HANGING).unwrap();
    let limit = Duration::from_secs(INTERVAL + SLACK);
    let seen = poll_until(limit, || {
        Some(()).filter(|()| count_in_power_state(&mut client, "power on") == healthy)
    });
    let counted = count_in_power_state(&mut client, "power on");
    assert!(seen.is_some(), "only {counted} of {healthy} were polled within {INTERVAL} s");

    // Direct calls to the others are not slower.
    let after = slowest_response(&fleet, &mut client);
    let limit = before * 5 + Duration::from_millis(500);
    assert!(after < limit, "the slowest of 20 took {before:?} before and {after:?} now");
    runtime.block_on(fleet.stop());
}

/// The slowest of twenty boot device requests to healthy machines.
fn slowest_response(fleet: &SimulatedFleet, client: &mut ProbeClient) -> Duration {
    let healthy = fleet.machines().skip(usize::try_from(HANGING).unwrap()).take(20);
    let durations = healthy.map(|machine| {
        let path =
            format!("/v1/nodes/{}/management/boot_device", machine.redfish_enrolment(None).name);
        let started_at = Instant::now();
        assert_eq!(client.send_json("GET", &path, None).unwrap().status, 200);
        started_at.elapsed()
    });
    durations.max().expect("there are twenty machines")
}

#[test]
fn unreachable_bmc_is_a_fault_until_it_responds() {
    let runtime = Runtime::new().unwrap();
    let fleet = start_fleet(&runtime, 2);
    let home = TestHome::new();
    let mut command = home.command();
    command
        .args(["--auth", "none"])
        .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", "1")
        .env("FERRITE_LIFECYCLE__POWER_STATE_SYNC_MAX_RETRIES", "1");
    let server = http_probe::ServerProcess::start(&mut command, &home.path("log")).unwrap();
    let mut old = server.client().with_microversion(OLD_MICROVERSION);
    let machines: Vec<_> = fleet.machines().collect();
    for machine in &machines {
        enrol(&mut old, machine);
    }
    let (lost, kept) =
        (machines[0].redfish_enrolment(None).name, machines[1].redfish_enrolment(None).name);
    let mut client = server.client();
    let limit = Duration::from_secs(60);
    let seen = poll_until(limit, || show(&mut client, &lost)["power_state"].as_str().map(drop));
    assert!(seen.is_some(), "never polled: {}", server.log());

    fleet.faults().add("drop bmcs=0".parse().unwrap(), fleet.now());
    let node = poll_until(limit, || {
        Some(show(&mut client, &lost)).filter(|node| node["fault"].is_string())
    });
    let node = node.expect("an unreachable BMC sets a fault");
    assert_eq!((&node["fault"], &node["maintenance"]), (&json!("power failure"), &json!(true)));
    let reason = node["maintenance_reason"].as_str().unwrap();
    assert!(reason.contains("could not be reached"), "{reason}");
    let bmc =
        client.send_json("GET", &format!("/v1/ferrite/nodes/{lost}/bmc"), None).unwrap().json();
    assert!(bmc["unreachable"]["error"].as_str().is_some_and(|it| it.contains("reached")), "{bmc}");
    assert_eq!(show(&mut client, &kept)["fault"], Value::Null, "the other node has no fault");

    fleet.faults().clear();
    let back =
        poll_until(limit, || Some(()).filter(|()| show(&mut client, &lost)["fault"].is_null()));
    assert!(back.is_some(), "the fault is cleared");
    let node = show(&mut client, &lost);
    assert_eq!((&node["maintenance"], &node["last_error"]), (&json!(false), &Value::Null));
    assert_eq!(node["driver_internal_info"].get("bmc_unreachable"), None);
    runtime.block_on(fleet.stop());
}

fn start_fleet(runtime: &Runtime, bmcs: u32) -> SimulatedFleet {
    let _guard = runtime.enter();
    SimulatedFleet::start(FleetConfig { bmcs, speed: 1000.0, ..FleetConfig::default() }).unwrap()
}

fn enrol(client: &mut ProbeClient, machine: &fleet_sim::SimulatedMachine) {
    let enrolment = machine.redfish_enrolment(None);
    let node = json!({
        "name": enrolment.name, "driver": enrolment.driver, "driver_info": enrolment.driver_info,
    });
    let response = client.send_json("POST", "/v1/nodes", Some(&node)).unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
}

/// Number of nodes in this power state.
fn count_in_power_state(client: &mut ProbeClient, power: &str) -> usize {
    let response =
        client.send_json("GET", "/v1/nodes?limit=1000&fields=power_state", None).unwrap();
    let body = response.json();
    let nodes = body["nodes"].as_array().expect("a list of nodes");
    nodes.iter().filter(|node| node["power_state"] == power).count()
}

fn show(client: &mut ProbeClient, name: &str) -> Value {
    client.send_json("GET", &format!("/v1/nodes/{name}"), None).unwrap().json()
}

/// Polls until there is a result or the time is over.
fn poll_until<T>(limit: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let started_at = Instant::now();
    loop {
        if let Some(result) = poll() {
            return Some(result);
        }
        if started_at.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
