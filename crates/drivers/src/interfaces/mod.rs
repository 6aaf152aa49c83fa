// SPDX-License-Identifier: Apache-2.0
//! The traits of the thirteen interfaces.
//!
//! All calls may be repeated: an implementation queries the machine first and acts only if something
//! is left to do.

mod boot;
mod console;
mod deploy;
mod firmware;
mod inspect;
mod management;
mod network;
mod power;
mod raid;
mod rescue;
mod storage;
mod vendor;

use async_trait::async_trait;
use node_model::{AvailableStep, InterfaceKind, Step, StepFlow};

use crate::{DriverError, DriverTarget, StepOutcome};

pub use boot::BootInterface;
pub use console::ConsoleInterface;
pub use deploy::DeployInterface;
pub use firmware::{BiosInterface, FirmwareInterface};
pub use inspect::{InspectInterface, InspectedHardware, InspectionOutcome};
pub use management::{BootDeviceSetting, ManagementInterface};
pub use network::{NetworkInterface, NetworkPurpose};
pub use power::PowerInterface;
pub use raid::with_raid_level;
pub use raid::{RaidInterface, logical_disk_properties, validate_raid_config};
pub use rescue::RescueInterface;
pub use storage::StorageInterface;
pub use vendor::{VendorInterface, VendorResponse};

/// A key of `driver_info` and its description.
pub type DriverProperty = (&'static str, &'static str);

/// The methods that all interfaces share.
#[async_trait]
pub trait BaseInterface: Send + Sync {
    /// The interface.
    fn kind(&self) -> InterfaceKind;

    /// The implementation's name, as in a node's `<interface>_interface`.
    fn name(&self) -> &'static str;

    /// The `driver_info` keys of this implementation.
    fn properties(&self) -> &[DriverProperty] {
        &[]
    }

    /// Fails if the node lacks data for this implementation. Reads only the node's fields; sends no
    /// request to the machine.
    async fn validate(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    /// The steps available in `flow`.
    fn steps(&self, _flow: StepFlow) -> Vec<AvailableStep> {
        Vec::new()
    }

    /// Whether this implementation runs the agent's steps for this interface.
    fn runs_agent_steps(&self) -> bool {
        false
    }

    /// Runs one of its steps, or continues one for which an earlier call returned a wait.
    async fn execute_step(
        &self,
        _target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        Err(self.unsupported(&format!("carry out the {flow} step '{}'", step.step)))
    }

    /// The error for an unsupported operation; `what` is a verb and its object.
    fn unsupported(&self, what: &str) -> DriverError {
        DriverError::Unsupported {
            interface: self.kind(),
            implementation: self.name(),
            what: what.to_owned(),
        }
    }
}
