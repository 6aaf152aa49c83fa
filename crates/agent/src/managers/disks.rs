// SPDX-License-Identifier: Apache-2.0
//! The disk steps of the generic manager.

use std::path::Path;

use agent_protocol::{ExecuteStepRequest, InventoryDisk, StepFlow};
use disk_steps::erase::{self, EraseMethod, EraseOutcome, ErasePolicy};
use disk_steps::raid::{assemble, list_arrays};
use serde_json::{Map, Value, json};

use super::disk_selection::{DiskSelection, is_same_disk};
use super::{ManagerStepError, burn_in, images, raid};
use crate::agent::RamdiskAgent;
use error_chain::error_chain;

const PSTORE_DIR: &str = "/sys/fs/pstore";
/// The mount point of sysfs.
pub(super) const SYSFS: &str = "/sys";

/// Returns the disk for the operating system. Waits up to `ipa-disk-wait-…` for it.
///
/// # Errors
/// If there is none; returns a message.
pub async fn root_device(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
) -> Result<InventoryDisk, String> {
    let selection = DiskSelection::from_node(node)?;
    // The choice depends on all disks, so wait until they are detected.
    wait_for_disks(agent).await;
    let until = tokio::time::Instant::now() + agent.options.disk_wait;
    loop {
        let failure = match selection
            .choose_root_disk(&list_arrays(Path::new(SYSFS)), agent.managers.disks())
        {
            Ok(disk) => return Ok(disk),
            Err(failure) => failure,
        };
        // A controller may still be detecting its disks.
        tokio::select! {
            () = agent.devices.next_device() => {}
            () = tokio::time::sleep_until(until) => return Err(failure),
        }
    }
}

/// Returns the disk that an image was written to, else the one that would be chosen.
///
/// # Errors
/// If it does not exist any more; returns a message.
pub(super) async fn written_device(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
) -> Result<InventoryDisk, String> {
    let Some(written) = agent.written_disk() else { return root_device(agent, node).await };
    let disk = agent.managers.disks().into_iter().find(|disk| is_same_disk(disk, &written));
    disk.ok_or_else(|| {
        let serial = written.serial.as_deref().unwrap_or("none");
        format!(
            "{} (serial {serial}), which the image was written to, has disappeared; check cables and the kernel's log",
            written.name
        )
    })
}

/// Waits until all disks are detected, and assembles the RAID arrays on them. Arrays are assembled
/// once only: a written image may contain RAID metadata that does not concern the agent.
pub(super) async fn wait_for_disks(agent: &RamdiskAgent) {
    agent.devices.wait_settled().await;
    agent.arrays_assembled.get_or_init(|| assemble_arrays(agent)).await;
}

/// Assembles the RAID arrays on the disks.
async fn assemble_arrays(agent: &RamdiskAgent) {
    if agent.may_modify_disks() {
        raid::load_modules(agent);
        // Failures are logged by `assemble`.
        let _ = run_blocking(|| assemble(Path::new(SYSFS))).await;
    }
}

/// Executes one of the disk steps.
pub(super) async fn execute(
    agent: &RamdiskAgent,
    _flow: StepFlow,
    name: &str,
    request: &ExecuteStepRequest,
) -> Result<Value, ManagerStepError> {
    if !agent.may_modify_disks() {
        return Err(step_error(
            "CommandExecutionError",
            "this agent does not run in its own ramdisk and is not allowed to modify disks; set ferrite-may-touch-disks=1 to allow it",
        ));
    }
    let none = Map::new();
    let arguments = request.arguments().unwrap_or(&none);
    match name {
        "erase_devices" => erase_all(agent, &request.node, EraseMethod::Full).await,
        "erase_devices_metadata" => erase_all(agent, &request.node, EraseMethod::Metadata).await,
        "erase_devices_express" => erase_all(agent, &request.node, EraseMethod::Express).await,
        "erase_pstore" => erase_pstore(),
        "burnin_disk" => {
            wait_for_disks(agent).await;
            let disks = usable_disks(agent.managers.disks(), &request.node)
                .map_err(|error| step_error("CommandExecutionError", &error))?;
            burn_in::burn_in_disks(&request.node, disks, agent.options.guard_special_filesystems)
                .await
        }
        "clean_uefi_nvram" => images::clean_nvram(arguments).await,
        "write_image" => images::write_image(agent, &request.node, arguments).await,
        "inject_files" => images::inject_files(agent, request, arguments).await,
        "create_configuration" => raid::create(agent, &request.node).await,
        "delete_configuration" => raid::delete(agent, &request.node).await,
        "apply_configuration" => raid::apply(agent, &request.node, arguments).await,
        _ => Err(ManagerStepError::NotSupported),
    }
}

/// Returns the disks without protected ones.
pub(super) fn usable_disks(
    disks: Vec<InventoryDisk>,
    node: &Map<String, Value>,
) -> Result<Vec<InventoryDisk>, String> {
    Ok(DiskSelection::from_node(node)?.usable_disks(&list_arrays(Path::new(SYSFS)), disks))
}

/// Runs blocking work on another thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ManagerStepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| step_error("CommandExecutionError", &error.to_string()))
}

pub(super) fn step_error(kind: &str, details: &str) -> ManagerStepError {
    let message = match kind {
        "BlockDeviceEraseError" => "Error erasing block device",
        "ImageWriteError" => "Error writing image to device",
        "ImageChecksumError" => "Error verifying image checksum",
        "ImageDownloadError" => "Error downloading image",
        "DeviceNotFound" => "Error finding the disk or partition device to deploy the image onto",
        "SoftwareRAIDError" => "Error handling RAID configuration",
        _ => "Command execution failed",
    };
    ManagerStepError::failed(kind, message, details)
}

async fn erase_all(
    agent: &RamdiskAgent,
    node: &Map<String, Value>,
    method: EraseMethod,
) -> Result<Value, ManagerStepError> {
    wait_for_disks(agent).await;
    let mut policy = ErasePolicy::from_node(node);
    policy.protect_shared &= agent.options.guard_special_filesystems;
    let mut done = Map::new();
    let mut failures = Vec::new();
    let mut processed: Vec<String> = Vec::new();
    loop {
        // Arrays that are not assembled cannot be erased and block their members.
        assemble_arrays(agent).await;
        let all = usable_disks(agent.managers.disks(), node)
            .map_err(|error| step_error("BlockDeviceEraseError", &error))?;
        // More disks may have been detected during a long erase.
        let new: Vec<InventoryDisk> =
            all.iter().filter(|disk| !processed.contains(&disk.name)).cloned().collect();
        if new.is_empty() {
            break;
        }
        processed.extend(new.iter().map(|disk| disk.name.clone()));
        let policy = policy.clone();
        let work = move || {
            let last = std::sync::Mutex::new(std::time::Instant::now());
            erase::erase_disks(&new, &all, method, &policy, &|progress| {
                images::log_progress(&last, progress)
            })
        };
        for (name, result) in run_blocking(work).await? {
            match result {
                Ok(erased) => {
                    tracing::info!(disk = name, outcome = ?erased, "disk erased");
                    done.insert(name, json!(describe_outcome(&erased)));
                }
                Err(error) => failures.push(format!("{name}: {}", error_chain(&error))),
            }
        }
    }
    if failures.is_empty() {
        return Ok(Value::Object(done));
    }
    Err(step_error("BlockDeviceEraseError", &failures.join("; ")))
}

fn describe_outcome(erased: &EraseOutcome) -> String {
    match erased {
        EraseOutcome::Skipped(reason) => format!("skipped: {reason}"),
        EraseOutcome::ByDrive(method) => format!("erased by the drive: {method}"),
        EraseOutcome::Overwritten(times) => format!("overwritten {times} times"),
        EraseOutcome::Metadata => "metadata erased".to_owned(),
        EraseOutcome::OutsideArrays => "erased outside of its RAID arrays".to_owned(),
    }
}

/// Deletes the kernel's crash records.
fn erase_pstore() -> Result<Value, ManagerStepError> {
    let Ok(entries) = std::fs::read_dir(PSTORE_DIR) else { return Ok(Value::Null) };
    for entry in entries.flatten() {
        std::fs::remove_file(entry.path()).map_err(|error| {
            let name = entry.file_name();
            let path = format!("{PSTORE_DIR}/{}", name.display());
            step_error("CommandExecutionError", &format!("cannot delete {path}: {error}"))
        })?;
    }
    Ok(Value::Null)
}
