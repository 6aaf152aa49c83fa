// SPDX-License-Identifier: Apache-2.0
//! What Ferrite knows about machines: nodes, ports, steps, work in flight, the journal.
//!
//! Plain data and its invariants. Nothing here knows how it is stored, sent, decided or carried
//! out, so every other crate can depend on this one and this one depends on none of them.

mod agent_log;
mod allocation;
mod boot;
mod chassis;
mod conductor;
mod flavour;
mod hardware;
mod ids;
mod interface;
mod journal;
mod json;
mod mac;
mod named;
mod neighbour;
mod network;
mod node;
mod recipes;
mod rule;
mod secret;
mod states;
mod step;
mod time;
mod url_password;
mod volume;
mod work;

pub use agent_log::{AgentLog, KeptLogs, LogKind};
pub use allocation::{Allocation, AllocationState};
pub use boot::{
    BOOT_WAY, BOOT_WAYS_TRIED, BootCard, BootExperience, BootImage, BootPlan, BootPurpose,
    BootSystem, BootWay, InstallerFiles, Sighted, StrangerReport, StrangerSeen,
};
pub use chassis::Chassis;
pub use conductor::ConductorInfo;
pub use flavour::Flavour;
pub use hardware::{BiosSetting, FirmwareComponent, HistoryEntry, Inventory, Severity};
pub use ids::{
    AgentLogId, AllocationId, ChassisId, DeployTemplateId, FlavourId, HistoryId, NodeId, PortId,
    PortgroupId, ReportId, RuleId, RunbookId, VolumeConnectorId, VolumeTargetId,
};
pub use interface::{InterfaceKind, Interfaces};
pub use journal::{Actor, BmcCall, Happening, JournalEntry, Recorded};
pub use json::{JsonArray, JsonObject};
pub use mac::{Mac, ParseMacError};
pub use neighbour::{CableEnd, Neighbour};
pub use network::{Port, Portgroup};
pub use node::{Agent, Node, truth};
pub use recipes::{DeployTemplate, Runbook, RunbookStep, TemplateStep};
pub use rule::{InspectionRule, Sensitive};
pub use secret::{MASK, Secret, is_secret_key, masked, without_keys};
pub use states::{Event, Fault, Health, PowerState, PowerTarget, ProvisionState, Verb};
pub use step::{SEALED_ARGUMENTS, Step, StepArgument, StepFlow, StepOffer};
pub use time::{NoMoment, Timestamp};
pub use url_password::{
    has_url_password, holds_secret, mask_object_urls, mask_quoted_urls, mask_urls, unmask_object,
    unmask_urls,
};
pub use volume::{VolumeConnector, VolumeTarget};
pub use work::{
    AWAITED, Deadline, PowerRequest, Retry, Silent, Stage, Wait, WaitReason, Work, WorkKind,
};
