// SPDX-License-Identifier: Apache-2.0
//! The generic manager's steps that have to do with disks.

use agent_protocol::{Disk, Flow, Hints, StepOrder, choose_root_device};
use disk_steps::erase::{self, ErasePolicy, Erased, How};
use serde_json::{Map, Value, json};

use super::{StepError, images, raid};
use crate::agent::Agent;
use crate::logs::causes;

const PSTORE: &str = "/sys/fs/pstore";

/// The disk a system goes on, by the hints of the node. It is waited for a while.
///
/// # Errors
/// If there is none; in words.
pub async fn root_device(agent: &Agent, node: &Map<String, Value>) -> Result<Disk, String> {
    let hints = ["instance_info", "properties"].iter().find_map(|place| {
        node.get(*place)?.get("root_device")?.as_object().filter(|hints| !hints.is_empty())
    });
    let until = tokio::time::Instant::now() + agent.settings.disk_wait;
    loop {
        let disks = usable(agent.managers.disks(), node)?;
        let failure = match choose_root_device(&disks, hints) {
            Ok(disk) => return Ok(disk.clone()),
            Err(failure) => causes(&failure),
        };
        // A controller may still be looking for its disks.
        tokio::select! {
            () = agent.devices.next() => {}
            () = tokio::time::sleep_until(until) => return Err(failure),
        }
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
    let skipped =
        node.get("properties").and_then(|properties| properties.get("skip_block_devices"));
    let Some(Value::Array(skipped)) = skipped else { return Ok(disks) };
    let hints: Vec<Hints> = skipped
        .iter()
        .filter_map(Value::as_object)
        // Those with a volume name are RAID volumes, which are another step's business.
        .filter(|hints| !hints.contains_key("volume_name"))
        .map(|hints| {
            Hints::parse(hints)
                .map_err(|error| format!("skip_block_devices cannot be used: {error}"))
        })
        .collect::<Result<_, _>>()?;
    let left_alone = |disk: &Disk| {
        let fields = serde_json::to_value(disk).unwrap_or_default();
        let fields = fields.as_object();
        fields.is_some_and(|fields| hints.iter().any(|hints| hints.matches(fields)))
    };
    Ok(disks.into_iter().filter(|disk| !left_alone(disk)).collect())
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
    agent
        .devices
        .settled(std::time::Duration::from_millis(300), std::time::Duration::from_secs(10))
        .await;
    let disks = usable(agent.managers.disks(), node)
        .map_err(|error| fail("BlockDeviceEraseError", &error))?;
    let mut policy = ErasePolicy::from_node(node);
    policy.guard &= agent.settings.guard_special_filesystems;
    let work = move || {
        let last = std::sync::Mutex::new(std::time::Instant::now());
        erase::all(&disks, how, &policy, &|progress| images::report(&last, progress))
    };
    let results = blocking(work).await?;
    let mut done = Map::new();
    let mut failures = Vec::new();
    for (name, result) in results {
        match result {
            Ok(erased) => {
                tracing::info!(disk = name, ?erased, "a disk was erased");
                done.insert(name, json!(in_words(&erased)));
            }
            Err(error) => failures.push(format!("{name}: {}", causes(&error))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_can_be_left_alone() {
        let disk = |name: &str, serial: &str| Disk {
            name: name.to_owned(),
            serial: Some(serial.to_owned()),
            size: 10 << 30,
            ..Disk::default()
        };
        let disks = vec![disk("/dev/sda", "A"), disk("/dev/sdb", "B")];
        let node = |skip: Value| json!({"properties": {"skip_block_devices": skip}});
        let names = |skip: Value| {
            let left = usable(disks.clone(), node(skip).as_object().unwrap())?;
            Ok::<_, String>(left.into_iter().map(|disk| disk.name).collect::<Vec<_>>())
        };
        assert_eq!(names(json!([{"serial": "b"}])).unwrap(), ["/dev/sda"]);
        assert_eq!(names(json!([{"volume_name": "x"}])).unwrap().len(), 2);
        assert!(names(json!([{"colour": "x"}])).is_err());
    }
}
