// SPDX-License-Identifier: Apache-2.0
//! IPMI 2.0 over the network (RMCP+): a codec without IO and a thin transport.
//!
//! The codec reads and writes both directions: [`Session`] is the console's side of a session and
//! [`Responder`] the BMC's, neither with a socket or a clock. [`Client`] and [`SolConsole`] put a
//! UDP socket and a timetable under the first; simulated BMCs put one under the second.
//!
//! Only what keeps passwords to itself is spoken: cipher suites 3 and 17. IPMI 1.5 is not.

mod bridge;
mod client;
mod commands;
pub mod completion;
mod console;
mod endpoint;
mod error;
pub mod handshake;
mod link;
pub mod message;
pub mod packet;
mod responder;
pub mod rmcp;
mod sensors;
mod session;
pub mod sol;
mod suite;
mod window;

pub use client::Client;
pub use commands::{
    ActivateSol, Ask, BootDevice, BootFlags, ChassisControl, ChassisStatus, Conversion,
    DeactivateSol, DeviceId, DisableBootTimeout, GetBootFlags, GetChassisStatus, GetDeviceId,
    GetRecord, GetRepositoryInfo, GetSensorReading, IdentifyChassis, NumberFormat, RecordChunk,
    Repetition, RepositoryInfo, ReserveRepository, ResetController, SensorReading, SensorRecord,
    SetBootFlags, SolActivated, Unit,
};
pub use console::{SolConsole, SolInput};
pub use endpoint::{Bridging, Credentials, CredentialsError, Endpoint, Hop, Privilege, Timeouts};
pub use error::{Error, Malformed};
pub use responder::{Heard, Responder, User};
pub use rmcp::PORT;
pub use sensors::{Reading, SensorRecords};
pub use session::{Command, Event, Identity, Random, Refusal, Session};
pub use suite::{Algorithms, CipherSuite, Digest};
