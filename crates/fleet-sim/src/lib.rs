// SPDX-License-Identifier: Apache-2.0
//! Simulated fleet: thousands of BMCs and agents in one process, over real sockets, with fault
//! rules.
//!
//! [`SimulatedFleet::start`] starts any number of simulated machines, each with a Redfish service
//! on its own port and, if configured, an IPMI one. [`machine`] holds their state, without sockets
//! or clocks. Vendor profiles ([`Personality`]) and fault rules ([`FaultRule`]) are data. With a
//! [`SimulatedAgentConfig`], machines that boot a ramdisk run an agent. [`Replay`] serves the
//! recording of a real BMC.

mod agent;
mod control;
mod credentials;
mod enrolment;
mod faults;
mod fleet;
mod ipmi_service;
mod listener;
pub mod machine;
mod personality;
mod redfish_http;
mod redfish_service;
mod replay;
mod serial;
mod simulated_bmc;
mod tls;

pub use agent::{SimulatedAgentConfig, SimulatedAgentHandle};
pub use control::{ControlError, ControlServer};
pub use credentials::BmcCredentials;
pub use enrolment::{Enrolment, EnrolmentPort};
pub use faults::{BmcSelection, FaultEffect, FaultRule, FaultRuleError, FaultRules};
pub use fleet::{FleetConfig, FleetStartError, SimulatedFleet};
pub use personality::{
    AllowableValuesLocation, AttributeKind, AttributeRule, BiosRules, BootRules, ComponentKind,
    ComponentRule, ControllerRule, DriveRule, DurationRules, EtagRule, FirmwareActivation,
    HttpRules, IdracRules, IfMatchRule, MediaRules, NetworkRules, Personality, PersonalityError,
    PowerRules, ProcessorRules, RedundantResetRule, ResourceIds, ResourceQuirk, SessionRules,
    SlotRule, TargetWithoutEnabledRule, TaskWatchLocation, VolumeChangeRule,
};
pub use redfish_service::ResourceKind;
pub use replay::{Replay, ReplayError, ReplayedRequest};
pub use serial::SerialLine;
pub use simulated_bmc::SimulatedMachine;
