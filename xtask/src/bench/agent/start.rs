// SPDX-License-Identifier: Apache-2.0
//! How soon an agent calls home after the machine is switched on, and how much memory it takes.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::machine::{Machine, Plan};
use super::sides::{Side, Sides};
use super::site::{PARAMETERS, Site};

/// A machine in emulation on a busy computer.
const PATIENCE: Duration = Duration::from_secs(400);
/// After the first heartbeat: what the agent still begins to do then counts as well.
const SETTLES: Duration = Duration::from_secs(10);

/// Counts the free pages that processors keep at hand.
const AT_HAND: &str = "/bench/busybox awk '$1 == \"count:\" { pages += $2 } END { print \"AT-\" \"HAND\", pages }' \
    /bench/proc/zoneinfo";

/// One start. Seconds, all until the first heartbeat, and MiB.
pub(crate) struct Start {
    pub(crate) from_power: f64,
    pub(crate) from_kernel: f64,
    pub(crate) from_init: f64,
    pub(crate) memory: f64,
}

/// Switches a machine on and waits for its agent's first heartbeat.
pub(crate) fn measure(side: &Side, sides: &Sides, site: &mut Site, folder: &Path) -> Result<Start> {
    let node = site.enrol()?;
    let plan = Plan { mac: &node.mac, ramdisk: &side.booted, ..plan(sides) };
    let mut machine = Machine::start(&plan, folder)?;
    let (kernel, _) = machine.until("Linux version", PATIENCE)?;
    let (init, _) = machine.until("BENCH-INIT", PATIENCE)?;
    let heartbeat = site.first_heartbeat(&node, PATIENCE).with_context(|| {
        let _nothing_new = machine.until("BENCH-NEVER", Duration::ZERO);
        format!("no heartbeat; the machine said:\n{}", machine.last_words())
    })?;
    Ok(Start {
        from_power: heartbeat.duration_since(machine.switched_on).as_secs_f64(),
        from_kernel: heartbeat.duration_since(kernel).as_secs_f64(),
        from_init: heartbeat.duration_since(init).as_secs_f64(),
        memory: memory(&mut machine)?,
    })
}

/// What kernel and measuring take without any agent, in MiB.
pub(crate) fn memory_of_nothing(sides: &Sides, folder: &Path) -> Result<f64> {
    let mut machine = Machine::start(&plan(sides), folder)?;
    machine.until("BENCH-INIT", PATIENCE)?;
    memory(&mut machine)
}

fn plan(sides: &Sides) -> Plan<'_> {
    Plan {
        kernel: &sides.kernel,
        ramdisk: &sides.nothing,
        mac: "52:54:00:be:7c:00",
        // As the machines of the lab.
        processors: 1,
        memory: 2048,
        disk: None,
        parameters: PARAMETERS,
    }
}

fn memory(machine: &mut Machine) -> Result<f64> {
    thread::sleep(SETTLES);
    let mut number = |command: &str, name: &str| -> Result<f64> {
        let (_, line) = machine.ask(command, name, Duration::from_secs(60))?;
        let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        number.with_context(|| format!("{line:?} has no number"))
    };
    let mut kib =
        |name: &str| number(&format!("/bench/busybox grep {name}: /bench/proc/meminfo"), name);
    let taken = kib("MemTotal")? - kib("MemAvailable")?;
    // Up to 50 MiB that were given back wait at each processor for the next who wants memory. The
    // kernel does not count them as free: whoever took and gave back more would seem larger.
    let pages = number(AT_HAND, "AT-HAND")?;
    Ok((taken - pages * 4.0) / 1024.0)
}
