// SPDX-License-Identifier: Apache-2.0
//! The last steps of a deployment: the disk is made bootable, the agent ends, the instance starts.

use std::time::Duration;

use agent_protocol::{Command, CommandStatus, PartitionUuids};
use node_model::{PowerState, PowerTarget, Silent, Timestamp};
use serde_json::{Map, Value};

use super::InBand;
use super::deploy::KEXEC;
use super::following::{Followed, wait_for_agent, why};
use super::image::boot_mode;
use super::ready::{power_off, start};
use crate::{Error, NodeChanges, Outcome, Target};

/// The key of `driver_internal_info` with the root file system, or the disk, of the instance.
const ROOT: &str = "root_uuid_or_disk_id";
/// The note since when the machine is to switch itself off.
const TOLD_TO_STOP: &str = "told_to_stop";
/// How long a machine may take to switch itself off.
const STOPS_WITHIN: Duration = Duration::from_secs(45);
/// How often to look whether it has.
const LOOK: Duration = Duration::from_secs(2);
/// How long an agent may be silent that was told something it does not survive.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
const INSTALL_BOOTLOADER: &str = "image.install_bootloader";
/// How an agent that can start the deployed system itself is called among the hardware managers.
const OUR_AGENT: &str = "ferrite";

impl InBand {
    pub(super) async fn prepare_instance_boot(
        &self,
        target: &Target<'_>,
    ) -> Result<Outcome, Error> {
        if target.node.agent.url.is_none() {
            return wait_for_agent(target).await;
        }
        let mut changes = NodeChanges::none();
        if needs_bootloader(target) {
            let command =
                async { Ok(install_bootloader(target, &self.partition_uuids(target).await?)) };
            match self.line.follow(target, INSTALL_BOOTLOADER, command).await? {
                Followed::NotYet(outcome) => return Ok(outcome),
                Followed::Ended(report, ended) => {
                    if report.command_status != CommandStatus::Succeeded {
                        return Err(Error::failed("make the disk bootable", why(&report)));
                    }
                    changes = ended;
                }
            }
        }
        if let Some(root) = self.partition_uuids(target).await?.root {
            changes = changes.and(NodeChanges::remember(ROOT, root));
        }
        Ok(Outcome::Done(changes.and(target.driver.boot().prepare_instance(target).await?)))
    }

    async fn partition_uuids(&self, target: &Target<'_>) -> Result<PartitionUuids, Error> {
        let uuids = self.line.ask(target, "standby.get_partition_uuids", Map::new()).await?;
        Ok(serde_json::from_value(uuids).unwrap_or_default())
    }

    /// Ends the agent, and with it everything that runs on the machine: it switches itself off, and
    /// is switched off if it does not.
    pub(super) async fn tear_down_agent(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        if self.starts_instance(target) {
            return Ok(Outcome::Done(NodeChanges::none()));
        }
        if target.node.disable_power_off {
            self.line.ask(target, "standby.sync", Map::new()).await?;
            return Ok(Outcome::Done(NodeChanges::none()));
        }
        if target.node.agent.url.is_none() {
            // A step restarted the machine, and its agent is on its way; nobody needs it any more.
            let off = power_off(target).await?;
            return Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..off }));
        }
        let Some(since) = target.notes.get(TOLD_TO_STOP).and_then(|since| since.as_i64()) else {
            let command = Command { name: "standby.power_off".to_owned(), params: Map::new() };
            // An agent that does not answer may be on its way out: the power will tell.
            if let Err(error) = self.line.send(target, &command, false).await
                && error.silent().is_none()
            {
                return Err(error);
            }
            let changes = NodeChanges::note(target.notes, TOLD_TO_STOP, target.now.0);
            return Ok(Outcome::WaitUntil { moment: target.now.plus(LOOK), changes });
        };
        if target.driver.power().get(target).await? == Some(PowerState::Off) {
            let changes = NodeChanges::power(PowerState::Off);
            return Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..changes }));
        }
        if target.now.since(Timestamp(since)) < STOPS_WITHIN {
            let changes = NodeChanges::none();
            return Ok(Outcome::WaitUntil { moment: target.now.plus(LOOK), changes });
        }
        let off = power_off(target).await?;
        Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..off }))
    }

    /// Starts what was deployed.
    pub(super) async fn boot_instance(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        let changes = if self.starts_instance(target) {
            match self.line.ask(target, "standby.kexec", Map::new()).await {
                Ok(_) => NodeChanges::power(PowerState::On),
                // It is deployed all the same, and firmware can boot it. One that has been silent for
                // a while may have started it, and its answer was lost; nobody can tell.
                Err(error) if error.silent().is_none() || has_been_silent(target) => {
                    tracing::warn!(node = %target.node.id, %error, "the agent cannot start the instance");
                    if let Some(calls) = target.calls {
                        let said = error.to_string();
                        calls.add("start without firmware", said, Duration::ZERO);
                    }
                    target.driver.power().set(target, PowerTarget::Reboot, None).await?
                }
                Err(error) => return Err(error),
            }
        } else {
            start(target).await?
        };
        Ok(Outcome::Done(NodeChanges { agent_is_gone: true, ..changes }))
    }

    /// Whether the agent starts the instance, without a boot of the firmware.
    fn starts_instance(&self, target: &Target<'_>) -> bool {
        let said = |info: &Map<String, Value>| info.get(KEXEC.0).and_then(agent_protocol::flag);
        let wanted = said(target.instance_info).or_else(|| said(target.driver_info));
        let managers = target.node.driver_internal_info.get("hardware_manager_version");
        let can = managers
            .as_ref()
            .and_then(Value::as_object)
            .is_some_and(|managers| managers.keys().any(|manager| manager.starts_with(OUR_AGENT)));
        can && wanted.unwrap_or(self.settings.kexec)
    }
}

/// Whether the agent has been silent longer than a lost packet explains.
pub(super) fn has_been_silent(target: &Target<'_>) -> bool {
    let retry = target.node.work.as_ref().and_then(|work| work.retry.as_ref());
    retry.is_some_and(|retry| {
        retry.whom == Silent::Agent && target.now.since(retry.since) >= LONGEST_SILENCE
    })
}

/// Whether the agent has to do something before firmware finds what is on the disk: for images of a
/// partition, for software RAID, and on UEFI machines, whose firmware wants to be told.
fn needs_bootloader(target: &Target<'_>) -> bool {
    let info = &target.node.driver_internal_info;
    let whole_disk = info.get("is_whole_disk_image") != Some(Value::Bool(false));
    !whole_disk || has_software_raid(target) || boot_mode(target) == "uefi"
}

fn has_software_raid(target: &Target<'_>) -> bool {
    let disks = target.node.raid_config.get("logical_disks");
    disks.as_ref().and_then(Value::as_array).is_some_and(|disks| {
        disks.iter().any(|disk| disk.get("controller").and_then(Value::as_str) == Some("software"))
    })
}

fn install_bootloader(target: &Target<'_>, uuids: &PartitionUuids) -> Command {
    let of_instance = |key: &str| target.instance_info.get(key).and_then(Value::as_str);
    let root = of_instance("image_rootfs_uuid").map(str::to_owned).or_else(|| uuids.root.clone());
    let params = [
        ("root_uuid", root),
        ("efi_system_part_uuid", uuids.efi_system_partition.clone()),
        ("prep_boot_part_uuid", uuids.prep.clone()),
        ("target_boot_mode", Some(boot_mode(target))),
    ];
    let params = params.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    Command { name: INSTALL_BOOTLOADER.to_owned(), params: params.collect() }
}
