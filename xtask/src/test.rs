// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask test`: formatting, tidiness, lints and all tests, with every server, package and
//! tool they need.

pub(crate) mod agent_ramdisk;
pub(crate) mod archive;
pub(crate) mod cargo_deny;
pub(crate) mod control_plane;
mod database_certificates;
mod database_servers;
mod go_program;
mod go_toolchain;
mod image;
pub(crate) mod isolated_network;
pub(crate) mod kernel;
mod lab;
pub(crate) mod lab_inputs;
mod metal3_crds;
mod oidc_provider;
pub(crate) mod process;
mod programs;
pub(crate) mod python;
mod ramdisk;
mod step_report;
pub(crate) mod stock_agent;
mod test_counts;
mod web_ui;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;
use crate::{install, package, repository, shell, simulate, tidy};
use agent_ramdisk::AgentBuild;
use cargo_deny::CargoDenyInstall;
use control_plane::{KubePrograms, KubeProgramsBuild};
use database_servers::DatabaseServers;
use isolated_network::IsolatedNetwork;
use lab_inputs::{BackgroundSetup, LabInputs, RunningLab};
use programs::TestProgram;
use step_report::StepReport;

/// How much `cargo xtask test` runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestScope {
    /// Only what needs no root, no database servers, no lab and no browser.
    Quick,
    /// What CI runs.
    Ci,
    /// CI and the full matrix of boot method, BMC and agent.
    All,
}

/// Tests below modules of this name run only with [`TestScope::All`].
const MATRIX_MODULE: &str = "matrix::";
/// Tests below modules of this name need a downloaded Go module, and do not run with
/// [`TestScope::Quick`].
const METAL3_MODULE: &str = "metal3::";
/// Tests below modules of this name measure times, so nothing else may run beside them.
const MEASURED_MODULE: &str = "measured::";
/// Most tests wait for timers, machines or servers, so more programs run than there are cores.
const PROGRAMS_AT_ONCE: usize = 3;
/// The longest program. Its tests wait for virtual machines, and for each other's machines.
const END_TO_END: &str = "ferrite end_to_end";
const END_TO_END_THREADS: &str = "3";
/// Its tests share a Kubernetes cluster and wait for pods.
const KUBE: &str = "ferrite kube";
/// The programs that take longest, longest first.
const LONG_PROGRAMS: &[&str] = &[
    END_TO_END,
    KUBE,
    web_ui::PROGRAM,
    "operator",
    "boot-server",
    "store",
    "redfish-driver",
    "api-server",
];

/// Runs all checks and prints the time of each. A failed check does not stop the others. The last
/// line has the number of passed and failed tests, for CI.
pub(crate) fn run(scope: TestScope) -> Result<()> {
    let full = scope != TestScope::Quick;
    if full {
        IsolatedNetwork::check_permission()?;
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let mut report = StepReport::new(&interrupt);

    // Packages and downloads need the network, not the compiler: both at once.
    let setup = full.then(|| BackgroundSetup::start(&root, &interrupt));
    let cargo_deny = full.then(|| CargoDenyInstall::start(&root));
    let kube_build = full.then(|| KubeProgramsBuild::start(&root, &interrupt));

    report.step("formatting", || {
        shell::run(shell::cargo(&root).args(["fmt", "--all", "--check"]), &interrupt)
    });
    report.step("tidiness", tidy::run);
    report.step("lints", || {
        let mut clippy = shell::cargo(&root);
        clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        shell::run(&mut clippy, &interrupt)
    });
    let mut programs = Vec::new();
    report.step("test build", || {
        programs = programs::build(&root, &interrupt)?;
        Ok(())
    });
    if let Some(cargo_deny) = cargo_deny {
        let mut note = None;
        report.step("dependency rules", || {
            note = cargo_deny.check(&root, &interrupt)?.note();
            Ok(())
        });
        report.note(note);
    }
    let mut environment = None;
    if let Some(setup) = setup {
        report
            .step("agent build", || agent_ramdisk::build(&root, AgentBuild::ForTests, &interrupt));
        let (mut prepared, mut kube_programs) = (None, None);
        report.step("packages and lab images", || {
            prepared = Some(setup.wait(&interrupt)?);
            Ok(())
        });
        report.step("web UI checks", || web_ui::check(&root, &interrupt));
        if let Some(kube_build) = kube_build {
            report.step("control plane build", || {
                kube_programs = Some(kube_build.wait()?);
                Ok(())
            });
        }
        if prepared.is_some() {
            report.step("packages", || {
                let manifests = root.join(package::OPERATOR_MANIFESTS);
                package::check_test_build(&root, &manifests, &interrupt)
            });
        }
        if let (Some(prepared), Some(kube)) = (prepared, kube_programs) {
            report.step("servers and lab", || {
                let inputs =
                    LabInputs::prepare(&root, &debug_ferrite(&root)?, prepared, &interrupt)?;
                environment = Some(TestEnvironment::start(&root, inputs, kube)?);
                Ok(())
            });
        }
        programs.push(web_ui::program(&root)?);
    }
    report.tests(|| {
        if full && environment.is_none() {
            bail!("the tests need the servers and the lab, which did not start");
        }
        configure(&mut programs, environment.as_ref(), scope);
        let logs = programs::log_folder(&repository::target(&root));
        let mut measured = measured_programs(&programs)?;
        if full {
            measured.push(web_ui::measured_program(&root)?);
        }
        let mut results = programs::run_all(programs, PROGRAMS_AT_ONCE, &logs, &interrupt)?;
        results.extend(programs::run_all(measured, 1, &logs, &interrupt)?);
        Ok(results)
    });
    drop(environment);
    report.finish()
}

/// Sets variables and arguments of the test programs, and puts the longest first.
fn configure(
    programs: &mut [TestProgram],
    environment: Option<&TestEnvironment>,
    scope: TestScope,
) {
    for program in programs.iter_mut() {
        if let Some(environment) = environment {
            program.command.envs(environment.variables());
        }
        if program.name != web_ui::PROGRAM {
            program.command.args(["--skip", MEASURED_MODULE]);
            if scope != TestScope::All {
                program.command.args(["--skip", MATRIX_MODULE]);
            }
        }
        if scope == TestScope::Quick {
            program.command.args(["--skip", METAL3_MODULE]);
        }
        if program.name == simulate::PROGRAM {
            program.command.envs(simulate::new_seeds(&repository::root()));
        }
        if program.name == END_TO_END {
            program.command.args(["--test-threads", END_TO_END_THREADS]);
        }
    }
    programs::start_first(programs, LONG_PROGRAMS);
}

/// The tests that measure times, as programs of their own.
fn measured_programs(programs: &[TestProgram]) -> Result<Vec<TestProgram>> {
    let rust_programs = programs.iter().filter(|program| program.name != web_ui::PROGRAM);
    let measured = rust_programs.map(|program| program.only_module(MEASURED_MODULE));
    measured.filter_map(Result::transpose).collect()
}

/// Runs one command with the database servers running.
pub(crate) fn with_servers(command: &[String]) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let servers = DatabaseServers::start(&install::database_servers(&interrupt)?)?;
    shell::run(Command::new(program).args(arguments).envs(servers.variables()), &interrupt)
}

/// Runs one command with the lab running, in the network of the lab.
pub(crate) fn with_lab(command: &[String]) -> Result<()> {
    IsolatedNetwork::check_permission()?;
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let root = repository::root();
    let setup = BackgroundSetup::start(&root, &interrupt);
    // The command is usually cargo, which cannot download anything in the network of the lab.
    shell::run(shell::cargo(&root).args(["fetch", "--quiet"]), &interrupt)?;
    programs::build(&root, &interrupt)?;
    agent_ramdisk::build(&root, AgentBuild::ForTests, &interrupt)?;
    let prepared = setup.wait(&interrupt)?;
    let inputs = LabInputs::prepare(&root, &debug_ferrite(&root)?, prepared, &interrupt)?;
    let _network = IsolatedNetwork::enter()?;
    let lab = RunningLab::start(inputs)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(lab.variables()).env("CARGO_NET_OFFLINE", "true");
    shell::run(&mut command, &interrupt)
}

/// Runs one command with the variables that point tests at a Kubernetes control plane and database
/// servers, in a network of its own.
pub(crate) fn with_kube(command: &[String]) -> Result<()> {
    IsolatedNetwork::check_permission()?;
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let root = repository::root();
    let databases = install::for_clusters(&interrupt)?;
    let kube = KubePrograms::ensure(&root, &interrupt)?;
    // The command is usually cargo, which cannot download anything in the new network.
    shell::run(shell::cargo(&root).args(["fetch", "--quiet"]), &interrupt)?;
    let _network = IsolatedNetwork::enter()?;
    let servers = DatabaseServers::start(&databases)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(servers.variables()).env("CARGO_NET_OFFLINE", "true");
    command.envs(kube.variables());
    shell::run(&mut command, &interrupt)
}

/// The server binary of the test build.
pub(crate) fn debug_ferrite(root: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(repository::target(root))?.join("debug/ferrite"))
}

/// The database servers and the lab, in a network of their own. Fields are dropped in this order.
struct TestEnvironment {
    servers: DatabaseServers,
    lab: RunningLab,
    kube: KubePrograms,
    _network: IsolatedNetwork,
}

impl TestEnvironment {
    /// Nothing can be downloaded after this.
    fn start(root: &Path, inputs: LabInputs, kube: KubePrograms) -> Result<Self> {
        let programs = install::installed_database_programs()?;
        let network = IsolatedNetwork::enter()?;
        let servers = DatabaseServers::start(&programs)?;
        let lab = RunningLab::start(inputs)
            .with_context(|| format!("cannot start the lab of {}", root.display()))?;
        Ok(Self { servers, lab, kube, _network: network })
    }

    /// The variables that point the tests at the servers and the lab.
    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let servers = self.servers.variables().map(|(name, value)| (name, PathBuf::from(value)));
        let lab = self.lab.variables().into_iter().map(|(name, path)| (name, path.to_owned()));
        let kube = self.kube.variables().map(|(name, path)| (name, path.to_owned()));
        servers.into_iter().chain(lab).chain(kube).collect()
    }
}
