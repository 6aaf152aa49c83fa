// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench`: what each operation costs our server in processor time, on this machine.
//!
//! Processor time per request holds on a noisy machine, where rates and latencies do not; it is
//! read from /proc. With `--against` another Ironic is measured in the same run, phase by phase in
//! turn, so that noise hits both. It is a benchmark and no test: nothing fails for being slow.

mod agent;
mod boot;
mod deploy;
mod fleet;
mod load;
mod meter;
mod operator;
mod phases;
mod summary;
mod table;
mod target;

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use http_probe::Server;

use crate::interrupt::Interrupt;
use crate::{repository, say, shell};
use meter::Usage;
use phases::Bench;
use table::{Figure, Table};
use target::Target;

/// What is measured, and on whom.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// How many nodes are enrolled.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// How many of them walk through their states and are inspected.
    #[arg(long, default_value_t = 100)]
    walkers: usize,
    /// How many requests each figure is taken from.
    #[arg(long, default_value_t = 1000)]
    requests: usize,
    /// How many seconds a figure of single requests may take.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many agents call home.
    #[arg(long, default_value_t = 2000)]
    agents: usize,
    /// How many seconds the idle server is watched.
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// Another server to measure in the same run, e.g. `http://127.0.0.1:6385`. It needs
    /// fake-hardware, the interfaces deploy `direct` and inspect `agent`, and no authentication.
    #[arg(long)]
    against: Option<String>,
    /// The process of that server; without it only latencies are measured.
    #[arg(long, requires = "against")]
    against_pid: Option<u32>,
    /// How many agents call the other server home.
    #[arg(long, default_value_t = 128)]
    against_agents: usize,
    /// Leave the nodes on the other server.
    #[arg(long)]
    keep: bool,
}

/// What is measured instead of the API.
#[derive(Subcommand)]
enum Instead {
    /// DHCP, TFTP and HTTP for machines that boot, beside dnsmasq and nginx. Needs root.
    Boot(boot::Options),
    /// Our agent beside ironic-python-agent (size, memory, first heartbeat) and beside `dd` (writing
    /// an image), on virtual machines. Needs root.
    Agent(agent::Options),
    /// Whole deployments on virtual machines, cold and warm, with our agent and with
    /// ironic-python-agent. Needs root.
    Deploy(deploy::Options),
    /// Fleets of simulated machines, each deployed at once by one server.
    Fleet(fleet::Options),
}

/// The options as the phases need them.
pub(crate) struct Settings {
    pub(crate) nodes: usize,
    pub(crate) walkers: usize,
    pub(crate) requests: usize,
    pub(crate) at_most: Duration,
    pub(crate) idle: Duration,
    /// How many agents call at the same instant.
    pub(crate) bursts: [usize; 2],
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.instead {
        Some(Instead::Boot(options)) => return boot::run(options),
        Some(Instead::Agent(options)) => return agent::run(options),
        Some(Instead::Deploy(options)) => return deploy::run(options),
        Some(Instead::Fleet(options)) => return fleet::run(options),
        None => {}
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    say::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;

    let folder = tempfile::Builder::new().prefix("ferrite-bench-").tempdir()?;
    let settings = Settings {
        nodes: options.nodes.max(1),
        walkers: options.walkers,
        requests: options.requests,
        at_most: Duration::from_secs(options.seconds),
        idle: Duration::from_secs(options.idle),
        bursts: [128, 2000],
    };
    say::heading("measuring");
    let began = Instant::now();
    let mut command = Command::new(repository::target(&root).join("release/ferrite"));
    command.args(["serve", "--auth", "none", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.path().join("data"));
    let server = Server::start(&mut command, &folder.path().join("log"))?;
    server.client().send("GET", "/v1", None).context("the server does not answer")?;
    let start = (began.elapsed(), Usage::of(server.pid())?.total());

    let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos();
    let mut targets = vec![Target::new("ferrite", server.address(), Some(server.pid()), run)];
    if let Some(url) = &options.against {
        targets.push(Target::at("other", url, options.against_pid, run)?);
    }
    let mut table = Table::new(targets.iter().map(|target| target.label).collect());
    table.add(0, "start to first answer", Figure::Plain(start.0.as_secs_f64() * 1e3, "ms"));
    table.add(0, "start to first answer, CPU", Figure::Plain(start.1.as_secs_f64() * 1e3, "ms"));

    let agents = [options.agents, options.against_agents];
    let mut benches: Vec<Bench<'_>> = targets
        .iter()
        .zip(agents)
        .enumerate()
        .map(|(column, (target, agents))| Bench {
            target,
            column,
            settings: &settings,
            agents,
            tokens: std::collections::BTreeMap::new(),
        })
        .collect();
    let outcome = measure(&mut benches, &mut table, &interrupt, options.keep);
    say::heading("figures");
    table.print();
    if outcome.is_err() {
        say::problem(&format!("the server's log ends with:\n{}", last_lines(&server.log())));
    }
    outcome
}

fn measure(
    benches: &mut [Bench<'_>],
    table: &mut Table,
    interrupt: &Interrupt,
    keep: bool,
) -> Result<()> {
    type Phase = fn(&mut Bench<'_>, &mut Table) -> Result<()>;
    let phases: [(&str, Phase); 8] = [
        ("idle, empty", |bench, table| bench.idle(table, "without nodes")),
        ("enrol", |bench, table| bench.enrol(table)),
        ("read", |bench, table| bench.read_and_patch(table)),
        ("walk", |bench, table| bench.walk(table)),
        ("agents", |bench, table| bench.call_home(table)),
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
