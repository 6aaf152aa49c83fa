// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench deploy`: the time from the request to the running system.
//!
//! Cold: the machine is off, boots the agent over UEFI and iPXE, then the system from its firmware.
//! Warm: the agent is already running (fast track); ours starts the system with kexec, the stock one
//! reboots.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::operator::{BenchOperator, has_agent};
use super::summary::{FigureTarget, RoundsSummary};
use crate::interrupt::Interrupt;
use crate::test::agent_ramdisk::{self, AgentBuild};
use crate::test::isolated_network::IsolatedNetwork;
use crate::test::lab_inputs::{BackgroundSetup, LabInputs, RunningLab};
use crate::{print, repository, shell};

/// A machine of the lab.
const MACHINE: &str = "journey-uefi";
/// Printed by the deployed system when it is up.
const SYSTEM_IS_UP: &str = "FERRITE-DEPLOYED-DONE";
// Printed by the deployed system: how it was started.
const BY_FIRMWARE: &str = "FERRITE-STARTED-BY firmware";
const BY_KEXEC: &str = "FERRITE-STARTED-BY kexec";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// For a stage in emulation on a loaded computer.
const STAGE_TIMEOUT: Duration = Duration::from_secs(900);

/// Options of `cargo xtask bench deploy`.
#[derive(Args)]
pub(crate) struct DeployBenchOptions {
    /// Number of measurements of each figure.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &DeployBenchOptions) -> Result<()> {
    IsolatedNetwork::check_permission()?;
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let setup = BackgroundSetup::start(&root, &interrupt);
    print::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;
    agent_ramdisk::build(&root, AgentBuild::Shipped, &interrupt)?;
    let ferrite = std::path::absolute(repository::target(&root))?.join("release/ferrite");
    let setup = setup.wait(&interrupt)?;
    let inputs = LabInputs::with_agent(&root, AgentBuild::Shipped, &ferrite, setup, &interrupt)?;
    print::heading("measuring");
    let _network = IsolatedNetwork::enter()?;
    let lab = RunningLab::start(inputs)?;
    let folder = tempfile::Builder::new().prefix("bench-deploy-").tempdir()?;
    let mut bench = DeployBench::open(&ferrite, folder.path(), &lab)?;
    let mut summary = RoundsSummary::default();
    let mut outcome = Ok(());
    'measuring: for _ in 0..options.rounds {
        for (column, agent) in [BenchAgent::Ours, BenchAgent::Stock].into_iter().enumerate() {
            if interrupt.is_raised() {
                outcome = Err(anyhow::anyhow!("interrupted"));
                break 'measuring;
            }
            match bench.round(agent) {
                Ok([cold, warm]) => {
                    let names = ["deployment, cold", "deployment, warm"];
                    for (name, took) in names.into_iter().zip([cold, warm]) {
                        summary.add(column, name, took.as_secs_f64(), "s", FigureTarget::None);
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break 'measuring;
                }
            }
        }
    }
    print::heading("figures");
    summary.print("our agent", "ironic-python-agent");
    outcome
}

/// Which agent a machine boots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchAgent {
    Ours,
    Stock,
}

/// The machine and its server.
struct DeployBench {
    operator: BenchOperator,
    machine: Value,
    driver_info: Value,
    files: BTreeMap<&'static str, PathBuf>,
    checksum: String,
    enrolled: u32,
}

impl DeployBench {
    fn open(ferrite: &Path, folder: &Path, lab: &RunningLab) -> Result<Self> {
        let files: BTreeMap<&str, PathBuf> =
            lab.variables().into_iter().map(|(name, path)| (name, path.to_owned())).collect();
        let inventory = fs::read(file(&files, "FERRITE_TEST_LAB")?)?;
        let inventory: Value = serde_json::from_slice(&inventory)?;
        let machine = inventory["machines"][MACHINE].clone();
        let folders: Vec<String> =
            files.values().filter_map(|file| Some(file.parent()?.display().to_string())).collect();
        let address = text(&machine["network"]["address"])?;
        let network = address.rsplit_once('.').context("no IPv4 address")?.0;
        // Only partition tables are erased, as in the tests.
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
        let operator =
            BenchOperator::start(ferrite, folder, &format!("{address}:6385"), &settings)?;
        let driver_info = json!({
            "redfish_address": inventory["bmcs"]["redfish"]["url"],
            "redfish_system_id": format!("/redfish/v1/Systems/{}", text(&machine["uuid"])?),
            "redfish_username": inventory["username"],
            "redfish_password": inventory["password"],
        });
        let image = file(&files, "FERRITE_TEST_IMAGE")?;
        let sums = shell::output_of(Command::new("sha256sum").arg(image))?;
        let checksum = sums.split_whitespace().next().context("no checksum")?.to_owned();
        Ok(Self { operator, machine, driver_info, files, checksum, enrolled: 0 })
    }

    /// Deploys the machine twice: powered off, and with a running agent.
    fn round(&mut self, agent: BenchAgent) -> Result<[Duration; 2]> {
        let (kernel, ramdisk) = match agent {
            BenchAgent::Ours => ("FERRITE_TEST_AGENT_KERNEL", "FERRITE_TEST_AGENT_RAMDISK"),
            BenchAgent::Stock => ("FERRITE_TEST_IPA_KERNEL", "FERRITE_TEST_IPA_RAMDISK"),
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
        self.operator.provision_and_wait(&uuid, "manage", "manageable", STAGE_TIMEOUT)?;
        self.operator.provision_and_wait(&uuid, "provide", "available", STAGE_TIMEOUT)?;
        let cold = self.deploy(&uuid, BY_FIRMWARE).context("cold")?;
        self.operator.provision_and_wait(&uuid, "deleted", "available", STAGE_TIMEOUT)?;

        self.operator.set(&uuid, "/driver_info/fast_track", json!(true))?;
        let started_by = match agent {
            BenchAgent::Ours => {
                self.operator.set(&uuid, "/driver_info/kexec", json!(true))?;
                BY_KEXEC
            }
            BenchAgent::Stock => BY_FIRMWARE,
        };
        // Undeploying clears instance_info.
        self.operator.set(&uuid, "/instance_info", node["instance_info"].clone())?;
        self.operator.expect(202, "POST", &format!("/v1/ferrite/nodes/{uuid}/warm"), None)?;
        self.operator.wait_until(&uuid, STAGE_TIMEOUT, has_agent)?;
        let warm = self.deploy(&uuid, started_by).context("warm")?;
        self.operator.provision_and_wait(&uuid, "deleted", "available", STAGE_TIMEOUT)?;
        self.operator.expect(204, "DELETE", &format!("/v1/nodes/{uuid}"), None)?;
        Ok([cold, warm])
    }

    /// Measures the time from the request until the deployed system is up. Fails if the system was
    /// not started as expected: an agent that cannot kexec reboots.
    fn deploy(&mut self, node: &str, started_by: &str) -> Result<Duration> {
        let console = PathBuf::from(text(&self.machine["console"])?);
        let before = fs::read(&console)?.len();
        let started = Instant::now();
        self.operator.provision(node, "active")?;
        loop {
            let console_text = fs::read(&console)?;
            let console_text =
                String::from_utf8_lossy(console_text.get(before..).unwrap_or_default());
            if console_text.contains(SYSTEM_IS_UP) {
                ensure!(
                    console_text.contains(started_by),
                    "the system did not print {started_by:?}"
                );
                break;
            }
            if started.elapsed() > STAGE_TIMEOUT {
                let lines: Vec<&str> = console_text.lines().collect();
                let last = lines[lines.len().saturating_sub(20)..].join("\n");
                bail!("no system; the console:\n{last}\nthe log:\n{}", self.operator.log());
            }
            self.operator.show(node)?;
            thread::sleep(POLL_INTERVAL);
        }
        let took = started.elapsed();
        self.operator
            .wait_until(node, STAGE_TIMEOUT, |node| node["provision_state"] == "active")?;
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
    value.as_str().with_context(|| format!("{value} is not a string"))
}
