// SPDX-License-Identifier: Apache-2.0
//! Two processes share a database server: both serve all nodes, one works on each, and when one is killed
//! the other completes its jobs. The clocks of their hosts do not matter.

pub(crate) mod failover;
pub(crate) mod interruptible_proxy;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ServerProcess};
use serde_json::json;

use crate::journal;
use crate::test_database::{EndToEndDatabase, SERVER_VARIABLES};
use crate::test_process::{TestHome, output_of};

const NODES: usize = 24;
/// Timeout of a job, also on a busy host.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const STAGES: &[(&str, &[&str])] = &[
    ("manage", &["verifying", "manageable"]),
    ("provide", &["cleaning", "available"]),
    ("active", &["deploying", "active"]),
];

/// How far the clock of a host is ahead, in seconds.
#[derive(Clone, Copy)]
enum HostClock {
    Right,
    Ahead(u64),
}

#[test]
fn on_postgresql() {
    run_with_two_servers("FERRITE_TEST_POSTGRES", HostClock::Right);
}

#[test]
fn on_mariadb() {
    run_with_two_servers("FERRITE_TEST_MARIADB", HostClock::Right);
}

#[test]
fn with_one_clock_an_hour_ahead() {
    run_with_two_servers("FERRITE_TEST_POSTGRES", HostClock::Ahead(3600));
}

#[test]
fn a_wrong_clock_is_reported_at_the_start() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let home = TestHome::new();
        let mut command = server_command(&home, "ahead", &database.url);
        set_clock(&mut command, HostClock::Ahead(3600));
        let output = output_of(&mut command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("seconds ahead of the database server"), "{error}");
        assert!(error.contains("database.clock_tolerance"), "{error}");
    }
}

/// The queue is in the database: what the killed process queued, the other starts, and no deployment is refused.
#[test]
fn queued_deployments_continue_when_a_process_is_killed() {
    const LIMIT: usize = 3;
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let (first_home, second_home) = (TestHome::new(), TestHome::new());
        let serve = |home: &TestHome, host: &str| {
            let mut command = server_command(home, host, &database.url);
            command.env("FERRITE_LIFECYCLE__MAX_CONCURRENT_DEPLOY", LIMIT.to_string());
            ServerProcess::start(&mut command, &home.path("log"))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let one = serve(&first_home, "one");
        share_key(&first_home, &second_home);
        let two = serve(&second_home, "two");
        let mut clients = [one.client(), two.client()];
        let nodes: Vec<String> = (0..NODES).map(|n| enrol(&mut clients[n % 2], n)).collect();
        for (verb, state) in [("manage", "manageable"), ("provide", "available")] {
            request_all(&mut clients, &nodes, verb);
            wait_for_all(&mut clients[0], &nodes, state);
        }
        // The first ones keep their places until they are released.
        let (held, queued) = nodes.split_at(LIMIT);
        let hold = json!([{"interface": "deploy", "step": "hold", "args": {}, "priority": 110}]);
        for (number, node) in nodes.iter().enumerate() {
            if number == LIMIT {
                wait_for_all(&mut clients[0], held, "deploy hold");
            }
            let path = format!("/v1/nodes/{node}/states/provision");
            let body = match number < LIMIT {
                true => json!({"target": "active", "deploy_steps": hold}),
                false => json!({"target": "active"}),
            };
            let response = clients[number % 2].send_json("PUT", &path, Some(&body)).unwrap();
            assert_eq!(response.status, 202, "{}", response.text());
        }
        one.kill().unwrap();
        request_all(&mut clients[1..], held, "unhold");
        wait_for_all(&mut clients[1], &nodes, "active");
        let is_queued = |node: &String, client: &mut ProbeClient| {
            let timeline = journal::timeline(client, node).unwrap();
            timeline.iter().any(|entry| entry["event"]["reason"] == "job queue")
        };
        assert!(queued.iter().all(|node| is_queued(node, &mut clients[1])), "{queued:?}");
    }
}

fn run_with_two_servers(variable: &str, second_clock: HostClock) {
    let Some(database) = EndToEndDatabase::create(variable) else { return };
    let (first_home, second_home) = (TestHome::new(), TestHome::new());
    let one = serve(&first_home, "one", &database.url, HostClock::Right);
    share_key(&first_home, &second_home);
    let two = serve(&second_home, "two", &database.url, second_clock);
    let mut clients = [one.client(), two.client()];

    let nodes: Vec<String> = (0..NODES).map(|n| enrol(&mut clients[n % 2], n)).collect();
    let (last, before) = STAGES.split_last().unwrap();
    for (verb, path) in before {
        request_all(&mut clients, &nodes, verb);
        wait_for_all(&mut clients[0], &nodes, path.last().unwrap());
    }
    clients.iter_mut().for_each(check_cluster_status);
    request_all(&mut clients, &nodes, last.0);
    // Deployments take a while, so that some are running at the kill.
    one.kill().unwrap();
    wait_for_all(&mut clients[1], &nodes, last.1.last().unwrap());

    let verbs: Vec<&str> = STAGES.iter().map(|(verb, _)| *verb).collect();
    let path: Vec<&str> = STAGES.iter().flat_map(|(_, path)| path.iter().copied()).collect();
    for node in &nodes {
        let timeline = journal::timeline(&mut clients[1], node).unwrap();
        let problems = journal::problems(&timeline, &verbs, &path);
        assert!(problems.is_empty(), "{node}: {problems:#?}");
    }
}

/// Each process shows both, and that each manages a part of the nodes.
fn check_cluster_status(client: &mut ProbeClient) {
    let response = client.send_json("GET", "/v1/ferrite/cluster", None).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    let status = response.json();
    let replicas = status["replicas"].as_array().unwrap();
    let names: Vec<&str> = replicas.iter().filter_map(|it| it["hostname"].as_str()).collect();
    assert_eq!(names, ["one", "two"], "{status}");
    for replica in replicas {
        assert_eq!(replica["state"], "online", "{status}");
        assert_eq!(replica["version"], env!("CARGO_PKG_VERSION"), "{status}");
    }
    let managed = replicas.iter().filter_map(|replica| replica["nodes"].as_u64());
    assert_eq!(managed.sum::<u64>(), NODES as u64, "{status}");
    assert_eq!(status["unmanaged_nodes"], 0, "{status}");
}

/// Copies the key for sealed secrets, which all processes need.
fn share_key(from: &TestHome, to: &TestHome) {
    std::fs::create_dir(to.path("data")).unwrap();
    std::fs::copy(from.path("data/secrets.key"), to.path("data/secrets.key")).unwrap();
}

/// Starts a process with this host name.
fn serve(home: &TestHome, host: &str, url: &str, clock: HostClock) -> ServerProcess {
    let mut command = server_command(home, host, url);
    set_clock(&mut command, clock);
    command.env("FERRITE_DATABASE__CLOCK_TOLERANCE", "7200");
    ServerProcess::start(&mut command, &home.path("log")).unwrap_or_else(|error| panic!("{error}"))
}

fn server_command(home: &TestHome, host: &str, url: &str) -> Command {
    let mut command = home.command();
    command.args(["--auth", "none", "--database", url]);
    command.env("FERRITE_CONDUCTOR__HOST", host);
    command
}

/// Changes the wall clock of a process with libfaketime.
fn set_clock(command: &mut Command, clock: HostClock) {
    let HostClock::Ahead(seconds) = clock else { return };
    command.env("LD_PRELOAD", faketime_library()).env("FAKETIME", format!("+{seconds}s"));
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Where Debian's package `faketime` has its library.
fn faketime_library() -> PathBuf {
    let folder = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
    let library = PathBuf::from(folder).join("libfaketime.so.1");
    assert!(library.exists(), "{} is missing; install faketime", library.display());
    library
}

fn enrol(client: &mut ProbeClient, number: usize) -> String {
    let node = json!({
        "driver": "fake-hardware",
        "name": format!("replica-{number}"),
        "driver_info": {"fake_deploy_delay": "0.3,0.9", "bmc_password": "hush"},
    });
    let response = client.send_json("POST", "/v1/nodes", Some(&node)).unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
    response.json()["uuid"].as_str().unwrap().to_owned()
}

/// Requests the verb for all nodes, alternating between the two servers.
fn request_all(clients: &mut [ProbeClient], nodes: &[String], verb: &str) {
    let count = clients.len();
    for (number, node) in nodes.iter().enumerate() {
        let path = format!("/v1/nodes/{node}/states/provision");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let body = json!({"target": verb});
            let response = clients[number % count].send_json("PUT", &path, Some(&body)).unwrap();
            match response.status {
                202 => break,
                409 | 503 if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
                status => panic!("{verb} of {node}: {status} {}", response.text()),
            }
        }
    }
}

fn wait_for_all(client: &mut ProbeClient, nodes: &[String], state: &str) {
    let deadline = Instant::now() + TIMEOUT;
    for node in nodes {
        loop {
            let path = format!("/v1/nodes/{node}/states");
            let states = client.send("GET", &path, None).unwrap().json();
            if states["provision_state"] == *state {
                break;
            }
            assert!(Instant::now() < deadline, "{node} does not reach {state}: {states}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
