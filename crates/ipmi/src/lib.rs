// SPDX-License-Identifier: Apache-2.0
//! IPMI 2.0 over the network (RMCP+): a codec without IO and a thin transport.
//!
//! The codec supports both directions: [`IpmiSession`] is the console side of a session and
//! [`BmcResponder`] the BMC side, both without socket and clock. [`IpmiClient`] and [`SolConsole`] add a
//! UDP socket and timers to the first; simulated BMCs use the second.
//!
//! Only cipher suites 3 and 17 are supported, because the others expose passwords. IPMI 1.5 is not
//! supported.

mod bridge;
mod client;
mod commands;
pub mod completion;
mod console;
mod endpoint;
mod error;
pub mod handshake;
pub mod message;
pub mod packet;
mod replay_window;
mod responder;
pub mod rmcp;
mod sensors;
mod session;
mod session_socket;
pub mod sol;
mod suite;

pub use client::IpmiClient;
pub use commands::{
    ActivateSol, ChassisControl, ChassisStatus, DeactivateSol, DeviceId, DisableBootTimeout,
    GetBootFlags, GetChassisStatus, GetDeviceId, GetRecord, GetRepositoryInfo, GetSensorReading,
    IdentifyChassis, IpmiBootDevice, IpmiBootFlags, IpmiSensorReading, NumberFormat, RecordChunk,
    Repetition, RepositoryInfo, ReserveRepository, ResetController, SensorConversion, SensorRecord,
    SensorUnit, SetBootFlags, SolActivated, TypedIpmiCommand,
};
pub use console::{SolConsole, SolInput};
pub use endpoint::{
    BridgeRoute, BridgeTarget, IpmiCredentials, IpmiCredentialsError, IpmiEndpoint, IpmiPrivilege,
    IpmiTimeouts,
};
pub use error::{IpmiError, MalformedIpmiMessage};
pub use responder::{BmcResponder, ResponderEvent, ResponderUser};
pub use rmcp::PORT;
pub use sensors::{ConvertedReading, SensorRecords};
pub use session::{
    IpmiSession, IpmiSessionRefusal, SessionEvent, SessionIdentity, SessionRandom, SessionRequest,
};
pub use suite::{CipherSuite, HmacDigest, SuiteAlgorithms};
