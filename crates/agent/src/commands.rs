// SPDX-License-Identifier: Apache-2.0
//! The command API: receives commands over HTTP, executes them and records their results.

mod command_log;
mod extensions;
mod http;
mod images;

pub use command_log::{CommandFailure, CommandLog, CommandResult};
pub use extensions::{CommandExecution, RejectedCommand, execute_command};
pub use http::{CommandListener, serve};
