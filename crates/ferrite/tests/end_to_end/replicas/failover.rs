// SPDX-License-Identifier: Apache-2.0
//! Replicas that are suspended, stopped or cut off from the database while they command simulated machines.
//! The BMCs count the commands.

use std::time::{Duration, Instant};

use fleet_sim::{FleetConfig, SimulatedFleet};
use http_probe::{ProbeClient, ServerProcess, send_signal};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::interruptible_proxy::InterruptibleProxy;
use super::{POLL_INTERVAL, TIMEOUT, share_key};
use crate::test_database::{EndToEndDatabase, SERVER_VARIABLES};
use crate::test_process::{TestHome, output_of};

const MACHINES: u32 = 6;
/// The machine that only shows that a replica works again.
const EXTRA_MACHINE: u32 = MACHINES;
/// Before this version nodes are created in `available`.
const OLD_MICROVERSION: &str = "1.6";
/// Makes each action last for some seconds.
const SLOW_RESPONSES: &str = "delay=1000 bmcs=0-5";
/// Counts the power commands to the machines.
const COUNT_COMMANDS: &str = "delay=0 bmcs=0-5 method=POST path=/redfish/v1/Systems";
const COUNT_REQUESTS: &str = "delay=0 bmcs=0-5";
const WAITS_FOR_PREDECESSOR: &str = "checking whether an earlier process";

/// Simulated machines, and a node for each.
pub(crate) struct FailoverFleet {
    runtime: Runtime,
    pub(crate) fleet: SimulatedFleet,
}

impl FailoverFleet {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let fleet = {
            let _guard = runtime.enter();
            let config =
                FleetConfig { bmcs: MACHINES + 1, speed: 1000.0, ..FleetConfig::default() };
            SimulatedFleet::start(config).unwrap()
        };
        let rules =
            [COUNT_COMMANDS, COUNT_REQUESTS, SLOW_RESPONSES].map(|rule| rule.parse().unwrap());
        fleet.faults().set(rules.to_vec(), fleet.now());
        Self { runtime, fleet }
    }

    /// Enrols all machines and returns the names of their nodes.
    pub(crate) fn enrol(&self, server: &ServerProcess) -> Vec<String> {
        let mut client = server.client().with_microversion(OLD_MICROVERSION);
        let machines = self.fleet.machines();
        let names = machines.map(|machine| {
            let enrolment = machine.redfish_enrolment(None);
            let node = json!({
                "name": enrolment.name, "driver": enrolment.driver,
                "driver_info": enrolment.driver_info,
            });
            let response = client.send_json("POST", "/v1/nodes", Some(&node)).unwrap();
            assert_eq!(response.status, 201, "{}", response.text());
            enrolment.name
        });
        names.collect()
    }

    /// The number of power commands that the machines got.
    fn commands(&self) -> u64 {
        self.fleet.faults().rules()[0].1
    }

    /// The number of requests that the machines got.
    fn requests(&self) -> u64 {
        self.fleet.faults().rules()[1].1
    }

    /// Waits until each machine got a request on average.
    pub(crate) fn wait_for_requests(&self) {
        let before = self.requests();
        wait_until("the BMCs get requests", || self.requests() >= before + u64::from(MACHINES));
    }

    pub(crate) fn stop(self) {
        // The commands were carried out once.
        for machine in self.fleet.machines().take(MACHINES as usize) {
            let boots = machine.with_model(|machine, _| machine.boot_count());
            assert_eq!(boots, 1, "machine {}", machine.index());
        }
        self.runtime.block_on(self.fleet.stop());
    }
}

pub(crate) fn serve(home: &TestHome, host: &str, url: &str) -> ServerProcess {
    let mut command = home.command();
    command.args(["--auth", "none", "--database", url]).env("FERRITE_CONDUCTOR__HOST", host);
    // Only commands reach the BMCs.
    command.env("FERRITE_CONDUCTOR__SYNC_POWER_STATE_INTERVAL", "0");
    ServerProcess::start(&mut command, &home.path("log")).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn power_on(client: &mut ProbeClient, nodes: &[String]) {
    for node in nodes {
        let path = format!("/v1/nodes/{node}/states/power");
        let body = json!({"target": "power on"});
        let response = client.send_json("PUT", &path, Some(&body)).unwrap();
        assert_eq!(response.status, 202, "{}", response.text());
    }
}

fn show(client: &mut ProbeClient, node: &str) -> Value {
    client.send("GET", &format!("/v1/nodes/{node}"), None).unwrap().json()
}

/// Waits until the nodes are on and no process works on them.
pub(crate) fn wait_until_on(client: &mut ProbeClient, nodes: &[String]) {
    for node in nodes {
        let mut last = Value::Null;
        let is_on = || {
            last = show(client, node);
            assert_eq!(last["last_error"], Value::Null, "{last}");
            last["power_state"] == "power on"
                && last["target_power_state"].is_null()
                && last["reservation"].is_null()
        };
        wait_until(node, is_on);
    }
}

pub(crate) fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_reached() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Two replicas on one database.
pub(crate) struct Replicas {
    pub(crate) one: ServerProcess,
    pub(crate) two: ServerProcess,
    homes: [TestHome; 2],
}

impl Replicas {
    pub(crate) fn start(url: &str) -> Self {
        let homes = [TestHome::new(), TestHome::new()];
        let one = serve(&homes[0], "one", url);
        share_key(&homes[0], &homes[1]);
        let two = serve(&homes[1], "two", url);
        Self { one, two, homes }
    }
}

#[test]
fn suspended_replica_sends_no_command_to_machines_that_were_taken_over() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let machines = FailoverFleet::start();
        let Replicas { one, two, homes } = Replicas::start(&database.url);
        let nodes = machines.enrol(&one);
        let (extra, nodes) = nodes.split_last().unwrap();
        power_on(&mut one.client(), nodes);
        machines.wait_for_requests();
        send_signal(one.pid(), "STOP").unwrap();
        let mut client = two.client();
        wait_until_on(&mut client, nodes);
        wait_until("the session is ended", || {
            homes[1].log().contains("process is dead, taking over its nodes")
        });
        wait_until_on(&mut client, nodes);
        let before = (machines.commands(), machines.requests());

        send_signal(one.pid(), "CONT").unwrap();
        wait_until("the session begins again", || {
            homes[0].log().contains("had ended the session of this one")
        });
        // When it has carried out a new command, its old tasks have run too.
        assert_eq!(machines.fleet.machine(EXTRA_MACHINE).unwrap().index(), EXTRA_MACHINE);
        power_on(&mut one.client(), std::slice::from_ref(extra));
        wait_until_on(&mut client, std::slice::from_ref(extra));
        let (commands, requests) = before;
        assert_eq!(machines.commands(), commands, "{}", homes[0].log());
        // A request that a connection had got before the signal is sent, but not one per machine.
        let limit = requests + u64::from(MACHINES);
        assert!(machines.requests() < limit, "{}", homes[0].log());
        machines.stop();
        drop((one, two));
    }
}

#[test]
fn stopped_replica_hands_over_its_machines() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let machines = FailoverFleet::start();
        let Replicas { one, two, homes } = Replicas::start(&database.url);
        let nodes = machines.enrol(&one);
        let nodes = &nodes[..MACHINES as usize];
        power_on(&mut one.client(), nodes);
        machines.wait_for_requests();
        let stopped = one.stop(TIMEOUT).unwrap();
        assert_eq!(stopped.status.code(), Some(0), "{}", homes[0].log());
        let mut client = two.client();
        for node in nodes {
            assert_ne!(show(&mut client, node)["reservation"], "one", "{}", homes[0].log());
        }
        wait_until_on(&mut client, nodes);
        machines.stop();
        drop(two);
    }
}

#[test]
fn short_database_outage_fails_and_repeats_nothing() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let (machines, proxy) = (FailoverFleet::start(), InterruptibleProxy::default());
        let home = TestHome::new();
        let url = database.forwarded(|server| proxy.start(server));
        let server = serve(&home, "one", &url);
        let nodes = machines.enrol(&server);
        let nodes = &nodes[..MACHINES as usize];
        power_on(&mut server.client(), nodes);
        machines.wait_for_requests();
        proxy.interrupt();
        // The time of the outage; the actions continue meanwhile.
        std::thread::sleep(Duration::from_secs(3));
        proxy.resume();
        let mut client = server.client();
        wait_until("the API has a database", || {
            client.send("GET", "/v1/nodes", None).is_ok_and(|response| response.status == 200)
        });
        wait_until_on(&mut client, nodes);
        machines.stop();
        drop(server);
    }
}

#[test]
fn second_process_with_the_same_name_is_refused_while_the_first_one_runs() {
    let Some(database) = EndToEndDatabase::create("FERRITE_TEST_POSTGRES") else { return };
    let (first_home, second_home) = (TestHome::new(), TestHome::new());
    let first = serve(&first_home, "same", &database.url);
    share_key(&first_home, &second_home);
    let mut command = second_home.command();
    command.args(["--auth", "none", "--database", &database.url]);
    command.env("FERRITE_CONDUCTOR__HOST", "same");
    let output = output_of(&mut command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("has the name same") && error.contains("conductor.host"), "{error}");
    assert!(error.contains(WAITS_FOR_PREDECESSOR), "{error}");
    let healthy = first.client().send("GET", "/healthz", None).unwrap();
    assert_eq!(healthy.status, 200);
    // It replaces a process that was killed, also from another data directory.
    first.kill().unwrap();
    let second = serve(&second_home, "same", &database.url);
    assert_eq!(second_home.log().matches(WAITS_FOR_PREDECESSOR).count(), 1);
    second.kill().unwrap();
    // In the same data directory, the previous process cannot be alive.
    let third = serve(&second_home, "same", &database.url);
    assert_eq!(third.stop(TIMEOUT).unwrap().status.code(), Some(0));
    assert_eq!(second_home.log().matches(WAITS_FOR_PREDECESSOR).count(), 1);
}
