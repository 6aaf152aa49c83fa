// SPDX-License-Identifier: Apache-2.0
//! The conductor: claims nodes, executes the actions that `lifecycle` decides, and monitors nodes.
//!
//! - [`Conductor`] is the handle of the API server and the binary.
//! - `runner` runs one node: decide, execute, record, until the node waits or is idle.
//! - `scheduler` starts a runner for every due node; a lost wake-up only delays it.
//! - `power_sync` polls the power and health of machines, spread evenly over the interval.
//! - `execute` is the only place where an [`Action`](lifecycle::Action) calls a driver.
//!
//! Nothing here decides, and no node waits for another.

mod agent;
mod agent_log_tail;
mod agent_logs;
mod agent_proof;
mod allocations;
mod available_steps;
mod bmc_resolver;
mod console_recorder;
mod console_stream;
mod consoles;
mod deployments;
mod direct_calls;
mod driver_methods;
mod error;
mod exclusive_call;
mod execute;
mod explain;
mod handle;
mod hardware;
mod hash_ring;
mod inspect;
mod job_queue;
mod machine_identity;
mod maintenance;
mod membership;
mod node_snapshot;
mod pending_entries;
mod power_sync;
mod provision;
mod pxe_filter;
mod rule_requests;
mod runner;
mod scheduler;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod unknown_machines;
mod warm_up;

pub use agent::{AgentConfig, AgentLookup};
pub use agent_log_tail::{AgentLogError, AgentLogLines, AgentLogTail};
pub use agent_proof::AgentCaller;
pub use allocations::AllocationError;
pub use console_stream::{ConsoleChunk, ConsoleStream};
pub use direct_calls::{BootSetting, ConsoleState, PassthruReply};
pub use driver_methods::{DriverMethodError, InterfaceChoice};
pub use error::{ConductorError, ConductorStartError};
pub use handle::{Conductor, ConductorCounters, ConductorParts, RunningConductor};
pub use hash_ring::conductor_of;
pub use inspect::InspectionReply;
pub use job_queue::JobQueueCounters;
pub use machine_identity::MachineIdentityError;
pub use pending_entries::{TENANT_VIF, write_pending_entries};
pub use pxe_filter::{PxeFilter, PxeFilterSettings};
pub use rule_requests::is_allowed_url;
pub use settings::ConductorSettings;
pub use unknown_machines::{EnrolError, NewNodeSettings};
