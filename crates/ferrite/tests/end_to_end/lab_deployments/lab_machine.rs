// SPDX-License-Identifier: Apache-2.0
//! A lab machine, the Ferrite that manages it, and the `baremetal` client that operates it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::baremetal_client::BaremetalClient;
use crate::netboot::boot_site::{BootSite, file_url, path_from_env};
use crate::netboot::serial_console::SerialConsole;
use crate::real_bmcs::lab::{LabInventory, text};
use crate::test_process::output_of;

/// Timeout of a stage in seconds, on a busy host.
const STAGE_TIMEOUT: &str = "900";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The last line that the deployed system prints.
pub(super) const DEPLOYED_MARKER: &str = "FERRITE-DEPLOYED-DONE";

/// The agent that a machine boots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TestAgent {
    /// Ferrite's agent.
    Ferrite,
    /// Unmodified ironic-python-agent.
    Stock,
}

impl TestAgent {
    fn files(self) -> (PathBuf, PathBuf) {
        match self {
            Self::Ferrite => (
                path_from_env("FERRITE_TEST_AGENT_KERNEL"),
                path_from_env("FERRITE_TEST_AGENT_RAMDISK"),
            ),
            Self::Stock => (
                path_from_env("FERRITE_TEST_IPA_KERNEL"),
                path_from_env("FERRITE_TEST_IPA_RAMDISK"),
            ),
        }
    }
}

/// A machine and the server and client that manage it.
pub(super) struct DeployedLabMachine<'a> {
    pub(super) site: BootSite<'a>,
    pub(super) client: BaremetalClient,
    pub(super) node: String,
}

impl<'a> DeployedLabMachine<'a> {
    /// Starts a Ferrite at the machine's bridge and enrols the machine over Redfish. `more` are further
    /// arguments of `node create`.
    pub(super) fn enrol(
        lab: &'a LabInventory,
        machine: &'static str,
        agent: TestAgent,
        boot_interface: &str,
        more: &[&str],
    ) -> Option<Self> {
        let info = lab.redfish_info(machine);
        Self::enrol_with(lab, machine, agent, ("redfish", info), boot_interface, more)
    }

    /// Enrols it with another driver.
    pub(super) fn enrol_with(
        lab: &'a LabInventory,
        machine: &'static str,
        agent: TestAgent,
        (driver, info): (&str, Value),
        boot_interface: &str,
        more: &[&str],
    ) -> Option<Self> {
        let dhcp = if boot_interface == "redfish-virtual-media" { "off" } else { "reserve" };
        let site = Self::start_site(lab, machine, agent, dhcp, "ipa-lldp-timeout=1", "");
        let client = BaremetalClient::new(&site.operator.server.url(), site.path("data/ca.pem"))?;
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

    /// Starts a Ferrite at the machine's bridge whose machines boot `agent` with kernel `parameters`. Only
    /// disk metadata is erased: overwriting gigabytes would take an emulated machine half an hour. `more`
    /// are further sections of the configuration.
    pub(super) fn start_site(
        lab: &'a LabInventory,
        machine: &'static str,
        agent: TestAgent,
        dhcp: &str,
        parameters: &str,
        more: &str,
    ) -> BootSite<'a> {
        let (kernel, ramdisk) = agent.files();
        let boot = format!(
            "deploy_kernel = \"{}\"\ndeploy_ramdisk = \"{}\"\n\
             kernel_append_params = \"console=ttyS0 no_timer_check {parameters}\"\n\
             [drivers.agent]\nerase_devices_priority = 0",
            file_url(&kernel),
            file_url(&ramdisk),
        );
        BootSite::start(lab, machine, dhcp, &format!("{boot}\n{more}"))
    }

    /// Runs a verb and waits for its end. Panics with the timeline if it fails.
    pub(super) fn run_verb(&mut self, verb: &str, more: &[&str]) {
        let mut arguments = vec!["node", verb, "--wait", STAGE_TIMEOUT];
        arguments.extend(more);
        arguments.push(&self.node);
        if let Err(error) = self.client.try_run(&arguments) {
            let node = self.client.show(&["node", "show", &self.node]);
            panic!(
                "{verb}: {error}\nlast error: {}\n{}\nits console:\n{}",
                node["last_error"],
                self.timeline_text(),
                self.console_so_far().last_lines(60)
            );
        }
    }

    /// Runs a verb that must end in the state `failed`; returns `last_error`.
    pub(super) fn run_failing_verb(&mut self, verb: &str, failed: &str) -> String {
        let result = self.client.try_run(&["node", verb, "--wait", STAGE_TIMEOUT, &self.node]);
        assert!(result.is_err(), "{verb} succeeded:\n{}", self.timeline_text());
        self.wait_for_failure(failed, Duration::from_secs(30))
    }

    /// Waits until the node is in the state `failed`; returns `last_error`.
    pub(super) fn wait_for_failure(&mut self, failed: &str, timeout: Duration) -> String {
        let node = self.wait_for_node_within(timeout, |node| node["provision_state"] == failed);
        text(&node["last_error"]).to_owned()
    }

    /// Requests a provision state without waiting.
    pub(super) fn request(&mut self, target: &str) {
        self.put(&json!({ "target": target }));
    }

    fn put(&mut self, body: &Value) {
        let path = format!("/v1/nodes/{}/states/provision", self.node);
        self.site.operator.expect(202, "PUT", &path, Some(body));
    }

    /// Requests a deployment with a config drive that contains `word`, without waiting.
    pub(super) fn request_deployment(&mut self, word: &str) {
        self.put(&json!({ "target": "active", "configdrive": config_drive(word) }));
    }

    /// Waits until the node fulfils the condition. Fails early if the node fails.
    pub(super) fn wait_until(&mut self, what: &str, is_expected: impl Fn(&Value) -> bool) {
        let node = self.wait_for_node(|node| {
            is_expected(node)
                || node["provision_state"].as_str().is_some_and(|s| s.ends_with("failed"))
        });
        assert!(is_expected(&node), "not {what}: {}\n{}", node["last_error"], self.timeline_text());
    }

    /// Waits until the node fulfils the condition and returns it.
    pub(super) fn wait_for_node(&mut self, is_expected: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_node_within(Duration::from_secs(600), is_expected)
    }

    fn wait_for_node_within(
        &mut self,
        timeout: Duration,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + timeout;
        loop {
            let node = self.site.operator.node(&self.node);
            if is_expected(&node) {
                return node;
            }
            let state = &node["provision_state"];
            assert!(Instant::now() < deadline, "timed out in {state}:\n{}", self.timeline_text());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sets a property of the node.
    pub(super) fn set_property(&mut self, name: &str, value: &str) {
        self.client.run(&["node", "set", &self.node, "--property", &format!("{name}={value}")]);
    }

    /// The fields of the node.
    pub(super) fn show(&self) -> Value {
        self.client.show(&["node", "show", &self.node])
    }

    /// Deploys the test image with a config drive that contains `word`, and waits until it runs.
    pub(super) fn deploy(&mut self, word: &str) -> SerialConsole {
        self.deploy_with(word, &[])
    }

    /// Deploys with further arguments of `node deploy`.
    pub(super) fn deploy_with(&mut self, word: &str, more: &[&str]) -> SerialConsole {
        self.set_image(&image(), &checksum(&image()));
        let console = self.console();
        let drive = config_drive(word).to_string();
        let arguments: Vec<&str> = ["--config-drive", &drive].iter().chain(more).copied().collect();
        self.run_verb("deploy", &arguments);
        self.wait_until_deployed(&console, word);
        console
    }

    /// Sets the image in `instance_info`.
    pub(super) fn set_image(&mut self, image: &Path, checksum: &str) {
        let source = format!("image_source={}", file_url(image));
        let checksum = format!("image_checksum={checksum}");
        let info = ["--instance-info", &source, "--instance-info", &checksum];
        self.client.run(&[&["node", "set", &self.node], &info[..]].concat());
    }

    /// The console output from now on.
    pub(super) fn console(&self) -> SerialConsole {
        SerialConsole::from_now(self.site.lab.console(self.site.machine))
    }

    /// The complete console output.
    pub(super) fn console_so_far(&self) -> SerialConsole {
        SerialConsole::from_start(self.site.lab.console(self.site.machine))
    }

    /// Waits until the deployed system has printed everything; checks the content of its config drive.
    pub(super) fn wait_until_deployed(&self, console: &SerialConsole, word: &str) {
        console.wait_for(DEPLOYED_MARKER, || self.site.operator.log());
        let output = console.output();
        let found =
            output.lines().any(|line| line.contains("FERRITE-CONFIG-DRIVE") && line.contains(word));
        assert!(found, "the config drive does not contain {word}:\n{}", console.last_lines(40));
    }

    /// The last address that DHCP assigned.
    pub(super) fn dhcp_address(&mut self) -> String {
        let timeline = self.timeline_text();
        let leased = timeline.rsplit_once("leased 10.").expect("a DHCP lease in the timeline").1;
        let rest: String =
            leased.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        format!("10.{}", rest.trim_end_matches('.'))
    }

    /// Whether the machine's first disk is empty.
    pub(super) fn disk_is_empty(&self) -> bool {
        Self::is_disk_empty(&self.site.lab.disks(self.site.machine)[0])
    }

    /// Whether the first and the last MiB of a disk of the lab are empty.
    pub(super) fn is_disk_empty(disk: &Value) -> bool {
        let mut file = File::open(text(&disk["file"])).unwrap();
        let mut ends = vec![0; 1 << 20];
        let mut is_empty = |from: SeekFrom| {
            file.seek(from).unwrap();
            file.read_exact(&mut ends).unwrap();
            ends.iter().all(|byte| *byte == 0)
        };
        is_empty(SeekFrom::Start(0)) && is_empty(SeekFrom::End(-(1 << 20)))
    }

    /// The timeline as text.
    pub(super) fn timeline_text(&mut self) -> String {
        let timeline = self.site.operator.timeline(&self.node);
        let lines =
            timeline.iter().map(|entry| format!("{} {}", text(&entry["at"]), entry["event"]));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Kills the server and starts it again on the same data.
    pub(super) fn kill_and_restart_server(self) -> Self {
        let Self { site, client, node } = self;
        Self { site: site.kill_and_restart(), client, node }
    }
}

/// A config drive that contains `word`.
fn config_drive(word: &str) -> Value {
    json!({
        "meta_data": { "hostname": word },
        "user_data": format!("#!/bin/sh\necho {word}\n"),
        "network_data": { "links": [], "networks": [], "services": [] },
    })
}

/// Locks a machine that several tests use.
pub(super) fn lock_machine(machine: &'static str) -> MutexGuard<'static, ()> {
    static LOCKS: Mutex<BTreeMap<&str, &'static Mutex<()>>> = Mutex::new(BTreeMap::new());
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let lock: &'static Mutex<()> =
        locks.entry(machine).or_insert_with(|| Box::leak(Box::default()));
    drop(locks);
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command in the rescue system at `address`.
pub(super) fn run_over_ssh(address: &str, password: &str, command: &str) -> Result<String, String> {
    let mut client = Command::new("dbclient");
    client
        .args(["-y", "-y", "-T", &format!("rescue@{address}"), command])
        .env("DROPBEAR_PASSWORD", password);
    let output = output_of(&mut client);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The image to deploy.
pub(super) fn image() -> PathBuf {
    path_from_env("FERRITE_TEST_IMAGE")
}

/// The SHA-256 of a file.
pub(super) fn checksum(file: &Path) -> String {
    let output = output_of(Command::new("sha256sum").arg(file));
    let output = String::from_utf8(output.stdout).expect("digits and a name");
    output.split_whitespace().next().expect("digits").to_owned()
}
