// SPDX-License-Identifier: Apache-2.0
//! Wire types of the protocol between the ramdisk agent and its server, as defined by Ironic and
//! ironic-python-agent.
//!
//! A machine boots the agent. The agent looks up its node ([`LookupReply`]) and then sends a
//! [`Heartbeat`] periodically. Between two heartbeats the server posts [`AgentCommand`]s over HTTP and
//! reads their [`CommandReport`]s: it lists the agent's steps ([`AgentStepList`]) and executes them one
//! by one ([`ExecuteStepRequest`]). For inspection the agent posts its [`AgentInventory`].
//!
//! Both ends have to work with many versions of agents and servers, so unknown fields are kept or
//! ignored, missing fields get a default, and names and shapes are those of Ironic and
//! ironic-python-agent. This crate does no input or output.

mod command;
mod heartbeat;
mod hints;
mod image;
mod inventory;
mod lookup;
pub mod parameters;
mod steps;

pub use command::{
    AgentCommand, AgentCommandError, AgentFault, CommandList, CommandReport, CommandStatus,
};
pub use heartbeat::Heartbeat;
pub use hints::{
    RootDeviceError, RootDeviceHintError, RootDeviceHints, choose_root_device, parse_bool,
};
pub use image::{ImageInfo, PartitionUuids};
pub use inventory::{
    AgentInventory, CollectorConfiguration, InspectionReport, InventoryBoot, InventoryCpu,
    InventoryDisk, InventoryFirmware, InventoryInterface, InventoryMemory, ManagerVersion,
    SystemVendor,
};
pub use lookup::{LookupAgentConfig, LookupNode, LookupReply};
pub use steps::{
    AgentStep, AgentStepArgument, AgentStepList, ExecuteStepRequest, ExecuteStepResult, StepFlow,
};

/// The TCP port of the agent's command API.
pub const AGENT_PORT: u16 = 9999;

/// The highest API microversion that changes the agent's endpoints. Agents send the lower of this and
/// the server's maximum.
pub const MAX_AGENT_API_VERSION: &str = "1.68";

/// The header with the secret of the boot, in lookups and inspection data of Ferrite's agent.
pub const BOOT_SECRET_HEADER: &str = "x-ferrite-boot-secret";

/// The minimum length of an agent token, in bytes.
pub const MIN_TOKEN_LENGTH: usize = 32;
