// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench boot`: compares our boot services with dnsmasq and nginx.
//!
//! Each peer has a namespace with its servers, one with the machines, and a veth pair between them. The
//! peers alternate, load by load and round by round, so that noise affects both, and the median counts.
//! Processor time is that of the servers alone.

mod boot_load;
mod network;
mod peers;
mod summary;

use anyhow::{Result, bail};
use clap::Args;

use crate::interrupt::Interrupt;
use crate::{install, print, repository, shell};
use boot_load::BootLoad;
use peers::BootPeer;
use summary::BootSummary;

/// Options of `cargo xtask bench boot`.
#[derive(Args)]
pub(crate) struct BootBenchOptions {
    /// Number of machines that get a DHCP lease.
    #[arg(long, default_value_t = 2000)]
    machines: u32,
    /// Number of machines that boot at once.
    #[arg(long, default_value_t = 640)]
    storm: u32,
    /// Number of measurements of each figure.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only loads whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &BootBenchOptions) -> Result<()> {
    if !install::is_root() {
        bail!("only root can create network namespaces: run it with sudo");
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    install::boot_peers(&interrupt)?;
    print::heading("building");
    shell::run(
        shell::cargo(&root).args(["build", "--release", "--package", "boot-bench"]),
        &interrupt,
    )?;
    let program = repository::target(&root).join("release/boot-bench");

    print::heading("measuring");
    // Not in memory: writing leases to disk is part of the figure.
    let folder =
        tempfile::Builder::new().prefix("bench-boot-").tempdir_in(repository::target(&root))?;
    peers::write_files(folder.path())?;
    let mut sides =
        [BootPeer::ferrite(&program, folder.path())?, BootPeer::dnsmasq_and_nginx(folder.path())?];
    let contests: Vec<BootLoad> = boot_load::all(options.machines, options.storm)
        .into_iter()
        .filter(|contest| options.only.as_ref().is_none_or(|only| contest.name.contains(only)))
        .collect();
    let mut summary = BootSummary::new(&contests);
    let mut outcome = Ok(());
    'measuring: for round in 0..options.rounds {
        for contest in &contests {
            for (column, side) in sides.iter_mut().enumerate() {
                match side.run_load(&program, contest, round) {
                    Ok(sample) => summary.add(contest, column, &sample),
                    Err(error) => {
                        print::problem(&format!("[{}] {}: {error:#}", side.label, contest.name))
                    }
                }
                if interrupt.is_raised() {
                    outcome = Err(anyhow::anyhow!("interrupted"));
                    break 'measuring;
                }
            }
        }
    }
    print::heading("figures");
    summary.print();
    outcome
}
