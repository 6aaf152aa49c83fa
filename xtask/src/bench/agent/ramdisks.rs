// SPDX-License-Identifier: Apache-2.0
//! The measured ramdisks: ours, the stock one, and one without an agent.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::test::agent_ramdisk::AgentRamdisk;
use crate::test::archive::CpioWriter;
use crate::test::kernel::DebianKernel;
use crate::test::stock_agent::StockAgent;

const INIT: &str = include_str!("init.sh");
const BUSYBOX: &str = "/bin/busybox";

/// The measured ramdisks, each preceded by the init program of the benchmark.
pub(crate) struct MeasuredRamdisks {
    pub(crate) kernel: PathBuf,
    pub(crate) ours: MeasuredRamdisk,
    pub(crate) stock: MeasuredRamdisk,
    /// Only the init program of the benchmark.
    pub(crate) without_agent: PathBuf,
}

/// A ramdisk with an agent.
pub(crate) struct MeasuredRamdisk {
    /// With the files of the benchmark.
    pub(crate) booted: PathBuf,
    /// The size without the files of the benchmark.
    pub(crate) bytes: u64,
}

impl MeasuredRamdisks {
    /// Writes the ramdisks into `folder`.
    pub(crate) fn make(
        folder: &Path,
        kernel: &DebianKernel,
        ours: &AgentRamdisk,
        stock: &StockAgent,
    ) -> Result<Self> {
        let added = first_program()?;
        let nothing = folder.join("nothing");
        fs::write(&nothing, &added)?;
        let side = |name, ramdisk: &Path| -> Result<MeasuredRamdisk> {
            let content =
                fs::read(ramdisk).with_context(|| format!("cannot read {}", ramdisk.display()))?;
            let booted = folder.join(name);
            // The kernel unpacks concatenated archives.
            fs::write(&booted, [added.as_slice(), &content].concat())?;
            Ok(MeasuredRamdisk { booted, bytes: content.len() as u64 })
        };
        Ok(Self {
            kernel: kernel.path.clone(),
            ours: side("ours", &ours.ramdisk)?,
            stock: side("stock", &stock.ramdisk)?,
            without_agent: nothing,
        })
    }
}

fn first_program() -> Result<Vec<u8>> {
    let mut archive = CpioWriter::new(Vec::new());
    for folder in ["bench", "bench/dev", "bench/proc", "dev"] {
        archive.folder(folder)?;
    }
    archive.program("bench/init", INIT.as_bytes())?;
    let busybox = fs::read(BUSYBOX).with_context(|| format!("cannot read {BUSYBOX}"))?;
    archive.program("bench/busybox", &busybox)?;
    Ok(archive.finish()?)
}
