// SPDX-License-Identifier: Apache-2.0
//! `ferrite sim` and `ferrite bmc` as users run them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use http_probe::ProbeClient;
use serde_json::Value;

use crate::test_process::{TestHome, ferrite, output_of};

/// A command that prints a line when it is ready and runs until it is stopped.
struct RunningCommand {
    process: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl RunningCommand {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        Self { process, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn stop(mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn enrols_a_fleet_and_writes_its_inventory() {
    let home = TestHome::new();
    let server = home.serve();
    let inventory = home.path("fleet.json");
    let mut command = ferrite();
    command.args(["sim", "--bmcs", "5", "--port", "0", "--tls", "--enrol", &server.url()]);
    command.args(["--control", "127.0.0.1:0", "--inventory"]).arg(&inventory);
    let mut fleet = RunningCommand::start(&mut command);
    let ready = fleet.line();
    assert!(ready.starts_with("5 simulated BMCs on https://127.0.0.1:"), "{ready}");
    assert!(ready.contains("(user admin, password password), control on http://"), "{ready}");
    assert_eq!(fleet.line(), "5 nodes created, 0 updated\n");

    let nodes = server.client().send_json("GET", "/v1/nodes/detail", None).unwrap().json();
    let nodes = nodes["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 5);
    let mode = std::fs::metadata(&inventory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the file contains passwords");
    let listed: Value = serde_json::from_slice(&std::fs::read(&inventory).unwrap()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 5);
    let authority = listed[0]["driver_info"]["redfish_verify_ca"].as_str().unwrap();
    assert!(std::fs::read_to_string(authority).unwrap().contains("BEGIN CERTIFICATE"));
    let ports = server.client().send_json("GET", "/v1/ports", None).unwrap().json();
    let macs =
        listed.as_array().unwrap().iter().map(|node| node["ports"].as_array().unwrap().len());
    assert_eq!(ports["ports"].as_array().unwrap().len(), macs.sum::<usize>());

    let control = ready.trim().rsplit("http://").next().unwrap().parse().unwrap();
    let machines = ProbeClient::new(control).send_json("GET", "/machines", None).unwrap().json();
    assert_eq!(machines.as_array().unwrap().len(), 5);
    assert!(fleet.stop().success());
}

#[test]
fn records_and_replays_a_bmc() {
    let home = TestHome::new();
    let mut command = ferrite();
    let mut fleet = RunningCommand::start(command.args(["sim", "--bmcs", "1", "--port", "0"]));
    let ready = fleet.line();
    let url = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let file = home.path("recording.json");
    let mut record = ferrite();
    record.args(["bmc", "record", "--redfish", url, "--user", "admin", "--out"]).arg(&file);
    let rejected = output_of(&mut record);
    assert!(String::from_utf8_lossy(&rejected.stderr).contains("FERRITE_BMC_PASSWORD"));
    let recorded = output_of(record.env("FERRITE_BMC_PASSWORD", "password"));
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));

    let mut command = ferrite();
    command.args(["bmc", "replay", "--listen", "127.0.0.1:0"]).arg(&file);
    let mut replay = RunningCommand::start(&mut command);
    let ready = replay.line();
    let address = ready.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut client = ProbeClient::new(address.parse().unwrap());
    let systems = client.send_json("GET", "/redfish/v1/Systems", None).unwrap().json();
    assert_eq!(systems["Members@odata.count"], 1);
    assert!(replay.stop().success());
    assert!(fleet.stop().success());
}

#[test]
fn rejects_invalid_arguments() {
    for (arguments, expected) in [
        (vec!["--bmcs", "0"], "greater than 0"),
        (vec!["--bmcs", "70000"], "not enough ports for 70000 BMCs from 8000 on"),
        (vec!["--fault", "explode"], "use one of drop, hang"),
        (vec!["--faults", "/nowhere"], "cannot read the faults in /nowhere"),
        (vec!["--personality", "cray"], "unknown personality \"cray\"; use one of generic"),
        (vec!["--port", "0", "--speed", "0"], "invalid speed 0; use a number above 0"),
        (
            vec!["--port", "0", "--bmcs", "1", "--enrol", "http://127.0.0.1:1"],
            "cannot enrol sim-00000",
        ),
    ] {
        let output = output_of(ferrite().arg("sim").args(&arguments));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
