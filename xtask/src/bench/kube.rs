// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench kube`: hosts in Kubernetes, from creation to `available`, and idle.
//!
//! etcd, kube-apiserver, `ferrite serve`, `ferrite operator` and `ferrite sim` run as processes of this
//! computer, so that each has its own processor time and memory. The elapsed time includes all of them.

mod control_plane;
mod figures;
mod host_objects;
mod machines;
mod measured_operator;
mod request_counts;
mod usage;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use http_probe::ServerProcess;

use crate::interrupt::Interrupt;
use crate::test::control_plane::ensure_control_plane;
use crate::{print, repository, shell};
use control_plane::BenchControlPlane;
use figures::{HostFigures, IdleLabel};
use host_objects::{HostCreation, HostTemplate, find_unavailable, inspected_hardware};
use machines::{MachineAddress, SimulatedMachines};
use measured_operator::MeasuredOperator;
use usage::{MeasuredProcesses, UsageSample};

/// Most simulated machines of one process. Each needs two open files, and some need more.
const MACHINES_PER_PROCESS: usize = 4000;
/// Time limit until all hosts are available.
const CREATION_LIMIT: Duration = Duration::from_secs(3 * 3600);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Options of `cargo xtask bench kube`.
#[derive(Args)]
pub(crate) struct KubeBenchOptions {
    /// Number of hosts that are registered, inspected and cleaned.
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// Number of hosts for the idle operator. Those beyond `--hosts` are registered with given hardware
    /// details instead of an inspection, and are not cleaned. 0 skips this part.
    #[arg(long, default_value_t = 10_000)]
    idle_hosts: usize,
    /// Seconds for which the idle operator is measured.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Program to measure, such as that of `cargo xtask package`; by default a release build.
    #[arg(long, value_name = "FILE")]
    ferrite: Option<PathBuf>,
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &KubeBenchOptions) -> Result<()> {
    if options.hosts == 0 {
        bail!("--hosts must be greater than 0");
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    print::heading("building");
    let control_plane = ensure_control_plane(&root, &interrupt)?;
    let ferrite = match &options.ferrite {
        Some(ferrite) => std::path::absolute(ferrite)?,
        None => {
            let mut build = shell::cargo(&root);
            build.args(["build", "--release", "--package", "ferrite"]);
            shell::run(&mut build, &interrupt)?;
            std::path::absolute(repository::target(&root))?.join("release/ferrite")
        }
    };
    let folder = tempfile::Builder::new().prefix("ferrite-bench-kube-").tempdir()?;
    print::heading("starting");
    let cluster = BenchControlPlane::start(&control_plane, folder.path())?;
    cluster.apply_crds(&ferrite)?;
    let mut bench = KubeBench::start(&ferrite, folder.path(), cluster, options)?;
    print::heading("measuring");
    let mut figures = HostFigures::default();
    let outcome = bench.measure(options, &interrupt, &mut figures);
    print::heading("figures");
    figures.print();
    if outcome.is_err() {
        print::problem(&format!("the operator's log ends with:\n{}", bench.operator.last_lines()));
    }
    outcome
}

/// Everything that runs. Fields are dropped in this order.
struct KubeBench {
    operator: MeasuredOperator,
    machines: Vec<SimulatedMachines>,
    service: ServerProcess,
    cluster: BenchControlPlane,
    ferrite: PathBuf,
    folder: PathBuf,
    /// Hosts that were created.
    created: usize,
    /// How often this benchmark listed hosts, which is not a request of the operator.
    host_lists: usize,
}

impl KubeBench {
    fn start(
        ferrite: &Path,
        folder: &Path,
        cluster: BenchControlPlane,
        options: &KubeBenchOptions,
    ) -> Result<Self> {
        let service = start_service(ferrite, folder, options.hosts)?;
        let operator = MeasuredOperator::start(ferrite, folder, &cluster, &service.url())?;
        Ok(Self {
            operator,
            machines: Vec::new(),
            service,
            cluster,
            ferrite: ferrite.to_owned(),
            folder: folder.to_owned(),
            created: 0,
            host_lists: 0,
        })
    }

    fn measure(
        &mut self,
        options: &KubeBenchOptions,
        interrupt: &Interrupt,
        figures: &mut HostFigures,
    ) -> Result<()> {
        let before = self.sample()?;
        self.create(options.hosts, &HostTemplate::Inspected, interrupt)?;
        let after = self.sample()?;
        let peak = self.operator.peak_memory()?;
        figures.add_creation(options.hosts, &after.since(&before), peak);
        if options.idle_hosts == 0 {
            return Ok(());
        }
        let more = options.idle_hosts.saturating_sub(options.hosts);
        if more > 0 {
            let hardware = inspected_hardware(&mut self.cluster.client()?)?;
            self.host_lists += 1;
            let before = self.sample()?;
            self.create(more, &HostTemplate::WithHardware(hardware), interrupt)?;
            figures.add_short_creation(more, &self.sample()?.since(&before));
        }
        let idle = Duration::from_secs(options.idle);
        self.measure_idle(IdleLabel::AfterCreation, idle, interrupt, figures)?;

        self.operator.stop(STOP_LIMIT)?;
        let started = Instant::now();
        self.operator = MeasuredOperator::start(
            &self.ferrite,
            &self.folder,
            &self.cluster,
            &self.service.url(),
        )?;
        let quiet = self.operator.wait_until_settled(interrupt)?;
        let took = started.elapsed().saturating_sub(quiet);
        figures.add_restart(self.created, took, self.operator.cpu()?, self.operator.peak_memory()?);
        self.measure_idle(IdleLabel::AfterRestart, idle, interrupt, figures)
    }

    /// Creates hosts and waits until all are available.
    fn create(
        &mut self,
        count: usize,
        template: &HostTemplate,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let machines = self.start_machines(count)?;
        let creation = HostCreation { first: self.created, machines: &machines, template };
        creation.run(&self.cluster)?;
        self.created += count;
        let (deadline, mut printed) = (Instant::now() + CREATION_LIMIT, Instant::now());
        let mut client = self.cluster.client()?;
        loop {
            // A host is counted twice if its pass is repeated, so the list decides. It costs more.
            let available = self.operator.became_available()?;
            let mut problem = None;
            if available >= self.created {
                problem = find_unavailable(&mut client, self.created, &mut self.host_lists)?;
                if problem.is_none() {
                    return Ok(());
                }
            }
            if interrupt.is_raised() {
                bail!("interrupted");
            }
            if Instant::now() >= deadline {
                let problem = problem.unwrap_or_default();
                bail!("{available} of {} hosts became available; {problem}", self.created);
            }
            if printed.elapsed() >= PROGRESS_INTERVAL {
                let failed = self.operator.failed_operations()?;
                print::line(&format!(
                    "{available} of {} hosts became available, {failed} operations failed",
                    self.created
                ));
                printed = Instant::now();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts more machines and returns their addresses.
    fn start_machines(&mut self, count: usize) -> Result<Vec<MachineAddress>> {
        let mut addresses = Vec::with_capacity(count);
        while addresses.len() < count {
            let some = MACHINES_PER_PROCESS.min(count - addresses.len());
            let started = SimulatedMachines::start(
                &self.ferrite,
                &self.folder,
                self.machines.len(),
                some,
                &self.service.url(),
            )?;
            addresses.extend(started.addresses()?);
            self.machines.push(started);
        }
        Ok(addresses)
    }

    fn measure_idle(
        &mut self,
        label: IdleLabel,
        duration: Duration,
        interrupt: &Interrupt,
        figures: &mut HostFigures,
    ) -> Result<()> {
        self.operator.wait_until_settled(interrupt)?;
        let before = self.sample()?;
        let deadline = Instant::now() + duration;
        while Instant::now() < deadline {
            if interrupt.is_raised() {
                bail!("interrupted");
            }
            std::thread::sleep(
                POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())),
            );
        }
        let usage = self.sample()?.since(&before);
        figures.add_idle(label, self.created, &usage, self.operator.memory()?);
        Ok(())
    }

    fn sample(&self) -> Result<UsageSample> {
        let processes = MeasuredProcesses {
            operator: self.operator.pid(),
            service: self.service.pid(),
            api_server: self.cluster.api_server_pid(),
        };
        let (mut cluster, mut service) = (self.cluster.client()?, self.service.client());
        UsageSample::take(&processes, &mut cluster, &mut service, self.host_lists)
    }
}

/// Starts the service. Simulated machines get no addresses from DHCP, so their agents have no boot proof.
fn start_service(ferrite: &Path, folder: &Path, hosts: usize) -> Result<ServerProcess> {
    let config = folder.join("ferrite.toml");
    let files = folder.join("files");
    std::fs::create_dir_all(&files)?;
    std::fs::write(
        &config,
        format!(
            "boot.listen = [\"127.0.0.1:0\"]\nconductor.agent_boot_proof = \"none\"\n\
             images.file_url_allowed_paths = [{files:?}]\n\
             lifecycle.max_concurrent_clean = {hosts}\n"
        ),
    )?;
    let mut command = Command::new(ferrite);
    command.args(["serve", "--auth", "none", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.join("data")).arg("--config").arg(config);
    ServerProcess::start(&mut command, &folder.join("service.log"))
        .context("cannot start the service")
}
