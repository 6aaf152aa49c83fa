// SPDX-License-Identifier: Apache-2.0
//! Booting a machine into the ramdisk and restarting it, through its driver's other interfaces.

use node_model::PowerTarget;

use crate::requested_firmware::prepare_ramdisk_firmware;
use crate::{DriverError, DriverTarget, NetworkPurpose, NodeChanges, RamdiskMode};

/// Powers the machine off and makes its next boot start the agent, on the network for `purpose`.
pub async fn boot_ramdisk_next(
    target: &DriverTarget<'_>,
    mode: RamdiskMode,
    purpose: NetworkPurpose,
) -> Result<NodeChanges, DriverError> {
    let changes = power_off(target).await?;
    // The conductor sets the firmware when it prepares a deployment.
    let firmware = if purpose == NetworkPurpose::Provisioning {
        NodeChanges::none()
    } else {
        prepare_ramdisk_firmware(target).await?
    };
    let changes = changes.and(firmware).and(leave_ramdisk_networks(target).await?);
    let changes = changes.and(target.driver.network().join(target, purpose).await?);
    let boot = target.driver.boot();
    let changes = changes.and(boot.prepare_ramdisk(target, mode).await?);
    Ok(NodeChanges { agent_stopped: true, ..changes })
}

/// Detaches the machine from every network that an agent may have been booted on. An agent kept after
/// inspection or cleaning is still on that job's network.
pub async fn leave_ramdisk_networks(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    let mut changes = NodeChanges::none();
    for purpose in
        [NetworkPurpose::Provisioning, NetworkPurpose::Cleaning, NetworkPurpose::Inspection]
    {
        changes = changes.and(target.driver.network().leave(target, purpose).await?);
    }
    Ok(changes)
}

/// Boots the ramdisk of `mode` again because its agent did not send a heartbeat, with another boot
/// method if the boot interface has one.
pub async fn retry_ramdisk_boot(
    target: &DriverTarget<'_>,
    mode: RamdiskMode,
) -> Result<NodeChanges, DriverError> {
    let changes = power_off(target).await?;
    let changes = changes.and(target.driver.boot().prepare_ramdisk_retry(target, mode).await?);
    Ok(NodeChanges { agent_stopped: true, ..start_machine(target, changes).await? })
}

/// Boots an unused machine into the agent, which then waits for a job.
pub async fn boot_standby_agent(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    let changes =
        boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkPurpose::Provisioning).await?;
    start_machine(target, changes).await
}

/// Powers the machine on, or reboots it if the node has `disable_power_off`. `before` are the
/// changes of earlier calls in the same action, which the node does not have yet; returns them with
/// the new ones.
pub async fn start_machine(
    target: &DriverTarget<'_>,
    before: NodeChanges,
) -> Result<NodeChanges, DriverError> {
    let power_target =
        if target.node.disable_power_off { PowerTarget::Reboot } else { PowerTarget::On };
    start_with(target, before, power_target).await
}

/// Starts the machine as [`start_machine`] does, with this power change. The power interface needs the node
/// with the changes made before: on BMCs without a persistent boot override, it sets the boot device
/// that the node stores again before each start.
async fn start_with(
    target: &DriverTarget<'_>,
    before: NodeChanges,
    power_target: PowerTarget,
) -> Result<NodeChanges, DriverError> {
    let mut node = target.node.clone();
    before.apply_to(&mut node);
    let target = DriverTarget { node: &node, ..*target };
    let started = target.driver.power().set(&target, power_target, None).await?;
    Ok(before.and(started))
}

/// Powers the machine off, unless the node has `disable_power_off`.
pub async fn power_off(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    if target.node.disable_power_off {
        return Ok(NodeChanges::none());
    }
    target.driver.power().set(target, PowerTarget::Off, None).await
}

/// Restarts the machine in the middle of a job, with the agent if a later step needs one.
pub async fn restart(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    if target.job.needs_agent_later {
        reboot_ramdisk(target).await
    } else {
        target.driver.power().set(target, PowerTarget::Reboot, None).await
    }
}

/// Reboots the machine into the same ramdisk. The ramdisk is prepared again, because the boot device
/// was set for one boot only.
pub async fn reboot_ramdisk(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    let prepared = target.driver.boot().prepare_ramdisk(target, RamdiskMode::Deploy).await?;
    let changes = start_with(target, prepared, PowerTarget::Reboot).await?;
    Ok(NodeChanges { agent_stopped: true, ..changes })
}
