// SPDX-License-Identifier: Apache-2.0
//! How an image gets onto a machine, and how the machine is made ready for steps.

use async_trait::async_trait;

use super::Interface;
use crate::agent::InBand;
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// Deploys, and prepares for cleaning and service. The deployment itself is its deploy steps.
#[async_trait]
pub trait Deploy: Interface {
    /// What the machine boots to be deployed.
    fn boots(&self) -> RamdiskMode {
        RamdiskMode::Deploy
    }

    /// Makes the machine ready to run deploy steps.
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Takes the instance down: after it the machine runs nothing of the old user's.
    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Removes what was laid out for the deployment, after success, failure or abort.
    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error>;

    /// Makes this process serve what the running machine needs, after another one did, or on
    /// adoption.
    async fn take_over(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        target.driver.boot().prepare_instance(target).await
    }

    /// Who cleans and services the machine. Without, nothing is made ready for that.
    fn in_band(&self) -> Option<&InBand> {
        None
    }

    /// Makes the machine ready to run clean steps.
    async fn prepare_cleaning(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        match self.in_band() {
            Some(in_band) => in_band.prepare_cleaning(target).await,
            None => Ok(Outcome::Done(NodeChanges::none())),
        }
    }

    /// Puts things back after cleaning.
    async fn tear_down_cleaning(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        match self.in_band() {
            Some(in_band) => in_band.tear_down_cleaning(target).await,
            None => Ok(NodeChanges::none()),
        }
    }

    /// Makes the machine ready to run service steps.
    async fn prepare_service(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        match self.in_band() {
            Some(in_band) => in_band.prepare_service(target).await,
            None => Ok(Outcome::Done(NodeChanges::none())),
        }
    }

    /// Puts things back after service, so that the instance runs again.
    async fn tear_down_service(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        match self.in_band() {
            Some(in_band) => in_band.tear_down_service(target).await,
            None => Ok(NodeChanges::none()),
        }
    }
}
