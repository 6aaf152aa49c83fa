// SPDX-License-Identifier: Apache-2.0
//! The generic manager's steps that have to do with disks.

use std::path::Path;

use agent_protocol::{Disk, Flow, StepOrder};
use disk_steps::erase::{self, ErasePolicy, Erased, How};
use disk_steps::raid::{assemble, existing};
use serde_json::{Map, Value, json};

use super::wishes::{Wishes, is_same};
use super::{StepError, burn_in, images, raid};
use crate::agent::Agent;
use crate::logs::causes;

const PSTORE: &str = "/sys/fs/pstore";
/// Where the kernel tells about devices.
pub(super) const SYS: &str = "/sys";

/// The disk a system goes on, by the wishes of the node. It is waited for a while.
///
/// # Errors
/// If there is none; in words.
pub async fn root_device(agent: &Agent, node: &Map<String, Value>) -> Result<Disk, String> {
    let wishes = Wishes::of(node)?;
    // Which disk is the right one can be said only when all are there.
    ready(agent).await;
    let until = tokio::time::Instant::now() + agent.settings.disk_wait;
    loop {
        let failure = match wishes.choose(&existing(Path::new(SYS)), agent.managers.disks()) {
            Ok(disk) => return Ok(disk),
            Err(failure) => failure,
        };
        // A controller may still be looking for its disks.
        tokio::select! {
            () = agent.devices.next() => {}
            () = tokio::time::sleep_until(until) => return Err(failure),
        }
    }
}

/// The disk that an image was written to, else the one a system would go on.
///
/// # Errors
/// If it is not there any more; in words.
pub(super) async fn written_device(
    agent: &Agent,
    node: &Map<String, Value>,
) -> Result<Disk, String> {
    let Some(written) = agent.written() else { return root_device(agent, node).await };
    let found = agent.managers.disks().into_iter().find(|disk| is_same(disk, &written));
    found.ok_or_else(|| {
        let serial = written.serial.as_deref().unwrap_or("none");
        format!(
            "{} (serial {serial}), which the image was written to, is not there any more: check cables and the kernel's log",
            written.name
        )
    })
}

/// Waits until no more disks turn up, and puts together the arrays that are on them. That is done
/// once: an image may have the metadata of arrays in it that are nobody's business here.
pub(super) async fn ready(agent: &Agent) {
    agent.devices.settled().await;
    agent.assembled.get_or_init(|| assemble_arrays(agent)).await;
}

/// Puts together the arrays that are on the disks.
async fn assemble_arrays(agent: &Agent) {
    if agent.may_touch_disks() {
        raid::load_modules(agent);
        // Whatever goes wrong has been logged.
        let _ = blocking(|| assemble(Path::new(SYS))).await;
    }
}

/// Carries out one of the steps.
pub(super) async fn execute(
    agent: &Agent,
    _flow: Flow,
    name: &str,
    order: &StepOrder,
) -> Result<Value, StepError> {
    if !agent.may_touch_disks() {
        return Err(fail(
            "CommandExecutionError",
            "this agent does not run in its own ramdisk and was not allowed to change disks (ferrite-may-touch-disks=1)",
        ));
    }
    let none = Map::new();
    let arguments = order.arguments().unwrap_or(&none);
    match name {
        "erase_devices" => erase_all(agent, &order.node, How::Whole).await,
        "erase_devices_metadata" => erase_all(agent, &order.node, How::Metadata).await,
        "erase_devices_express" => erase_all(agent, &order.node, How::Express).await,
        "erase_pstore" => erase_pstore(),
        "burnin_disk" => {
            ready(agent).await;
            let disks = usable(agent.managers.disks(), &order.node)
                .map_err(|error| fail("CommandExecutionError", &error))?;
            burn_in::disk(&order.node, disks, agent.settings.guard_special_filesystems).await
        }
        "clean_uefi_nvram" => images::clean_nvram(arguments).await,
        "write_image" => images::write(agent, &order.node, arguments).await,
        "inject_files" => images::inject(agent, order, arguments).await,
        "create_configuration" => raid::create(agent, &order.node).await,
        "delete_configuration" => raid::delete(agent, &order.node).await,
        "apply_configuration" => raid::apply(agent, &order.node, arguments).await,
        _ => Err(StepError::NotMine),
    }
}

/// The disks without those the node says to leave alone.
pub(super) fn usable(disks: Vec<Disk>, node: &Map<String, Value>) -> Result<Vec<Disk>, String> {
    Ok(Wishes::of(node)?.usable(&existing(Path::new(SYS)), disks))
}

/// Runs work that blocks on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| fail("CommandExecutionError", &error.to_string()))
}

pub(super) fn fail(kind: &str, details: &str) -> StepError {
    let message = match kind {
        "BlockDeviceEraseError" => "Error erasing block device",
        "ImageWriteError" => "Error writing image to device",
        "ImageChecksumError" => "Error verifying image checksum",
        "ImageDownloadError" => "Error downloading image",
        "DeviceNotFound" => "Error finding the disk or partition device to deploy the image onto",
        "SoftwareRAIDError" => "Error handling RAID configuration",
        _ => "Command execution failed",
    };
    StepError::failed(kind, message, details)
}

async fn erase_all(agent: &Agent, node: &Map<String, Value>, how: How) -> Result<Value, StepError> {
    ready(agent).await;
    let mut policy = ErasePolicy::from_node(node);
    policy.guard &= agent.settings.guard_special_filesystems;
    let mut done = Map::new();
    let mut failures = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    loop {
        // What nobody puts together would neither be erased itself nor let its members be.
        assemble_arrays(agent).await;
        let all = usable(agent.managers.disks(), node)
            .map_err(|error| fail("BlockDeviceEraseError", &error))?;
        // Erasing takes so long that a disk may have turned up meanwhile.
        let new: Vec<Disk> =
            all.iter().filter(|disk| !seen.contains(&disk.name)).cloned().collect();
        if new.is_empty() {
            break;
        }
        seen.extend(new.iter().map(|disk| disk.name.clone()));
        let policy = policy.clone();
        let work = move || {
            let last = std::sync::Mutex::new(std::time::Instant::now());
            erase::all(&new, &all, how, &policy, &|progress| images::report(&last, progress))
        };
        for (name, result) in blocking(work).await? {
            match result {
                Ok(erased) => {
                    tracing::info!(disk = name, ?erased, "a disk was erased");
                    done.insert(name, json!(in_words(&erased)));
                }
                Err(error) => failures.push(format!("{name}: {}", causes(&error))),
            }
        }
    }
    if failures.is_empty() {
        return Ok(Value::Object(done));
    }
    Err(fail("BlockDeviceEraseError", &failures.join("; ")))
}

fn in_words(erased: &Erased) -> String {
    match erased {
        Erased::Skipped(why) => format!("left alone: {why}"),
        Erased::ByDrive(how) => format!("erased itself: {how}"),
        Erased::Overwritten(times) => format!("overwritten {times} times"),
        Erased::Metadata => "metadata erased".to_owned(),
        Erased::BesideArrays => "erased beside its RAID arrays".to_owned(),
    }
}

/// Deletes what the kernel saved of crashes.
fn erase_pstore() -> Result<Value, StepError> {
    let Ok(entries) = std::fs::read_dir(PSTORE) else { return Ok(Value::Null) };
    for entry in entries.flatten() {
        std::fs::remove_file(entry.path()).map_err(|error| {
            let name = entry.file_name();
            fail("CommandExecutionError", &format!("{PSTORE}/{} stays: {error}", name.display()))
        })?;
    }
    Ok(Value::Null)
}
