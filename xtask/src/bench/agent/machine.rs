// SPDX-License-Identifier: Apache-2.0
//! A virtual machine that boots a kernel and a ramdisk directly, with a shell on its serial port.
//!
//! Software emulation, because not every machine that measures has more. What it is made of is the
//! same for every agent.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::SOCKET;
use crate::bench::meter::Usage;
use crate::test::process::tied_to_us;

/// How many lines of its console are kept for messages.
const REMEMBERED: usize = 30;
/// What the shell says before and after each command.
const BEGINS: &str = "BENCH-BEGINS";
const ENDED: &str = "BENCH-ENDED";

/// What a machine is made of and boots.
pub(crate) struct Plan<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) ramdisk: &'a Path,
    pub(crate) mac: &'a str,
    pub(crate) processors: u32,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) disk: Option<Disk<'a>>,
    /// Further parameters of the kernel.
    pub(crate) parameters: &'a str,
}

/// A machine's disk.
#[derive(Clone, Copy)]
pub(crate) struct Disk<'a> {
    pub(crate) file: &'a Path,
    /// How much it takes in a second, in MiB; without, as much as comes.
    pub(crate) speed: Option<u32>,
}

/// What something took: time, and processor time of the emulator, which says more on a computer
/// that others use as well.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

struct Moment {
    at: Instant,
    usage: Usage,
}

/// A machine that is on. It is off when dropped.
pub(crate) struct Machine {
    emulator: Child,
    input: ChildStdin,
    lines: Receiver<(Instant, String)>,
    last: VecDeque<String>,
    /// When it was switched on.
    pub(crate) switched_on: Instant,
}

impl Machine {
    /// Switches a machine on.
    pub(crate) fn start(plan: &Plan<'_>, folder: &Path) -> Result<Self> {
        let mut command = tied_to_us(&PathBuf::from("/usr/bin/qemu-system-x86_64"), "KILL", folder);
        command.args(["-machine", "q35,accel=tcg", "-cpu", "qemu64", "-nodefaults"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.args(["-smp", &plan.processors.to_string(), "-m", &plan.memory.to_string()]);
        command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        command.args(["-device", "virtio-rng-pci"]);
        command.arg("-netdev");
        command.arg(format!("tap,id=network,ifname={SOCKET},script=no,downscript=no"));
        command.arg("-device");
        command.arg(format!("virtio-net-pci,netdev=network,mac={},romfile=", plan.mac));
        if let Some(disk) = plan.disk {
            let file = disk.file.display();
            let slow = disk.speed.map_or_else(String::new, |speed| {
                format!(",throttling.bps-write={}", u64::from(speed) << 20)
            });
            command.arg("-drive");
            command.arg(format!("if=none,id=disk,format=raw,cache=writeback,file={file}{slow}"));
            command.args(["-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=disk"]);
        }
        command.arg("-kernel").arg(plan.kernel).arg("-initrd").arg(plan.ramdisk);
        command
            .arg("-append")
            .arg(format!("console=ttyS0 earlyprintk=ttyS0 rdinit=/bench/init {}", plan.parameters));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let switched_on = Instant::now();
        let mut emulator = command.spawn().context("cannot run setpriv and QEMU")?;
        let input = emulator.stdin.take().context("the input was not piped")?;
        let output = emulator.stdout.take().context("the output was not piped")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { emulator, input, lines, last: VecDeque::new(), switched_on })
    }

    /// Waits until it says a line with `words`; when that was, and the line.
    pub(crate) fn until(&mut self, words: &str, patience: Duration) -> Result<(Instant, String)> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (at, line) = match self.lines.recv_timeout(left) {
                Ok(seen) => seen,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the machine does not say {words:?}; it said:\n{}", self.last_words())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the machine went off; it said:\n{}", self.last_words())
                }
            };
            if self.last.len() == REMEMBERED {
                self.last.pop_front();
            }
            self.last.push_back(line.clone());
            if line.contains(words) {
                return Ok((at, line));
            }
        }
    }

    /// Lets its shell carry out a command; what that took, and the line with `words`.
    pub(crate) fn ask(
        &mut self,
        command: &str,
        words: &str,
        patience: Duration,
    ) -> Result<(Took, String)> {
        // Should the order be echoed, its words are not those that are waited for.
        let order = format!("echo BENCH-'BEGINS'; {command}; echo BENCH-'ENDED' $?\n");
        self.input.write_all(order.as_bytes()).context("the machine takes no commands")?;
        let began = self.moment(BEGINS, patience)?;
        let said = if words.is_empty() { String::new() } else { self.until(words, patience)?.1 };
        let (ended, line) = self.until(ENDED, patience)?;
        if !line.ends_with(" 0") {
            bail!("`{command}` failed on the machine; it said:\n{}", self.last_words());
        }
        let cpu = Usage::of(self.emulator.id())?.since(&began.usage);
        Ok((Took { wall: ended.duration_since(began.at), cpu }, said))
    }

    /// Waits for `first` and then for `last`; what went on between took so much.
    pub(crate) fn between(&mut self, first: &str, last: &str, patience: Duration) -> Result<Took> {
        let began = self.moment(first, patience)?;
        let (ended, _) = self.until(last, patience)?;
        let cpu = Usage::of(self.emulator.id())?.since(&began.usage);
        Ok(Took { wall: ended.duration_since(began.at), cpu })
    }

    fn moment(&mut self, words: &str, patience: Duration) -> Result<Moment> {
        let (at, _) = self.until(words, patience)?;
        Ok(Moment { at, usage: Usage::of(self.emulator.id())? })
    }

    /// The end of what it said.
    pub(crate) fn last_words(&self) -> String {
        self.last.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have switched itself off.
        let _already_off = self.emulator.kill();
        let _status = self.emulator.wait();
    }
}
