// SPDX-License-Identifier: Apache-2.0
//! Booting the agent, and reusing one that already runs.

use drivers::ramdisk_boot::{boot_ramdisk_next, power_off, start_machine};
use drivers::requested_firmware::release_secure_boot;
use drivers::{
    DriverError, DriverProperty, DriverTarget, NetworkPurpose, NodeChanges, RamdiskMode,
    StepOutcome,
};
use node_model::PowerState;

use super::AgentAccess;
use super::autodetect_deploy::restore_deploy_interface;

/// The `driver_info` key that keeps agents running between jobs.
pub(super) const FAST_TRACK: DriverProperty = (
    "fast_track",
    "Whether an agent that already runs on the machine is used instead of booting it again, and \
     stays there after cleaning. Optional; the configured value if not given.",
);

impl AgentAccess {
    /// Queries the agent that already runs on the machine. Returns the changes that record it, or
    /// `None` if there is no usable agent: it stopped since its last heartbeat, or runs another job.
    pub(super) async fn running_agent(&self, target: &DriverTarget<'_>) -> Option<NodeChanges> {
        let may_run = self.keeps_agent(target)
            && target.node.power_state == Some(PowerState::On)
            && target.node.last_error.is_none()
            && target.node.agent.is_running(target.now, self.heartbeat_validity);
        if may_run { self.client.check_idle(target).await } else { None }
    }

    /// Whether the agent keeps running between jobs.
    pub(super) fn keeps_agent(&self, target: &DriverTarget<'_>) -> bool {
        let requested = target.driver_info.get(FAST_TRACK.0);
        requested.and_then(node_model::parse_bool).unwrap_or(self.fast_track)
    }

    /// Boots the agent for `purpose`, unless one already runs.
    pub(super) async fn boot_agent(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
        purpose: NetworkPurpose,
    ) -> Result<StepOutcome, DriverError> {
        if target.agent_was_awaited() {
            return Ok(StepOutcome::done(NodeChanges::none()));
        }
        if let Some(changes) = self.running_agent(target).await {
            return Ok(StepOutcome::done(changes));
        }
        let changes = boot_ramdisk_next(target, mode, purpose).await?;
        Ok(target.wait_for_agent(start_machine(target, changes).await?))
    }
}

/// Stops the instance: powers the machine off and detaches its volumes and tenant network.
pub(crate) async fn tear_down_instance(
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let changes = restore_deploy_interface(target).and(power_off(target).await?);
    let changes = changes.and(release_secure_boot(target).await?);
    let changes = changes.and(target.driver.storage().detach_volumes(target).await?);
    Ok(changes.and(target.driver.network().leave(target, NetworkPurpose::Tenant).await?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use node_model::{InterfaceKind, Node, NodeId, Step, StepFlow, Timestamp};
    use serde_json::Map;

    use super::*;
    use crate::test_registry::test_registry;
    use drivers::{BaseInterface, NetworkInterface, VifInfo};

    /// A network interface that records the networks of the machine.
    struct RecordingNetwork(Mutex<Vec<NetworkPurpose>>);

    impl BaseInterface for RecordingNetwork {
        fn kind(&self) -> InterfaceKind {
            InterfaceKind::Network
        }

        fn name(&self) -> &'static str {
            "noting"
        }
    }

    #[async_trait]
    impl NetworkInterface for RecordingNetwork {
        async fn vifs(&self, _target: &DriverTarget<'_>) -> Result<Vec<VifInfo>, DriverError> {
            Ok(Vec::new())
        }

        async fn attach_vif(
            &self,
            _target: &DriverTarget<'_>,
            _vif: &VifInfo,
        ) -> Result<NodeChanges, DriverError> {
            Ok(NodeChanges::none())
        }

        async fn detach_vif(
            &self,
            _target: &DriverTarget<'_>,
            _id: &str,
        ) -> Result<NodeChanges, DriverError> {
            Ok(NodeChanges::none())
        }

        async fn join(
            &self,
            _target: &DriverTarget<'_>,
            purpose: NetworkPurpose,
        ) -> Result<NodeChanges, DriverError> {
            self.0.lock().unwrap().push(purpose);
            Ok(NodeChanges::none())
        }

        async fn leave(
            &self,
            _target: &DriverTarget<'_>,
            purpose: NetworkPurpose,
        ) -> Result<NodeChanges, DriverError> {
            self.0.lock().unwrap().retain(|joined| *joined != purpose);
            Ok(NodeChanges::none())
        }
    }

    /// A machine whose agent was kept is attached only to the network of its current purpose.
    #[tokio::test]
    async fn kept_agent_leaves_its_network_when_next_job_starts() {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.interfaces.set(InterfaceKind::Deploy, Some("direct"));
        node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
        let info = Map::new();
        for kept_on in
            [NetworkPurpose::Cleaning, NetworkPurpose::Inspection, NetworkPurpose::Provisioning]
        {
            let network = Arc::new(RecordingNetwork(Mutex::default()));
            let driver = test_registry(Some(network.clone())).compose(&node).unwrap();
            let target = DriverTarget::new(&driver, &node, &info, &info, Timestamp(0));
            let assert_joined = |step: &str, expected: &[NetworkPurpose]| {
                let joined = std::mem::replace(&mut *network.0.lock().unwrap(), vec![kept_on]);
                assert_eq!(joined, expected, "{step} after {kept_on:?}");
            };
            assert_joined("the beginning", &[]);
            let step = Step::new("deploy", "switch_to_tenant_network", 0);
            drop(driver.deploy().execute_step(&target, StepFlow::Deploy, &step).await.unwrap());
            assert_joined("deployment", &[NetworkPurpose::Tenant]);
            drop(driver.deploy().prepare_cleaning(&target).await.unwrap());
            assert_joined("another boot", &[NetworkPurpose::Cleaning]);
            drop(driver.deploy().tear_down_cleaning(&target).await.unwrap());
            assert_joined("cleaning that stopped the agent", &[]);
            drop(driver.inspect().abort(&target).await.unwrap());
            assert_joined("an aborted inspection", &[]);
        }
    }
}
