// SPDX-License-Identifier: Apache-2.0
//! `ferrite sim` and `ferrite bmc` as users run them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use http_probe::Client;
use serde_json::Value;

use crate::ferrite::{Home, ferrite, output_of};

/// A command that says something when it is ready and runs until it is stopped.
struct Running {
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    fn stop(mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_fleet_is_enrolled_written_down_and_stopped() {
    let home = Home::new();
    let server = home.serve();
    let inventory = home.path("fleet.json");
    let mut command = ferrite();
    command.args(["sim", "--bmcs", "5", "--port", "0", "--tls", "--enrol", &server.url()]);
    command.args(["--control", "127.0.0.1:0", "--inventory"]).arg(&inventory);
    let mut fleet = Running::start(&mut command);
    let ready = fleet.line();
    assert!(ready.starts_with("5 simulated BMCs on https://127.0.0.1:"), "{ready}");
    assert!(ready.contains("(user admin, password password), control on http://"), "{ready}");
    assert_eq!(fleet.line(), "5 nodes created, 0 brought up to date\n");

    let nodes = server.client().ask("GET", "/v1/nodes/detail", None).unwrap().json();
    let nodes = nodes["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 5);
    let mode = std::fs::metadata(&inventory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "there are passwords in it");
    let listed: Value = serde_json::from_slice(&std::fs::read(&inventory).unwrap()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 5);
    let authority = listed[0]["driver_info"]["redfish_verify_ca"].as_str().unwrap();
    assert!(std::fs::read_to_string(authority).unwrap().contains("BEGIN CERTIFICATE"));
    let ports = server.client().ask("GET", "/v1/ports", None).unwrap().json();
    let macs =
        listed.as_array().unwrap().iter().map(|node| node["ports"].as_array().unwrap().len());
    assert_eq!(ports["ports"].as_array().unwrap().len(), macs.sum::<usize>());

    let control = ready.trim().rsplit("http://").next().unwrap().parse().unwrap();
    let machines = Client::new(control).ask("GET", "/machines", None).unwrap().json();
    assert_eq!(machines.as_array().unwrap().len(), 5);
    assert!(fleet.stop().success());
}

#[test]
fn a_bmc_is_recorded_and_replayed() {
    let home = Home::new();
    let mut command = ferrite();
    let mut fleet = Running::start(command.args(["sim", "--bmcs", "1", "--port", "0"]));
    let ready = fleet.line();
    let url = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let file = home.path("recording.json");
    let mut record = ferrite();
    record.args(["bmc", "record", "--redfish", url, "--user", "admin", "--out"]).arg(&file);
    let refused = output_of(&mut record);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("FERRITE_BMC_PASSWORD"));
    let recorded = output_of(record.env("FERRITE_BMC_PASSWORD", "password"));
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));

    let mut command = ferrite();
    command.args(["bmc", "replay", "--listen", "127.0.0.1:0"]).arg(&file);
    let mut replay = Running::start(&mut command);
    let ready = replay.line();
    let address = ready.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut client = Client::new(address.parse().unwrap());
    let systems = client.ask("GET", "/redfish/v1/Systems", None).unwrap().json();
    assert_eq!(systems["Members@odata.count"], 1);
    assert!(replay.stop().success());
    assert!(fleet.stop().success());
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    for (arguments, expected) in [
        (vec!["--bmcs", "0"], "above 0"),
        (vec!["--bmcs", "70000"], "there are not 70000 ports from 8000 on"),
        (vec!["--fault", "explode"], "is none of drop, hang"),
        (vec!["--faults", "/nowhere"], "cannot read the faults in /nowhere"),
        (vec!["--personality", "cray"], "there is no personality \"cray\"; there are generic"),
        (vec!["--port", "0", "--speed", "0"], "the speed 0 is not a number above 0"),
        (
            vec!["--port", "0", "--bmcs", "1", "--enrol", "http://127.0.0.1:1"],
            "cannot enrol sim-00000",
        ),
    ] {
        let output = output_of(ferrite().arg("sim").args(&arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
