// SPDX-License-Identifier: Apache-2.0
//! The part of Ferrite that acts: it claims nodes, carries out what `lifecycle` decides, and looks
//! after them when nothing is going on.
//!
//! - [`Conductor`] is the handle others hold: the API asks through it, and the binary starts it.
//! - `runner` takes one node through decide, act, record until there is nothing to do.
//! - `scheduler` starts a runner for every node that is due; a lost wake-up costs only time.
//! - `power_sync` looks at each machine's power and health, spread evenly over the interval.
//! - `act` is the only place where an [`Action`](lifecycle::Action) meets a driver.
//!
//! Nothing here decides, and nothing here waits for one node while another has something to do.

mod act;
mod agent;
mod agent_lines;
mod agent_logs;
mod allocations;
mod api_call;
mod bmc_names;
mod console_record;
mod consoles;
mod controls;
mod discover;
mod error;
mod explain;
mod handle;
mod hardware;
mod held;
mod inspect;
mod ledger;
mod membership;
mod offers;
mod power_sync;
mod provision;
mod pxe_filter;
mod runner;
mod scheduler;
mod settings;
mod sight;
#[cfg(test)]
mod tests;
mod warm;

// What the handle's methods take and give, so that callers need not know the drivers' crate.
pub use bmc_drivers::{
    ConsoleFeed, ConsoleInfo, ConsoleWatch, DriverSettings, Error as DriverError, HttpMethod,
    Indicator, IndicatorComponent, IndicatorState, MediaDevice, MediaSlot, NoBootServices, Printed,
    Registry, Sensor, SensorStatus, TypingError, VendorMethod, VifInfo,
};

pub use agent::{AgentConfig, Heartbeat, Lookup};
pub use agent_lines::{AgentLines, LinesError, SaidByAgent};
pub use allocations::AllocationError;
pub use api_call::is_allowed;
pub use controls::{BootSetting, ConsoleState, PassthruReply};
pub use discover::{EnrolError, Enrolment};
pub use error::Error;
pub use handle::{Conductor, Running, Tally};
pub use inspect::InspectionReply;
pub use ledger::write_ledger;
pub use provision::ProvisionRequest;
pub use pxe_filter::{PxeFilter, PxeFilterSettings};
pub use settings::Settings;
pub use sight::conductor_of;
