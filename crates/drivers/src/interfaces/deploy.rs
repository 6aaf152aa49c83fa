// SPDX-License-Identifier: Apache-2.0
//! The deploy interface: deployment, and preparation for clean and service steps.

use async_trait::async_trait;

use super::BaseInterface;
use crate::{DriverError, DriverTarget, InBandAgent, NodeChanges, RamdiskMode, StepOutcome};

/// Deploys, and prepares for cleaning and service. The deployment itself consists of deploy steps.
#[async_trait]
pub trait DeployInterface: BaseInterface {
    /// The ramdisk that a deployment boots.
    fn ramdisk_mode(&self) -> RamdiskMode {
        RamdiskMode::Deploy
    }

    /// Prepares the machine for deploy steps.
    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Stops the instance. Nothing of it runs afterwards.
    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Removes what was published for the deployment, after success, failure or abort.
    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError>;

    /// Makes this process serve what the running machine needs, after a takeover or on adoption.
    async fn take_over(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        target.driver.boot().prepare_instance(target).await
    }

    /// The agent that cleans and services the machine. With `None`, cleaning and service need no
    /// preparation.
    fn in_band(&self) -> Option<&dyn InBandAgent> {
        None
    }

    /// Prepares the machine for clean steps.
    async fn prepare_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        match self.in_band() {
            Some(in_band) => in_band.prepare_cleaning(target).await,
            None => Ok(StepOutcome::done(NodeChanges::none())),
        }
    }

    /// Reverts [`Self::prepare_cleaning`].
    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        match self.in_band() {
            Some(in_band) => in_band.tear_down_cleaning(target).await,
            None => Ok(NodeChanges::none()),
        }
    }

    /// Prepares the machine for service steps.
    async fn prepare_service(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        match self.in_band() {
            Some(in_band) => in_band.prepare_service(target).await,
            None => Ok(StepOutcome::done(NodeChanges::none())),
        }
    }

    /// Reverts [`Self::prepare_service`] and starts the instance.
    async fn tear_down_service(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        match self.in_band() {
            Some(in_band) => in_band.tear_down_service(target).await,
            None => Ok(NodeChanges::none()),
        }
    }
}
