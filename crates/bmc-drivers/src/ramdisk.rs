// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `ramdisk`: the instance lives in memory, booted afresh from the network or
//! from a CD at every start. Nothing is written to a disk, and deployment needs no agent.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, Step, StepFlow, StepOffer};

use crate::agent::{InBand, power_off, start, take_down};
use crate::driver::Shelves;
use crate::interfaces::{Deploy, Interface, NetworkUse};
use crate::step::{DEPLOY_AT_ONCE, offers};
use crate::{Error, NodeChanges, Outcome, Target};

/// What nodes call it.
pub(crate) const NAME: &str = "ramdisk";

/// Puts this implementation on its shelf.
pub(crate) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>) {
    shelves.deploy.push((NAME, Arc::new(RamdiskDeploy(Arc::clone(in_band)))));
}

/// Deploys by booting. Cleaning and service go through the agent: the instance may have written to
/// the disks it found.
struct RamdiskDeploy(Arc<InBand>);

#[async_trait]
impl Interface for RamdiskDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        NAME
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        let boot = target.driver.boot();
        if !boot.capabilities().contains(&"ramdisk_boot") {
            return Err(boot.cannot("boot an instance that lives in memory"));
        }
        boot.validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<StepOffer> {
        offers(DEPLOY_AT_ONCE, self.kind(), flow)
    }

    fn takes_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        if flow != StepFlow::Deploy || step.step != DEPLOY_AT_ONCE[0].name {
            return self.0.agent_step(target, flow, step).await;
        }
        let changes = power_off(target).await?;
        let driver = target.driver;
        let changes = changes.and(driver.network().join(target, NetworkUse::Tenant).await?);
        let changes = changes.and(driver.boot().prepare_instance(target).await?);
        Ok(Outcome::Done(changes.and(start(target).await?)))
    }
}

#[async_trait]
impl Deploy for RamdiskDeploy {
    fn in_band(&self) -> Option<&InBand> {
        Some(&self.0)
    }

    async fn prepare(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Ok(NodeChanges::none())
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        take_down(target).await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        target.driver.boot().clean_up_instance(target).await
    }
}
