// SPDX-License-Identifier: Apache-2.0
//! The IPMI commands that Ferrite uses, with typed requests and responses.
//!
//! Each type can be parsed and encoded, because simulated BMCs use them too.

mod app;
mod boot;
mod chassis;
mod sensor;
mod sensor_record;

pub use app::{ActivateSol, DeactivateSol, DeviceId, GetDeviceId, ResetController, SolActivated};
pub use boot::{DisableBootTimeout, GetBootFlags, IpmiBootDevice, IpmiBootFlags, SetBootFlags};
pub use chassis::{ChassisControl, ChassisStatus, GetChassisStatus, IdentifyChassis};
pub use sensor::{
    GetRecord, GetRepositoryInfo, GetSensorReading, IpmiSensorReading, RecordChunk, RepositoryInfo,
    ReserveRepository,
};
pub use sensor_record::{NumberFormat, SensorConversion, SensorRecord, SensorUnit};

use crate::MalformedIpmiMessage;

/// The effect of a command that is executed twice, which happens when a response is lost and the
/// request repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repetition {
    /// The same as once.
    Harmless,
    /// A second effect, or unknown.
    Harmful,
}

/// A command with a typed response.
pub trait TypedIpmiCommand {
    /// The name in the standard.
    const NAME: &'static str;
    /// The network function.
    const NETFN: u8;
    /// The command number.
    const COMMAND: u8;
    /// The type of the response.
    type Response;

    /// The LUN of the BMC.
    fn lun(&self) -> u8 {
        0
    }

    /// The effect of a repetition.
    fn repetition(&self) -> Repetition {
        Repetition::Harmless
    }

    /// Appends the request data.
    fn emit(&self, out: &mut Vec<u8>);

    /// Parses the data after a successful completion code.
    fn parse(data: &[u8]) -> Result<Self::Response, MalformedIpmiMessage>;
}
