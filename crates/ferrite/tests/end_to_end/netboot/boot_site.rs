// SPDX-License-Identifier: Apache-2.0
//! A Ferrite that serves the bridge of one lab machine, and operations on that machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_probe::ProbeClient;
use serde_json::{Value, json};

use super::serial_console::SerialConsole;
use crate::real_bmcs::api_operator::ApiOperator;
use crate::real_bmcs::lab::{LabInventory, text};
use crate::test_process::TestHome;

/// Timeline entry of the ramdisk's report, a GET request to the boot file server.
pub(crate) const REPORT_ENTRY: &str = "http: boot.ipxe: 200";

/// Fixed ports, so that a restarted server has the same URLs. The addresses are not used elsewhere.
const API_PORT: u16 = 6385;
const FILES_PORT: u16 = 6180;
/// Variables with paths of kernels, ramdisks and images.
const IMAGE_VARIABLES: &[&str] = &[
    "FERRITE_TEST_KERNEL",
    "FERRITE_TEST_RAMDISK",
    "FERRITE_TEST_IMAGE",
    "FERRITE_TEST_AGENT_KERNEL",
    "FERRITE_TEST_AGENT_RAMDISK",
    "FERRITE_TEST_IPA_KERNEL",
    "FERRITE_TEST_IPA_RAMDISK",
];
/// Prefix length of the lab's bridges.
const PREFIX: u8 = 24;
/// Timeout for storing observed boot events.
const STORE_TIMEOUT: Duration = Duration::from_secs(180);
/// Number of base64 characters of the key of a boot plan.
const KEY_LENGTH: usize = 43;

/// A machine, its bridge, and the Ferrite that serves it.
pub(crate) struct BootSite<'a> {
    pub(crate) lab: &'a LabInventory,
    pub(crate) machine: &'static str,
    pub(crate) operator: ApiOperator,
    mode: String,
    first: u8,
    more: String,
}

/// A machine whose deployment has started its boot.
pub(crate) struct StartedBoot {
    pub(crate) node: String,
    pub(crate) console: SerialConsole,
    /// Secret URL of its boot files.
    pub(crate) files: String,
}

impl<'a> BootSite<'a> {
    /// Starts a Ferrite with the DHCP mode `mode`; `more` is added to the section `boot`.
    pub(crate) fn start(
        lab: &'a LabInventory,
        machine: &'static str,
        mode: &str,
        more: &str,
    ) -> Self {
        // A failed test leaves the machine running.
        if lab.power(machine) != "shut off" {
            lab.virsh(&["destroy", machine]);
        }
        Self::start_in(TestHome::new(), lab, machine, mode, more)
    }

    /// Starts it in an existing folder.
    pub(crate) fn start_in(
        home: TestHome,
        lab: &'a LabInventory,
        machine: &'static str,
        mode: &str,
        more: &str,
    ) -> Self {
        Self::start_with_range(home, lab, machine, mode, 100, more)
    }

    /// Starts it with a lease range that begins at `first`.
    pub(crate) fn start_with_range(
        home: TestHome,
        lab: &'a LabInventory,
        machine: &'static str,
        mode: &str,
        first: u8,
        more: &str,
    ) -> Self {
        let (interface, address) = lab.bridge(machine);
        let network = address.rsplit_once('.').unwrap().0;
        let ranges = match mode {
            "proxy" | "off" => String::new(),
            _ => format!("ranges = [\"{network}.{first}-{network}.200\"]"),
        };
        let files =
            IMAGE_VARIABLES.iter().filter_map(|name| Some(PathBuf::from(std::env::var_os(name)?)));
        let folders = files.map(|file| file.parent().unwrap().to_owned()).chain([home.path("")]);
        let images: Vec<String> = folders.map(|folder| folder.display().to_string()).collect();
        let config = home.path("ferrite.toml");
        let settings = format!(
            "[boot]
listen = [\"{address}:{FILES_PORT}\"]
{more}
[images]
file_url_allowed_paths = {images:?}
[conductor]
sync_power_state_interval = 0
[drivers.redfish]
poll_interval = 1
[[dhcp.networks]]
interface = \"{interface}\"
address = \"{address}/{PREFIX}\"
mode = \"{mode}\"
{ranges}
"
        );
        std::fs::write(&config, settings).unwrap();
        let mut command = home.command_on(&format!("{address}:{API_PORT}"));
        command.args(["--auth", "none", "--config"]).arg(&config);
        let operator = ApiOperator::start_in(home, &mut command);
        Self { lab, machine, operator, mode: mode.to_owned(), first, more: more.to_owned() }
    }

    /// Kills the server and starts it again on the same data.
    pub(crate) fn kill_and_restart(self) -> Self {
        let Self { lab, machine, operator, mode, first, more } = self;
        Self::start_with_range(operator.kill(), lab, machine, &mode, first, &more)
    }

    /// A file in an allowed image folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.operator.path(name)
    }

    /// The server's address on the bridge.
    pub(crate) fn address(&self) -> &str {
        self.lab.bridge(self.machine).1
    }

    pub(crate) fn mac(&self) -> &str {
        self.lab.mac(self.machine)
    }

    /// The URL that the ramdisk requests when it is up: the first iPXE script, which always exists.
    pub(crate) fn report_url(&self) -> String {
        format!("http://{}:{FILES_PORT}/boot.ipxe", self.address())
    }

    /// An instance in a ramdisk, whose kernel parameters contain `word`.
    pub(crate) fn instance(&self, word: &str, more: &str) -> Value {
        let report = self.report_url();
        json!({
            "kernel": file_url(&kernel()),
            "ramdisk": file_url(&ramdisk()),
            "ramdisk_kernel_arguments":
                format!("console=ttyS0 no_timer_check test.word={word} ferrite.report={report} {more}"),
        })
    }

    /// Enrols the machine with its port and makes it available.
    pub(crate) fn enrol(&mut self, boot_interface: &str, network_data: Value) -> String {
        let more = json!({
            "boot_interface": boot_interface,
            "deploy_interface": "ramdisk",
            "automated_clean": false,
            "network_data": network_data,
        });
        let info = self.lab.redfish_info(self.machine);
        let node = self.operator.enrol("redfish", info, more);
        let port = json!({ "node_uuid": node, "address": self.mac() });
        self.operator.expect(201, "POST", "/v1/ports", Some(&port));
        self.operator.provision(&node, json!({ "target": "manage" }), "manageable");
        self.operator.provision(&node, json!({ "target": "provide" }), "available");
        node
    }

    /// Deploys an instance, which powers on the machine.
    pub(crate) fn deploy(&mut self, node: String, instance: &Value) -> StartedBoot {
        let change = json!([{ "op": "add", "path": "/instance_info", "value": instance }]);
        self.operator.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&change));
        let console = SerialConsole::from_now(self.lab.console(self.machine));
        self.operator.provision(&node, json!({ "target": "active" }), "active");
        let files = match self.script() {
            Some(script) => {
                let mut parts = script.split_whitespace();
                parts.find_map(|part| part.strip_suffix("/kernel")).unwrap().to_owned()
            }
            // The URL of virtual media is known only to the BMC.
            None => {
                let image = text(&self.inserted_cd()["Image"]).to_owned();
                image.strip_suffix("/boot.iso").unwrap().to_owned()
            }
        };
        assert_eq!(plan_key(&files).len(), KEY_LENGTH, "{files}");
        StartedBoot { node, console, files }
    }

    /// The BMC's CD drive resource.
    pub(crate) fn inserted_cd(&self) -> Value {
        self.lab.resource(&format!("{}/VirtualMedia/Cd", self.lab.system(self.machine)))
    }

    /// The machine's iPXE script; `None` if there is nothing to boot.
    pub(crate) fn script(&mut self) -> Option<String> {
        let path = format!("/v1/boot/{}/boot.ipxe", self.mac());
        let response = self.operator.send("GET", &path, None);
        match response.status {
            200 => Some(response.text()),
            404 => None,
            status => panic!("{path}: {status}: {}", response.text()),
        }
    }

    /// Waits until the ramdisk is up; checks that it booted with `word`, has an address of the bridge's
    /// network, and reached the boot file server.
    pub(crate) fn wait_until_up(&self, console: &SerialConsole, word: &str) {
        console.wait_for("FERRITE-RAMDISK-DONE", || self.operator.log());
        let parameters = console.ramdisk_value("PARAMETERS").unwrap();
        assert!(parameters.contains(&format!("test.word={word}")), "{parameters}");
        let network = self.address().rsplit_once('.').unwrap().0;
        let address = console.ramdisk_value("ADDRESS");
        let is_ours = address.as_ref().is_some_and(|address| address.starts_with(network));
        assert!(is_ours, "{address:?}\n{}", console.last_lines(30));
        assert_eq!(console.ramdisk_value("REPORTED").as_deref(), Some("#!ipxe"));
    }

    /// Waits until the timeline contains all `steps` in this order. Returns the network activity as
    /// `service: text`, oldest first. Checks that the timeline contains no plan key.
    pub(crate) fn wait_for_activity(&mut self, node: &str, steps: &[&str]) -> Vec<String> {
        let deadline = Instant::now() + STORE_TIMEOUT;
        loop {
            let timeline = self.operator.timeline(node);
            let seen: Vec<String> = timeline
                .iter()
                .map(|entry| &entry["event"])
                .filter(|what| what["kind"] == "network_activity")
                .map(|what| format!("{}: {}", text(&what["by"]), text(&what["text"])))
                .collect();
            let mut rest = seen.iter();
            let missing =
                steps.iter().find(|step| !rest.any(|line| contains_parts_in_order(line, step)));
            let Some(missing) = missing else {
                let all = Value::from(timeline).to_string();
                assert_eq!(find_plan_key(&all), None, "{all}");
                println!("{}", seen.join("\n"));
                return seen;
            };
            let lines = seen.join("\n");
            assert!(Instant::now() < deadline, "{missing:?} is missing or too early in:\n{lines}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Undeploys the machine. Checks that it then boots its disk and its boot files are not served.
    pub(crate) fn undeploy(&mut self, boot: &StartedBoot) {
        let files: SocketAddr = format!("{}:{FILES_PORT}", self.address()).parse().unwrap();
        let mut client = ProbeClient::new(files);
        let mut status = |name: &str| {
            let path = format!("/{}/{name}", plan_key(&boot.files));
            client.send("HEAD", &path, None).unwrap().status
        };
        let name = ["kernel", "boot.iso"].into_iter().find(|name| status(name) == 200).unwrap();
        let body = json!({ "target": "deleted" });
        self.operator.provision(&boot.node, body, "available");
        assert!(matches!(status(name), 404 | 410), "{name} is still served");
        let boots = self.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
        assert_eq!(boots, json!({ "boots": "disk" }));
        self.assert_boots_disk();
        assert_eq!(self.lab.power(self.machine), "shut off");
    }

    /// Checks that the machine has no boot script, and that a network boot falls back to its disk.
    pub(crate) fn assert_boots_disk(&mut self) {
        assert_eq!(self.script(), None);
        let files: SocketAddr = format!("{}:{FILES_PORT}", self.address()).parse().unwrap();
        let path = format!("/pxelinux.cfg/{}", self.mac().replace(':', "-"));
        let response = ProbeClient::new(files).send("GET", &path, None).unwrap();
        let script = response.text();
        assert!(script.contains("sanboot") && script.contains("0x80"), "{script}");
        assert!(!script.contains("http"), "{script}");
    }

    /// Waits for a sighting of the machine that fulfils the condition.
    pub(crate) fn wait_for_sighting(&mut self, is_expected: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + STORE_TIMEOUT;
        loop {
            let all = self.operator.get("/v1/ferrite/sightings");
            let mut rows = all["sightings"].as_array().unwrap().iter();
            if let Some(row) = rows.find(|row| row["mac"] == self.mac() && is_expected(row)) {
                return row.clone();
            }
            assert!(Instant::now() < deadline, "no matching sighting: {all}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Powers on the machine with virsh.
    pub(crate) fn power_on(&self) -> SerialConsole {
        let console = SerialConsole::from_now(self.lab.console(self.machine));
        self.lab.virsh(&["start", self.machine]);
        console
    }

    pub(crate) fn power_off(&self) {
        self.lab.virsh(&["destroy", self.machine]);
    }
}

/// Locks the BIOS machine, which several tests use because it boots fastest.
pub(crate) fn lock_boot_bios() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel of the test ramdisk.
pub(crate) fn kernel() -> PathBuf {
    path_from_env("FERRITE_TEST_KERNEL")
}

/// The test ramdisk.
pub(crate) fn ramdisk() -> PathBuf {
    path_from_env("FERRITE_TEST_RAMDISK")
}

pub(crate) fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Whether the line contains all parts of `step`, which are separated by ` … `, in order.
fn contains_parts_in_order(line: &str, step: &str) -> bool {
    let mut rest = line;
    step.split(" … ").all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

pub(crate) fn path_from_env(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`")).into()
}

fn plan_key(files: &str) -> &str {
    files.rsplit('/').next().unwrap()
}

fn find_plan_key(text: &str) -> Option<&str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    text.split(|letter| !is_letter(letter)).find(|run| run.len() >= KEY_LENGTH)
}

#[test]
fn finds_keys_and_steps() {
    let key = "Ab-_".repeat(11);
    assert_eq!(find_plan_key(&format!("http://h/{key}/kernel")), Some(key.as_str()));
    assert_eq!(find_plan_key("8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11 and others"), None);
    assert!(contains_parts_in_order(
        "dhcp: REQUEST from iPXE: leased 10.0.0.1",
        "REQUEST … leased"
    ));
    assert!(!contains_parts_in_order("dhcp: given, REQUEST", "REQUEST … given"));
}
