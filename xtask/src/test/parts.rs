// SPDX-License-Identifier: Apache-2.0
//! What is downloaded, installed or made before the lab starts, and the variables that tell the tests
//! where it is.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Result, bail};

use super::image::Image;
use super::kernel::Kernel;
use super::lab::Lab;
use super::own_agent::OwnAgent;
use super::python::{self, CLIENTS, EMULATORS, STOCK_IRONIC};
use super::ramdisk::BOOTED;
use super::stock_agent::StockAgent;
use crate::install;
use crate::interrupt::Interrupt;

/// What is being downloaded beside the compiler's work.
pub(crate) struct Downloads(thread::JoinHandle<Result<Downloaded>>);

/// Where it is.
struct Downloaded {
    clients: PathBuf,
    emulators: PathBuf,
    stock_ironic: PathBuf,
    kernel: Kernel,
    stock_agent: StockAgent,
}

impl Downloads {
    /// Installs what Debian has, and then goes on in the background: two that install at once would
    /// be in each other's way.
    pub(crate) fn begin(root: &Path, interrupt: &Interrupt) -> Result<Self> {
        install::python(interrupt)?;
        install::lab(interrupt)?;
        install::boot(interrupt)?;
        let root = root.to_owned();
        Ok(Self(thread::spawn(move || {
            let kernel = Kernel::ensure(&root)?;
            Ok(Downloaded {
                clients: python::ensure(&root, &CLIENTS)?,
                emulators: python::ensure(&root, &EMULATORS)?,
                stock_ironic: python::ensure(&root, &STOCK_IRONIC)?,
                stock_agent: StockAgent::ensure(&root, &kernel)?,
                kernel,
            })
        })))
    }

    fn wait(self) -> Result<Downloaded> {
        match self.0.join() {
            Ok(downloaded) => downloaded,
            Err(_) => bail!("the thread that downloads panicked"),
        }
    }
}

/// All of it.
pub(crate) struct LabParts {
    downloaded: Downloaded,
    ramdisk: PathBuf,
    image: Image,
    own_agent: OwnAgent,
}

impl LabParts {
    /// Waits for the downloads and makes the rest, which cargo is needed for: never beside a build.
    /// `ferrite` makes our ramdisk.
    pub(crate) fn prepare(
        root: &Path,
        ferrite: &Path,
        downloads: Downloads,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let downloaded = downloads.wait()?;
        let ramdisk = BOOTED.make(root, &downloaded.kernel)?;
        let image = Image::make(root, &downloaded.kernel)?;
        let own_agent = OwnAgent::make(root, ferrite, &downloaded.kernel, interrupt)?;
        Ok(Self { downloaded, ramdisk, image, own_agent })
    }
}

/// The lab, up, and what its tests need besides.
pub(crate) struct LabAndParts {
    lab: Lab,
    parts: LabParts,
}

impl LabAndParts {
    pub(crate) fn start(parts: LabParts) -> Result<Self> {
        Ok(Self { lab: Lab::start(&parts.downloaded.emulators)?, parts })
    }

    /// The variables that point the tests at all this.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &Path)> {
        let LabParts { downloaded, ramdisk, image, own_agent } = &self.parts;
        let Downloaded { clients, kernel, stock_agent, stock_ironic, .. } = downloaded;
        vec![
            self.lab.variable(),
            ("FERRITE_TEST_CLIENTS", clients),
            ("FERRITE_TEST_STOCK_IRONIC", stock_ironic),
            ("FERRITE_TEST_KERNEL", &kernel.path),
            ("FERRITE_TEST_RAMDISK", ramdisk),
            // A file SHA256SUMS is beside them.
            ("FERRITE_TEST_IMAGE", &image.raw),
            ("FERRITE_TEST_IMAGE_QCOW2", &image.qcow2),
            ("FERRITE_TEST_AGENT_KERNEL", &own_agent.kernel),
            ("FERRITE_TEST_AGENT_RAMDISK", &own_agent.ramdisk),
            ("FERRITE_TEST_IPA_KERNEL", &kernel.path),
            ("FERRITE_TEST_IPA_RAMDISK", &stock_agent.ramdisk),
        ]
    }
}
