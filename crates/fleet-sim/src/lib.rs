// SPDX-License-Identifier: Apache-2.0
//! A simulated fleet: thousands of BMCs in one process over real sockets, with faults by rule.
//!
//! [`Fleet::start`] brings up any number of simulated machines, each with a Redfish service on a
//! port of its own. What a machine is and does is in [`machine`], without sockets or clocks; kinds
//! of machines are data ([`Personality`]); what goes wrong is too ([`FaultRule`]). Given an API to
//! call ([`AgentConfig`]), machines that boot a ramdisk run an agent. [`Replay`] serves what was
//! recorded from a real BMC.

mod agent;
mod bmc;
mod connection;
mod control;
mod credentials;
mod enrolment;
mod faults;
mod fleet;
mod ipmi;
mod listener;
pub mod machine;
mod personality;
mod redfish;
mod replay;
mod serial;
mod tls;

pub use agent::{AgentConfig, AgentView};
pub use bmc::SimulatedMachine;
pub use control::{Control, ControlError};
pub use credentials::Credentials;
pub use enrolment::{Enrolment, EnrolmentPort};
pub use faults::{Effect, FaultError, FaultRule, Faults, Which};
pub use fleet::{Fleet, FleetConfig, StartError};
pub use personality::{
    Activation, AttributeKind, AttributeRule, BiosRules, BootRules, ComponentKind, ComponentRule,
    ControllerRule, DriveRule, EtagRule, HttpRules, Ids, IfMatchRule, LoneTarget, MediaRules,
    NetworkRules, Oddity, PaceRules, Personality, PersonalityError, PowerRules, ProcessorRules,
    Redundant, SessionRules, SlotRule, Tells, VolumeTiming, WatchTasks,
};
pub use redfish::Kind;
pub use replay::{Replay, ReplayError, Request};
pub use serial::SerialLine;
