// SPDX-License-Identifier: Apache-2.0
//! Rescue of a simulated machine.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;

use super::FakeBehaviour;
use super::behaviour::{done_with_agent, fake_interface};
use crate::{Error, NodeChanges, Outcome, Rescue, Target};

/// The fake rescue interface.
pub(crate) struct FakeRescue(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeRescue, Rescue, RESCUE);

#[async_trait]
impl Rescue for FakeRescue {
    async fn rescue(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.0.act(InterfaceKind::Rescue, target, "rescue").await?;
        done_with_agent(target)
    }

    async fn unrescue(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Rescue, target, "unrescue").await?;
        Ok(NodeChanges::none())
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Rescue, target, "clean_up").await?;
        Ok(NodeChanges::none())
    }
}
