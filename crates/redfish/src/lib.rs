// SPDX-License-Identifier: Apache-2.0
//! A Redfish client that takes BMCs as they are: it follows links, and any field may be missing.
//!
//! It knows HTTP, JSON and the shape of Redfish, and nothing of nodes. [`Client`] reads and changes
//! [`Resource`]s of one BMC; what went wrong is an [`Error`] an operator can act on.

mod answer;
mod body;
mod client;
mod collection;
mod endpoint;
mod error;
mod exchange;
mod login;
mod path;
pub mod recording;
mod refusal;
mod resource;
mod session;
mod task;
mod tls;
mod transport;

pub use answer::Answer;
pub use client::Client;
pub use endpoint::{Auth, Endpoint, MinTls, Patience, Timeouts, Trust};
pub use error::Error;
pub use exchange::{Exchange, Observer};
pub use path::last_segment;
pub use resource::{Action, Resource};
pub use task::{Task, TaskState};
