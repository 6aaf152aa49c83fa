// SPDX-License-Identifier: Apache-2.0
//! The Redfish face of a simulated BMC: resources as documents, and what may be done to them.
//!
//! Each file has one subject with its slice of the route table. Documents are built when they are
//! asked for, so a machine keeps nothing but its state.

mod accounts;
mod actions;
mod answer;
mod bios;
mod chassis;
mod document;
mod events;
mod kind;
mod managers;
mod media;
mod network;
mod refusal;
mod root;
mod routes;
mod sensors;
mod service;
mod sessions;
mod storage;
mod systems;
mod tasks;
#[cfg(test)]
mod tests;
mod updates;
mod visit;

pub(crate) use answer::{Answer, Asked, answer, refused};
pub use kind::Kind;
pub(crate) use refusal::Refusal;
pub(crate) use service::Service;
pub(crate) use visit::system_path;
