// SPDX-License-Identifier: Apache-2.0
//! What is measured: our ramdisk, the stock one, and the kernel without either.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::test::archive::Archive;
use crate::test::kernel::Kernel;
use crate::test::own_agent::OwnAgent;
use crate::test::stock_agent::StockAgent;

const INIT: &str = include_str!("init.sh");
const BUSYBOX: &str = "/bin/busybox";

/// The ramdisks that are measured, each with the benchmark's first program before it.
pub(crate) struct Sides {
    pub(crate) kernel: PathBuf,
    pub(crate) ours: Side,
    pub(crate) stock: Side,
    /// The benchmark's first program and nothing else: what kernel and measuring take themselves.
    pub(crate) nothing: PathBuf,
}

/// A ramdisk with an agent.
pub(crate) struct Side {
    /// As it is booted here.
    pub(crate) booted: PathBuf,
    /// How large it is without what the benchmark adds.
    pub(crate) bytes: u64,
}

impl Sides {
    /// Writes them into `folder`.
    pub(crate) fn make(
        folder: &Path,
        kernel: &Kernel,
        ours: &OwnAgent,
        stock: &StockAgent,
    ) -> Result<Self> {
        let added = first_program()?;
        let nothing = folder.join("nothing");
        fs::write(&nothing, &added)?;
        let side = |name, ramdisk: &Path| -> Result<Side> {
            let content =
                fs::read(ramdisk).with_context(|| format!("cannot read {}", ramdisk.display()))?;
            let booted = folder.join(name);
            // The kernel unpacks one archive after the other.
            fs::write(&booted, [added.as_slice(), &content].concat())?;
            Ok(Side { booted, bytes: content.len() as u64 })
        };
        Ok(Self {
            kernel: kernel.path.clone(),
            ours: side("ours", &ours.ramdisk)?,
            stock: side("stock", &stock.ramdisk)?,
            nothing,
        })
    }
}

fn first_program() -> Result<Vec<u8>> {
    let mut archive = Archive::new(Vec::new());
    for folder in ["bench", "bench/dev", "bench/proc", "dev"] {
        archive.folder(folder)?;
    }
    archive.program("bench/init", INIT.as_bytes())?;
    let busybox = fs::read(BUSYBOX).with_context(|| format!("cannot read {BUSYBOX}"))?;
    archive.program("bench/busybox", &busybox)?;
    Ok(archive.finish()?)
}
