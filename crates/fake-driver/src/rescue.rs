// SPDX-License-Identifier: Apache-2.0
//! The fake rescue interface.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{DriverError, DriverTarget, NodeChanges, RescueInterface, StepOutcome};
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::{done_with_agent, fake_interface};

/// The fake rescue interface.
pub(crate) struct FakeRescue(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeRescue, Rescue, RESCUE);

#[async_trait]
impl RescueInterface for FakeRescue {
    async fn rescue(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        self.0.begin_call(InterfaceKind::Rescue, target, "rescue").await?;
        done_with_agent(target)
    }

    async fn unrescue(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Rescue, target, "unrescue").await?;
        Ok(NodeChanges::none())
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Rescue, target, "clean_up").await?;
        Ok(NodeChanges::none())
    }
}
