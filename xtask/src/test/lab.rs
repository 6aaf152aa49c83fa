// SPDX-License-Identifier: Apache-2.0
//! The lab: virtual machines behind BMCs that nobody here wrote.
//!
//! A private libvirtd runs machines without operating systems in software emulation. In front of
//! them stand sushy-emulator (Redfish, over http and over https with a self-signed certificate),
//! virtualbmc and OpenIPMI's `ipmi_sim` (IPMI). Some machines boot, each from a bridge of its own.
//! Everything is in the [network](super::network) of the run, lives in one temporary folder and ends
//! with us; any number of labs can be up at once.

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
use crate::{random, say};
use emulators::{Bmc, Credentials};
use folder::Folder;
use hardware::Machine;
use machines::{MACHINES, Machines};

/// The lab, up. The order of the fields is the order in which things end.
pub(crate) struct Lab {
    _emulators: Vec<Process>,
    _machines: Machines,
    /// What the tests read.
    inventory: PathBuf,
    _folder: Folder,
}

impl Lab {
    /// Starts everything; `environment` is where the emulators are installed. Once in a network.
    ///
    /// Must be called from a thread that lives as long as the lab shall, see
    /// [`tied_to_us`](super::process::tied_to_us).
    pub(crate) fn start(environment: &Path) -> Result<Self> {
        bridges::make(MACHINES.iter().filter_map(Machine::bridge))?;
        // A port that was free a moment ago may be taken by the time it is bound.
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::try_start(environment) {
                Err(error) if attempts > 0 => say::line(&format!("{error:#}; trying again")),
                outcome => return outcome.context("cannot start the lab"),
            }
        }
    }

    /// The variable that points the tests at the lab.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        ("FERRITE_TEST_LAB", &self.inventory)
    }

    fn try_start(environment: &Path) -> Result<Self> {
        let began = Instant::now();
        let folder = Folder::make()?;
        let machines = Machines::start(&folder)?;
        let machines_took = began.elapsed();
        let credentials =
            Credentials { username: "operator".to_owned(), password: random::password()? };
        let bmcs = emulators::start(&folder, &machines, environment, &credentials)?;
        let inventory = folder.path().join("lab.json");
        let (processes, described): (Vec<_>, Vec<_>) = bmcs
            .into_iter()
            .map(|Bmc { name, process, address }| (process, (name, address)))
            .unzip();
        fs::write(
            &inventory,
            json!({
                "libvirt_uri": machines.uri(),
                "username": credentials.username,
                "password": credentials.password,
                "bmcs": described.into_iter().collect::<serde_json::Map<_, _>>(),
                "machines": MACHINES.iter().map(|machine| {
                    (machine.name.to_owned(), machine.described(folder.path()))
                }).collect::<serde_json::Map<_, _>>(),
            })
            .to_string(),
        )
        .context("cannot write the inventory of the lab")?;
        say::line(&format!(
            "lab of {} machines and {} BMCs, started in {:.1} s (machines {:.1} s)",
            MACHINES.len(),
            processes.len(),
            began.elapsed().as_secs_f64(),
            machines_took.as_secs_f64()
        ));
        Ok(Self { _emulators: processes, _machines: machines, inventory, _folder: folder })
    }
}

/// Puts values into one of the files under `xtask/lab/`, where their names stand between `@`.
fn filled_in(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}
