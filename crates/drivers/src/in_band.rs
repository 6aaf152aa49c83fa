// SPDX-License-Identifier: Apache-2.0
//! Work through the ramdisk agent, as the registry and deploy interfaces use it.

use async_trait::async_trait;
use node_model::{AvailableStep, StepFlow};

use crate::{DriverError, DriverTarget, NodeChanges, StepOutcome};

/// Cleaning, service, steps and logs through the agent. Implemented by `agent-driver`.
#[async_trait]
pub trait InBandAgent: Send + Sync {
    /// Queries the agent for the steps it has for `flow`. The changes record its hardware managers.
    async fn list_steps(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<AvailableStep>, NodeChanges), DriverError>;

    /// Steps that agents usually run for `flow` without being requested, with the configured
    /// priorities. For previews of machines whose agent was never queried.
    fn usual_steps(&self, flow: StepFlow) -> Vec<AvailableStep>;

    /// Returns the agent's logs as a gzip-compressed tar archive in base64; `None` without an
    /// agent.
    async fn collect_logs(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError>;

    /// Boots the agent for clean steps.
    async fn prepare_cleaning(&self, target: &DriverTarget<'_>)
    -> Result<StepOutcome, DriverError>;

    /// Reverts [`Self::prepare_cleaning`].
    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError>;

    /// Boots the agent for service steps.
    async fn prepare_service(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError>;

    /// Reverts [`Self::prepare_service`] and starts the instance again.
    async fn tear_down_service(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError>;
}
