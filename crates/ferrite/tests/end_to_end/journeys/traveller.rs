// SPDX-License-Identifier: Apache-2.0
//! A machine on its journey: the Ferrite that looks after it, the operator's client, and the stages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Baremetal;
use crate::boots::console::Console;
use crate::boots::site::{Site, named_in, url_of};
use crate::ferrite::output_of;
use crate::real_bmcs::lab::{Lab, text};

/// Seconds that a stage may take on a busy computer; every one is over long before.
const PATIENCE: &str = "900";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the deployed system says when it has said everything.
const DEPLOYED: &str = "FERRITE-DEPLOYED-DONE";

/// Which agent a machine boots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    /// Ours.
    Ferrite,
    /// ironic-python-agent as it is.
    Stock,
}

impl Agent {
    fn files(self) -> (PathBuf, PathBuf) {
        match self {
            Self::Ferrite => {
                (named_in("FERRITE_TEST_AGENT_KERNEL"), named_in("FERRITE_TEST_AGENT_RAMDISK"))
            }
            Self::Stock => {
                (named_in("FERRITE_TEST_IPA_KERNEL"), named_in("FERRITE_TEST_IPA_RAMDISK"))
            }
        }
    }
}

/// A machine, and who looks after it.
pub(super) struct Traveller<'a> {
    pub(super) site: Site<'a>,
    pub(super) client: Baremetal,
    pub(super) node: String,
}

impl<'a> Traveller<'a> {
    /// Starts a Ferrite at the machine's bridge, and enrols the machine over Redfish with
    /// `boot_interface` and whatever else is said in `more`, as arguments of `node create`.
    pub(super) fn enrol(
        lab: &'a Lab,
        machine: &'static str,
        agent: Agent,
        boot_interface: &str,
        more: &[&str],
    ) -> Option<Self> {
        let info = lab.redfish_info(machine);
        Self::enrol_with(lab, machine, agent, ("redfish", info), boot_interface, more)
    }

    /// The same, through another driver.
    pub(super) fn enrol_with(
        lab: &'a Lab,
        machine: &'static str,
        agent: Agent,
        (driver, info): (&str, Value),
        boot_interface: &str,
        more: &[&str],
    ) -> Option<Self> {
        let dhcp = if boot_interface == "redfish-virtual-media" { "off" } else { "reserve" };
        let site = Self::site(lab, machine, agent, dhcp, "ipa-lldp-timeout=1", "");
        let client = Baremetal::at(&site.operator.server.url())?;
        let mut arguments: Vec<String> =
            ["node", "create", "--name", machine, "--driver", driver].map(str::to_owned).to_vec();
        for (key, value) in info.as_object().expect("driver_info is an object") {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            arguments.extend(["--driver-info".to_owned(), format!("{key}={value}")]);
        }
        for (interface, name) in [
            ("--boot-interface", boot_interface),
            ("--inspect-interface", "agent"),
            ("--rescue-interface", "agent"),
            ("--raid-interface", "agent"),
        ] {
            arguments.extend([interface.to_owned(), name.to_owned()]);
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let created = client.show(&arguments);
        let node = text(&created["uuid"]).to_owned();
        client.run(&["port", "create", "--node", &node, lab.mac(machine)]);
        Some(Self { site, client, node })
    }

    /// A Ferrite at the machine's bridge whose machines boot `agent`. Disks are erased by their
    /// tables only: overwriting gigabytes would take an emulated machine half an hour. The agent is
    /// started with `parameters`; `more` are further sections of the configuration.
    pub(super) fn site(
        lab: &'a Lab,
        machine: &'static str,
        agent: Agent,
        dhcp: &str,
        parameters: &str,
        more: &str,
    ) -> Site<'a> {
        let (kernel, ramdisk) = agent.files();
        let boot = format!(
            "deploy_kernel = \"{}\"\ndeploy_ramdisk = \"{}\"\n\
             kernel_append_params = \"console=ttyS0 {parameters}\"\n\
             [drivers.agent]\nerase_devices_priority = 0",
            url_of(&kernel),
            url_of(&ramdisk),
        );
        Site::open(lab, machine, dhcp, &format!("{boot}\n{more}"))
    }

    /// Asks for a verb and waits for what it leads to; tells the timeline if that does not come.
    pub(super) fn go(&mut self, verb: &str, more: &[&str]) {
        let mut arguments = vec!["node", verb, "--wait", PATIENCE];
        arguments.extend(more);
        arguments.push(&self.node);
        if let Err(said) = self.client.try_run(&arguments) {
            let node = self.client.show(&["node", "show", &self.node]);
            panic!(
                "{verb}: {said}\nlast error: {}\n{}\nits console:\n{}",
                node["last_error"],
                self.story(),
                self.console_so_far().last(60)
            );
        }
    }

    /// Asks for a verb that is to end in the state `failed`; returns what the node says about it.
    pub(super) fn fails(&mut self, verb: &str, failed: &str) -> String {
        let said = self.client.try_run(&["node", verb, "--wait", PATIENCE, &self.node]);
        assert!(said.is_err(), "{verb} went well:\n{}", self.story());
        self.failed_within(failed, Duration::from_secs(30))
    }

    /// Waits until the node is in the state `failed`; returns what it says about it.
    pub(super) fn failed_within(&mut self, failed: &str, patience: Duration) -> String {
        let node = self.reaches_within(patience, |node| node["provision_state"] == failed);
        text(&node["last_error"]).to_owned()
    }

    /// Asks for a provision state and does not wait.
    pub(super) fn ask(&mut self, target: &str) {
        self.put(&json!({ "target": target }));
    }

    fn put(&mut self, body: &Value) {
        let path = format!("/v1/nodes/{}/states/provision", self.node);
        self.site.operator.expect(202, "PUT", &path, Some(body));
    }

    /// Asks for a deployment with a config drive that says `word`, and does not wait.
    pub(super) fn ask_to_deploy(&mut self, word: &str) {
        self.put(&json!({ "target": "active", "configdrive": config_drive(word) }));
    }

    /// Waits until the node is as it should be.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let node = self.reaches(|node| {
            is_so(node) || node["provision_state"].as_str().is_some_and(|s| s.ends_with("failed"))
        });
        assert!(is_so(&node), "not {what}: {}\n{}", node["last_error"], self.story());
    }

    /// The node, once it is as it should be.
    pub(super) fn reaches(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        self.reaches_within(Duration::from_secs(600), is_so)
    }

    fn reaches_within(&mut self, patience: Duration, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + patience;
        loop {
            let node = self.site.operator.node(&self.node);
            if is_so(&node) {
                return node;
            }
            let state = &node["provision_state"];
            assert!(Instant::now() < deadline, "it stays {state}:\n{}", self.story());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Sets a property, as the client takes it.
    pub(super) fn set_property(&mut self, name: &str, value: &str) {
        self.client.run(&["node", "set", &self.node, "--property", &format!("{name}={value}")]);
    }

    /// The fields of the node.
    pub(super) fn show(&self) -> Value {
        self.client.show(&["node", "show", &self.node])
    }

    /// Deploys the test image with a config drive that says `word`, and waits until it runs.
    pub(super) fn deploy(&mut self, word: &str) -> Console {
        self.deploy_with(word, &[])
    }

    /// The same with further arguments of `node deploy`.
    pub(super) fn deploy_with(&mut self, word: &str, more: &[&str]) -> Console {
        self.set_image(&image(), &checksum(&image()));
        let console = self.console();
        let drive = config_drive(word).to_string();
        let arguments: Vec<&str> = ["--config-drive", &drive].iter().chain(more).copied().collect();
        self.go("deploy", &arguments);
        self.runs(&console, word);
        console
    }

    /// Says which image is to be deployed.
    pub(super) fn set_image(&mut self, image: &Path, checksum: &str) {
        let source = format!("image_source={}", url_of(image));
        let checksum = format!("image_checksum={checksum}");
        let info = ["--instance-info", &source, "--instance-info", &checksum];
        self.client.run(&[&["node", "set", &self.node], &info[..]].concat());
    }

    /// The machine's console, from now on.
    pub(super) fn console(&self) -> Console {
        Console::watch(self.site.lab.console(self.site.machine))
    }

    /// All the machine ever said.
    pub(super) fn console_so_far(&self) -> Console {
        Console::all(self.site.lab.console(self.site.machine))
    }

    /// Waits until the deployed system has said everything; checks what it found on its config drive.
    pub(super) fn runs(&self, console: &Console, word: &str) {
        console.until(DEPLOYED, || self.site.operator.log());
        let said = console.said();
        let found =
            said.lines().any(|line| line.contains("FERRITE-CONFIG-DRIVE") && line.contains(word));
        assert!(found, "the config drive does not say {word}:\n{}", console.last(40));
    }

    /// The address the machine was last given.
    pub(super) fn address(&mut self) -> String {
        let story = self.story();
        let given = story.rsplit_once("given 10.").expect("DHCP gave it an address").1;
        let rest: String =
            given.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        format!("10.{}", rest.trim_end_matches('.'))
    }

    /// Whether there is nothing on the machine's first disk that looks like a system.
    pub(super) fn disk_is_empty(&self) -> bool {
        Self::is_empty(&self.site.lab.disks(self.site.machine)[0])
    }

    /// Whether the first and the last MiB of a disk of the lab are empty.
    pub(super) fn is_empty(disk: &Value) -> bool {
        let mut file = File::open(text(&disk["file"])).unwrap();
        let mut ends = vec![0; 1 << 20];
        let mut is_empty = |from: SeekFrom| {
            file.seek(from).unwrap();
            file.read_exact(&mut ends).unwrap();
            ends.iter().all(|byte| *byte == 0)
        };
        is_empty(SeekFrom::Start(0)) && is_empty(SeekFrom::End(-(1 << 20)))
    }

    /// What happened to the machine, in lines.
    pub(super) fn story(&mut self) -> String {
        let timeline = self.site.operator.timeline(&self.node);
        let lines =
            timeline.iter().map(|entry| format!("{} {}", text(&entry["at"]), entry["what"]));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Kills the server on the spot and starts it again on what it kept.
    pub(super) fn kill_server(self) -> Self {
        let Self { site, client, node } = self;
        Self { site: site.killed(), client, node }
    }
}

/// A config drive that says `word`.
fn config_drive(word: &str) -> Value {
    json!({
        "meta_data": { "hostname": word },
        "user_data": format!("#!/bin/sh\necho {word}\n"),
        "network_data": { "links": [], "networks": [], "services": [] },
    })
}

/// Several tests use the same machine: one after the other.
pub(super) fn turn_of(machine: &'static str) -> MutexGuard<'static, ()> {
    static TURNS: Mutex<BTreeMap<&str, &'static Mutex<()>>> = Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let turn: &'static Mutex<()> =
        turns.entry(machine).or_insert_with(|| Box::leak(Box::default()));
    drop(turns);
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs in to the rescue system at `address` and runs a command there.
pub(super) fn log_in(address: &str, password: &str, command: &str) -> Result<String, String> {
    let mut client = Command::new("dbclient");
    client
        .args(["-y", "-y", "-T", &format!("rescue@{address}"), command])
        .env("DROPBEAR_PASSWORD", password);
    let output = output_of(&mut client);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(complained) }
}

/// The image that is deployed.
pub(super) fn image() -> PathBuf {
    named_in("FERRITE_TEST_IMAGE")
}

/// The SHA-256 of a file, as `sha256sum` says it.
pub(super) fn checksum(file: &Path) -> String {
    let output = output_of(Command::new("sha256sum").arg(file));
    let said = String::from_utf8(output.stdout).expect("digits and a name");
    said.split_whitespace().next().expect("digits").to_owned()
}
