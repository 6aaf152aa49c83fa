// SPDX-License-Identifier: Apache-2.0
//! The lab: virtual machines behind third-party BMC emulators.
//!
//! A private libvirtd runs the machines in software emulation. Their BMCs are sushy-emulator
//! (Redfish, over HTTP and over HTTPS with a self-signed certificate), virtualbmc and OpenIPMI's
//! `ipmi_sim` (IPMI). Each booting machine has its own bridge. The lab uses the
//! [isolated network](super::isolated_network) of the run and one temporary folder, and stops with
//! xtask. Several labs can run at once.

mod bridges;
mod disks;
mod emulators;
mod folder;
mod hardware;
mod machines;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use super::process::Process;
use crate::{print, random};
use emulators::{EmulatedBmc, LabCredentials};
use folder::LabFolder;
use hardware::LabMachine;
use machines::{LabMachines, MACHINES};

/// A running lab. Fields are dropped in this order.
pub(crate) struct Lab {
    _emulators: Vec<Process>,
    _machines: LabMachines,
    /// A JSON file that the tests read.
    inventory: PathBuf,
    _folder: LabFolder,
}

impl Lab {
    /// Starts machines and emulators; `environment` is the Python environment of the emulators. At
    /// most once per network namespace.
    ///
    /// The calling thread must outlive the lab, see
    /// [`with_death_signal`](super::process::with_death_signal).
    pub(crate) fn start(environment: &Path) -> Result<Self> {
        bridges::create_all(MACHINES.iter().filter_map(LabMachine::bridge))?;
        // A free port may be taken before the server binds it.
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::try_start(environment) {
                Err(error) if attempts > 0 => print::line(&format!("{error:#}; retrying")),
                outcome => return outcome.context("cannot start the lab"),
            }
        }
    }

    /// The variable that points the tests at the lab.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        ("FERRITE_TEST_LAB", &self.inventory)
    }

    fn try_start(environment: &Path) -> Result<Self> {
        let started = Instant::now();
        let folder = LabFolder::make()?;
        let machines = LabMachines::start(&folder)?;
        let machines_took = started.elapsed();
        let credentials =
            LabCredentials { username: "operator".to_owned(), password: random::password()? };
        let bmcs = emulators::start(&folder, &machines, environment, &credentials)?;
        let inventory = folder.path().join("lab.json");
        let (processes, described): (Vec<_>, Vec<_>) = bmcs
            .into_iter()
            .map(|EmulatedBmc { name, process, address }| (process, (name, address)))
            .unzip();
        fs::write(
            &inventory,
            json!({
                "libvirt_uri": machines.uri(),
                "username": credentials.username,
                "password": credentials.password,
                "bmcs": described.into_iter().collect::<serde_json::Map<_, _>>(),
                "machines": MACHINES.iter().map(|machine| {
                    (machine.name.to_owned(), machine.inventory_entry(folder.path()))
                }).collect::<serde_json::Map<_, _>>(),
            })
            .to_string(),
        )
        .context("cannot write the inventory of the lab")?;
        print::line(&format!(
            "lab of {} machines and {} BMCs, started in {:.1} s (machines {:.1} s)",
            MACHINES.len(),
            processes.len(),
            started.elapsed().as_secs_f64(),
            machines_took.as_secs_f64()
        ));
        Ok(Self { _emulators: processes, _machines: machines, inventory, _folder: folder })
    }
}

/// Replaces `@name@` in a file of `xtask/lab/` by its value.
fn fill_template(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}
