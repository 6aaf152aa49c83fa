// SPDX-License-Identifier: Apache-2.0
//! How fast our agent writes an image, beside `dd` on the same machine, from the same server, to the
//! same disk.
//!
//! Disk and image are in the host's memory. Once the disk takes no more than a disk would beside an
//! emulated processor, which is what writing is like; once as much as comes, which shows what it
//! costs the machine and is the worst case for whoever does more than `dd`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::image_server;
use super::machine::{Disk, Machine, Plan, Took};
use super::sides::Sides;
use super::site::{ADDRESS, Node, PARAMETERS, Site};
use crate::bench::summary::{Summary, Target};
use crate::shell;

const PATIENCE: Duration = Duration::from_secs(600);
/// An agent takes no smaller disk.
const DISK_BYTES: u64 = 6 << 30;
const DD: &str = "/bench/busybox dd of=/dev/sda bs=1M iflag=fullblock oflag=direct conv=fsync";

/// What is written, and to what.
pub(crate) struct Writing {
    image: PathBuf,
    disk: PathBuf,
    url: String,
    checksum: String,
    mebibytes: u32,
    processors: u32,
}

/// What a slow disk takes in a second, in MiB. Emulation makes a checksum take 25 times as long as on
/// a processor: beside it, this is a disk of 500 MiB/s.
const SLOW_DISK: u32 = 20;
const SLOW: &str = "image written, beside dd: same HTTP source, no checksum, a disk of 20 MiB/s";

/// A way to write it without an agent, and its name in the table.
struct Way {
    name: &'static str,
    /// Once is enough where it takes minutes.
    often: bool,
    command: fn(&str) -> String,
}

const WAYS: &[Way] = &[
    Way {
        name: "image written, beside dd: same HTTP source, no checksum",
        often: true,
        command: |url| format!("/bench/busybox wget -q -O - {url} | {DD}"),
    },
    Way {
        name: "image written, beside dd and sha256sum: same HTTP source",
        often: false,
        command: |url| {
            format!(
                "/bench/busybox mkfifo /bench/pipe; {DD} if=/bench/pipe & \
                 /bench/busybox wget -q -O - {url} | /bench/busybox tee /bench/pipe | \
                 /bench/busybox sha256sum; wait $!; /bench/busybox rm /bench/pipe"
            )
        },
    },
    Way {
        name: "image written, beside dd: from memory, no checksum",
        often: true,
        command: |_| format!("{DD} if=/bench/image"),
    },
];

impl Writing {
    /// Makes image and disk in `folder`, which should be in memory.
    pub(crate) fn prepare(folder: &Path, mebibytes: u32, processors: u32) -> Result<Self> {
        let image = folder.join("image");
        // Nothing in it can be left out or made smaller.
        let bytes = u64::from(mebibytes) << 20;
        let mut random = File::open("/dev/urandom")?.take(bytes);
        io::copy(&mut random, &mut File::create(&image)?)?;
        let sums = shell::said(Command::new("sha256sum").arg(&image))?;
        let checksum = sums.split_whitespace().next().context("no checksum")?.to_owned();
        let disk = folder.join("disk");
        // As large as the image it is there already: the first to write shall not wait for the host
        // to find memory.
        fs::copy(&image, &disk)?;
        File::options().write(true).open(&disk)?.set_len(DISK_BYTES)?;
        let url = image_server::serve(ADDRESS, &image)?;
        Ok(Self { image, disk, url, checksum, mebibytes, processors })
    }

    /// One round, on a machine that was just booted. The order changes from round to round.
    pub(crate) fn round(
        &self,
        round: u32,
        sides: &Sides,
        site: &mut Site,
        folder: &Path,
        summary: &mut Summary,
    ) -> Result<()> {
        self.to_slow_disk(sides, site, folder, summary)?;
        let (node, mut machine) = self.start(None, sides, site, folder)?;
        let mut ways: Vec<&Way> = WAYS.iter().filter(|way| way.often || round == 0).collect();
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            if (way.command)("").contains("/bench/image") {
                let fetch = format!("/bench/busybox wget -q -O /bench/image {}", self.url);
                machine.ask(&fetch, "", PATIENCE)?;
            }
            self.empty_disk()?;
            let (took, _) = machine.ask(&(way.command)(&self.url), "", PATIENCE)?;
            self.check_disk().context(way.name)?;
            machine.ask("/bench/busybox rm -f /bench/image", "", PATIENCE)?;
            self.note(summary, 1, way.name, Target::None, took);
        }
        let took = self.by_agent(&node, site, &mut machine)?;
        for way in WAYS {
            self.note(summary, 0, way.name, Target::None, took);
        }
        Ok(())
    }

    fn to_slow_disk(
        &self,
        sides: &Sides,
        site: &mut Site,
        folder: &Path,
        summary: &mut Summary,
    ) -> Result<()> {
        let (node, mut machine) = self.start(Some(SLOW_DISK), sides, site, folder)?;
        let command = format!("/bench/busybox wget -q -O - {} | {DD}", self.url);
        self.empty_disk()?;
        let (took, _) = machine.ask(&command, "", PATIENCE)?;
        self.check_disk().context(SLOW)?;
        let target = Target::AtLeastShare(0.9);
        self.note(summary, 1, SLOW, target, took);
        let took = self.by_agent(&node, site, &mut machine)?;
        self.note(summary, 0, SLOW, target, took);
        Ok(())
    }

    /// A machine with our agent and the disk.
    fn start(
        &self,
        speed: Option<u32>,
        sides: &Sides,
        site: &mut Site,
        folder: &Path,
    ) -> Result<(Node, Machine)> {
        let node = site.enrol()?;
        let plan = Plan {
            kernel: &sides.kernel,
            ramdisk: &sides.ours.booted,
            mac: &node.mac,
            processors: self.processors,
            memory: 2048,
            disk: Some(Disk { file: &self.disk, speed }),
            parameters: PARAMETERS,
        };
        let mut machine = Machine::start(&plan, folder)?;
        site.first_heartbeat(&node, PATIENCE)?;
        // An agent calls before its disks are there, and `dd` would make a file of that name.
        let there = "until [ -b /dev/sda ]; do /bench/busybox sleep 0.1; done";
        machine.ask(there, "", PATIENCE)?;
        Ok((node, machine))
    }

    fn note(&self, summary: &mut Summary, column: usize, name: &str, target: Target, took: Took) {
        let rate = f64::from(self.mebibytes) / took.wall.as_secs_f64();
        summary.add(column, name, rate, "MiB/s", target);
        let cost = took.cpu.as_secs_f64() * 1024.0 / f64::from(self.mebibytes);
        let name = format!("{name}; processor time");
        summary.add(column, &name, cost, "s per GiB", Target::None);
    }

    /// Takes the image off the disk, but leaves the host's memory for it there.
    fn empty_disk(&self) -> Result<()> {
        let mut disk = File::options().write(true).open(&self.disk)?;
        io::copy(&mut io::repeat(0).take(self.bytes()), &mut disk)?;
        Ok(())
    }

    /// Makes sure that the image is on the disk: who did not write it has no figure.
    fn check_disk(&self) -> Result<()> {
        let mut compare = Command::new("cmp");
        compare.args(["--bytes", &self.bytes().to_string()]).args([&self.image, &self.disk]);
        shell::said(&mut compare).context("the image is not on the disk")?;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        u64::from(self.mebibytes) << 20
    }

    /// Deploys, and takes the time from what the agent says on its console.
    fn by_agent(&self, node: &Node, site: &mut Site, machine: &mut Machine) -> Result<Took> {
        self.empty_disk()?;
        let operator = &mut site.operator;
        let instance = json!({"image_source": self.url, "image_checksum": self.checksum});
        operator.set(&node.uuid, "/instance_info", instance)?;
        operator.provision(&node.uuid, "active")?;
        let took = machine
            .between("an image is written", "the image is on the disk", PATIENCE)
            .with_context(|| format!("not written; the server:\n{}", operator.log()))?;
        self.check_disk().context("our agent")?;
        Ok(took)
    }
}
