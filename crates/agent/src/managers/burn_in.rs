// SPDX-License-Identifier: Apache-2.0
//! Puts a machine under load for a while, to find out what breaks before somebody relies on it.

use std::time::{Duration, Instant};

use agent_protocol::Disk;
use disk_steps::burn_in::{BurnedIn, Load, burn_in};
use disk_steps::erase::ErasePolicy;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{StepError, images};
use crate::logs::causes;

/// As long as ironic-python-agent does it: a day.
const DEFAULT_SECONDS: u64 = 86_400;
/// As often as ironic-python-agent has disks written and read.
const DEFAULT_LOOPS: u32 = 4;
const BLOCK: usize = 4 << 20;

/// Every processor computes the same thing again and again, which must give the same result.
pub(super) async fn cpu(node: &Map<String, Value>) -> Result<Value, StepError> {
    let time = duration(node, "agent_burnin_cpu_timeout");
    let count = number(node, "agent_burnin_cpu_cpu").filter(|&count| count > 0);
    let threads = count.map_or_else(processors, |count| usize::try_from(count).unwrap_or(1));
    tracing::info!(threads, seconds = time.as_secs(), "the processors are put under load");
    let rounds = blocking(move || on_threads(threads, |_| compute(time))).await?;
    Ok(json!({"rounds": rounds.iter().sum::<u64>(), "threads": threads}))
}

/// Nearly all free memory is filled with patterns, which must still be there when they are read.
pub(super) async fn memory(node: &Map<String, Value>) -> Result<Value, StepError> {
    let time = duration(node, "agent_burnin_vm_timeout");
    let available = available_memory().unwrap_or(64 << 20);
    // The rest is for the agent itself and the kernel's page tables.
    let use_bytes = usize::try_from(available / 100 * 85).unwrap_or(usize::MAX);
    let threads = processors();
    tracing::info!(bytes = use_bytes, seconds = time.as_secs(), "the memory is put under load");
    let share = use_bytes / threads;
    let rounds =
        blocking(move || on_threads(threads, |index| patterns(share, index as u64, time))).await?;
    Ok(json!({"rounds": rounds.iter().sum::<u64>(), "bytes": use_bytes}))
}

/// Every disk is written and read back, all at once. What was on them is lost.
pub(super) async fn disk(
    node: &Map<String, Value>,
    disks: Vec<Disk>,
    guard: bool,
) -> Result<Value, StepError> {
    let load = Load {
        loops: number(node, "agent_burnin_fio_disk_loops")
            .and_then(|loops| u32::try_from(loops).ok())
            .unwrap_or(DEFAULT_LOOPS),
        longest: number(node, "agent_burnin_fio_disk_runtime")
            .filter(|&seconds| seconds > 0)
            .map(Duration::from_secs),
    };
    let mut policy = ErasePolicy::from_node(node);
    policy.guard &= guard;
    tracing::info!(disks = disks.len(), ?load, "the disks are put under load");
    let work = move || {
        let last = std::sync::Mutex::new(Instant::now());
        let one = |index: usize| {
            let disk: &Disk = &disks[index];
            let done = burn_in(disk, &policy, load, &|progress| images::report(&last, progress));
            Ok((disk.name.clone(), done))
        };
        let mut words = Map::new();
        let mut failures = Vec::new();
        for (name, done) in on_threads(disks.len(), one)? {
            match done {
                Ok(BurnedIn::Sound(bytes)) => {
                    words.insert(name, json!(format!("{bytes} bytes were kept")));
                }
                Ok(BurnedIn::Skipped(why)) => {
                    words.insert(name, json!(format!("left alone: {why}")));
                }
                Err(error) => failures.push(causes(&error)),
            }
        }
        if failures.is_empty() { Ok(Value::Object(words)) } else { Err(failures.join("; ")) }
    };
    blocking(work).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, StepError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(fail(&error)),
        Err(error) => Err(fail(&error.to_string())),
    }
}

fn on_threads<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                scope.spawn({
                    let work = &work;
                    move || work(index)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread broke off".to_owned())))
            .collect()
    })
}

fn compute(time: Duration) -> Result<u64, String> {
    let begun = Instant::now();
    let once = || {
        let mut digest = Sha256::digest(b"burn in");
        let mut number = 1.0_f64;
        for _ in 0..2000 {
            digest = Sha256::digest(digest);
            number = (number + f64::from(digest[0])).sqrt();
        }
        (digest, number.to_bits())
    };
    let expected = once();
    let mut rounds = 1;
    while begun.elapsed() < time {
        if once() != expected {
            return Err(
                "a processor computed two different results from the same numbers".to_owned()
            );
        }
        rounds += 1;
    }
    Ok(rounds)
}

fn patterns(bytes: usize, seed: u64, time: Duration) -> Result<u64, String> {
    let begun = Instant::now();
    let mut blocks: Vec<Vec<u64>> = Vec::new();
    let mut rounds: u64 = 0;
    while rounds == 0 || begun.elapsed() < time {
        let value = |block: usize, index: usize| {
            (block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (index as u64)
                ^ seed
                ^ rounds.wrapping_mul(0xff51_afd7_ed55_8ccd)
        };
        for number in 0..bytes / BLOCK {
            if blocks.len() <= number {
                let mut block = Vec::new();
                if block.try_reserve_exact(BLOCK / 8).is_err() {
                    break;
                }
                blocks.push(block);
            }
            blocks[number].clear();
            blocks[number].extend((0..BLOCK / 8).map(|index| value(number, index)));
        }
        for (number, block) in blocks.iter().enumerate() {
            if let Some(index) =
                block.iter().enumerate().position(|(index, &found)| found != value(number, index))
            {
                return Err(format!(
                    "memory changed by itself at byte {} of block {number}",
                    index * 8
                ));
            }
        }
        rounds += 1;
    }
    Ok(rounds)
}

fn duration(node: &Map<String, Value>, name: &str) -> Duration {
    Duration::from_secs(number(node, name).unwrap_or(DEFAULT_SECONDS))
}

fn number(node: &Map<String, Value>, name: &str) -> Option<u64> {
    let value = node.get("driver_info")?.get(name)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The memory that can be used, in bytes.
pub(super) fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn fail(details: &str) -> StepError {
    StepError::failed("CommandExecutionError", "Command execution failed", details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sound_machines_pass() {
        let node =
            json!({"driver_info": {"agent_burnin_cpu_timeout": "0", "agent_burnin_cpu_cpu": 2}});
        let done = cpu(node.as_object().unwrap()).await.unwrap();
        assert_eq!(done, json!({"rounds": 2, "threads": 2}));
        assert_eq!(patterns(2 * BLOCK, 7, Duration::ZERO), Ok(1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let name = path.display().to_string();
        let sound = Disk { name: name.clone(), size: 1 << 20, ..Disk::default() };
        let node = json!({"driver_info": {"agent_burnin_fio_disk_loops": 2}});
        let node = node.as_object().unwrap();
        let done = disk(node, vec![sound.clone()], true).await.unwrap();
        assert_eq!(done, json!({&name: "2097152 bytes were kept"}));
        let gone = Disk { name: "/nowhere/disk".to_owned(), ..Disk::default() };
        let failed = disk(node, vec![sound, gone], true).await.unwrap_err();
        let StepError::Failed(error) = failed else { panic!("{failed:?}") };
        assert!(error.details.unwrap().contains("/nowhere/disk"));
    }
}
