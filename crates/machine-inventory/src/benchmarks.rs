// SPDX-License-Identifier: Apache-2.0
//! How fast the machine is: processors, memory and disks, for the option `ipa-inspection-benchmarks`.
//!
//! The results have the names of the `hardware` library (`loops_per_sec`, `bandwidth_1M`,
//! `standalone_read_1M_KBps`, …), so that rules about them keep working, but its programs (`sysbench`,
//! `fio`) are not in the ramdisk and the numbers are ours: compare machines, not agents. Disks are
//! only read, one request at a time. One measurement takes the time it is given and a little more.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::Machine;
use crate::extra_hardware::fact;

/// Which benchmarks to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Loops of the processors.
    pub cpu: bool,
    /// Bandwidth of the memory.
    pub memory: bool,
    /// Reading of the disks.
    pub disk: bool,
}

impl Selection {
    /// From the words of the kernel parameter: `cpu,mem,disk`. Other words mean nothing.
    pub fn parse(words: &str) -> Self {
        let has = |wanted| words.split(',').any(|word| word.trim() == wanted);
        Self { cpu: has("cpu"), memory: has("mem"), disk: has("disk") }
    }
}

const BLOCKS: [(&str, usize); 4] =
    [("1K", 1 << 10), ("4K", 4 << 10), ("1M", 1 << 20), ("16M", 16 << 20)];

/// Runs benchmarks, each measurement for the given time, and gives quadruples of class, device, key and
/// value. One measurement of the processors, four of the memory, two of every disk; the first two kinds
/// once on one processor and once on all.
pub fn run(machine: &Machine, which: Selection, each: Duration) -> Vec<Value> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut facts = Vec::new();
    if which.cpu {
        let one = per_second(each, 1, primes_loop);
        facts.push(fact("cpu", "logical_0", "loops_per_sec", one));
        facts.push(fact("cpu", "logical", "loops_per_sec", per_second(each, threads, primes_loop)));
    }
    if which.memory {
        for (name, size) in BLOCKS {
            let mebibytes = |threads| bandwidth(each, threads, size);
            facts.push(fact("cpu", "logical_0", &format!("bandwidth_{name}"), mebibytes(1)));
            if threads > 1 {
                let key = format!("threaded_bandwidth_{name}");
                facts.push(fact("cpu", "logical", &key, mebibytes(threads)));
            }
        }
    }
    if which.disk {
        for disk in machine.disks() {
            let name = disk.name.trim_start_matches("/dev/").to_owned();
            let Ok(device) = File::open(machine.tree.path(disk.name.trim_start_matches('/')))
            else {
                continue;
            };
            facts.extend(disk_facts(&name, &device, disk.size, each));
        }
    }
    facts
}

/// How often all threads together do it in a second.
fn per_second(time: Duration, threads: usize, work: fn()) -> u64 {
    let start = Instant::now();
    let counts: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut count = 0_u64;
                    while start.elapsed() < time {
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

/// MiB that all threads together write in a second, each to a block of its own.
fn bandwidth(time: Duration, threads: usize, size: usize) -> u64 {
    let start = Instant::now();
    let bytes: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut block = vec![0_u8; size];
                    let mut bytes = 0_u64;
                    // Looking at the clock costs as much as a small block, so it is done rarely.
                    let rounds = (1_usize << 20).div_ceil(size);
                    while start.elapsed() < time {
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

/// Reads a disk from its beginning in large pieces, then small pieces all over it.
fn disk_facts(name: &str, device: &File, size: u64, time: Duration) -> Vec<Value> {
    const LARGE: usize = 1 << 20;
    const SMALL: usize = 4 << 10;
    // Past the page cache as far as it goes: what earlier reads left is dropped, reading ahead is off.
    let _ = fadvise(device, 0, None, Advice::DontNeed);
    let mut at = 0;
    let (bytes, _, spent) = read_for(device, LARGE, time, || {
        let here = at;
        at = if at + 2 * LARGE as u64 > size { 0 } else { at + LARGE as u64 };
        here
    });
    let mut facts = vec![fact("disk", name, "standalone_read_1M_KBps", rate(bytes >> 10, spent))];

    let _ = fadvise(device, 0, None, Advice::Random);
    let pieces = (size / SMALL as u64).max(1);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let (bytes, reads, spent) = read_for(device, SMALL, time, || {
        // Good enough to jump about with: Marsaglia's xorshift.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % pieces * SMALL as u64
    });
    facts.push(fact("disk", name, "standalone_randread_4k_KBps", rate(bytes >> 10, spent)));
    facts.push(fact("disk", name, "standalone_randread_4k_IOps", rate(reads, spent)));
    facts
}

/// Reads pieces at the places given until the time is over or a read fails. Bytes, reads and the time.
fn read_for(
    device: &File,
    piece: usize,
    time: Duration,
    mut place: impl FnMut() -> u64,
) -> (u64, u64, Duration) {
    let start = Instant::now();
    let mut buffer = vec![0; piece];
    let (mut bytes, mut reads) = (0_u64, 0_u64);
    while start.elapsed() < time {
        match device.read_at(&mut buffer, place()) {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                bytes += length as u64;
                reads += 1;
            }
        }
    }
    (bytes, reads, start.elapsed())
}

fn rate(count: u64, time: Duration) -> u64 {
    let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000_000) / microseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose() {
        let all = Selection { cpu: true, memory: true, disk: true };
        assert_eq!(Selection::parse("cpu, mem,disk"), all);
        assert_eq!(Selection::parse("gpu"), Selection::default());
    }

    #[test]
    fn a_disk_has_its_three_figures() {
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
    fn processors_and_memory_have_figures_within_their_time() {
        let nothing = tempfile::tempdir().unwrap();
        let which = Selection { cpu: true, memory: true, disk: true };
        let facts = run(&Machine::at(nothing.path()), which, Duration::from_millis(2));
        assert!(facts.len() >= 6, "{facts:?}");
        for fact in &facts {
            assert!(fact[3].as_str().unwrap().parse::<u64>().is_ok(), "{fact}");
        }
    }
}
