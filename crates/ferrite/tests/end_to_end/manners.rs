// SPDX-License-Identifier: Apache-2.0
//! Manners towards BMCs, and patience with bad ones: a whole simulated fleet over real sockets.
//!
//! A thousand BMCs, a tenth of which accept connections and never answer, must all have been looked
//! at within one interval, and the healthy ones must not feel the others. A BMC that goes away makes
//! its node a fault, and one that comes back mends it.

use std::time::{Duration, Instant};

use fleet_sim::machine::Reset;
use fleet_sim::{Fleet, FleetConfig};
use http_probe::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::ferrite::Home;

const BMCS: u32 = 1000;
const HANGING: u32 = 100;
/// Seconds between two looks at the same machine.
const INTERVAL: u64 = 20;
/// Looks begin every second, and a busy machine may be late with one or two.
const SLACK: u64 = 4;
/// Before this version, nodes are born available, which saves verifying a thousand of them.
const OLD: &str = "1.6";

#[test]
fn a_tenth_of_a_thousand_bmcs_hangs_and_nobody_else_notices() {
    let runtime = Runtime::new().unwrap();
    let fleet = start(&runtime, BMCS);
    let home = Home::new();
    let mut command = home.command();
    command
        .args(["--auth", "none"])
        .env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", INTERVAL.to_string())
        .env("FERRITE_LIFECYCLE__FORCE_POWER_STATE_DURING_SYNC", "false");
    let server = http_probe::Server::start(&mut command, &home.path("log")).unwrap();
    let mut client = server.client().speaking(OLD);
    for machine in fleet.machines() {
        enrol(&mut client, &machine);
    }
    let mut client = server.client();
    let all = usize::try_from(BMCS).unwrap();
    // That a busy machine is slow to see them for the first time is not the question here.
    let patience = Duration::from_secs(180);
    let seen = until(patience, || Some(()).filter(|()| how_many(&mut client, "power off") == all));
    assert!(seen.is_some(), "only {} of {all} were ever seen", how_many(&mut client, "power off"));
    let before = slowest_answer(&fleet, &mut client);

    // A tenth of them hangs, and the others are switched on behind our back: one interval later
    // every one of these has been looked at.
    let hang = format!("hang bmcs=0-{}", HANGING - 1);
    fleet.faults().add(hang.parse().unwrap(), fleet.now());
    for machine in fleet.machines().skip(usize::try_from(HANGING).unwrap()) {
        machine.with(|machine, now| machine.reset(Reset::On, now)).expect("it can be switched on");
    }
    let healthy = all - usize::try_from(HANGING).unwrap();
    let limit = Duration::from_secs(INTERVAL + SLACK);
    let seen = until(limit, || Some(()).filter(|()| how_many(&mut client, "power on") == healthy));
    let counted = how_many(&mut client, "power on");
    assert!(seen.is_some(), "only {counted} of {healthy} were looked at within {INTERVAL} s");

    // And the others answer as if nobody hung.
    let after = slowest_answer(&fleet, &mut client);
    let bearable = before * 5 + Duration::from_millis(500);
    assert!(after < bearable, "the slowest of 20 took {before:?} before and {after:?} now");
    runtime.block_on(fleet.stop());
}

/// How long the slowest of twenty healthy machines takes to say where it boots from.
fn slowest_answer(fleet: &Fleet, client: &mut Client) -> Duration {
    let healthy = fleet.machines().skip(usize::try_from(HANGING).unwrap()).take(20);
    let answers = healthy.map(|machine| {
        let path = format!("/v1/nodes/{}/management/boot_device", machine.enrolment(None).name);
        let began = Instant::now();
        assert_eq!(client.ask("GET", &path, None).unwrap().status, 200);
        began.elapsed()
    });
    answers.max().expect("there are twenty")
}

#[test]
fn a_bmc_that_goes_away_is_a_fault_until_it_is_back() {
    let runtime = Runtime::new().unwrap();
    let fleet = start(&runtime, 2);
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

fn start(runtime: &Runtime, bmcs: u32) -> Fleet {
    let _inside = runtime.enter();
    Fleet::start(FleetConfig { bmcs, speed: 1000.0, ..FleetConfig::default() }).unwrap()
}

fn enrol(client: &mut Client, machine: &fleet_sim::SimulatedMachine) {
    let enrolment = machine.enrolment(None);
    let node = json!({
        "name": enrolment.name, "driver": enrolment.driver, "driver_info": enrolment.driver_info,
    });
    let answer = client.ask("POST", "/v1/nodes", Some(&node)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// How many nodes are in this power state.
fn how_many(client: &mut Client, power: &str) -> usize {
    let answer = client.ask("GET", "/v1/nodes?limit=1000&fields=power_state", None).unwrap();
    let body = answer.json();
    let nodes = body["nodes"].as_array().expect("a list of nodes");
    nodes.iter().filter(|node| node["power_state"] == power).count()
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
