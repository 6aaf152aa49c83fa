// SPDX-License-Identifier: Apache-2.0
//! Two processes on one database server: either answers for every machine, one works on each, and
//! when one is killed in the middle the other takes its machines to where they were going.

use std::time::{Duration, Instant};

use http_probe::{Client, Server};
use serde_json::json;

use crate::ferrite::Home;
use crate::journal;

const NODES: usize = 24;
/// How long a job may take, the lease of a killed process included.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a machine is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const JOURNEY: &[(&str, &[&str])] = &[
    ("manage", &["verifying", "manageable"]),
    ("provide", &["cleaning", "available"]),
    ("active", &["deploying", "active"]),
];

#[test]
fn on_postgresql() {
    share("FERRITE_TEST_POSTGRES");
}

#[test]
fn on_mariadb() {
    share("FERRITE_TEST_MARIADB");
}

fn share(variable: &str) {
    let Ok(url) = std::env::var(variable) else {
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
        assert!(!required, "{variable} is not set, and FERRITE_TEST_SERVERS=required");
        println!("{variable} is not set: not tried");
        return;
    };
    let (here, there) = (Home::new(), Home::new());
    let one = serve(&here, "one", &url);
    // What one seals the other must be able to open.
    std::fs::create_dir(there.path("data")).unwrap();
    std::fs::copy(here.path("data/secrets.key"), there.path("data/secrets.key")).unwrap();
    let two = serve(&there, "two", &url);
    let mut clients = [one.client(), two.client()];

    let nodes: Vec<String> = (0..NODES).map(|n| enrol(&mut clients[n % 2], n)).collect();
    let (last, before) = JOURNEY.split_last().unwrap();
    for (verb, path) in before {
        ask_all(&mut clients, &nodes, verb);
        arrive_all(&mut clients[0], &nodes, path.last().unwrap());
    }
    ask_all(&mut clients, &nodes, last.0);
    // Deployments take a while, so that the kill finds some of them under way.
    one.kill().unwrap();
    arrive_all(&mut clients[1], &nodes, last.1.last().unwrap());

    let verbs: Vec<&str> = JOURNEY.iter().map(|(verb, _)| *verb).collect();
    let path: Vec<&str> = JOURNEY.iter().flat_map(|(_, path)| path.iter().copied()).collect();
    for node in &nodes {
        let timeline = journal::timeline(&mut clients[1], node).unwrap();
        let complaints = journal::complaints(&timeline, &verbs, &path);
        assert!(complaints.is_empty(), "{node}: {complaints:#?}");
    }
}

/// A process of that name. Leases are short, so that the test need not wait a minute for those of
/// the killed process to run out.
fn serve(home: &Home, host: &str, url: &str) -> Server {
    let mut command = home.command();
    command.args(["--auth", "none", "--database", url]);
    command.env("FERRITE_CONDUCTOR__HOST", host).env("FERRITE_CONDUCTOR__LEASE_SECONDS", "6");
    Server::start(&mut command, &home.path("log")).unwrap_or_else(|error| panic!("{error}"))
}

fn enrol(client: &mut Client, number: usize) -> String {
    let node = json!({
        "driver": "fake-hardware",
        "name": format!("replica-{number}"),
        "driver_info": {"fake_deploy_delay": "0.3,0.9", "bmc_password": "hush"},
    });
    let answer = client.ask("POST", "/v1/nodes", Some(&node)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["uuid"].as_str().unwrap().to_owned()
}

/// Asks for the verb, each machine through one of the two.
fn ask_all(clients: &mut [Client; 2], nodes: &[String], verb: &str) {
    for (number, node) in nodes.iter().enumerate() {
        let path = format!("/v1/nodes/{node}/states/provision");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let body = json!({"target": verb});
            let answer = clients[number % 2].ask("PUT", &path, Some(&body)).unwrap();
            match answer.status {
                202 => break,
                409 | 503 if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                status => panic!("{verb} of {node}: {status} {}", answer.text()),
            }
        }
    }
}

fn arrive_all(client: &mut Client, nodes: &[String], wanted: &str) {
    let deadline = Instant::now() + PATIENCE;
    for node in nodes {
        loop {
            let path = format!("/v1/nodes/{node}/states");
            let states = client.send("GET", &path, None).unwrap().json();
            if states["provision_state"] == *wanted {
                break;
            }
            assert!(Instant::now() < deadline, "{node} does not reach {wanted}: {states}");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
