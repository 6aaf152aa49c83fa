// SPDX-License-Identifier: Apache-2.0
//! Compares how fast our agent and `dd` write an image, on the same machine, from the same server to
//! the same disk.
//!
//! Disk and image are in the memory of the host. In one case the disk is as slow, relative to the
//! emulated processor, as a real disk; in the other it is unlimited, which shows the processor time
//! and is the worst case for a program that does more than `dd`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::image_server;
use super::machine::{BenchMachine, BenchMachineDisk, BenchMachinePlan, ElapsedTime};
use super::ramdisks::MeasuredRamdisks;
use super::site::{ADDRESS, BenchSite, EnrolledMachine, PARAMETERS};
use crate::bench::summary::{FigureTarget, RoundsSummary};
use crate::shell;

const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
/// Agents ignore smaller disks.
const DISK_BYTES: u64 = 6 << 30;
const DD: &str = "/bench/busybox dd of=/dev/sda bs=1M iflag=fullblock oflag=direct conv=fsync";

/// The image, the disk and the machine.
pub(crate) struct ImageWriteBench {
    image: PathBuf,
    disk: PathBuf,
    url: String,
    checksum: String,
    mebibytes: u32,
    processors: u32,
}

/// In MiB/s. Checksums take 25 times as long in emulation, so this corresponds to a real disk of
/// 500 MiB/s.
const SLOW_DISK: u32 = 20;
const SLOW_DISK_ROW: &str =
    "image written, beside dd: same HTTP source, no checksum, a disk of 20 MiB/s";

/// A command that writes the image without an agent, and its name in the table.
struct WriteCommand {
    name: &'static str,
    /// Commands that take minutes run only in the first round.
    every_round: bool,
    command: fn(&str) -> String,
}

const WRITE_COMMANDS: &[WriteCommand] = &[
    WriteCommand {
        name: "image written, beside dd: same HTTP source, no checksum",
        every_round: true,
        command: |url| format!("/bench/busybox wget -q -O - {url} | {DD}"),
    },
    WriteCommand {
        name: "image written, beside dd and sha256sum: same HTTP source",
        every_round: false,
        command: |url| {
            format!(
                "/bench/busybox mkfifo /bench/pipe; {DD} if=/bench/pipe & \
                 /bench/busybox wget -q -O - {url} | /bench/busybox tee /bench/pipe | \
                 /bench/busybox sha256sum; wait $!; /bench/busybox rm /bench/pipe"
            )
        },
    },
    WriteCommand {
        name: "image written, beside dd: from memory, no checksum",
        every_round: true,
        command: |_| format!("{DD} if=/bench/image"),
    },
];

impl ImageWriteBench {
    /// Creates image and disk in `folder`, which should be in memory.
    pub(crate) fn prepare(folder: &Path, mebibytes: u32, processors: u32) -> Result<Self> {
        let image = folder.join("image");
        // Random data can be neither skipped nor compressed.
        let bytes = u64::from(mebibytes) << 20;
        let mut random = File::open("/dev/urandom")?.take(bytes);
        io::copy(&mut random, &mut File::create(&image)?)?;
        let sums = shell::output_of(Command::new("sha256sum").arg(&image))?;
        let checksum = sums.split_whitespace().next().context("no checksum")?.to_owned();
        let disk = folder.join("disk");
        // Already allocated, so that the first write does not wait for memory of the host.
        fs::copy(&image, &disk)?;
        File::options().write(true).open(&disk)?.set_len(DISK_BYTES)?;
        let url = image_server::serve(ADDRESS, &image)?;
        Ok(Self { image, disk, url, checksum, mebibytes, processors })
    }

    /// One round on a freshly booted machine. The order alternates.
    pub(crate) fn round(
        &self,
        round: u32,
        sides: &MeasuredRamdisks,
        site: &mut BenchSite,
        folder: &Path,
        summary: &mut RoundsSummary,
    ) -> Result<()> {
        self.write_to_slow_disk(sides, site, folder, summary)?;
        let (node, mut machine) = self.start(None, sides, site, folder)?;
        let mut ways: Vec<&WriteCommand> =
            WRITE_COMMANDS.iter().filter(|command| command.every_round || round == 0).collect();
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            if (way.command)("").contains("/bench/image") {
                let fetch = format!("/bench/busybox wget -q -O /bench/image {}", self.url);
                machine.run_command(&fetch, "", WRITE_TIMEOUT)?;
            }
            self.clear_disk()?;
            let (took, _) = machine.run_command(&(way.command)(&self.url), "", WRITE_TIMEOUT)?;
            self.check_disk().context(way.name)?;
            machine.run_command("/bench/busybox rm -f /bench/image", "", WRITE_TIMEOUT)?;
            self.add_figures(summary, 1, way.name, FigureTarget::None, took);
        }
        let took = self.write_with_agent(&node, site, &mut machine)?;
        for way in WRITE_COMMANDS {
            self.add_figures(summary, 0, way.name, FigureTarget::None, took);
        }
        Ok(())
    }

    fn write_to_slow_disk(
        &self,
        sides: &MeasuredRamdisks,
        site: &mut BenchSite,
        folder: &Path,
        summary: &mut RoundsSummary,
    ) -> Result<()> {
        let (node, mut machine) = self.start(Some(SLOW_DISK), sides, site, folder)?;
        let command = format!("/bench/busybox wget -q -O - {} | {DD}", self.url);
        self.clear_disk()?;
        let (took, _) = machine.run_command(&command, "", WRITE_TIMEOUT)?;
        self.check_disk().context(SLOW_DISK_ROW)?;
        let target = FigureTarget::AtLeastShare(0.9);
        self.add_figures(summary, 1, SLOW_DISK_ROW, target, took);
        let took = self.write_with_agent(&node, site, &mut machine)?;
        self.add_figures(summary, 0, SLOW_DISK_ROW, target, took);
        Ok(())
    }

    /// Starts a machine with our agent and the disk.
    fn start(
        &self,
        speed: Option<u32>,
        sides: &MeasuredRamdisks,
        site: &mut BenchSite,
        folder: &Path,
    ) -> Result<(EnrolledMachine, BenchMachine)> {
        let node = site.enrol()?;
        let plan = BenchMachinePlan {
            kernel: &sides.kernel,
            ramdisk: &sides.ours.booted,
            mac: &node.mac,
            processors: self.processors,
            memory: 2048,
            disk: Some(BenchMachineDisk { file: &self.disk, speed }),
            parameters: PARAMETERS,
        };
        let mut machine = BenchMachine::start(&plan, folder)?;
        site.first_heartbeat(&node, WRITE_TIMEOUT)?;
        // The first heartbeat may precede the disk, and `dd` would create a file of that name.
        let wait_for_disk = "until [ -b /dev/sda ]; do /bench/busybox sleep 0.1; done";
        machine.run_command(wait_for_disk, "", WRITE_TIMEOUT)?;
        Ok((node, machine))
    }

    fn add_figures(
        &self,
        summary: &mut RoundsSummary,
        column: usize,
        name: &str,
        target: FigureTarget,
        took: ElapsedTime,
    ) {
        let rate = f64::from(self.mebibytes) / took.wall.as_secs_f64();
        summary.add(column, name, rate, "MiB/s", target);
        let cost = took.cpu.as_secs_f64() * 1024.0 / f64::from(self.mebibytes);
        let name = format!("{name}; processor time");
        summary.add(column, &name, cost, "s per GiB", FigureTarget::None);
    }

    /// Overwrites the image with zeros and keeps the memory allocated.
    fn clear_disk(&self) -> Result<()> {
        let mut disk = File::options().write(true).open(&self.disk)?;
        io::copy(&mut io::repeat(0).take(self.bytes()), &mut disk)?;
        Ok(())
    }

    /// Fails if the image is not on the disk.
    fn check_disk(&self) -> Result<()> {
        let mut compare = Command::new("cmp");
        compare.args(["--bytes", &self.bytes().to_string()]).args([&self.image, &self.disk]);
        shell::output_of(&mut compare).context("the image is not on the disk")?;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        u64::from(self.mebibytes) << 20
    }

    /// Deploys, and measures the time between two log lines of the agent.
    fn write_with_agent(
        &self,
        node: &EnrolledMachine,
        site: &mut BenchSite,
        machine: &mut BenchMachine,
    ) -> Result<ElapsedTime> {
        self.clear_disk()?;
        let operator = &mut site.operator;
        let instance = json!({"image_source": self.url, "image_checksum": self.checksum});
        operator.set(&node.uuid, "/instance_info", instance)?;
        operator.provision(&node.uuid, "active")?;
        let took = machine
            .measure_between("image write started", "image written", WRITE_TIMEOUT)
            .with_context(|| format!("not written; the server:\n{}", operator.log()))?;
        self.check_disk().context("our agent")?;
        Ok(took)
    }
}
