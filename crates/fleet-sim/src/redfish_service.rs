// SPDX-License-Identifier: Apache-2.0
//! The Redfish service of a simulated BMC: resource documents and their changes.
//!
//! Each file covers one subject with its part of the route table. Documents are built on request,
//! so a machine stores only its state.

mod accounts;
mod actions;
mod bios;
mod chassis;
mod dell;
mod document;
mod error_response;
mod events;
mod handler;
mod managers;
mod media;
mod network;
mod request_context;
mod resource_kind;
mod root;
mod routes;
mod sensors;
mod service_state;
mod sessions;
mod storage;
mod systems;
mod tasks;
#[cfg(test)]
mod tests;
mod updates;

pub(crate) use error_response::RedfishErrorResponse;
pub(crate) use handler::{RedfishRequest, RedfishResponse, error_response, handle_request};
pub(crate) use request_context::system_path;
pub use resource_kind::ResourceKind;
pub(crate) use service_state::RedfishServiceState;
