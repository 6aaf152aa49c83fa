// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `autodetect`: selects a deploy interface from the instance's `instance_info`.
//!
//! When a deployment starts, the node's deploy interface becomes the selected one, so that it is
//! visible in the API; when the instance is removed it becomes `autodetect` again.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DeployInterface, DriverError, DriverTarget, NodeChanges, RegistryBuilder,
    StepOutcome,
};
use node_model::{AvailableStep, InterfaceKind, StepFlow};
use serde_json::Value;

/// The `driver_internal_info` key with the node's own deploy interface.
const ORIGINAL_INTERFACE_KEY: &str = "original_deploy_interface";
const NAME: &str = "autodetect";

/// Registers this implementation, which chooses among the enabled deploy interfaces registered so
/// far.
pub(super) fn register(registry: &mut RegistryBuilder) {
    let enabled = registry.enabled().names(InterfaceKind::Deploy);
    let registered = registry.implementations.deploy_interfaces().iter().cloned();
    let choices = registered.filter(|deploy| enabled.iter().any(|name| name == deploy.name()));
    let autodetect = AutodetectDeploy { choices: choices.collect() };
    registry.implementations.add_deploy(Arc::new(autodetect));
}

/// Restores the node's own deploy interface, if another one was selected for a deployment.
pub(crate) fn restore_deploy_interface(target: &DriverTarget<'_>) -> NodeChanges {
    match target.node.driver_internal_info.get_str(ORIGINAL_INTERFACE_KEY) {
        None => NodeChanges::none(),
        Some(original) => NodeChanges {
            deploy_interface: Some(original),
            ..NodeChanges::internal_info(ORIGINAL_INTERFACE_KEY, Value::Null)
        },
    }
}

struct AutodetectDeploy {
    choices: Vec<Arc<dyn DeployInterface>>,
}

impl AutodetectDeploy {
    /// Selects the deploy interface for the instance.
    fn choose(&self, target: &DriverTarget<'_>) -> Result<&dyn DeployInterface, DriverError> {
        let is_set = |key: &str| {
            let value = target.instance_info.get(key);
            value.is_some_and(|value| !value.is_null() && value != "")
        };
        let requested = target.instance_info.get("ironic_ramdisk_deploy");
        let in_memory = requested.and_then(agent_protocol::parse_bool).unwrap_or(false)
            || is_set("boot_iso")
            || (is_set("kernel") && is_set("ramdisk") && !is_set("image_source"));
        let is_container =
            target.instance_info.get("image_type").and_then(Value::as_str) == Some("bootc");
        let name = match (in_memory, is_container) {
            (true, _) => "ramdisk",
            (false, true) => "bootc",
            (false, false) => "direct",
        };
        let chosen = self.choices.iter().find(|known| known.name() == name);
        chosen.map(|deploy| &**deploy).ok_or_else(|| {
            DriverError::invalid(
                "deploy_interface",
                format!("the instance requires '{name}', which is not enabled"),
            )
        })
    }

    /// The deploy interface `direct`, for calls without an instance.
    fn agent_deploy(&self) -> Result<&dyn DeployInterface, DriverError> {
        let direct = self.choices.iter().find(|known| known.name() == "direct");
        direct
            .map(|deploy| &**deploy)
            .ok_or_else(|| self.unsupported("clean or service the machine"))
    }
}

#[async_trait]
impl BaseInterface for AutodetectDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.choose(target)?.validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        self.agent_deploy().map(|usual| usual.steps(flow)).unwrap_or_default()
    }

    fn runs_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &node_model::Step,
    ) -> Result<StepOutcome, DriverError> {
        self.agent_deploy()?.execute_step(target, flow, step).await
    }
}

#[async_trait]
impl DeployInterface for AutodetectDeploy {
    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let chosen = self.choose(target)?;
        let switched = NodeChanges {
            deploy_interface: Some(chosen.name().to_owned()),
            ..NodeChanges::internal_info(ORIGINAL_INTERFACE_KEY, NAME)
        };
        Ok(switched.and(chosen.prepare(target).await?))
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.agent_deploy()?.tear_down(target).await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.agent_deploy()?.clean_up(target).await
    }

    async fn take_over(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.agent_deploy()?.take_over(target).await
    }

    async fn prepare_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        self.agent_deploy()?.prepare_cleaning(target).await
    }

    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.agent_deploy()?.tear_down_cleaning(target).await
    }

    async fn prepare_service(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        self.agent_deploy()?.prepare_service(target).await
    }

    async fn tear_down_service(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.agent_deploy()?.tear_down_service(target).await
    }
}
