// SPDX-License-Identifier: Apache-2.0
//! A Redfish client that takes BMCs as they are: it follows links, and any field may be missing.
//!
//! It depends on HTTP, JSON and the structure of Redfish, not on nodes. [`RedfishClient`] reads and changes
//! [`RedfishResource`]s of one BMC; what went wrong is an [`RedfishError`] an operator can act on.

mod body;
mod client;
mod collection;
mod endpoint;
mod error;
mod error_body;
mod exchange;
mod login;
mod login_permission;
mod path;
pub mod recording;
mod resource;
mod response;
mod session;
mod task;
mod tls;
mod transport;

pub use client::RedfishClient;
pub use endpoint::{
    CertificateTrust, MinTlsVersion, RedfishAuth, RedfishEndpoint, RedfishRetryPolicy,
    RedfishTimeouts,
};
pub use error::RedfishError;
pub use exchange::{ExchangeObserver, RedfishExchange};
pub use path::last_segment;
pub use resource::{RedfishAction, RedfishResource};
pub use response::OperationResponse;
pub use task::{RedfishTask, TaskState};
