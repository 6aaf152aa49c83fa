// SPDX-License-Identifier: Apache-2.0
//! The traits that implementations of the thirteen interfaces fulfil.
//!
//! All calls may be repeated: an implementation looks first and acts only if there is something
//! left to do.

mod boot;
mod console;
mod deploy;
mod inspect;
mod management;
mod network;
mod power;
mod raid;
mod rescue;
mod setup;
mod storage;
mod vendor;

use async_trait::async_trait;
use node_model::{InterfaceKind, Step, StepFlow, StepOffer};

use crate::{Error, Outcome, Target};

pub use boot::Boot;
pub use console::{Console, ConsoleInfo};
pub use deploy::Deploy;
pub use inspect::{Findings, Inspect, Inspection};
pub use management::{BootDeviceSetting, Indicator, Management, MediaSlot, Sensor, SensorStatus};
pub use network::{Network, NetworkUse, VifInfo};
pub use power::Power;
pub(crate) use raid::with_raid_level;
pub use raid::{Raid, logical_disk_properties, validate_raid_config};
pub use rescue::Rescue;
pub use setup::{Bios, Firmware};
pub use storage::Storage;
pub use vendor::{Vendor, VendorAnswer, VendorMethod};

/// A key of `driver_info` and what it means.
pub type Property = (&'static str, &'static str);

/// What every implementation of every interface has.
#[async_trait]
pub trait Interface: Send + Sync {
    /// Which interface it implements.
    fn kind(&self) -> InterfaceKind;

    /// Its name, as nodes choose it.
    fn name(&self) -> &'static str;

    /// The keys of `driver_info` it reads.
    fn properties(&self) -> &[Property] {
        &[]
    }

    /// Whether the node has what this implementation needs. Reads the node's fields only; a
    /// machine is not asked.
    async fn validate(&self, _target: &Target<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// The steps it offers for `flow`.
    fn steps(&self, _flow: StepFlow) -> Vec<StepOffer> {
        Vec::new()
    }

    /// Whether steps that the agent offers for this interface are this implementation's to carry
    /// out.
    fn takes_agent_steps(&self) -> bool {
        false
    }

    /// Carries out one of its steps, or goes on with it where an earlier call was told to wait.
    async fn execute_step(
        &self,
        _target: &Target<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<Outcome, Error> {
        Err(self.cannot(&format!("carry out the {flow} step '{}'", step.step)))
    }

    /// The error for what this implementation cannot do; `what` is a verb and its object.
    fn cannot(&self, what: &str) -> Error {
        Error::Unsupported {
            interface: self.kind(),
            implementation: self.name(),
            what: what.to_owned(),
        }
    }
}
