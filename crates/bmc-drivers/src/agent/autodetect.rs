// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `autodetect`: what an instance asks for decides how it is deployed.
//!
//! When a deployment begins, the node's deploy interface becomes the one that fits, so that
//! everybody sees which it is; when the instance is gone it is `autodetect` again.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, StepFlow, StepOffer};
use serde_json::Value;

use crate::driver::Shelves;
use crate::interfaces::{Deploy, Interface};
use crate::{Error, NodeChanges, Outcome, Target};

/// The key of `driver_internal_info` with the interface that the node really has.
const ORIGINAL: &str = "original_deploy_interface";
const NAME: &str = "autodetect";

/// Puts this implementation on its shelf, to choose among those that are there already and enabled.
pub(super) fn add_to(shelves: &mut Shelves, enabled: &[String]) {
    let mut choices = shelves.deploy.clone();
    choices.retain(|(name, _)| enabled.iter().any(|enabled| enabled == name));
    shelves.deploy.push((NAME, Arc::new(Autodetect { choices })));
}

/// The node's own deploy interface, if the one it has was chosen for a deployment.
pub(crate) fn restored(target: &Target<'_>) -> NodeChanges {
    match target.node.driver_internal_info.get_str(ORIGINAL) {
        None => NodeChanges::none(),
        Some(original) => NodeChanges {
            deploy_interface: Some(original),
            ..NodeChanges::remember(ORIGINAL, Value::Null)
        },
    }
}

struct Autodetect {
    choices: Vec<(&'static str, Arc<dyn Deploy>)>,
}

impl Autodetect {
    /// What fits the instance.
    fn choose(&self, target: &Target<'_>) -> Result<&dyn Deploy, Error> {
        let given = |key: &str| {
            let value = target.instance_info.get(key);
            value.is_some_and(|value| !value.is_null() && value != "")
        };
        let asked = target.instance_info.get("ironic_ramdisk_deploy");
        let in_memory = asked.and_then(agent_protocol::flag).unwrap_or(false)
            || given("boot_iso")
            || (given("kernel") && given("ramdisk") && !given("image_source"));
        let is_container =
            target.instance_info.get("image_type").and_then(Value::as_str) == Some("bootc");
        let name = match (in_memory, is_container) {
            (true, _) => "ramdisk",
            (false, true) => "bootc",
            (false, false) => "direct",
        };
        let chosen = self.choices.iter().find(|(known, _)| *known == name);
        chosen.map(|(_, deploy)| &**deploy).ok_or_else(|| {
            Error::invalid(
                "deploy_interface",
                format!("'{name}' would fit the instance, and is not enabled here"),
            )
        })
    }

    /// Where there is no instance to tell: what works through the agent.
    fn usual(&self) -> Result<&dyn Deploy, Error> {
        let direct = self.choices.iter().find(|(name, _)| *name == "direct");
        direct
            .map(|(_, deploy)| &**deploy)
            .ok_or_else(|| self.cannot("clean or service the machine"))
    }
}

#[async_trait]
impl Interface for Autodetect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        self.choose(target)?.validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        self.usual().map(|usual| usual.steps(flow)).unwrap_or_default()
    }

    fn takes_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &node_model::Step,
    ) -> Result<Outcome, Error> {
        self.usual()?.execute_step(target, flow, step).await
    }
}

#[async_trait]
impl Deploy for Autodetect {
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let chosen = self.choose(target)?;
        let switched = NodeChanges {
            deploy_interface: Some(chosen.name().to_owned()),
            ..NodeChanges::remember(ORIGINAL, NAME)
        };
        Ok(switched.and(chosen.prepare(target).await?))
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.usual()?.tear_down(target).await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.usual()?.clean_up(target).await
    }

    async fn take_over(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.usual()?.take_over(target).await
    }

    async fn prepare_cleaning(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.usual()?.prepare_cleaning(target).await
    }

    async fn tear_down_cleaning(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.usual()?.tear_down_cleaning(target).await
    }

    async fn prepare_service(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.usual()?.prepare_service(target).await
    }

    async fn tear_down_service(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.usual()?.tear_down_service(target).await
    }
}
