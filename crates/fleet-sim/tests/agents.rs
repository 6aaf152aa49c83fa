// SPDX-License-Identifier: Apache-2.0
//! Simulated agents over real sockets: lookup, heartbeats, commands, faults.

// Test helpers may unwrap and print, as tests may.
#![cfg(test)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use fleet_sim::machine::{
    BootChange, BootOverride, BootTarget, PowerState, ResetType, RunningSoftware,
};
use fleet_sim::{
    FaultRule, FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet, SimulatedMachine,
};
use http_probe::{ProbeClient, ProbeResponse};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const TOKEN: &str = "0123456789abcdef0123456789abcdef0123";
const NODE: &str = "c2f5cbb5-a2e2-4f1f-8d0c-4f3ad1d1c5f3";
/// Time limit for any wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A request of an agent to the API.
#[derive(Debug)]
enum AgentCall {
    Lookup(String),
    Heartbeat(Value),
    Report(Value),
}

/// A fleet with an API server that records all requests of agents.
struct AgentTestBench {
    runtime: Runtime,
    fleet: Option<SimulatedFleet>,
    calls: Receiver<AgentCall>,
}

impl AgentTestBench {
    fn new(change: impl FnOnce(&mut SimulatedAgentConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut agents =
            SimulatedAgentConfig::for_api(&format!("http://{}", listener.local_addr().unwrap()));
        agents.sends_inspection_data = false;
        change(&mut agents);
        let (sender, calls) = channel();
        thread::spawn(move || serve_api(&listener, &sender));
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: 2,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 1_000.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        drop(guard);
        Self { runtime, fleet: Some(fleet), calls }
    }

    fn machine(&self) -> SimulatedMachine {
        self.fleet.as_ref().unwrap().machine(1).unwrap()
    }

    fn add_fault(&self, rule: &str) {
        let fleet = self.fleet.as_ref().unwrap();
        fleet.faults().add(rule.parse::<FaultRule>().unwrap(), fleet.now());
    }

    /// Boots the machine from the network.
    fn boot_from_network(&self) {
        let change = BootChange {
            target: Some(BootTarget::Pxe),
            enabled: Some(BootOverride::Continuous),
            ..BootChange::default()
        };
        self.machine().with_model(|machine, now| {
            machine.set_boot(change, now).unwrap();
            machine.reset(ResetType::On, now).unwrap();
        });
    }

    fn next_call(&self) -> AgentCall {
        self.calls.recv_timeout(TIMEOUT).expect("the agent calls the API")
    }

    /// Waits for the next heartbeat.
    fn next_heartbeat(&self) -> Value {
        loop {
            if let AgentCall::Heartbeat(heartbeat) = self.next_call() {
                return heartbeat;
            }
        }
    }

    /// Boots an agent and returns a client for its command API.
    fn boot_agent(&self) -> TestAgentClient {
        self.boot_from_network();
        let url = self.next_heartbeat()["callback_url"].as_str().unwrap().to_owned();
        let rest = url.strip_prefix("http://").expect("plain HTTP");
        TestAgentClient { address: rest.parse().unwrap(), path: "/v1/commands/".to_owned() }
    }
}

impl Drop for AgentTestBench {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

/// A client of an agent's command API.
struct TestAgentClient {
    address: SocketAddr,
    path: String,
}

impl TestAgentClient {
    fn client(&self) -> ProbeClient {
        ProbeClient::new(self.address).with_timeout(TIMEOUT)
    }

    fn send_command(&self, name: &str, params: Value, wait: bool) -> ProbeResponse {
        let path = format!("{}?wait={wait}&agent_token={TOKEN}", self.path);
        self.client()
            .send_json("POST", &path, Some(&json!({"name": name, "params": params})))
            .unwrap()
    }

    fn execute_step(&self, flow: &str, step: Value) -> Value {
        let params = json!({"step": step, "node": {"target_raid_config": {"logical_disks": [1]}}, "ports": []});
        let done = self.send_command(&format!("{flow}.execute_{flow}_step"), params, true);
        assert_eq!(done.status, 200, "{}", done.text());
        done.json()
    }

    fn commands(&self) -> std::io::Result<Vec<Value>> {
        let path = format!("{}?agent_token={TOKEN}", self.path);
        let list = self.client().send_json("GET", &path, None)?.json();
        Ok(list["commands"].as_array().unwrap().clone())
    }
}

/// Serves an API that has one node, and sends each request to `calls`.
fn serve_api(listener: &TcpListener, calls: &Sender<AgentCall>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            continue;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = first.split_whitespace().nth(1).unwrap();
        let (status, response, call) = if path.starts_with("/v1/lookup") {
            let config = json!({"heartbeat_timeout": 300, "agent_token": TOKEN});
            let response = json!({"node": {"uuid": NODE}, "config": config});
            ("200 OK", response.to_string(), AgentCall::Lookup(path.to_owned()))
        } else if path == "/v1/continue_inspection" {
            ("404 Not Found", "{}".to_owned(), AgentCall::Report(body))
        } else {
            assert_eq!(path, format!("/v1/heartbeat/{NODE}"));
            ("202 Accepted", String::new(), AgentCall::Heartbeat(body))
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{response}", response.len()).unwrap();
        let _ = calls.send(call);
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + TIMEOUT;
    while !condition() {
        assert!(std::time::Instant::now() < end, "the condition is not met in time");
        thread::yield_now();
    }
}

#[test]
fn agent_sends_inspection_data_then_lookup_then_heartbeat() {
    let bench = AgentTestBench::new(|agents| agents.sends_inspection_data = true);
    bench.boot_from_network();
    let AgentCall::Report(report) = bench.next_call() else { panic!("inspection data come first") };
    let macs = bench.machine().macs();
    assert_eq!(report["inventory"]["interfaces"][0]["mac_address"], macs[0].as_str());
    let AgentCall::Lookup(path) = bench.next_call() else { panic!("then the lookup") };
    assert!(path.contains(macs[0].as_str()) && path.contains(macs[1].as_str()), "{path}");
    let AgentCall::Heartbeat(heartbeat) = bench.next_call() else { panic!("then the heartbeat") };
    assert_eq!(heartbeat["agent_token"], TOKEN);
    let callback: http::Uri = heartbeat["callback_url"].as_str().unwrap().parse().unwrap();
    assert_eq!(callback.path(), "/", "{heartbeat}");
    assert_eq!(bench.machine().running_software(), RunningSoftware::Ramdisk);
}

#[test]
fn machine_with_an_empty_disk_runs_no_agent() {
    let bench = AgentTestBench::new(|_| ());
    bench.machine().with_model(|machine, now| machine.reset(ResetType::On, now)).unwrap();
    wait_until(|| bench.machine().running_software() != RunningSoftware::Nothing);
    assert_eq!(bench.machine().running_software(), RunningSoftware::EmptyDisk);
    assert!(bench.machine().agent().is_none());
}

#[test]
fn agent_rejects_commands_as_ironic_python_agent_does() {
    let bench = AgentTestBench::new(|_| ());
    let agent = bench.boot_agent();
    let wrong = agent.path.clone() + "?agent_token=wrong";
    assert_eq!(agent.client().send_json("GET", &wrong, None).unwrap().status, 401);
    for (name, status) in [
        ("sync", 400),
        ("kitchen.sink", 404),
        ("standby.dance", 400),
        ("standby.kexec", 400),
        ("deploy.execute_deploy_step", 400),
        ("standby.sync", 200),
    ] {
        assert_eq!(agent.send_command(name, json!({}), true).status, status, "{name}");
    }
    bench.add_fault("hang path=/agent/step/erase_pstore");
    let params = json!({"step": {"step": "erase_pstore"}, "node": {}, "ports": []});
    let running = agent.send_command("clean.execute_clean_step", params, false).json();
    assert_eq!(running["command_status"], "RUNNING");
    assert_eq!(running["command_name"], "execute_clean_step");
    let busy = agent.send_command("standby.sync", json!({}), true);
    assert_eq!(busy.status, 409);
    assert!(busy.text().contains("Agent is busy: executing command execute_clean_step"));
}

#[test]
fn steps_are_listed_and_executed() {
    let bench = AgentTestBench::new(|_| ());
    let agent = bench.boot_agent();
    for (flow, step, priority) in [
        ("clean", "erase_devices_metadata", 99),
        ("deploy", "write_image", 0),
        ("service", "burnin_memory", 0),
    ] {
        let listed =
            agent.send_command(&format!("{flow}.get_{flow}_steps"), json!({}), true).json();
        let result = &listed["command_result"];
        let steps = result[format!("{flow}_steps")]["GenericHardwareManager"].as_array().unwrap();
        let found = steps.iter().find(|found| found["step"] == step).unwrap();
        assert_eq!(found["priority"], priority);
        assert_eq!(result["hardware_manager_version"], json!({"generic_hardware_manager": "1.2"}));
    }
    let args = json!({"image_info": {"id": "i", "urls": ["http://h/i"], "os_hash_value": "ab"}, "configdrive": "H4s"});
    let written = agent.execute_step("deploy", json!({"step": "write_image", "args": args}));
    assert_eq!(written["command_status"], "SUCCEEDED", "{written}");
    let disk = bench.machine().disk_image().unwrap();
    assert_eq!((&*disk.source, disk.checksum.as_deref()), ("http://h/i", Some("ab")));
    assert!(disk.config_drive);
    assert_eq!(bench.machine().completed_step_count("write_image"), 1);
    // The end of an asynchronous command triggers a heartbeat.
    bench.next_heartbeat();
    let uuids = agent.send_command("standby.get_partition_uuids", json!({}), true).json();
    assert!(uuids["command_result"]["root uuid"].is_string(), "{uuids}");
    let raid = agent.execute_step("clean", json!({"step": "create_configuration"}));
    assert_eq!(raid["command_result"]["clean_result"], json!({"logical_disks": [1]}));
    agent.execute_step("clean", json!({"step": "erase_devices_metadata"}));
    assert_eq!(bench.machine().disk_image(), None);
    let unknown = agent.execute_step("clean", json!({"step": "polish"}));
    assert_eq!(unknown["command_error"]["type"], "CleaningError", "{unknown}");
}

#[test]
fn root_device_hints_select_the_disk() {
    let bench = AgentTestBench::new(|_| ());
    let agent = bench.boot_agent();
    let write = |node: Value| {
        let step = json!({"step": "write_image", "args": {"image_info": {"urls": ["http://h/i"]}}});
        let params = json!({"step": step, "node": node, "ports": []});
        agent.send_command("deploy.execute_deploy_step", params, true).json()
    };
    let nvme = json!({"name": "s== /dev/nvme1n1"});
    for (node, device) in [
        (json!({}), "/dev/sda"),
        (json!({"properties": {"root_device": nvme}}), "/dev/nvme1n1"),
        (json!({"properties": {"root_device": {"size": ">= 3000"}}}), "/dev/nvme0n1"),
        (
            json!({"properties": {"root_device": nvme}, "instance_info": {"root_device": {"hctl": "0:0:2:0"}}}),
            "/dev/sdc",
        ),
        (
            json!({"properties": {"root_device": nvme}, "instance_info": {"root_device": {}}}),
            "/dev/nvme1n1",
        ),
    ] {
        let written = write(node.clone());
        let result = written["command_result"]["deploy_result"].to_string();
        assert!(result.contains(&format!("device {device} ")), "{node}: {written}");
        assert_eq!(&*bench.machine().disk_image().unwrap().device, device, "{node}");
    }
    for (hints, expected) in [
        (json!({"serial": "unknown"}), "no disk matches"),
        (json!({"colour": "red"}), "unknown root device hint"),
    ] {
        let failed = write(json!({"properties": {"root_device": hints}}));
        assert_eq!(failed["command_error"]["type"], "DeviceNotFound", "{failed}");
        assert!(failed["command_error"].to_string().contains(expected), "{failed}");
    }
}

#[test]
fn step_fails_if_hardware_manager_versions_differ() {
    let bench = AgentTestBench::new(|agents| agents.is_ferrite_agent = true);
    let agent = bench.boot_agent();
    let params = json!({"step": {"step": "erase_pstore"}, "node": {}, "clean_version": {"generic_hardware_manager": "1.1"}});
    let done = agent.send_command("clean.execute_clean_step", params, true).json();
    assert_eq!(done["command_status"], "CLEAN_VERSION_MISMATCH");
}

#[test]
fn commands_that_end_the_agent() {
    let written = json!({"step": "write_image", "args": {"image_info": {"urls": ["http://h/i"]}}});
    for (command, runs, power) in [
        ("standby.power_off", RunningSoftware::Nothing, PowerState::Off),
        ("standby.kexec", RunningSoftware::Instance, PowerState::On),
        ("rescue.finalize_rescue", RunningSoftware::Rescue, PowerState::On),
    ] {
        let bench = AgentTestBench::new(|agents| agents.is_ferrite_agent = true);
        let agent = bench.boot_agent();
        agent.execute_step("deploy", written.clone());
        let done = agent.send_command(command, json!({}), true).json();
        assert_eq!(done["command_status"], "SUCCEEDED", "{command}");
        wait_until(|| {
            bench.machine().running_software() == runs && bench.machine().power_state() == power
        });
        wait_until(|| agent.commands().is_err());
        assert!(bench.machine().agent().is_none(), "{command}");
    }
}

#[test]
fn fault_rules_apply_to_agents() {
    let step = json!({"step": "write_image", "args": {"image_info": {"urls": ["http://h/i"]}}});
    for (rule, expected) in [
        ("fail=smoke path=/agent/step/write_image", "smoke"),
        ("wrong-checksum path=/agent/step/write_image", "checksum"),
    ] {
        let bench = AgentTestBench::new(|_| ());
        let agent = bench.boot_agent();
        bench.add_fault(rule);
        let done = agent.execute_step("deploy", step.clone());
        assert_eq!(done["command_status"], "FAILED");
        let details = done["command_error"]["details"].as_str().unwrap();
        assert!(details.contains(expected), "{details}");
        assert_eq!(bench.machine().completed_step_count("write_image"), 0);
    }

    let params = json!({"step": step, "node": {}, "ports": []});
    let bench = AgentTestBench::new(|_| ());
    let agent = bench.boot_agent();
    bench.add_fault("power-cut path=/agent/step");
    agent.send_command("deploy.execute_deploy_step", params.clone(), false);
    wait_until(|| bench.machine().power_state() == PowerState::Off);
    wait_until(|| agent.commands().is_err());

    let bench = AgentTestBench::new(|_| ());
    let agent = bench.boot_agent();
    bench.add_fault("network-loss=1 path=/agent/step");
    agent.send_command("deploy.execute_deploy_step", params, false);
    wait_until(|| agent.commands().is_err());
    // After the network loss the agent has finished the step and sends a heartbeat.
    wait_until(|| agent.commands().is_ok_and(|all| all[0]["command_status"] == "SUCCEEDED"));
    bench.next_heartbeat();

    let bench = AgentTestBench::new(|_| ());
    bench.add_fault("hang path=/agent/boot times=1");
    bench.boot_from_network();
    wait_until(|| bench.fleet.as_ref().unwrap().faults().rules()[0].1 == 1);
    bench.machine().with_model(|machine, now| machine.reset(ResetType::ForceRestart, now)).unwrap();
    // The first agent never starts, the second one does.
    bench.next_heartbeat();
    assert_eq!(bench.machine().with_model(|machine, _| machine.boot_count()), 2);
}

#[test]
fn images_are_downloaded_and_verified() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (checksum, status) in [(digest, "SUCCEEDED"), (&digest[1..], "FAILED")] {
        let images = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/image.raw", images.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = images.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        });
        let bench = AgentTestBench::new(|agents| agents.downloads_images = true);
        let agent = bench.boot_agent();
        let info = json!({"urls": [url], "os_hash_algo": "sha256", "os_hash_value": checksum});
        let done = agent
            .execute_step("deploy", json!({"step": "write_image", "args": {"image_info": info}}));
        assert_eq!(done["command_status"], status, "{done}");
        server.join().unwrap();
    }
}
