// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench`: the processor time of the server per operation.
//!
//! Processor time per request, read from /proc, is reliable on a loaded machine, unlike rates and
//! latencies. With `--against` another Ironic is measured in the same run, alternating phase by phase,
//! so that load affects both. A benchmark never fails for being slow.

mod access;
mod agent;
mod bench_server;
mod boot;
mod deploy;
mod fleet;
mod kube;
mod load;
mod meter;
mod operator;
mod password_guessing;
mod phases;
mod summary;
mod table;
mod tls_client;

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use http_probe::ServerProcess;

use crate::interrupt::Interrupt;
use crate::{print, repository, shell};
use access::AccessBenchOptions;
use bench_server::BenchServer;
use meter::CpuUsage;
use phases::ApiBench;
use table::{FigureTable, TableFigure};

/// Options of `cargo xtask bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApiBenchOptions {
    #[command(subcommand)]
    other: Option<OtherBench>,
    /// Number of enrolled nodes.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Number of nodes that are provisioned and inspected.
    #[arg(long, default_value_t = 100)]
    provisioned: usize,
    /// Number of requests per figure.
    #[arg(long, default_value_t = 1000)]
    requests: usize,
    /// Time limit per figure, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of agents that connect.
    #[arg(long, default_value_t = 2000)]
    agents: usize,
    /// Seconds for which the idle server is measured.
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// Another server to measure in the same run, e.g. `http://127.0.0.1:6385`. It needs
    /// fake-hardware, the interfaces deploy `direct` and inspect `agent`, and no authentication.
    #[arg(long)]
    against: Option<String>,
    /// The process id of that server; without it only latencies are measured.
    #[arg(long, requires = "against")]
    against_pid: Option<u32>,
    /// Number of agents that connect to the other server.
    #[arg(long, default_value_t = 128)]
    against_agents: usize,
    /// Keep the nodes on the other server.
    #[arg(long)]
    keep: bool,
}

/// Benchmarks other than that of the API.
#[derive(Subcommand)]
enum OtherBench {
    /// TLS, API tokens and policy compared with an open server, and other clients while passwords are
    /// guessed. Also the last part of `cargo xtask bench`.
    Access(access::AccessBenchOptions),
    /// DHCP, TFTP and HTTP compared with dnsmasq and nginx. Needs root.
    Boot(boot::BootBenchOptions),
    /// Our agent compared with ironic-python-agent (size, memory, first heartbeat) and with `dd`
    /// (writing an image), on virtual machines. Needs root.
    Agent(agent::AgentBenchOptions),
    /// Complete deployments on virtual machines, cold and warm, with our agent and with
    /// ironic-python-agent. Needs root.
    Deploy(deploy::DeployBenchOptions),
    /// Fleets of simulated machines, deployed at once by one server.
    Fleet(fleet::FleetBenchOptions),
    /// Hosts in Kubernetes with simulated machines: from creation to available, and idle.
    Kube(kube::KubeBenchOptions),
}

/// The options in the form the phases need.
pub(crate) struct ApiBenchSettings {
    pub(crate) nodes: usize,
    pub(crate) provisioned: usize,
    pub(crate) requests: usize,
    pub(crate) at_most: Duration,
    pub(crate) idle: Duration,
    /// Numbers of agents that connect at the same time.
    pub(crate) bursts: [usize; 2],
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &ApiBenchOptions) -> Result<()> {
    match &options.other {
        Some(OtherBench::Access(options)) => return access::run(options),
        Some(OtherBench::Boot(options)) => return boot::run(options),
        Some(OtherBench::Agent(options)) => return agent::run(options),
        Some(OtherBench::Deploy(options)) => return deploy::run(options),
        Some(OtherBench::Fleet(options)) => return fleet::run(options),
        Some(OtherBench::Kube(options)) => return kube::run(options),
        None => {}
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    print::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;

    let folder = tempfile::Builder::new().prefix("ferrite-bench-").tempdir()?;
    let settings = ApiBenchSettings {
        nodes: options.nodes.max(1),
        provisioned: options.provisioned,
        requests: options.requests,
        at_most: Duration::from_secs(options.seconds),
        idle: Duration::from_secs(options.idle),
        bursts: [128, 2000],
    };
    print::heading("measuring");
    let started = Instant::now();
    let ferrite = repository::target(&root).join("release/ferrite");
    let mut command = Command::new(&ferrite);
    command.args(["serve", "--auth", "none", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.path().join("data"));
    // The load generator sends requests of agents that were not booted.
    command.env("FERRITE_CONDUCTOR__AGENT_BOOT_PROOF", "none");
    command.env("FERRITE_CONDUCTOR__CHECK_AGENT_ADDRESS", "false");
    let server = ServerProcess::start(&mut command, &folder.path().join("log"))?;
    server.client().send("GET", "/v1", None).context("the server does not respond")?;
    let start = (started.elapsed(), CpuUsage::of(server.pid())?.total());

    let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos();
    let mut targets = vec![BenchServer::new("ferrite", server.address(), Some(server.pid()), run)];
    if let Some(url) = &options.against {
        targets.push(BenchServer::at("other", url, options.against_pid, run)?);
    }
    let mut table = FigureTable::new(targets.iter().map(|target| target.label).collect());
    table.add(0, "start to first response", TableFigure::Plain(start.0.as_secs_f64() * 1e3, "ms"));
    table.add(
        0,
        "start to first response, CPU",
        TableFigure::Plain(start.1.as_secs_f64() * 1e3, "ms"),
    );

    let agents = [options.agents, options.against_agents];
    let mut benches: Vec<ApiBench<'_>> = targets
        .iter()
        .zip(agents)
        .enumerate()
        .map(|(column, (target, agents))| ApiBench {
            target,
            column,
            settings: &settings,
            agents,
            tokens: std::collections::BTreeMap::new(),
        })
        .collect();
    let outcome = measure(&mut benches, &mut table, &interrupt, options.keep);
    print::heading("figures");
    table.print();
    if outcome.is_err() {
        print::problem(&format!("the server's log ends with:\n{}", last_lines(&server.log())));
    }
    outcome?;
    drop(server);
    access::measure(&ferrite, &AccessBenchOptions::default(), &interrupt)
}

fn measure(
    benches: &mut [ApiBench<'_>],
    table: &mut FigureTable,
    interrupt: &Interrupt,
    keep: bool,
) -> Result<()> {
    type Phase = fn(&mut ApiBench<'_>, &mut FigureTable) -> Result<()>;
    let phases: [(&str, Phase); 8] = [
        ("idle, empty", |bench, table| bench.idle(table, "without nodes")),
        ("enrol", |bench, table| bench.enrol(table)),
        ("read", |bench, table| bench.read_and_patch(table)),
        ("provision", |bench, table| bench.change_states(table)),
        ("agents", |bench, table| bench.agents_connect(table)),
        ("inspect", |bench, table| bench.inspect(table)),
        ("idle, full", |bench, table| bench.idle(table, "with nodes")),
        ("remove", |bench, table| bench.remove(table)),
    ];
    for (name, phase) in phases {
        if keep && name == "remove" {
            continue;
        }
        for bench in benches.iter_mut() {
            if interrupt.is_raised() {
                anyhow::bail!("interrupted");
            }
            phase(bench, table)
                .with_context(|| format!("phase {name} of {}", bench.target.label))?;
        }
    }
    Ok(())
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}
