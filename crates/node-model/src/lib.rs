// SPDX-License-Identifier: Apache-2.0
//! The data model: nodes, ports, steps, jobs, the journal.
//!
//! Plain data and its invariants. This crate contains no storage, wire formats, decisions or actions,
//! so every other crate can depend on it.

mod agent_log;
mod allocation;
mod boot;
mod chassis;
mod conductor;
mod controls;
mod flavour;
mod hardware;
mod ids;
mod interface;
mod journal;
mod json;
mod mac;
mod named_enum;
mod neighbour;
mod network;
mod node;
mod progress;
mod rule;
mod secret;
mod states;
mod step;
mod templates;
mod time;
mod url_password;
mod volume;
mod wait;
mod wait_reason;
mod work;

pub use agent_log::{AgentLog, AgentLogKind, AgentLogLimits};
pub use allocation::{Allocation, AllocationState};
pub use boot::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, BootImage, BootMethod, BootMethodStats, BootPlan,
    BootPort, BootPurpose, BootSystem, InstallerFiles, MachineSighting, UnknownMachine,
    UnknownMachineReport,
};
pub use chassis::Chassis;
pub use conductor::ConductorInfo;
pub use controls::{
    ConsoleInfo, HttpMethod, Indicator, IndicatorComponent, IndicatorState, MediaDevice, MediaSlot,
    Sensor, SensorKind, SensorStatus, VendorMethod, VifInfo,
};
pub use flavour::Flavour;
pub use hardware::{BiosSetting, FirmwareComponent, HistoryEntry, Inventory, Severity};
pub use ids::{
    AgentLogId, AllocationId, ChassisId, DeployTemplateId, FlavourId, HistoryId, NodeId, PortId,
    PortgroupId, ReportId, RuleId, RunbookId, VolumeConnectorId, VolumeTargetId,
};
pub use interface::{InterfaceKind, Interfaces};
pub use journal::{Actor, BmcCall, JournalEntry, JournalEvent, JournalRow};
pub use json::{JsonArray, JsonObject};
pub use mac::{Mac, ParseMacError};
pub use neighbour::{CableEnd, Neighbour};
pub use network::{Port, Portgroup};
pub use node::{AgentInfo, Node, parse_bool};
pub use progress::{ActionProgress, JobHints};
pub use rule::{InspectionRule, Sensitive};
pub use secret::{MASK, Secret, is_secret_key, mask_secrets, redact_boot_keys};
pub use states::{Event, Fault, Health, PowerState, PowerTarget, ProvisionState, Verb};
pub use step::{AvailableStep, SEALED_ARGUMENTS, Step, StepArgument, StepFlow};
pub use templates::{DeployTemplate, Runbook, RunbookStep, TemplateStep};
pub use time::{ParseTimestampError, Timestamp};
pub use url_password::{
    contains_secret, has_url_password, mask_object_urls, mask_quoted_urls, mask_urls,
    unmask_object, unmask_urls,
};
pub use volume::{VolumeConnector, VolumeTarget};
pub use wait::{Deadline, Wait};
pub use wait_reason::WaitReason;
pub use work::{BootAttempts, PowerRequest, Retry, Stage, UnreachablePeer, Work, WorkKind};
