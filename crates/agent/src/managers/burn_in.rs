// SPDX-License-Identifier: Apache-2.0
//! Burn-in: puts the machine under load to find defects before it is used.

use std::time::{Duration, Instant};

use agent_protocol::InventoryDisk;
use disk_steps::burn_in::{BurnInLoad, BurnInOutcome, burn_in};
use disk_steps::erase::ErasePolicy;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{ManagerStepError, images};
use error_chain::error_chain;

/// The default of ironic-python-agent: a day.
const DEFAULT_DURATION_SECONDS: u64 = 86_400;
/// The default of ironic-python-agent for disks.
const DEFAULT_LOOPS: u32 = 4;
const BLOCK_SIZE: usize = 4 << 20;

/// Repeats the same computation on every processor and compares the results.
pub(super) async fn burn_in_cpu(node: &Map<String, Value>) -> Result<Value, ManagerStepError> {
    let time = driver_info_duration(node, "agent_burnin_cpu_timeout");
    let count = driver_info_number(node, "agent_burnin_cpu_cpu").filter(|&count| count > 0);
    let threads = count.map_or_else(processor_count, |count| usize::try_from(count).unwrap_or(1));
    tracing::info!(threads, duration = ?time, "CPU burn-in started");
    let rounds = run_blocking(move || run_on_threads(threads, |_| check_processor(time))).await?;
    Ok(json!({"rounds": rounds.iter().sum::<u64>(), "threads": threads}))
}

/// Fills most free memory with patterns and verifies them.
pub(super) async fn burn_in_memory(node: &Map<String, Value>) -> Result<Value, ManagerStepError> {
    let time = driver_info_duration(node, "agent_burnin_vm_timeout");
    let available = available_memory().unwrap_or(64 << 20);
    // The rest is left to the agent and the kernel's page tables.
    let use_bytes = usize::try_from(available / 100 * 85).unwrap_or(usize::MAX);
    let threads = processor_count();
    tracing::info!(bytes = use_bytes, duration = ?time, "memory burn-in started");
    let share = use_bytes / threads;
    let rounds = run_blocking(move || {
        run_on_threads(threads, |index| check_memory(share, index as u64, time))
    })
    .await?;
    Ok(json!({"rounds": rounds.iter().sum::<u64>(), "bytes": use_bytes}))
}

/// Writes and verifies all disks in parallel. Destroys their content.
pub(super) async fn burn_in_disks(
    node: &Map<String, Value>,
    disks: Vec<InventoryDisk>,
    guard: bool,
) -> Result<Value, ManagerStepError> {
    let load = BurnInLoad {
        loops: driver_info_number(node, "agent_burnin_fio_disk_loops")
            .and_then(|loops| u32::try_from(loops).ok())
            .unwrap_or(DEFAULT_LOOPS),
        max_duration: driver_info_number(node, "agent_burnin_fio_disk_runtime")
            .filter(|&seconds| seconds > 0)
            .map(Duration::from_secs),
    };
    let mut policy = ErasePolicy::from_node(node);
    policy.protect_shared &= guard;
    tracing::info!(disks = disks.len(), ?load, "disk burn-in started");
    let work = move || {
        let last = std::sync::Mutex::new(Instant::now());
        let burn_in_disk = |index: usize| {
            let disk: &InventoryDisk = &disks[index];
            let outcome =
                burn_in(disk, &policy, load, &|progress| images::log_progress(&last, progress));
            Ok((disk.name.clone(), outcome))
        };
        let mut results = Map::new();
        let mut failures = Vec::new();
        for (name, outcome) in run_on_threads(disks.len(), burn_in_disk)? {
            match outcome {
                Ok(BurnInOutcome::Verified(bytes)) => {
                    results.insert(name, json!(format!("{bytes} bytes verified")));
                }
                Ok(BurnInOutcome::Skipped(reason)) => {
                    results.insert(name, json!(format!("skipped: {reason}")));
                }
                Err(error) => failures.push(error_chain(&error)),
            }
        }
        if failures.is_empty() { Ok(Value::Object(results)) } else { Err(failures.join("; ")) }
    };
    run_blocking(work).await
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ManagerStepError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(step_error(&error)),
        Err(error) => Err(step_error(&error.to_string())),
    }
}

fn run_on_threads<T: Send>(
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
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
            .collect()
    })
}

fn check_processor(time: Duration) -> Result<u64, String> {
    let started = Instant::now();
    let compute = || {
        let mut digest = Sha256::digest(b"burn in");
        let mut number = 1.0_f64;
        for _ in 0..2000 {
            digest = Sha256::digest(digest);
            number = (number + f64::from(digest[0])).sqrt();
        }
        (digest, number.to_bits())
    };
    let expected = compute();
    let mut rounds = 1;
    while started.elapsed() < time {
        if compute() != expected {
            return Err(
                "a processor returned different results for the same computation".to_owned()
            );
        }
        rounds += 1;
    }
    Ok(rounds)
}

fn check_memory(bytes: usize, seed: u64, time: Duration) -> Result<u64, String> {
    let started = Instant::now();
    let mut blocks: Vec<Vec<u64>> = Vec::new();
    let mut rounds: u64 = 0;
    while rounds == 0 || started.elapsed() < time {
        let value = |block: usize, index: usize| {
            (block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (index as u64)
                ^ seed
                ^ rounds.wrapping_mul(0xff51_afd7_ed55_8ccd)
        };
        for number in 0..bytes / BLOCK_SIZE {
            if blocks.len() <= number {
                let mut block = Vec::new();
                if block.try_reserve_exact(BLOCK_SIZE / 8).is_err() {
                    break;
                }
                blocks.push(block);
            }
            blocks[number].clear();
            blocks[number].extend((0..BLOCK_SIZE / 8).map(|index| value(number, index)));
        }
        for (number, block) in blocks.iter().enumerate() {
            if let Some(index) =
                block.iter().enumerate().position(|(index, &word)| word != value(number, index))
            {
                return Err(format!("memory error at byte {} of block {number}", index * 8));
            }
        }
        rounds += 1;
    }
    Ok(rounds)
}

fn driver_info_duration(node: &Map<String, Value>, name: &str) -> Duration {
    Duration::from_secs(driver_info_number(node, name).unwrap_or(DEFAULT_DURATION_SECONDS))
}

fn driver_info_number(node: &Map<String, Value>, name: &str) -> Option<u64> {
    let value = node.get("driver_info")?.get(name)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the available memory in bytes.
pub(super) fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn step_error(details: &str) -> ManagerStepError {
    ManagerStepError::failed("CommandExecutionError", "Command execution failed", details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn working_hardware_passes() {
        let node =
            json!({"driver_info": {"agent_burnin_cpu_timeout": "0", "agent_burnin_cpu_cpu": 2}});
        let done = burn_in_cpu(node.as_object().unwrap()).await.unwrap();
        assert_eq!(done, json!({"rounds": 2, "threads": 2}));
        assert_eq!(check_memory(2 * BLOCK_SIZE, 7, Duration::ZERO), Ok(1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let name = path.display().to_string();
        let disk = InventoryDisk { name: name.clone(), size: 1 << 20, ..InventoryDisk::default() };
        let node = json!({"driver_info": {"agent_burnin_fio_disk_loops": 2}});
        let node = node.as_object().unwrap();
        let done = burn_in_disks(node, vec![disk.clone()], true).await.unwrap();
        assert_eq!(done, json!({&name: "2097152 bytes verified"}));
        let missing =
            InventoryDisk { name: "/nowhere/disk".to_owned(), ..InventoryDisk::default() };
        let failed = burn_in_disks(node, vec![disk, missing], true).await.unwrap_err();
        let ManagerStepError::Failed(error) = failed else { panic!("{failed:?}") };
        assert!(error.details.unwrap().contains("/nowhere/disk"));
    }
}
