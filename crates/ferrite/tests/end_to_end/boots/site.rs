// SPDX-License-Identifier: Apache-2.0
//! A Ferrite that serves the bridge of one machine, and what is done with that machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_probe::Client;
use serde_json::{Value, json};

use super::console::Console;
use crate::ferrite::Home;
use crate::real_bmcs::lab::{Lab, text};
use crate::real_bmcs::operator::Operator;

/// How the timeline tells of the ramdisk's report, which is a GET of the file service.
pub(crate) const REPORT: &str = "http: boot.ipxe: 200";

/// Nobody else has these addresses in the network of the lab, so the ports are the usual ones; a
/// Ferrite that is started again is found where the one before it was.
const API_PORT: u16 = 6385;
const FILES_PORT: u16 = 6180;
/// The variables that name images which machines boot or are given.
const IMAGES: &[&str] = &[
    "FERRITE_TEST_KERNEL",
    "FERRITE_TEST_RAMDISK",
    "FERRITE_TEST_IMAGE",
    "FERRITE_TEST_AGENT_KERNEL",
    "FERRITE_TEST_AGENT_RAMDISK",
    "FERRITE_TEST_IPA_KERNEL",
    "FERRITE_TEST_IPA_RAMDISK",
];
/// Every machine is on such a network; see the lab's bridges.
const PREFIX: u8 = 24;
/// How long something that was seen may take to be written down.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);
/// So many letters of base64 are the key of a plan.
const KEY: usize = 43;

/// A machine, its bridge, and a Ferrite there.
pub(crate) struct Site<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) machine: &'static str,
    pub(crate) operator: Operator,
    mode: String,
    first: u8,
    more: String,
}

/// A machine that was told to boot and is on its way.
pub(crate) struct Boot {
    pub(crate) node: String,
    pub(crate) console: Console,
    /// Where its files are; who knows it can read them.
    pub(crate) files: String,
}

impl<'a> Site<'a> {
    /// Starts a Ferrite whose DHCP is in `mode`; `more` is for its section `boot`.
    pub(crate) fn open(lab: &'a Lab, machine: &'static str, mode: &str, more: &str) -> Self {
        // A test that failed leaves it running.
        if lab.power(machine) != "shut off" {
            lab.virsh(&["destroy", machine]);
        }
        Self::open_in(Home::new(), lab, machine, mode, more)
    }

    /// The same, in a home that is there.
    pub(crate) fn open_in(
        home: Home,
        lab: &'a Lab,
        machine: &'static str,
        mode: &str,
        more: &str,
    ) -> Self {
        Self::open_with(home, lab, machine, mode, 100, more)
    }

    /// The same, which gives addresses that end in `first` or more.
    pub(crate) fn open_with(
        home: Home,
        lab: &'a Lab,
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
        let files = IMAGES.iter().filter_map(|name| Some(PathBuf::from(std::env::var_os(name)?)));
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
        let operator = Operator::start_in(home, &mut command);
        Self { lab, machine, operator, mode: mode.to_owned(), first, more: more.to_owned() }
    }

    /// The same after its server was killed on the spot and started again on what it kept.
    pub(crate) fn killed(self) -> Self {
        let Self { lab, machine, operator, mode, first, more } = self;
        Self::open_with(operator.kill(), lab, machine, &mode, first, &more)
    }

    /// A file of a test, from which images may be taken.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.operator.path(name)
    }

    /// Our address on the bridge.
    pub(crate) fn address(&self) -> &str {
        self.lab.bridge(self.machine).1
    }

    pub(crate) fn mac(&self) -> &str {
        self.lab.mac(self.machine)
    }

    /// What the ramdisk is to ask for when it is up: the script that all machines begin with, which
    /// is there by whatever way they boot.
    pub(crate) fn report_url(&self) -> String {
        format!("http://{}:{FILES_PORT}/boot.ipxe", self.address())
    }

    /// An instance that lives in memory. `word` can be found in its parameters.
    pub(crate) fn instance(&self, word: &str, more: &str) -> Value {
        let report = self.report_url();
        json!({
            "kernel": url_of(&kernel()),
            "ramdisk": url_of(&ramdisk()),
            "ramdisk_kernel_arguments":
                format!("console=ttyS0 test.word={word} ferrite.report={report} {more}"),
        })
    }

    /// Enrols the machine, with its card, and brings it to available.
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

    /// Gives the machine to an instance, which switches it on, and says what it is to boot.
    pub(crate) fn deploy(&mut self, node: String, instance: &Value) -> Boot {
        let change = json!([{ "op": "add", "path": "/instance_info", "value": instance }]);
        self.operator.expect(200, "PATCH", &format!("/v1/nodes/{node}"), Some(&change));
        let console = Console::watch(self.lab.console(self.machine));
        self.operator.provision(&node, json!({ "target": "active" }), "active");
        let files = match self.script() {
            Some(script) => {
                let mut words = script.split_whitespace();
                words.find_map(|word| word.strip_suffix("/kernel")).unwrap().to_owned()
            }
            // What a BMC presents is not for everybody who knows the card, so only the BMC knows.
            None => {
                let image = text(&self.inserted_cd()["Image"]).to_owned();
                image.strip_suffix("/boot.iso").unwrap().to_owned()
            }
        };
        assert_eq!(key_of(&files).len(), KEY, "{files}");
        Boot { node, console, files }
    }

    /// What the BMC says of its CD drive.
    pub(crate) fn inserted_cd(&self) -> Value {
        self.lab.resource(&format!("{}/VirtualMedia/Cd", self.lab.system(self.machine)))
    }

    /// The script of the machine's card, as everybody can have it, if there is something to boot.
    pub(crate) fn script(&mut self) -> Option<String> {
        let path = format!("/v1/boot/{}/boot.ipxe", self.mac());
        let answer = self.operator.ask("GET", &path, None);
        match answer.status {
            200 => Some(answer.text()),
            404 => None,
            status => panic!("{path}: {status}: {}", answer.text()),
        }
    }

    /// Waits until the machine is up and has done what it was told to; checks that it was `word`
    /// that was booted, that it has an address of ours, and that it reached us.
    pub(crate) fn comes_up(&self, console: &Console, word: &str) {
        console.until("FERRITE-RAMDISK-DONE", || self.operator.log());
        let parameters = console.ramdisk_said("PARAMETERS").unwrap();
        assert!(parameters.contains(&format!("test.word={word}")), "{parameters}");
        let network = self.address().rsplit_once('.').unwrap().0;
        let address = console.ramdisk_said("ADDRESS");
        let is_ours = address.as_ref().is_some_and(|address| address.starts_with(network));
        assert!(is_ours, "{address:?}\n{}", console.last(30));
        assert_eq!(console.ramdisk_said("REPORTED").as_deref(), Some("#!ipxe"));
    }

    /// What was seen of a machine, each as `service: what`, oldest first, once all of `steps` are
    /// among it in this order. Checks that it gives no key away.
    pub(crate) fn seen(&mut self, node: &str, steps: &[&str]) -> Vec<String> {
        let deadline = Instant::now() + WRITTEN_WITHIN;
        loop {
            let timeline = self.operator.timeline(node);
            let seen: Vec<String> = timeline
                .iter()
                .map(|entry| &entry["what"])
                .filter(|what| what["kind"] == "seen")
                .map(|what| format!("{}: {}", text(&what["by"]), text(&what["text"])))
                .collect();
            let mut rest = seen.iter();
            let missing = steps.iter().find(|step| !rest.any(|line| contains_in_order(line, step)));
            let Some(missing) = missing else {
                let all = Value::from(timeline).to_string();
                assert_eq!(first_key_in(&all), None, "{all}");
                println!("{}", seen.join("\n"));
                return seen;
            };
            let lines = seen.join("\n");
            assert!(Instant::now() < deadline, "{missing:?} is missing or too early in:\n{lines}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Takes the machine back. From then on it boots its disk, and what it booted is not to be had.
    pub(crate) fn undeploy(&mut self, boot: &Boot) {
        let files: SocketAddr = format!("{}:{FILES_PORT}", self.address()).parse().unwrap();
        let mut client = Client::new(files);
        let mut status = |name: &str| {
            let path = format!("/{}/{name}", key_of(&boot.files));
            client.send("HEAD", &path, None).unwrap().status
        };
        let name = ["kernel", "boot.iso"].into_iter().find(|name| status(name) == 200).unwrap();
        let body = json!({ "target": "deleted" });
        self.operator.provision(&boot.node, body, "available");
        assert!(matches!(status(name), 404 | 410), "{name} can still be had");
        let boots = self.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
        assert_eq!(boots, json!({ "boots": "disk" }));
        self.boots_disk();
        assert_eq!(self.lab.power(self.machine), "shut off");
    }

    /// There is nothing to boot for the machine's card, and if it comes by the network nevertheless,
    /// its script makes it boot its disk.
    pub(crate) fn boots_disk(&mut self) {
        assert_eq!(self.script(), None);
        let files: SocketAddr = format!("{}:{FILES_PORT}", self.address()).parse().unwrap();
        let path = format!("/pxelinux.cfg/{}", self.mac().replace(':', "-"));
        let answer = Client::new(files).send("GET", &path, None).unwrap();
        let script = answer.text();
        assert!(script.contains("sanboot") && script.contains("0x80"), "{script}");
        assert!(!script.contains("http"), "{script}");
    }

    /// What was seen of the machine while nobody had enrolled it, once it is as it should be.
    pub(crate) fn sighting(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + WRITTEN_WITHIN;
        loop {
            let all = self.operator.get("/v1/ferrite/sightings");
            let mut rows = all["sightings"].as_array().unwrap().iter();
            if let Some(row) = rows.find(|row| row["mac"] == self.mac() && is_so(row)) {
                return row.clone();
            }
            assert!(Instant::now() < deadline, "not seen as it should be: {all}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Switches the machine on without anybody having enrolled it; see [`Self::switch_off`].
    pub(crate) fn switch_on(&self) -> Console {
        let console = Console::watch(self.lab.console(self.machine));
        self.lab.virsh(&["start", self.machine]);
        console
    }

    pub(crate) fn switch_off(&self) {
        self.lab.virsh(&["destroy", self.machine]);
    }
}

/// The machine with a BIOS is for several tests, which boot quickest there: one after the other.
pub(crate) fn turn_of_boot_bios() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel that is booted.
pub(crate) fn kernel() -> PathBuf {
    named_in("FERRITE_TEST_KERNEL")
}

/// Its ramdisk.
pub(crate) fn ramdisk() -> PathBuf {
    named_in("FERRITE_TEST_RAMDISK")
}

pub(crate) fn url_of(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Whether all parts of `step`, which are separated by ` … `, are in the line one after the other.
fn contains_in_order(line: &str, step: &str) -> bool {
    let mut rest = line;
    step.split(" … ").all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

pub(crate) fn named_in(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`")).into()
}

fn key_of(files: &str) -> &str {
    files.rsplit('/').next().unwrap()
}

fn first_key_in(text: &str) -> Option<&str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    text.split(|letter| !is_letter(letter)).find(|run| run.len() >= KEY)
}

#[test]
fn keys_and_steps_are_found() {
    let key = "Ab-_".repeat(11);
    assert_eq!(first_key_in(&format!("http://h/{key}/kernel")), Some(key.as_str()));
    assert_eq!(first_key_in("8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11 and others"), None);
    assert!(contains_in_order("dhcp: REQUEST by iPXE: given 10.0.0.1", "REQUEST … given"));
    assert!(!contains_in_order("dhcp: given, REQUEST", "REQUEST … given"));
}
