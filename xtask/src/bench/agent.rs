// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench agent`: our agent beside ironic-python-agent, and beside `dd`.
//!
//! Both agents boot the same kernel on the same virtual machine and call the same server home. They
//! take turns, round by round, so that noise hits both, and the median counts.

mod image_server;
mod machine;
mod sides;
mod site;
mod start;
mod writing;

use std::path::Path;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use super::summary::{Summary, Target};
use crate::interrupt::Interrupt;
use crate::test::kernel::Kernel;
use crate::test::network::Network;
use crate::test::own_agent::{self, OwnAgent};
use crate::test::stock_agent::StockAgent;
use crate::{install, repository, say, shell};
use sides::Sides;
use site::Site;
use start::Start;
use writing::Writing;

/// Where files are in memory.
const IN_MEMORY: &str = "/dev/shm";
const MIB: f64 = 1024.0 * 1024.0;

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// How many times each figure is taken.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only starts (size, memory, first heartbeat) or only writing of images.
    #[arg(long)]
    only: Option<Part>,
    /// How large the written image is, in MiB; at most what half the machine's memory holds.
    #[arg(long, default_value_t = 256)]
    image: u32,
    /// How many processors the machine has that writes images.
    #[arg(long, default_value_t = 2)]
    processors: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Starts,
    Writing,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    Network::check()?;
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    install::python(&interrupt)?;
    install::lab(&interrupt)?;
    install::boot(&interrupt)?;
    say::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
        &interrupt,
    )?;
    own_agent::build(&root, &interrupt)?;
    let ferrite = std::path::absolute(repository::target(&root))?.join("release/ferrite");
    let kernel = Kernel::ensure(&root)?;
    let stock = StockAgent::ensure(&root, &kernel)?;
    let ours = OwnAgent::make(&root, &ferrite, &kernel, &interrupt)?;

    say::heading("measuring");
    let folder = tempfile::Builder::new().prefix("bench-agent-").tempdir_in(IN_MEMORY)?;
    let sides = Sides::make(folder.path(), &kernel, &ours, &stock)?;
    let _network = Network::enter()?;
    let mut site = Site::open(&ferrite, folder.path())?;
    let mut summary = Summary::default();
    let outcome = measure(options, &sides, &mut site, folder.path(), &mut summary, &interrupt);
    say::heading("figures");
    summary.print("ironic-python-agent, or dd");
    outcome
}

fn measure(
    options: &Options,
    sides: &Sides,
    site: &mut Site,
    folder: &Path,
    summary: &mut Summary,
    interrupt: &Interrupt,
) -> Result<()> {
    let goes_on = || if interrupt.is_raised() { bail!("interrupted") } else { Ok(()) };
    if options.only != Some(Part::Writing) {
        for (column, side) in [&sides.ours, &sides.stock].into_iter().enumerate() {
            let size = side.bytes as f64 / MIB;
            summary.add(column, "ramdisk", size, "MiB", Target::AtMostShare(1.0 / 6.0));
        }
        for _ in 0..options.rounds {
            let nothing = start::memory_of_nothing(sides, folder)?;
            for (column, side) in [&sides.ours, &sides.stock].into_iter().enumerate() {
                goes_on()?;
                note(summary, column, &start::measure(side, sides, site, folder)?, nothing);
            }
        }
    }
    if options.only != Some(Part::Starts) {
        let writing = Writing::prepare(folder, options.image, options.processors)?;
        for round in 0..options.rounds {
            goes_on()?;
            writing.round(round, sides, site, folder, summary)?;
        }
    }
    Ok(())
}

fn note(summary: &mut Summary, column: usize, start: &Start, nothing: f64) {
    for (name, figure, unit, target) in [
        ("memory: the whole machine", start.memory, "MiB", Target::None),
        (
            "memory: without what the kernel alone takes",
            start.memory - nothing,
            "MiB",
            Target::AtMostShare(0.1),
        ),
        ("first heartbeat after init", start.from_init, "s", Target::AtMost(3.0)),
        ("first heartbeat after kernel start", start.from_kernel, "s", Target::None),
        ("first heartbeat after power on", start.from_power, "s", Target::None),
    ] {
        summary.add(column, name, figure, unit, target);
    }
}
