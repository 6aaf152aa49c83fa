// SPDX-License-Identifier: Apache-2.0
//! The commands that Ferrite uses, with their requests and answers as types.
//!
//! Each type is read and written both ways, because the simulated BMC speaks with them too.

mod app;
mod boot;
mod chassis;
mod sensor;
mod sensor_record;

pub use app::{ActivateSol, DeactivateSol, DeviceId, GetDeviceId, ResetController, SolActivated};
pub use boot::{BootDevice, BootFlags, DisableBootTimeout, GetBootFlags, SetBootFlags};
pub use chassis::{ChassisControl, ChassisStatus, GetChassisStatus, IdentifyChassis};
pub use sensor::{
    GetRecord, GetRepositoryInfo, GetSensorReading, RecordChunk, RepositoryInfo, ReserveRepository,
    SensorReading,
};
pub use sensor_record::{Conversion, NumberFormat, SensorRecord, Unit};

use crate::Malformed;

/// What becomes of a machine when a command reaches it twice. That happens: an answer gets lost,
/// and whoever asked asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repetition {
    /// The same as when it comes once.
    Harmless,
    /// Something happens twice, or nobody knows.
    Harmful,
}

/// A request whose answer has a type.
pub trait Ask {
    /// What the standard calls it.
    const NAME: &'static str;
    /// Its family.
    const NETFN: u8;
    /// Its number.
    const COMMAND: u8;
    /// What comes back.
    type Answer;

    /// The unit of the BMC that is asked.
    fn lun(&self) -> u8 {
        0
    }

    /// What happens if it comes twice.
    fn repetition(&self) -> Repetition {
        Repetition::Harmless
    }

    /// Appends what follows the command.
    fn emit(&self, out: &mut Vec<u8>);

    /// Reads what follows a good completion code.
    fn parse(data: &[u8]) -> Result<Self::Answer, Malformed>;
}
