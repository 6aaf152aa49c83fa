// SPDX-License-Identifier: Apache-2.0
//! Everything that is installed, downloaded or built before the lab starts, and the variables that
//! point the tests at it.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Result, bail};

use super::agent_ramdisk::{AgentBuild, AgentRamdisk};
use super::image::TestDiskImage;
use super::kernel::DebianKernel;
use super::lab::Lab;
use super::metal3_crds;
use super::oidc_provider;
use super::python::{self, CLIENTS, EMULATORS, KEYSTONE, STOCK_IRONIC};
use super::ramdisk::BOOTED;
use super::stock_agent::StockAgent;
use super::web_ui;
use crate::install;
use crate::interrupt::Interrupt;

/// Installs packages and downloads in a thread, beside the compiler.
pub(crate) struct BackgroundSetup(thread::JoinHandle<Result<SetupResult>>);

/// What the thread made. Nothing here needs our own programs.
pub(crate) struct SetupResult {
    clients: PathBuf,
    emulators: PathBuf,
    stock_ironic: PathBuf,
    keystone: PathBuf,
    oidc_provider: PathBuf,
    metal3_crds: PathBuf,
    kernel: DebianKernel,
    stock_agent: StockAgent,
    ramdisk: PathBuf,
    image: TestDiskImage,
}

impl BackgroundSetup {
    /// Returns at once.
    pub(crate) fn start(root: &Path, interrupt: &Interrupt) -> Self {
        let root = root.to_owned();
        let interrupt = interrupt.clone();
        Self(thread::spawn(move || {
            install::all_for_tests(&interrupt)?;
            web_ui::install(&root)?;
            let kernel = DebianKernel::ensure(&root)?;
            Ok(SetupResult {
                clients: python::ensure(&root, &CLIENTS)?,
                emulators: python::ensure(&root, &EMULATORS)?,
                stock_ironic: python::ensure(&root, &STOCK_IRONIC)?,
                keystone: python::ensure(&root, &KEYSTONE)?,
                oidc_provider: oidc_provider::ensure(&root)?,
                metal3_crds: metal3_crds::ensure(&root)?,
                stock_agent: StockAgent::ensure(&root, &kernel)?,
                ramdisk: BOOTED.make(&root, &kernel)?,
                image: TestDiskImage::make(&root, &kernel)?,
                kernel,
            })
        }))
    }

    /// Waits for the thread. Fails on an interrupt, or if an installation or download failed.
    pub(crate) fn wait(self, interrupt: &Interrupt) -> Result<SetupResult> {
        match self.0.join() {
            _ if interrupt.is_raised() => bail!("interrupted"),
            Ok(result) => result,
            Err(_) => bail!("the setup thread panicked"),
        }
    }
}

/// The setup and the ramdisk with our agent.
pub(crate) struct LabInputs {
    setup: SetupResult,
    agent: AgentRamdisk,
}

impl LabInputs {
    /// Makes the ramdisk of the tests with the program `ferrite`.
    pub(crate) fn prepare(
        root: &Path,
        ferrite: &Path,
        setup: SetupResult,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        Self::with_agent(root, AgentBuild::ForTests, ferrite, setup, interrupt)
    }

    /// Makes the ramdisk from a given build of the agent.
    pub(crate) fn with_agent(
        root: &Path,
        build: AgentBuild,
        ferrite: &Path,
        setup: SetupResult,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let agent = AgentRamdisk::ensure(root, build, ferrite, &setup.kernel, interrupt)?;
        Ok(Self { setup, agent })
    }
}

/// The running lab and its inputs.
pub(crate) struct RunningLab {
    lab: Lab,
    inputs: LabInputs,
}

impl RunningLab {
    pub(crate) fn start(inputs: LabInputs) -> Result<Self> {
        Ok(Self { lab: Lab::start(&inputs.setup.emulators)?, inputs })
    }

    /// The variables that point the tests at the lab and its images.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &Path)> {
        let LabInputs { setup, agent } = &self.inputs;
        let SetupResult { clients, kernel, stock_agent, stock_ironic, ramdisk, image, .. } = setup;
        let SetupResult { keystone, oidc_provider, metal3_crds, .. } = setup;
        vec![
            self.lab.variable(),
            ("FERRITE_TEST_CLIENTS", clients),
            ("FERRITE_TEST_STOCK_IRONIC", stock_ironic),
            ("FERRITE_TEST_KEYSTONE", keystone),
            ("FERRITE_TEST_OIDC_PROVIDER", oidc_provider),
            ("METAL3_CRDS", metal3_crds),
            ("FERRITE_TEST_KERNEL", &kernel.path),
            ("FERRITE_TEST_RAMDISK", ramdisk),
            // SHA256SUMS is in the same folder.
            ("FERRITE_TEST_IMAGE", &image.raw),
            ("FERRITE_TEST_IMAGE_QCOW2", &image.qcow2),
            ("FERRITE_TEST_AGENT_KERNEL", &agent.kernel),
            ("FERRITE_TEST_AGENT_RAMDISK", &agent.ramdisk),
            ("FERRITE_TEST_IPA_KERNEL", &kernel.path),
            ("FERRITE_TEST_IPA_RAMDISK", &stock_agent.ramdisk),
        ]
    }
}
