// SPDX-License-Identifier: Apache-2.0
//! Agents of simulated machines over real sockets: how they call home, and how they take commands.

// Helpers of tests may unwrap and print as tests do.
#![cfg(test)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use fleet_sim::machine::{BootChange, BootTarget, Override, PowerState, Reset, Runs};
use fleet_sim::{AgentConfig, FaultRule, Fleet, FleetConfig, Personality, SimulatedMachine};
use http_probe::{Answer, Client};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const TOKEN: &str = "0123456789abcdef0123456789abcdef0123";
const NODE: &str = "c2f5cbb5-a2e2-4f1f-8d0c-4f3ad1d1c5f3";
/// How long anything may take before the test is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something an agent said to its API.
#[derive(Debug)]
enum Said {
    Lookup(String),
    Heartbeat(Value),
    Report(Value),
}

/// A fleet with an API that takes whatever agents say.
struct Rig {
    runtime: Runtime,
    fleet: Option<Fleet>,
    said: Receiver<Said>,
}

impl Rig {
    fn new(change: impl FnOnce(&mut AgentConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut agents =
            AgentConfig::calling(&format!("http://{}", listener.local_addr().unwrap()));
        agents.inspects = false;
        change(&mut agents);
        let (tell, said) = channel();
        thread::spawn(move || answer_all(&listener, &tell));
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let fleet = Fleet::start(FleetConfig {
            bmcs: 2,
            personalities: vec![Personality::named("generic").unwrap()],
            speed: 1_000.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        drop(guard);
        Self { runtime, fleet: Some(fleet), said }
    }

    fn machine(&self) -> SimulatedMachine {
        self.fleet.as_ref().unwrap().machine(1).unwrap()
    }

    fn fault(&self, rule: &str) {
        let fleet = self.fleet.as_ref().unwrap();
        fleet.faults().add(rule.parse::<FaultRule>().unwrap(), fleet.now());
    }

    /// Boots the machine from the network.
    fn boot(&self) {
        let change = BootChange {
            target: Some(BootTarget::Pxe),
            enabled: Some(Override::Continuous),
            ..BootChange::default()
        };
        self.machine().with(|machine, now| {
            machine.set_boot(change, now).unwrap();
            machine.reset(Reset::On, now).unwrap();
        });
    }

    fn hear(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("the agent says something")
    }

    /// The next sign of life.
    fn heartbeat(&self) -> Value {
        loop {
            if let Said::Heartbeat(heartbeat) = self.hear() {
                return heartbeat;
            }
        }
    }

    /// Boots an agent and speaks to it.
    fn agent(&self) -> Line {
        self.boot();
        let url = self.heartbeat()["callback_url"].as_str().unwrap().to_owned();
        let rest = url.strip_prefix("http://").expect("plain HTTP");
        let (address, path) = rest.split_once('/').expect("a path per machine");
        Line { address: address.parse().unwrap(), path: format!("/{path}/v1/commands/") }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            self.runtime.block_on(fleet.stop());
        }
    }
}

/// The line to an agent.
struct Line {
    address: SocketAddr,
    path: String,
}

impl Line {
    fn client(&self) -> Client {
        Client::new(self.address).with_patience(PATIENCE)
    }

    fn send(&self, name: &str, params: Value, wait: bool) -> Answer {
        let path = format!("{}?wait={wait}&agent_token={TOKEN}", self.path);
        self.client().ask("POST", &path, Some(&json!({"name": name, "params": params}))).unwrap()
    }

    fn step(&self, flow: &str, step: Value) -> Value {
        let order = json!({"step": step, "node": {"target_raid_config": {"logical_disks": [1]}}, "ports": []});
        let done = self.send(&format!("{flow}.execute_{flow}_step"), order, true);
        assert_eq!(done.status, 200, "{}", done.text());
        done.json()
    }

    fn commands(&self) -> std::io::Result<Vec<Value>> {
        let path = format!("{}?agent_token={TOKEN}", self.path);
        let list = self.client().ask("GET", &path, None)?.json();
        Ok(list["commands"].as_array().unwrap().clone())
    }
}

/// An API that knows one node.
fn answer_all(listener: &TcpListener, tell: &Sender<Said>) {
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
        let (status, answer, said) = if path.starts_with("/v1/lookup") {
            let config = json!({"heartbeat_timeout": 300, "agent_token": TOKEN});
            let answer = json!({"node": {"uuid": NODE}, "config": config});
            ("200 OK", answer.to_string(), Said::Lookup(path.to_owned()))
        } else if path == "/v1/continue_inspection" {
            ("404 Not Found", "{}".to_owned(), Said::Report(body))
        } else {
            assert_eq!(path, format!("/v1/heartbeat/{NODE}"));
            ("202 Accepted", String::new(), Said::Heartbeat(body))
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
        let _ = tell.send(said);
    }
}

fn until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "it does not come to pass");
        thread::yield_now();
    }
}

#[test]
fn an_agent_sends_what_it_found_asks_who_it_is_and_calls() {
    let rig = Rig::new(|agents| agents.inspects = true);
    rig.boot();
    let Said::Report(report) = rig.hear() else { panic!("inspection data come first") };
    let macs = rig.machine().macs();
    assert_eq!(report["inventory"]["interfaces"][0]["mac_address"], macs[0].as_str());
    let Said::Lookup(path) = rig.hear() else { panic!("then the lookup") };
    assert!(path.contains(macs[0].as_str()) && path.contains(macs[1].as_str()), "{path}");
    let Said::Heartbeat(heartbeat) = rig.hear() else { panic!("then the first call") };
    assert_eq!(heartbeat["agent_token"], TOKEN);
    assert!(heartbeat["callback_url"].as_str().unwrap().ends_with("/1"), "{heartbeat}");
    assert_eq!(rig.machine().runs(), Runs::Ramdisk);
}

#[test]
fn a_machine_that_boots_its_disk_runs_what_was_written_to_it() {
    let rig = Rig::new(|_| ());
    rig.machine().with(|machine, now| machine.reset(Reset::On, now)).unwrap();
    until(|| rig.machine().runs() != Runs::Nothing);
    assert_eq!(rig.machine().runs(), Runs::EmptyDisk);
    assert!(rig.machine().agent().is_none());
}

#[test]
fn agents_refuse_as_the_real_one_does() {
    let rig = Rig::new(|_| ());
    let agent = rig.agent();
    let wrong = agent.path.clone() + "?agent_token=wrong";
    assert_eq!(agent.client().ask("GET", &wrong, None).unwrap().status, 401);
    for (name, status) in [
        ("sync", 400),
        ("kitchen.sink", 404),
        ("standby.dance", 400),
        ("standby.kexec", 400),
        ("deploy.execute_deploy_step", 400),
        ("standby.sync", 200),
    ] {
        assert_eq!(agent.send(name, json!({}), true).status, status, "{name}");
    }
    rig.fault("hang path=/agent/step/erase_pstore");
    let order = json!({"step": {"step": "erase_pstore"}, "node": {}, "ports": []});
    let running = agent.send("clean.execute_clean_step", order, false).json();
    assert_eq!(running["command_status"], "RUNNING");
    assert_eq!(running["command_name"], "execute_clean_step");
    let busy = agent.send("standby.sync", json!({}), true);
    assert_eq!(busy.status, 409);
    assert!(busy.text().contains("Agent is busy: executing command execute_clean_step"));
}

#[test]
fn steps_are_listed_and_carried_out() {
    let rig = Rig::new(|_| ());
    let agent = rig.agent();
    for (flow, step, priority) in [
        ("clean", "erase_devices_metadata", 99),
        ("deploy", "write_image", 0),
        ("service", "burnin_memory", 0),
    ] {
        let listed = agent.send(&format!("{flow}.get_{flow}_steps"), json!({}), true).json();
        let result = &listed["command_result"];
        let steps = result[format!("{flow}_steps")]["GenericHardwareManager"].as_array().unwrap();
        let found = steps.iter().find(|found| found["step"] == step).unwrap();
        assert_eq!(found["priority"], priority);
        assert_eq!(result["hardware_manager_version"], json!({"generic_hardware_manager": "1.2"}));
    }
    let args = json!({"image_info": {"id": "i", "urls": ["http://h/i"], "os_hash_value": "ab"}, "configdrive": "H4s"});
    let written = agent.step("deploy", json!({"step": "write_image", "args": args}));
    assert_eq!(written["command_status"], "SUCCEEDED", "{written}");
    let disk = rig.machine().disk().unwrap();
    assert_eq!((&*disk.source, disk.checksum.as_deref()), ("http://h/i", Some("ab")));
    assert!(disk.config_drive);
    assert_eq!(rig.machine().carried_out("write_image"), 1);
    // It calls at once when something that took its time is over.
    rig.heartbeat();
    let uuids = agent.send("standby.get_partition_uuids", json!({}), true).json();
    assert!(uuids["command_result"]["root uuid"].is_string(), "{uuids}");
    let raid = agent.step("clean", json!({"step": "create_configuration"}));
    assert_eq!(raid["command_result"]["clean_result"], json!({"logical_disks": [1]}));
    agent.step("clean", json!({"step": "erase_devices_metadata"}));
    assert_eq!(rig.machine().disk(), None);
    let unknown = agent.step("clean", json!({"step": "polish"}));
    assert_eq!(unknown["command_error"]["type"], "CleaningError", "{unknown}");
}

#[test]
fn other_managers_are_noticed() {
    let rig = Rig::new(|agents| agents.is_ours = true);
    let agent = rig.agent();
    let order = json!({"step": {"step": "erase_pstore"}, "node": {}, "clean_version": {"generic_hardware_manager": "1.1"}});
    let done = agent.send("clean.execute_clean_step", order, true).json();
    assert_eq!(done["command_status"], "CLEAN_VERSION_MISMATCH");
}

#[test]
fn an_agent_ends_as_it_is_told() {
    let written = json!({"step": "write_image", "args": {"image_info": {"urls": ["http://h/i"]}}});
    for (command, runs, power) in [
        ("standby.power_off", Runs::Nothing, PowerState::Off),
        ("standby.kexec", Runs::Instance, PowerState::On),
        ("rescue.finalize_rescue", Runs::Rescue, PowerState::On),
    ] {
        let rig = Rig::new(|agents| agents.is_ours = true);
        let agent = rig.agent();
        agent.step("deploy", written.clone());
        let done = agent.send(command, json!({}), true).json();
        assert_eq!(done["command_status"], "SUCCEEDED", "{command}");
        until(|| rig.machine().runs() == runs && rig.machine().power() == power);
        until(|| agent.commands().is_err());
        assert!(rig.machine().agent().is_none(), "{command}");
    }
}

#[test]
fn what_goes_wrong_by_rule() {
    let step = json!({"step": "write_image", "args": {"image_info": {"urls": ["http://h/i"]}}});
    for (rule, expected) in [
        ("fail=smoke path=/agent/step/write_image", "smoke"),
        ("wrong-checksum path=/agent/step/write_image", "checksum"),
    ] {
        let rig = Rig::new(|_| ());
        let agent = rig.agent();
        rig.fault(rule);
        let done = agent.step("deploy", step.clone());
        assert_eq!(done["command_status"], "FAILED");
        let details = done["command_error"]["details"].as_str().unwrap();
        assert!(details.contains(expected), "{details}");
        assert_eq!(rig.machine().carried_out("write_image"), 0);
    }

    let order = json!({"step": step, "node": {}, "ports": []});
    let rig = Rig::new(|_| ());
    let agent = rig.agent();
    rig.fault("power-cut path=/agent/step");
    agent.send("deploy.execute_deploy_step", order.clone(), false);
    until(|| rig.machine().power() == PowerState::Off);
    until(|| agent.commands().is_err());

    let rig = Rig::new(|_| ());
    let agent = rig.agent();
    rig.fault("network-loss=1 path=/agent/step");
    agent.send("deploy.execute_deploy_step", order, false);
    until(|| agent.commands().is_err());
    // It comes back, has gone on meanwhile, and calls.
    until(|| agent.commands().is_ok_and(|all| all[0]["command_status"] == "SUCCEEDED"));
    rig.heartbeat();

    let rig = Rig::new(|_| ());
    rig.fault("hang path=/agent/boot times=1");
    rig.boot();
    until(|| rig.fleet.as_ref().unwrap().faults().rules()[0].1 == 1);
    rig.machine().with(|machine, now| machine.reset(Reset::ForceRestart, now)).unwrap();
    // The first never appeared; the second does.
    rig.heartbeat();
    assert_eq!(rig.machine().with(|machine, _| machine.boot_count()), 2);
}

#[test]
fn images_are_fetched_and_compared() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (announced, status) in [(digest, "SUCCEEDED"), (&digest[1..], "FAILED")] {
        let images = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/image.raw", images.local_addr().unwrap());
        let served = thread::spawn(move || {
            let (mut stream, _) = images.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        });
        let rig = Rig::new(|agents| agents.downloads = true);
        let agent = rig.agent();
        let info = json!({"urls": [url], "os_hash_algo": "sha256", "os_hash_value": announced});
        let done =
            agent.step("deploy", json!({"step": "write_image", "args": {"image_info": info}}));
        assert_eq!(done["command_status"], status, "{done}");
        served.join().unwrap();
    }
}
