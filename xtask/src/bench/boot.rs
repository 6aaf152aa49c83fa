// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench boot`: our boot services beside dnsmasq and nginx, on this machine.
//!
//! Each side has a network of its own: a namespace with the servers, one with the machines, and a
//! cable between. The sides take turns, load by load and round by round, so that noise hits both, and
//! the median counts. Processor time is that of the servers alone.

mod contest;
mod network;
mod sides;
mod summary;

use anyhow::{Result, bail};
use clap::Args;

use crate::interrupt::Interrupt;
use crate::{install, repository, say, shell};
use contest::Contest;
use sides::Side;
use summary::Summary;

/// How much is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// How many machines get a lease.
    #[arg(long, default_value_t = 2000)]
    machines: u32,
    /// How many machines boot at the same moment.
    #[arg(long, default_value_t = 640)]
    storm: u32,
    /// How many times each figure is taken.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only loads whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !install::is_root() {
        bail!("only root can make network namespaces: run it with sudo");
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    install::boot_peers(&interrupt)?;
    say::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "boot-bench"]),
        &interrupt,
    )?;
    let program = repository::target(&root).join("release/boot-bench");

    say::heading("measuring");
    // Not in memory: what leases cost on a disk is part of the figure.
    let folder =
        tempfile::Builder::new().prefix("bench-boot-").tempdir_in(repository::target(&root))?;
    sides::write_files(folder.path())?;
    let mut sides =
        [Side::ferrite(&program, folder.path())?, Side::dnsmasq_and_nginx(folder.path())?];
    let contests: Vec<Contest> = contest::all(options.machines, options.storm)
        .into_iter()
        .filter(|contest| options.only.as_ref().is_none_or(|only| contest.name.contains(only)))
        .collect();
    let mut summary = Summary::new(&contests);
    let mut outcome = Ok(());
    'measuring: for round in 0..options.rounds {
        for contest in &contests {
            for (column, side) in sides.iter_mut().enumerate() {
                match side.play(&program, contest, round) {
                    Ok(sample) => summary.add(contest, column, &sample),
                    Err(error) => {
                        say::problem(&format!("[{}] {}: {error:#}", side.label, contest.name))
                    }
                }
                if interrupt.is_raised() {
                    outcome = Err(anyhow::anyhow!("interrupted"));
                    break 'measuring;
                }
            }
        }
    }
    say::heading("figures");
    summary.print();
    outcome
}
