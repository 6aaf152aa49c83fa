// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench agent`: compares our agent with ironic-python-agent and with `dd`.
//!
//! Both agents boot the same kernel on the same virtual machine and use the same server. They
//! alternate, so that load affects both, and the median counts.

mod image_server;
mod image_writing;
mod machine;
mod ramdisks;
mod site;
mod start;

use std::path::Path;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use super::summary::{FigureTarget, RoundsSummary};
use crate::interrupt::Interrupt;
use crate::test::agent_ramdisk::{self, AgentBuild, AgentRamdisk};
use crate::test::isolated_network::IsolatedNetwork;
use crate::test::kernel::DebianKernel;
use crate::test::stock_agent::StockAgent;
use crate::{install, print, repository, shell};
use image_writing::ImageWriteBench;
use ramdisks::MeasuredRamdisks;
use site::BenchSite;
use start::AgentStart;

/// A file system in memory.
const IN_MEMORY: &str = "/dev/shm";
const MIB: f64 = 1024.0 * 1024.0;

/// Options of `cargo xtask bench agent`.
#[derive(Args)]
pub(crate) struct AgentBenchOptions {
    /// Number of measurements of each figure.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only starts (size, memory, first heartbeat) or only writing of images.
    #[arg(long)]
    only: Option<AgentBenchPart>,
    /// Size of the image in MiB; at most half of the memory of the machine.
    #[arg(long, default_value_t = 256)]
    image: u32,
    /// Processors of the machine that writes images.
    #[arg(long, default_value_t = 2)]
    processors: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AgentBenchPart {
    Starts,
    Writing,
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &AgentBenchOptions) -> Result<()> {
    IsolatedNetwork::check_permission()?;
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    install::lab_and_boot(&interrupt)?;
    print::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;
    agent_ramdisk::build(&root, AgentBuild::Shipped, &interrupt)?;
    let ferrite = std::path::absolute(repository::target(&root))?.join("release/ferrite");
    let kernel = DebianKernel::ensure(&root)?;
    let stock = StockAgent::ensure(&root, &kernel)?;
    let ours = AgentRamdisk::ensure(&root, AgentBuild::Shipped, &ferrite, &kernel, &interrupt)?;

    print::heading("measuring");
    let folder = tempfile::Builder::new().prefix("bench-agent-").tempdir_in(IN_MEMORY)?;
    let sides = MeasuredRamdisks::make(folder.path(), &kernel, &ours, &stock)?;
    let _network = IsolatedNetwork::enter()?;
    let mut site = BenchSite::open(&ferrite, folder.path())?;
    let mut summary = RoundsSummary::default();
    let outcome = measure(options, &sides, &mut site, folder.path(), &mut summary, &interrupt);
    print::heading("figures");
    summary.print("our agent", "ironic-python-agent, or dd");
    outcome
}

fn measure(
    options: &AgentBenchOptions,
    sides: &MeasuredRamdisks,
    site: &mut BenchSite,
    folder: &Path,
    summary: &mut RoundsSummary,
    interrupt: &Interrupt,
) -> Result<()> {
    let check_interrupt = || if interrupt.is_raised() { bail!("interrupted") } else { Ok(()) };
    if options.only != Some(AgentBenchPart::Writing) {
        for (column, side) in [&sides.ours, &sides.stock].into_iter().enumerate() {
            let size = side.bytes as f64 / MIB;
            summary.add(column, "ramdisk", size, "MiB", FigureTarget::AtMostShare(1.0 / 6.0));
        }
        for _ in 0..options.rounds {
            let nothing = start::memory_without_agent(sides, folder)?;
            for (column, side) in [&sides.ours, &sides.stock].into_iter().enumerate() {
                check_interrupt()?;
                add_start(summary, column, &start::measure(side, sides, site, folder)?, nothing);
            }
        }
    }
    if options.only != Some(AgentBenchPart::Starts) {
        let writing = ImageWriteBench::prepare(folder, options.image, options.processors)?;
        for round in 0..options.rounds {
            check_interrupt()?;
            writing.round(round, sides, site, folder, summary)?;
        }
    }
    Ok(())
}

fn add_start(summary: &mut RoundsSummary, column: usize, start: &AgentStart, nothing: f64) {
    for (name, figure, unit, target) in [
        ("memory: the whole machine", start.memory, "MiB", FigureTarget::None),
        (
            "memory: without the kernel",
            start.memory - nothing,
            "MiB",
            FigureTarget::AtMostShare(0.1),
        ),
        ("first heartbeat after init", start.from_init, "s", FigureTarget::AtMost(3.0)),
        ("first heartbeat after kernel start", start.from_kernel, "s", FigureTarget::None),
        ("first heartbeat after power on", start.from_power, "s", FigureTarget::None),
    ] {
        summary.add(column, name, figure, unit, target);
    }
}
