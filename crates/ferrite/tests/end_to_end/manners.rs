// SPDX-License-Identifier: Apache-2.0
//! Manners towards BMCs, and patience with bad ones: a whole simulated fleet over real sockets.
//!
//! A thousand BMCs, a tenth of which accept connections and never answer, must all have been looked
//! at within one interval, and the healthy ones must not feel the others. A BMC that goes away makes
//! its node a fault, and one that comes back mends it.

use std::time::{Duration, Instant};

use fleet_sim::{Fleet, FleetConfig};
use http_probe::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::ferrite::Home;

const BMCS: u32 = 1000;
const HANGING: u32 = 100;
/// Seconds between two looks at the same machine.
const INTERVAL: u64 = 30;
/// Before this version, nodes are born available, which saves verifying a thousand of them.
const OLD: &str = "1.6";

#[test]
fn a_tenth_of_a_thousand_bmcs_hangs_and_nobody_else_notices() {
    let runtime = Runtime::new().unwrap();
    let fleet = start(&runtime, BMCS, &[&format!("hang bmcs=0-{}", HANGING - 1)]);
    let home = Home::new();
    let mut command = home.command();
    command
        .args(["--auth", "none"])
        .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", INTERVAL.to_string());
    let server = http_probe::Server::start(&mut command, &home.path("log")).unwrap();
    let mut client = server.client().speaking(OLD);
    for machine in fleet.machines() {
        enrol(&mut client, &machine);
    }
    let mut client = server.client();

    // Every healthy machine has been seen when one interval is over: the first may have begun
    // before the last node was there.
    let healthy = usize::try_from(BMCS - HANGING).unwrap();
    let limit = Duration::from_secs(2 * INTERVAL);
    let looked = until(limit, || {
        let seen = powers(&mut client).into_iter().filter(|(_, power)| power.is_string());
        (seen.count() >= healthy).then_some(())
    });
    assert!(looked.is_some(), "only {} of {healthy} seen", powers(&mut client).len());

    // While a tenth still hangs, the others answer as if it did not.
    let mut slowest = Duration::ZERO;
    for machine in fleet.machines().skip(usize::try_from(HANGING).unwrap()).take(20) {
        let name = machine.enrolment(None).name;
        let began = Instant::now();
        let path = format!("/v1/nodes/{name}/management/boot_device");
        assert_eq!(client.ask("GET", &path, None).unwrap().status, 200);
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "a healthy machine took {slowest:?}");
    runtime.block_on(fleet.stop());
}

#[test]
fn a_bmc_that_goes_away_is_a_fault_until_it_is_back() {
    let runtime = Runtime::new().unwrap();
    let fleet = start(&runtime, 2, &[]);
    let home = Home::new();
    let mut command = home.command();
    command
        .args(["--auth", "none"])
        .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", "1")
        .env("FERRITE_LIFECYCLE__POWER_STATE_SYNC_MAX_RETRIES", "1");
    let server = http_probe::Server::start(&mut command, &home.path("log")).unwrap();
    let mut old = server.client().speaking(OLD);
    let machines: Vec<_> = fleet.machines().collect();
    for machine in &machines {
        enrol(&mut old, machine);
    }
    let (lost, kept) = (machines[0].enrolment(None).name, machines[1].enrolment(None).name);
    let mut client = server.client();
    let limit = Duration::from_secs(60);
    let seen = until(limit, || show(&mut client, &lost)["power_state"].as_str().map(drop));
    assert!(seen.is_some(), "never seen: {}", server.log());

    fleet.faults().add("drop bmcs=0".parse().unwrap(), fleet.now());
    let node =
        until(limit, || Some(show(&mut client, &lost)).filter(|node| node["fault"].is_string()));
    let node = node.expect("a silent BMC becomes a fault");
    assert_eq!((&node["fault"], &node["maintenance"]), (&json!("power failure"), &json!(true)));
    let reason = node["maintenance_reason"].as_str().unwrap();
    assert!(reason.contains("could not be reached"), "{reason}");
    let bmc = client.ask("GET", &format!("/v1/ferrite/nodes/{lost}/bmc"), None).unwrap().json();
    assert!(bmc["silent"]["why"].as_str().is_some_and(|why| why.contains("reached")), "{bmc}");
    assert_eq!(show(&mut client, &kept)["fault"], Value::Null, "the other is well");

    fleet.faults().clear();
    let back = until(limit, || Some(()).filter(|()| show(&mut client, &lost)["fault"].is_null()));
    assert!(back.is_some(), "it recovers by itself");
    let node = show(&mut client, &lost);
    assert_eq!((&node["maintenance"], &node["last_error"]), (&json!(false), &Value::Null));
    assert_eq!(node["driver_internal_info"].get("bmc_silent"), None);
    runtime.block_on(fleet.stop());
}

fn start(runtime: &Runtime, bmcs: u32, faults: &[&str]) -> Fleet {
    let _inside = runtime.enter();
    let faults = faults.iter().map(|rule| rule.parse().unwrap()).collect();
    Fleet::start(FleetConfig { bmcs, speed: 1000.0, faults, ..FleetConfig::default() }).unwrap()
}

fn enrol(client: &mut Client, machine: &fleet_sim::SimulatedMachine) {
    let enrolment = machine.enrolment(None);
    let node = json!({
        "name": enrolment.name, "driver": enrolment.driver, "driver_info": enrolment.driver_info,
    });
    let answer = client.ask("POST", "/v1/nodes", Some(&node)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// The power of every node, by name.
fn powers(client: &mut Client) -> Vec<(Value, Value)> {
    let answer = client.ask("GET", "/v1/nodes?limit=1000&fields=name,power_state", None).unwrap();
    let body = answer.json();
    let nodes = body["nodes"].as_array().expect("a list of nodes").iter();
    nodes.map(|node| (node["name"].clone(), node["power_state"].clone())).collect()
}

fn show(client: &mut Client, name: &str) -> Value {
    client.ask("GET", &format!("/v1/nodes/{name}"), None).unwrap().json()
}

/// Looks again and again until there is something to see, or the time is over.
fn until<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if began.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
