// SPDX-License-Identifier: Apache-2.0
//! Processor time and memory of a process and its descendants, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of processor time in /proc, independent of the kernel's tick.
const TICK: Duration = Duration::from_millis(10);

/// Processor time used so far, counted in two ways.
///
/// `/proc/PID/task/*/schedstat` is exact to the nanosecond but excludes threads that have ended;
/// `/proc/PID/stat` includes them but counts in ticks of 10 ms.
#[derive(Clone)]
pub(crate) struct CpuUsage {
    threads: BTreeMap<u32, Duration>,
    ticks: Duration,
}

impl CpuUsage {
    /// Of a process and all its descendants.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut threads = BTreeMap::new();
        let mut ticks = Duration::ZERO;
        for pid in process_tree(pid)? {
            // Ignores children that exit during the scan.
            let Ok(fields) = stat(pid) else { continue };
            // Fields 14 to 17: user and system time, and the same of children waited for.
            let spent =
                fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u32>().ok()).sum();
            ticks += TICK * spent;
            for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
                let spent =
                    fs::read_to_string(entry.path().join("schedstat")).ok().and_then(|text| {
                        text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
                    });
                if let (Some(thread), Some(spent)) = (thread, spent) {
                    threads.insert(thread, spent);
                }
            }
        }
        Ok(Self { threads, ticks })
    }

    /// Processor time since an earlier measurement.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let all_live = earlier.threads.keys().all(|thread| self.threads.contains_key(thread));
        let exact =
            self.threads.values().sum::<Duration>().saturating_sub(earlier.threads.values().sum());
        let coarse = self.ticks.saturating_sub(earlier.ticks);
        // Threads that started and ended in between are only in the coarse count.
        if all_live && coarse < exact + 2 * TICK { exact } else { coarse }
    }

    /// Processor time since the start of the process.
    pub(crate) fn total(&self) -> Duration {
        self.threads.values().sum::<Duration>().max(self.ticks)
    }
}

/// Resident memory of a process and all its descendants, in MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    let mut kib = 0.0;
    for pid in process_tree(pid)? {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        kib += line
            .and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
            .unwrap_or(0.0);
    }
    Ok(kib / 1024.0)
}

/// Peak of the resident memory of a process, in MiB.
pub(crate) fn peak_resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    Ok(kib.with_context(|| format!("process {pid} has no VmHWM"))? / 1024.0)
}

/// The process and all its descendants.
fn process_tree(root: u32) -> Result<Vec<u32>> {
    if !Path::new(&format!("/proc/{root}")).exists() {
        anyhow::bail!("there is no process {root}");
    }
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let parent = stat(pid).ok().and_then(|fields| fields.get(1)?.parse::<u32>().ok());
        parents.insert(pid, parent);
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, its)| **its == Some(parent)).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(family)
}

/// The fields of `/proc/PID/stat` after the program's name (which may contain anything).
fn stat(pid: u32) -> Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').context("no name in stat")?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(threads: &[(u32, u64)], ticks: u32) -> CpuUsage {
        CpuUsage {
            threads: threads
                .iter()
                .map(|&(id, millis)| (id, Duration::from_millis(millis)))
                .collect(),
            ticks: TICK * ticks,
        }
    }

    #[test]
    fn uses_the_larger_of_the_two_counts() {
        let earlier = usage(&[(1, 100), (2, 50)], 15);
        for (later, expected) in [
            // All threads are alive: exact.
            (usage(&[(1, 103), (2, 50)], 15), 3),
            (usage(&[(1, 103), (2, 50), (3, 4)], 16), 7),
            // A thread ended, so the exact count is too low.
            (usage(&[(1, 103)], 20), 50),
            // A thread started and ended.
            (usage(&[(1, 103), (2, 50)], 30), 150),
        ] {
            assert_eq!(later.since(&earlier), Duration::from_millis(expected));
        }
    }

    #[test]
    fn measures_the_own_process() {
        assert!(resident_mib(std::process::id()).unwrap() > 0.5);
        assert!(peak_resident_mib(std::process::id()).unwrap() > 0.5);
        assert!(CpuUsage::of(std::process::id()).unwrap().total() > Duration::ZERO);
    }
}
