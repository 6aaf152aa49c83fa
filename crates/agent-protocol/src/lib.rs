// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk agent and its server say to each other, in Ironic's words.
//!
//! A machine boots the agent. The agent asks which node it is ([`LookupReply`]), then calls home
//! every now and then ([`Heartbeat`]). Between two calls the server sends it [`Command`]s over HTTP
//! and reads their [`CommandReport`]s: which steps it offers ([`StepList`]), and then one step after
//! the other ([`StepOrder`]). For inspection it sends its [`Inventory`] unasked.
//!
//! Both ends tolerate what they do not know: real agents and real servers of many versions are out
//! there. So every type reads with whatever is missing at its default, and keeps to the names and
//! shapes that Ironic and ironic-python-agent use. Nothing here does any input or output.

mod command;
mod heartbeat;
mod hints;
mod image;
mod inventory;
mod lookup;
pub mod parameters;
mod steps;

pub use command::{Command, CommandError, CommandList, CommandReport, CommandStatus, Fault};
pub use heartbeat::Heartbeat;
pub use hints::{HintError, Hints, NoRootDevice, choose_root_device, flag};
pub use image::{ImageInfo, PartitionUuids};
pub use inventory::{
    BootInfo, Configuration, Cpu, Disk, Firmware, Interface, Inventory, ManagerVersion, Memory,
    Report, SystemVendor,
};
pub use lookup::{AgentSettings, LookupNode, LookupReply};
pub use steps::{Argument, Flow, StepDescription, StepList, StepOrder, StepResult};

/// The port agents listen on.
pub const AGENT_PORT: u16 = 9999;

/// The newest API version in which something changed for agents; they send the smaller of this and
/// the server's newest.
pub const NEWEST_VERSION_FOR_AGENTS: &str = "1.68";

/// The shortest token an agent accepts.
pub const SHORTEST_TOKEN: usize = 32;
