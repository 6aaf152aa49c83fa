// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench deploy`: how long a machine takes from the operator's word to its running system.
//!
//! Cold: it is off, and boots the agent by UEFI and iPXE, then the system by its firmware. Warm: the
//! agent runs already (fast track); ours then starts the system with kexec, the stock one reboots.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::operator::{Operator, agent_called};
use super::summary::{Summary, Target};
use crate::interrupt::Interrupt;
use crate::test::network::Network;
use crate::test::own_agent;
use crate::test::parts::{Downloads, LabAndParts, LabParts};
use crate::{repository, say, shell};

/// The machine of the lab that is deployed.
const MACHINE: &str = "journey-uefi";
/// What the deployed system says when it is up.
const RUNS: &str = "FERRITE-DEPLOYED-DONE";
/// How it says what started it.
const BY_FIRMWARE: &str = "FERRITE-STARTED-BY firmware";
const BY_KEXEC: &str = "FERRITE-STARTED-BY kexec";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a stage may take in emulation on a busy computer.
const PATIENCE: Duration = Duration::from_secs(900);

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// How many times each figure is taken.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    Network::check()?;
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let downloads = Downloads::begin(&root, &interrupt)?;
    say::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;
    own_agent::build(&root, &interrupt)?;
    let ferrite = std::path::absolute(repository::target(&root))?.join("release/ferrite");
    let parts = LabParts::prepare(&root, &ferrite, downloads, &interrupt)?;
    say::heading("measuring");
    let _network = Network::enter()?;
    let lab = LabAndParts::start(parts)?;
    let folder = tempfile::Builder::new().prefix("bench-deploy-").tempdir()?;
    let mut bench = Bench::open(&ferrite, folder.path(), &lab)?;
    let mut summary = Summary::default();
    let mut outcome = Ok(());
    'measuring: for _ in 0..options.rounds {
        for (column, agent) in [Agent::Ours, Agent::Stock].into_iter().enumerate() {
            if interrupt.is_raised() {
                outcome = Err(anyhow::anyhow!("interrupted"));
                break 'measuring;
            }
            match bench.round(agent) {
                Ok([cold, warm]) => {
                    let names = ["deployment, cold", "deployment, warm"];
                    for (name, took) in names.into_iter().zip([cold, warm]) {
                        summary.add(column, name, took.as_secs_f64(), "s", Target::None);
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break 'measuring;
                }
            }
        }
    }
    say::heading("figures");
    summary.print("ironic-python-agent");
    outcome
}

/// Which agent a machine boots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agent {
    Ours,
    Stock,
}

/// The machine and its server.
struct Bench {
    operator: Operator,
    machine: Value,
    driver_info: Value,
    files: BTreeMap<&'static str, PathBuf>,
    checksum: String,
    enrolled: u32,
}

impl Bench {
    fn open(ferrite: &Path, folder: &Path, lab: &LabAndParts) -> Result<Self> {
        let files: BTreeMap<&str, PathBuf> =
            lab.variables().into_iter().map(|(name, path)| (name, path.to_owned())).collect();
        let inventory = fs::read(file(&files, "FERRITE_TEST_LAB")?)?;
        let inventory: Value = serde_json::from_slice(&inventory)?;
        let machine = inventory["machines"][MACHINE].clone();
        let folders: Vec<String> =
            files.values().filter_map(|file| Some(file.parent()?.display().to_string())).collect();
        let address = text(&machine["network"]["address"])?;
        let network = address.rsplit_once('.').context("no address of IPv4")?.0;
        // Disks are erased by their tables only, as in the tests.
        let settings = format!(
            "[boot]\nlisten = [\"{address}:6180\"]\nkernel_append_params = \"console=ttyS0\"\n\
             [images]\nfile_url_allowed_paths = {folders:?}\n\
             [conductor]\nsync_power_state_interval = 0\n\
             [drivers.redfish]\npoll_interval = 1\n\
             [drivers.agent]\nerase_devices_priority = 0\n\
             [[dhcp.networks]]\ninterface = \"{}\"\naddress = \"{address}/24\"\n\
             mode = \"reserve\"\nranges = [\"{network}.100-{network}.200\"]\n",
            text(&machine["network"]["interface"])?
        );
        let operator = Operator::start(ferrite, folder, &format!("{address}:6385"), &settings)?;
        let driver_info = json!({
            "redfish_address": inventory["bmcs"]["redfish"]["url"],
            "redfish_system_id": format!("/redfish/v1/Systems/{}", text(&machine["uuid"])?),
            "redfish_username": inventory["username"],
            "redfish_password": inventory["password"],
        });
        let image = file(&files, "FERRITE_TEST_IMAGE")?;
        let sums = shell::said(Command::new("sha256sum").arg(image))?;
        let checksum = sums.split_whitespace().next().context("no checksum")?.to_owned();
        Ok(Self { operator, machine, driver_info, files, checksum, enrolled: 0 })
    }

    /// Deploys the machine twice: from off, and with the agent there.
    fn round(&mut self, agent: Agent) -> Result<[Duration; 2]> {
        let (kernel, ramdisk) = match agent {
            Agent::Ours => ("FERRITE_TEST_AGENT_KERNEL", "FERRITE_TEST_AGENT_RAMDISK"),
            Agent::Stock => ("FERRITE_TEST_IPA_KERNEL", "FERRITE_TEST_IPA_RAMDISK"),
        };
        let mut info = self.driver_info.clone();
        info["deploy_kernel"] = url(file(&self.files, kernel)?);
        info["deploy_ramdisk"] = url(file(&self.files, ramdisk)?);
        let node = json!({
            "driver": "redfish",
            "name": format!("bench-{}", self.enrolled),
            "driver_info": info,
            "boot_interface": "ipxe",
            "deploy_interface": "direct",
            "automated_clean": false,
            "instance_info": {
                "image_source": url(file(&self.files, "FERRITE_TEST_IMAGE")?),
                "image_checksum": self.checksum,
            },
        });
        self.enrolled += 1;
        let mac = text(&self.machine["mac"])?.to_owned();
        let uuid = self.operator.enrol(&node, &mac)?;
        self.operator.go(&uuid, "manage", "manageable", PATIENCE)?;
        self.operator.go(&uuid, "provide", "available", PATIENCE)?;
        let cold = self.deploy(&uuid, BY_FIRMWARE).context("cold")?;
        self.operator.go(&uuid, "deleted", "available", PATIENCE)?;

        self.operator.set(&uuid, "/driver_info/fast_track", json!(true))?;
        let started_by = match agent {
            Agent::Ours => {
                self.operator.set(&uuid, "/driver_info/kexec", json!(true))?;
                BY_KEXEC
            }
            Agent::Stock => BY_FIRMWARE,
        };
        // Taking a machine back takes this away.
        self.operator.set(&uuid, "/instance_info", node["instance_info"].clone())?;
        self.operator.expect(202, "POST", &format!("/v1/ferrite/nodes/{uuid}/warm"), None)?;
        self.operator.until(&uuid, PATIENCE, agent_called)?;
        let warm = self.deploy(&uuid, started_by).context("warm")?;
        self.operator.go(&uuid, "deleted", "available", PATIENCE)?;
        self.operator.expect(204, "DELETE", &format!("/v1/nodes/{uuid}"), None)?;
        Ok([cold, warm])
    }

    /// From the operator's word until the deployed system says that it is up. An error if something
    /// else started it than what is measured: an agent that cannot kexec reboots.
    fn deploy(&mut self, node: &str, started_by: &str) -> Result<Duration> {
        let console = PathBuf::from(text(&self.machine["console"])?);
        let before = fs::read(&console)?.len();
        let began = Instant::now();
        self.operator.provision(node, "active")?;
        loop {
            let said = fs::read(&console)?;
            let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default());
            if said.contains(RUNS) {
                ensure!(said.contains(started_by), "the system does not say {started_by:?}");
                break;
            }
            if began.elapsed() > PATIENCE {
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(20)..].join("\n");
                bail!("no system; the console:\n{last}\nthe log:\n{}", self.operator.log());
            }
            self.operator.show(node)?;
            thread::sleep(LOOK_EVERY);
        }
        let took = began.elapsed();
        self.operator.until(node, PATIENCE, |node| node["provision_state"] == "active")?;
        Ok(took)
    }
}

fn file<'a>(files: &'a BTreeMap<&str, PathBuf>, name: &str) -> Result<&'a Path> {
    files.get(name).map(PathBuf::as_path).with_context(|| format!("the lab has no {name}"))
}

fn url(path: &Path) -> Value {
    json!(format!("file://{}", path.display()))
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}
