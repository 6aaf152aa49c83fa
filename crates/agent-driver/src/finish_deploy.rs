// SPDX-License-Identifier: Apache-2.0
//! The last deploy steps: install the bootloader, stop the agent, start the instance.

use std::time::Duration;

use agent_protocol::{AgentCommand, CommandStatus, PartitionUuids};
use drivers::instance_image::boot_mode;
use drivers::ramdisk_boot::{power_off, start_machine};
use drivers::requested_firmware::{RequestedFirmware, prepare_instance_firmware};
use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{PowerState, PowerTarget, Timestamp};
use serde_json::{Map, Value};

use super::AgentAccess;
use super::agent_commands::{CommandProgress, failure_reason, wait_for_agent};
use super::agent_deploy::KEXEC;

/// The `driver_internal_info` key with the UUID of the instance's root file system or disk.
const ROOT_UUID_KEY: &str = "root_uuid_or_disk_id";
/// Driver state: time when the power-off command was sent.
const POWER_OFF_SENT_KEY: &str = "power_off_sent_at";
/// The same key as earlier versions stored it.
const OLD_POWER_OFF_SENT_KEY: &str = "told_to_stop";
/// Time after which a machine that does not power itself off is powered off.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(45);
/// Interval of power state queries.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time without a response after which an agent counts as stopped by a command that ends it.
const UNREACHABLE_GRACE: Duration = Duration::from_secs(30);
const INSTALL_BOOTLOADER: &str = "image.install_bootloader";
/// Name prefix of the hardware manager of agents that support kexec.
const FERRITE_MANAGER_PREFIX: &str = "ferrite";

impl AgentAccess {
    pub(super) async fn prepare_instance_boot(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        if target.node.agent.url.is_none() {
            return wait_for_agent(target).await;
        }
        let mut changes = NodeChanges::none();
        if needs_bootloader(target) {
            let command =
                async { Ok(install_bootloader(target, &self.partition_uuids(target).await?)) };
            match self.client.follow(target, INSTALL_BOOTLOADER, command).await? {
                CommandProgress::Pending(outcome) => return Ok(outcome),
                CommandProgress::Ended(report, ended) => {
                    if report.command_status != CommandStatus::Succeeded {
                        return Err(DriverError::failed(
                            "make the disk bootable",
                            failure_reason(&report),
                        ));
                    }
                    changes = ended;
                }
            }
        }
        if let Some(root) = self.partition_uuids(target).await?.root {
            changes = changes.and(NodeChanges::internal_info(ROOT_UUID_KEY, root));
        }
        Ok(StepOutcome::done(changes.and(target.driver.boot().prepare_instance(target).await?)))
    }

    async fn partition_uuids(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<PartitionUuids, DriverError> {
        let uuids = self.client.run_sync(target, "standby.get_partition_uuids", Map::new()).await?;
        Ok(serde_json::from_value(uuids).unwrap_or_default())
    }

    /// Stops the agent: it powers the machine off, and the BMC does if it fails to.
    pub(super) async fn tear_down_agent(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        if self.uses_kexec(target) {
            return Ok(StepOutcome::done(NodeChanges::none()));
        }
        if target.node.disable_power_off {
            self.client.run_sync(target, "standby.sync", Map::new()).await?;
            return Ok(StepOutcome::done(NodeChanges::none()));
        }
        if target.node.agent.url.is_none() {
            // A step restarted the machine. The starting agent is not needed any more.
            let off = power_off(target).await?;
            return Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..off }));
        }
        let stored = |key| target.driver_state.get(key).and_then(|since| since.as_i64());
        let sent_at = stored(POWER_OFF_SENT_KEY).or_else(|| stored(OLD_POWER_OFF_SENT_KEY));
        let Some(since) = sent_at else {
            let command = AgentCommand { name: "standby.power_off".to_owned(), params: Map::new() };
            // An agent that does not respond may be shutting down; the power state shows it.
            if let Err(error) = self.client.send(target, &command, false).await
                && error.unreachable_peer().is_none()
            {
                return Err(error);
            }
            let changes = NodeChanges::driver_state_key(POWER_OFF_SENT_KEY, target.now.0);
            return Ok(StepOutcome::poll_at(target.now.plus(POLL_INTERVAL), changes));
        };
        if target.driver.power().get(target).await? == Some(PowerState::Off) {
            let changes = NodeChanges::power(PowerState::Off);
            return Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..changes }));
        }
        if target.now.since(Timestamp(since)) < POWER_OFF_TIMEOUT {
            let changes = NodeChanges::none();
            return Ok(StepOutcome::poll_at(target.now.plus(POLL_INTERVAL), changes));
        }
        let off = power_off(target).await?;
        Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..off }))
    }

    /// Starts the deployed system.
    pub(super) async fn boot_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        let changes = if self.uses_kexec(target) {
            match self.client.run_sync(target, "standby.kexec", Map::new()).await {
                Ok(_) => NodeChanges::power(PowerState::On),
                // The firmware can boot the deployed system instead. An agent that did not respond for
                // a while may have started it, with its response lost; that cannot be determined.
                Err(error)
                    if error.unreachable_peer().is_none() || is_unreachable_for_long(target) =>
                {
                    tracing::warn!(node = %target.node.id, %error, "kexec failed, rebooting the machine");
                    if let Some(call_log) = target.call_log {
                        let result = error.to_string();
                        call_log.add("kexec", result, Duration::ZERO);
                    }
                    target.driver.power().set(target, PowerTarget::Reboot, None).await?
                }
                Err(error) => return Err(error),
            }
        } else {
            start_machine(target, prepare_instance_firmware(target).await?).await?
        };
        Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..changes }))
    }

    /// Whether the agent starts the instance with kexec.
    fn uses_kexec(&self, target: &DriverTarget<'_>) -> bool {
        let kexec_in =
            |info: &Map<String, Value>| info.get(KEXEC.0).and_then(agent_protocol::parse_bool);
        let requested = kexec_in(target.instance_info).or_else(|| kexec_in(target.driver_info));
        let managers = target.node.driver_internal_info.get("hardware_manager_version");
        let is_supported = managers.as_ref().and_then(Value::as_object).is_some_and(|managers| {
            managers.keys().any(|manager| manager.starts_with(FERRITE_MANAGER_PREFIX))
        });
        // Secure boot verifies the instance only if the firmware boots it.
        let firmware = RequestedFirmware::from_target(target).unwrap_or_default();
        let is_firmware_boot = firmware.secure_boot == Some(true);
        is_supported && !is_firmware_boot && requested.unwrap_or(self.settings.kexec)
    }
}

/// Whether the agent has been unreachable for longer than a lost packet explains.
pub(super) fn is_unreachable_for_long(target: &DriverTarget<'_>) -> bool {
    let since = target.job.agent_unreachable_since;
    since.is_some_and(|since| target.now.since(since) >= UNREACHABLE_GRACE)
}

/// Whether the agent must install a bootloader: for partition images, for software RAID, and on UEFI
/// machines, where a boot entry is needed.
fn needs_bootloader(target: &DriverTarget<'_>) -> bool {
    let info = &target.node.driver_internal_info;
    let whole_disk = info.get("is_whole_disk_image") != Some(Value::Bool(false));
    !whole_disk || has_software_raid(target) || boot_mode(target) == "uefi"
}

fn has_software_raid(target: &DriverTarget<'_>) -> bool {
    let disks = target.node.raid_config.get("logical_disks");
    disks.as_ref().and_then(Value::as_array).is_some_and(|disks| {
        disks.iter().any(|disk| disk.get("controller").and_then(Value::as_str) == Some("software"))
    })
}

fn install_bootloader(target: &DriverTarget<'_>, uuids: &PartitionUuids) -> AgentCommand {
    let instance_text = |key: &str| target.instance_info.get(key).and_then(Value::as_str);
    let root = instance_text("image_rootfs_uuid").map(str::to_owned).or_else(|| uuids.root.clone());
    let params = [
        ("root_uuid", root),
        ("efi_system_part_uuid", uuids.efi_system_partition.clone()),
        ("prep_boot_part_uuid", uuids.prep.clone()),
        ("target_boot_mode", Some(boot_mode(target))),
    ];
    let params = params.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    AgentCommand { name: INSTALL_BOOTLOADER.to_owned(), params: params.collect() }
}
