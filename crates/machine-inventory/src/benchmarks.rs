// SPDX-License-Identifier: Apache-2.0
//! Benchmarks of processors, memory and disks, for the option `ipa-inspection-benchmarks`.
//!
//! The results have the names of the `hardware` library (`loops_per_sec`, `bandwidth_1M`,
//! `standalone_read_1M_KBps`, …), so that inspection rules keep working. Its programs (`sysbench`,
//! `fio`) are not in the ramdisk, so the figures are comparable between machines but not with IPA's.
//! Disks are only read, one request at a time. A measurement takes slightly longer than requested.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::LocalMachine;
use crate::extra_hardware::hardware_fact;

/// Which benchmarks to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BenchmarkSelection {
    /// Processor loops.
    pub cpu: bool,
    /// Memory bandwidth.
    pub memory: bool,
    /// Disk reads.
    pub disk: bool,
}

impl BenchmarkSelection {
    /// Parses the kernel parameter: `cpu,mem,disk`. Unknown words are ignored.
    pub fn parse(selection: &str) -> Self {
        let has = |name| selection.split(',').any(|word| word.trim() == name);
        Self { cpu: has("cpu"), memory: has("mem"), disk: has("disk") }
    }
}

const BLOCKS: [(&str, usize); 4] =
    [("1K", 1 << 10), ("4K", 4 << 10), ("1M", 1 << 20), ("16M", 16 << 20)];

/// Runs benchmarks, each measurement for `duration`, and returns quadruples of class, device, key and
/// value. There are one processor, four memory and two disk measurements; processor and memory are
/// measured once with one thread and once with all.
pub fn run(
    machine: &LocalMachine,
    selection: BenchmarkSelection,
    duration: Duration,
) -> Vec<Value> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut facts = Vec::new();
    if selection.cpu {
        let one = per_second(duration, 1, primes_loop);
        facts.push(hardware_fact("cpu", "logical_0", "loops_per_sec", one));
        facts.push(hardware_fact(
            "cpu",
            "logical",
            "loops_per_sec",
            per_second(duration, threads, primes_loop),
        ));
    }
    if selection.memory {
        for (name, size) in BLOCKS {
            let mebibytes = |threads| bandwidth(duration, threads, size);
            facts.push(hardware_fact(
                "cpu",
                "logical_0",
                &format!("bandwidth_{name}"),
                mebibytes(1),
            ));
            if threads > 1 {
                let key = format!("threaded_bandwidth_{name}");
                facts.push(hardware_fact("cpu", "logical", &key, mebibytes(threads)));
            }
        }
    }
    if selection.disk {
        for disk in machine.disks() {
            let name = disk.name.trim_start_matches("/dev/").to_owned();
            let Ok(device) = File::open(machine.files.absolute(disk.name.trim_start_matches('/')))
            else {
                continue;
            };
            facts.extend(disk_facts(&name, &device, disk.size, duration));
        }
    }
    facts
}

/// Returns how often per second all threads together complete `work`.
fn per_second(duration: Duration, threads: usize, work: fn()) -> u64 {
    let start = Instant::now();
    let counts: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut count = 0_u64;
                    while start.elapsed() < duration {
                        work();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    });
    rate(counts, start.elapsed())
}

/// Counts the primes below 15,000 by division, as `sysbench` does.
fn primes_loop() {
    let is_prime = |number: u64| {
        (2..)
            .take_while(|divisor| divisor * divisor <= number)
            .all(|divisor| !number.is_multiple_of(divisor))
    };
    black_box((3..black_box(15_000)).filter(|number| is_prime(*number)).count());
}

/// Returns the MiB per second that all threads together write, each to its own block.
fn bandwidth(duration: Duration, threads: usize, size: usize) -> u64 {
    let start = Instant::now();
    let bytes: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut block = vec![0_u8; size];
                    let mut bytes = 0_u64;
                    // Reading the clock takes as long as filling a small block, so it is read rarely.
                    let rounds = (1_usize << 20).div_ceil(size);
                    while start.elapsed() < duration {
                        for round in 0..rounds {
                            black_box(&mut block).fill(round as u8);
                        }
                        bytes += (rounds * size) as u64;
                    }
                    bytes
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    });
    rate(bytes >> 20, start.elapsed())
}

/// Reads a disk sequentially in large blocks, then randomly in small ones.
fn disk_facts(name: &str, device: &File, size: u64, duration: Duration) -> Vec<Value> {
    const LARGE: usize = 1 << 20;
    const SMALL: usize = 4 << 10;
    // Reduce the effect of the page cache: drop cached pages, and disable read-ahead below.
    let _ = fadvise(device, 0, None, Advice::DontNeed);
    let mut at = 0;
    let (bytes, _, elapsed) = read_for(device, LARGE, duration, || {
        let offset = at;
        at = if at + 2 * LARGE as u64 > size { 0 } else { at + LARGE as u64 };
        offset
    });
    let mut facts =
        vec![hardware_fact("disk", name, "standalone_read_1M_KBps", rate(bytes >> 10, elapsed))];

    let _ = fadvise(device, 0, None, Advice::Random);
    let block_count = (size / SMALL as u64).max(1);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let (bytes, reads, elapsed) = read_for(device, SMALL, duration, || {
        // Marsaglia's xorshift; quality is irrelevant here.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % block_count * SMALL as u64
    });
    facts.push(hardware_fact(
        "disk",
        name,
        "standalone_randread_4k_KBps",
        rate(bytes >> 10, elapsed),
    ));
    facts.push(hardware_fact("disk", name, "standalone_randread_4k_IOps", rate(reads, elapsed)));
    facts
}

/// Reads blocks until the time is over or a read fails. Returns bytes, reads and elapsed time.
fn read_for(
    device: &File,
    block_size: usize,
    duration: Duration,
    mut next_offset: impl FnMut() -> u64,
) -> (u64, u64, Duration) {
    let start = Instant::now();
    let mut buffer = vec![0; block_size];
    let (mut bytes, mut reads) = (0_u64, 0_u64);
    while start.elapsed() < duration {
        match device.read_at(&mut buffer, next_offset()) {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                bytes += length as u64;
                reads += 1;
            }
        }
    }
    (bytes, reads, start.elapsed())
}

fn rate(count: u64, duration: Duration) -> u64 {
    let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000_000) / microseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_selection() {
        let all = BenchmarkSelection { cpu: true, memory: true, disk: true };
        assert_eq!(BenchmarkSelection::parse("cpu, mem,disk"), all);
        assert_eq!(BenchmarkSelection::parse("gpu"), BenchmarkSelection::default());
    }

    #[test]
    fn reports_three_disk_figures() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        let facts = disk_facts("sda", &file, 3 << 20, Duration::from_millis(20));
        let keys: Vec<_> = facts.iter().map(|fact| fact[2].as_str().unwrap()).collect();
        assert_eq!(
            keys,
            [
                "standalone_read_1M_KBps",
                "standalone_randread_4k_KBps",
                "standalone_randread_4k_IOps"
            ]
        );
        for fact in &facts {
            assert!(fact[3].as_str().unwrap().parse::<u64>().unwrap() > 0, "{fact}");
        }
    }

    #[test]
    fn reports_cpu_and_memory_figures() {
        let empty_root = tempfile::tempdir().unwrap();
        let selection = BenchmarkSelection { cpu: true, memory: true, disk: true };
        let facts =
            run(&LocalMachine::with_root(empty_root.path()), selection, Duration::from_millis(2));
        assert!(facts.len() >= 6, "{facts:?}");
        for fact in &facts {
            assert!(fact[3].as_str().unwrap().parse::<u64>().is_ok(), "{fact}");
        }
    }
}
