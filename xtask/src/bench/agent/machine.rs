// SPDX-License-Identifier: Apache-2.0
//! A virtual machine that boots a kernel and a ramdisk directly, with a shell on its serial port.
//!
//! It is emulated in software, because KVM is not available everywhere. The hardware is the same for
//! every agent.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::TAP_DEVICE;
use crate::bench::meter::CpuUsage;
use crate::test::process::with_death_signal;

/// The number of console lines in error messages.
const KEPT_LINES: usize = 30;
// Printed by the shell before and after each command.
const COMMAND_STARTED: &str = "BENCH-STARTED";
const COMMAND_ENDED: &str = "BENCH-ENDED";

/// The hardware and the boot files of a machine.
pub(crate) struct BenchMachinePlan<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) ramdisk: &'a Path,
    pub(crate) mac: &'a str,
    pub(crate) processors: u32,
    /// In MiB.
    pub(crate) memory: u32,
    pub(crate) disk: Option<BenchMachineDisk<'a>>,
    /// Additional kernel parameters.
    pub(crate) parameters: &'a str,
}

/// The disk of a machine.
#[derive(Clone, Copy)]
pub(crate) struct BenchMachineDisk<'a> {
    pub(crate) file: &'a Path,
    /// Write limit in MiB/s; unlimited if `None`.
    pub(crate) speed: Option<u32>,
}

/// Elapsed time, and processor time of the emulator, which is more reliable on a loaded computer.
#[derive(Clone, Copy)]
pub(crate) struct ElapsedTime {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

struct TimedUsage {
    at: Instant,
    usage: CpuUsage,
}

/// A running machine. It is powered off when dropped.
pub(crate) struct BenchMachine {
    emulator: Child,
    input: ChildStdin,
    lines: Receiver<(Instant, String)>,
    last: VecDeque<String>,
    pub(crate) powered_on_at: Instant,
}

impl BenchMachine {
    /// Starts a machine.
    pub(crate) fn start(plan: &BenchMachinePlan<'_>, folder: &Path) -> Result<Self> {
        let mut command =
            with_death_signal(&PathBuf::from("/usr/bin/qemu-system-x86_64"), "KILL", folder);
        command.args(["-machine", "q35,accel=tcg", "-cpu", "qemu64", "-nodefaults"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.args(["-smp", &plan.processors.to_string(), "-m", &plan.memory.to_string()]);
        command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        command.args(["-device", "virtio-rng-pci"]);
        command.arg("-netdev");
        command.arg(format!("tap,id=network,ifname={TAP_DEVICE},script=no,downscript=no"));
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
        Ok(Self { emulator, input, lines, last: VecDeque::new(), powered_on_at: switched_on })
    }

    /// Waits for a console line that contains `text`; returns the time and the line.
    pub(crate) fn wait_for_line(
        &mut self,
        text: &str,
        timeout: Duration,
    ) -> Result<(Instant, String)> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (at, line) = match self.lines.recv_timeout(left) {
                Ok(seen) => seen,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the machine did not print {text:?}; last lines:\n{}", self.last_lines())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the machine stopped; last lines:\n{}", self.last_lines())
                }
            };
            if self.last.len() == KEPT_LINES {
                self.last.pop_front();
            }
            self.last.push_back(line.clone());
            if line.contains(text) {
                return Ok((at, line));
            }
        }
    }

    /// Runs a command in the shell of the machine; returns its time and the line that contains `text`.
    pub(crate) fn run_command(
        &mut self,
        command: &str,
        text: &str,
        timeout: Duration,
    ) -> Result<(ElapsedTime, String)> {
        // The quotes keep an echoed command from matching the expected lines.
        let line = format!("echo BENCH-'STARTED'; {command}; echo BENCH-'ENDED' $?\n");
        self.input.write_all(line.as_bytes()).context("cannot send a command to the machine")?;
        let started = self.wait_and_read_usage(COMMAND_STARTED, timeout)?;
        let found =
            if text.is_empty() { String::new() } else { self.wait_for_line(text, timeout)?.1 };
        let (ended, line) = self.wait_for_line(COMMAND_ENDED, timeout)?;
        if !line.ends_with(" 0") {
            bail!("`{command}` failed on the machine; last lines:\n{}", self.last_lines());
        }
        let cpu = CpuUsage::of(self.emulator.id())?.since(&started.usage);
        Ok((ElapsedTime { wall: ended.duration_since(started.at), cpu }, found))
    }

    /// Waits for a line with `first` and one with `last`; returns the time between them.
    pub(crate) fn measure_between(
        &mut self,
        first: &str,
        last: &str,
        timeout: Duration,
    ) -> Result<ElapsedTime> {
        let started = self.wait_and_read_usage(first, timeout)?;
        let (ended, _) = self.wait_for_line(last, timeout)?;
        let cpu = CpuUsage::of(self.emulator.id())?.since(&started.usage);
        Ok(ElapsedTime { wall: ended.duration_since(started.at), cpu })
    }

    fn wait_and_read_usage(&mut self, text: &str, timeout: Duration) -> Result<TimedUsage> {
        let (at, _) = self.wait_for_line(text, timeout)?;
        Ok(TimedUsage { at, usage: CpuUsage::of(self.emulator.id())? })
    }

    /// The last lines of the console.
    pub(crate) fn last_lines(&self) -> String {
        self.last.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for BenchMachine {
    fn drop(&mut self) {
        // It may have powered itself off.
        let _already_off = self.emulator.kill();
        let _status = self.emulator.wait();
    }
}
