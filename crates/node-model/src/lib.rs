// SPDX-License-Identifier: Apache-2.0
//! The data model: nodes, ports, steps, jobs, the journal.
//!
//! Plain data and its invariants. This crate contains no storage, wire formats, decisions or actions,
//! so every other crate can depend on it.

mod agent_log;
mod allocation;
mod audit_log;
mod boot;
mod chassis;
mod conductor;
mod controls;
mod deployment;
mod flavour;
mod hardware;
mod identity;
mod ids;
mod interface;
mod job_queue;
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
mod url_secrets;
mod volume;
mod wait;
mod wait_reason;
mod work;

pub use agent_log::{AgentLog, AgentLogKind, AgentLogLimits};
pub use allocation::{Allocation, AllocationState};
pub use audit_log::{AuditEntry, AuditOutcome};
pub use boot::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, BootImage, BootMethod, BootMethodStats, BootPlan,
    BootPort, BootProof, BootPurpose, BootSystem, InstallerFiles, MachineSighting, UnknownMachine,
    UnknownMachineReport,
};
pub use chassis::Chassis;
pub use conductor::ConductorInfo;
pub use controls::{
    ConsoleInfo, HttpMethod, Indicator, IndicatorComponent, IndicatorState, MediaDevice, MediaSlot,
    Sensor, SensorKind, SensorStatus, SystemIdentity, VendorMethod, VifInfo,
};
pub use deployment::{
    Deployment, DeploymentState, LeaseEndAction, ParseQuotaSubjectError, ProjectQuota, QuotaSubject,
};
pub use flavour::Flavour;
pub use hardware::{BiosSetting, FirmwareComponent, HistoryEntry, Inventory, Severity};
pub use identity::{
    AccessScope, ApiToken, IdentitySource, ParseRoleError, Project, RoleAssignment, SignInFailure,
    UserAccount, UserKind, UserSession, is_identity_name, is_project_name, is_user_name,
};
pub use ids::{
    AgentLogId, AllocationId, ApiTokenId, AuditEntryId, ChassisId, DeployTemplateId, DeploymentId,
    FlavourId, HistoryId, NodeId, PortId, PortgroupId, ProjectId, QuotaId, ReportId, RuleId,
    RunbookId, SessionId, UserId, VolumeConnectorId, VolumeTargetId,
};
pub use interface::{InterfaceKind, Interfaces};
pub use job_queue::{JobCounts, JobQueue, QueuePosition};
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
pub use url_secrets::{
    contains_secret, has_url_secret, mask_object_urls, mask_quoted_urls, mask_urls, unmask_object,
    unmask_urls,
};
pub use volume::{VolumeConnector, VolumeTarget};
pub use wait::{Deadline, Wait};
pub use wait_reason::WaitReason;
pub use work::{BootAttempts, PowerRequest, Retry, Stage, UnreachablePeer, Work, WorkKind};
