// SPDX-License-Identifier: Apache-2.0
//! Getting an agent to run on a machine, and using one that runs already.

use node_model::{PowerState, PowerTarget};

use super::InBand;
use super::autodetect::restored;
use crate::interfaces::{NetworkUse, Property};
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// The `driver_info` key that lets agents stay on a machine between jobs.
pub(super) const FAST_TRACK: Property = (
    "fast_track",
    "Whether an agent that already runs on the machine is used instead of booting it again, and \
     stays there after cleaning. Optional; the configured value if not given.",
);

impl InBand {
    /// The agent that runs on the machine and may be used as it is, if there is one: what to
    /// remember of it. It is asked, so that one that has died since its last call, or is still busy
    /// with another job, is not relied on.
    pub(super) async fn running_agent(&self, target: &Target<'_>) -> Option<NodeChanges> {
        let may_run = self.stays(target)
            && target.node.power_state == Some(PowerState::On)
            && target.node.last_error.is_none()
            && target.node.agent.is_fresh(target.now, self.is_fresh);
        if may_run { self.line.idle(target).await } else { None }
    }

    /// Whether agents may stay on the machine between jobs.
    pub(super) fn stays(&self, target: &Target<'_>) -> bool {
        let said = target.driver_info.get(FAST_TRACK.0);
        said.and_then(node_model::truth).unwrap_or(self.fast_track)
    }

    /// Boots the agent for `purpose`, unless one runs.
    pub(super) async fn boot_agent(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
        purpose: NetworkUse,
    ) -> Result<Outcome, Error> {
        if target.agent_was_awaited() {
            return Ok(Outcome::Done(NodeChanges::none()));
        }
        if let Some(changes) = self.running_agent(target).await {
            return Ok(Outcome::Done(changes));
        }
        let changes = boot_ramdisk_next(target, mode, purpose).await?;
        Ok(target.wait_for_agent(changes.and(start(target).await?)))
    }
}

/// Switches the machine off and makes its next boot start the agent, on the network for `purpose`.
pub(super) async fn boot_ramdisk_next(
    target: &Target<'_>,
    mode: RamdiskMode,
    purpose: NetworkUse,
) -> Result<NodeChanges, Error> {
    let changes = power_off(target).await?.and(leave_ramdisk_networks(target).await?);
    let changes = changes.and(target.driver.network().join(target, purpose).await?);
    let boot = target.driver.boot();
    let changes = changes.and(boot.prepare_ramdisk(target, mode).await?);
    Ok(NodeChanges { agent_is_gone: true, ..changes })
}

/// Takes the machine off every network that an agent may have been booted on. One that stayed after
/// an inspection or cleaning is on the network of that, whatever it was used for since.
pub(super) async fn leave_ramdisk_networks(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let mut changes = NodeChanges::none();
    for purpose in [NetworkUse::Provisioning, NetworkUse::Cleaning, NetworkUse::Inspection] {
        changes = changes.and(target.driver.network().leave(target, purpose).await?);
    }
    Ok(changes)
}

/// Takes the instance down: the machine is off, without the instance's volumes and network.
pub(crate) async fn take_down(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let changes = restored(target).and(power_off(target).await?);
    let changes = changes.and(target.driver.storage().detach_volumes(target).await?);
    Ok(changes.and(target.driver.network().leave(target, NetworkUse::Tenant).await?))
}

/// Boots the ramdisk of `mode` once more, because nothing was heard of its agent: by another way, if
/// the boot interface has one.
pub async fn boot_again(target: &Target<'_>, mode: RamdiskMode) -> Result<NodeChanges, Error> {
    let changes = power_off(target).await?;
    let changes = changes.and(target.driver.boot().prepare_again(target, mode).await?);
    Ok(NodeChanges { agent_is_gone: true, ..changes.and(start(target).await?) })
}

/// Boots a machine that nobody uses into the agent, where the agent stays until it is needed.
pub async fn warm_up(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let changes = boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkUse::Provisioning).await?;
    Ok(changes.and(start(target).await?))
}

/// Switches a machine on that was switched off, or reboots one that must not be.
pub(crate) async fn start(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let wanted = if target.node.disable_power_off { PowerTarget::Reboot } else { PowerTarget::On };
    target.driver.power().set(target, wanted, None).await
}

pub(crate) async fn power_off(target: &Target<'_>) -> Result<NodeChanges, Error> {
    if target.node.disable_power_off {
        return Ok(NodeChanges::none());
    }
    target.driver.power().set(target, PowerTarget::Off, None).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use node_model::{InterfaceKind, Node, NodeId, Step, StepFlow, Timestamp};
    use serde_json::Map;

    use super::*;
    use crate::interfaces::{Interface, Network, VifInfo};
    use crate::{Driver, DriverSettings, NoBootServices, Registry};

    /// A network interface that knows on which networks the machine is.
    struct Noting(Mutex<Vec<NetworkUse>>);

    impl Interface for Noting {
        fn kind(&self) -> InterfaceKind {
            InterfaceKind::Network
        }

        fn name(&self) -> &'static str {
            "noting"
        }
    }

    #[async_trait]
    impl Network for Noting {
        async fn vifs(&self, _target: &Target<'_>) -> Result<Vec<VifInfo>, Error> {
            Ok(Vec::new())
        }

        async fn attach_vif(
            &self,
            _target: &Target<'_>,
            _vif: &VifInfo,
        ) -> Result<NodeChanges, Error> {
            Ok(NodeChanges::none())
        }

        async fn detach_vif(&self, _target: &Target<'_>, _id: &str) -> Result<NodeChanges, Error> {
            Ok(NodeChanges::none())
        }

        async fn join(
            &self,
            _target: &Target<'_>,
            purpose: NetworkUse,
        ) -> Result<NodeChanges, Error> {
            self.0.lock().unwrap().push(purpose);
            Ok(NodeChanges::none())
        }

        async fn leave(
            &self,
            _target: &Target<'_>,
            purpose: NetworkUse,
        ) -> Result<NodeChanges, Error> {
            self.0.lock().unwrap().retain(|joined| *joined != purpose);
            Ok(NodeChanges::none())
        }
    }

    /// Whatever network the agent that stayed was booted on, the machine is on no other afterwards
    /// than on the one it is meant for.
    #[tokio::test]
    async fn a_machine_whose_agent_stayed_leaves_the_network_of_the_agent() {
        let registry = Registry::new(&DriverSettings::default(), Arc::new(NoBootServices)).unwrap();
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        registry.resolve("fake-hardware", &mut node.interfaces).unwrap();
        node.interfaces.set(InterfaceKind::Deploy, Some("direct"));
        node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
        let composed = registry.compose(&node).unwrap();
        let info = Map::new();
        for stayed_on in [NetworkUse::Cleaning, NetworkUse::Inspection, NetworkUse::Provisioning] {
            let network = Arc::new(Noting(Mutex::default()));
            let driver = Driver { network: network.clone(), ..composed.clone() };
            let target = Target::new(&driver, &node, &info, &info, Timestamp(0));
            let joined = |on: &str, expected: &[NetworkUse]| {
                let joined = std::mem::replace(&mut *network.0.lock().unwrap(), vec![stayed_on]);
                assert_eq!(joined, expected, "{on} after {stayed_on:?}");
            };
            joined("the beginning", &[]);
            let step = Step::new("deploy", "switch_to_tenant_network", 0);
            drop(driver.deploy().execute_step(&target, StepFlow::Deploy, &step).await.unwrap());
            joined("deployment", &[NetworkUse::Tenant]);
            drop(driver.deploy().prepare_cleaning(&target).await.unwrap());
            joined("another boot", &[NetworkUse::Cleaning]);
            drop(driver.deploy().tear_down_cleaning(&target).await.unwrap());
            joined("cleaning that ended it", &[]);
            drop(driver.inspect().abort(&target).await.unwrap());
            joined("an inspection that was aborted", &[]);
        }
    }
}
