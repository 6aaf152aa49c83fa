// SPDX-License-Identifier: Apache-2.0
//! Measures the time from power on to the first heartbeat, and the memory of an agent.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::machine::{BenchMachine, BenchMachinePlan};
use super::ramdisks::{MeasuredRamdisk, MeasuredRamdisks};
use super::site::{BenchSite, PARAMETERS};

/// For an emulated machine on a loaded computer.
const BOOT_TIMEOUT: Duration = Duration::from_secs(400);
/// After the first heartbeat, so that memory which the agent allocates then counts too.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Counts the free pages in the per-CPU lists.
const COUNT_PER_CPU_PAGES: &str = "/bench/busybox awk '$1 == \"count:\" { pages += $2 } END { print \"PER-\" \"CPU\", pages }' \
    /bench/proc/zoneinfo";

/// Seconds until the first heartbeat, and memory in MiB.
pub(crate) struct AgentStart {
    pub(crate) from_power: f64,
    pub(crate) from_kernel: f64,
    pub(crate) from_init: f64,
    pub(crate) memory: f64,
}

/// Starts a machine and waits for its agent's first heartbeat.
pub(crate) fn measure(
    side: &MeasuredRamdisk,
    sides: &MeasuredRamdisks,
    site: &mut BenchSite,
    folder: &Path,
) -> Result<AgentStart> {
    let node = site.enrol()?;
    let plan = BenchMachinePlan { mac: &node.mac, ramdisk: &side.booted, ..plan(sides) };
    let mut machine = BenchMachine::start(&plan, folder)?;
    let (kernel, _) = machine.wait_for_line("Linux version", BOOT_TIMEOUT)?;
    let (init, _) = machine.wait_for_line("BENCH-INIT", BOOT_TIMEOUT)?;
    let heartbeat = site.first_heartbeat(&node, BOOT_TIMEOUT).with_context(|| {
        let _nothing_new = machine.wait_for_line("BENCH-NEVER", Duration::ZERO);
        format!("no heartbeat; last lines of the console:\n{}", machine.last_lines())
    })?;
    Ok(AgentStart {
        from_power: heartbeat.duration_since(machine.powered_on_at).as_secs_f64(),
        from_kernel: heartbeat.duration_since(kernel).as_secs_f64(),
        from_init: heartbeat.duration_since(init).as_secs_f64(),
        memory: memory(&mut machine)?,
    })
}

/// The memory of kernel and benchmark without an agent, in MiB.
pub(crate) fn memory_without_agent(sides: &MeasuredRamdisks, folder: &Path) -> Result<f64> {
    let mut machine = BenchMachine::start(&plan(sides), folder)?;
    machine.wait_for_line("BENCH-INIT", BOOT_TIMEOUT)?;
    memory(&mut machine)
}

fn plan(sides: &MeasuredRamdisks) -> BenchMachinePlan<'_> {
    BenchMachinePlan {
        kernel: &sides.kernel,
        ramdisk: &sides.without_agent,
        mac: "52:54:00:be:7c:00",
        // Like the machines of the lab.
        processors: 1,
        memory: 2048,
        disk: None,
        parameters: PARAMETERS,
    }
}

fn memory(machine: &mut BenchMachine) -> Result<f64> {
    thread::sleep(SETTLE_TIME);
    let mut number = |command: &str, name: &str| -> Result<f64> {
        let (_, line) = machine.run_command(command, name, Duration::from_secs(60))?;
        let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        number.with_context(|| format!("{line:?} has no number"))
    };
    let mut kib =
        |name: &str| number(&format!("/bench/busybox grep {name}: /bench/proc/meminfo"), name);
    let taken = kib("MemTotal")? - kib("MemAvailable")?;
    // The kernel keeps up to 50 MiB of freed pages per CPU and does not count them as available. An
    // agent that allocated and freed more would seem larger.
    let pages = number(COUNT_PER_CPU_PAGES, "PER-CPU")?;
    Ok((taken - pages * 4.0) / 1024.0)
}
