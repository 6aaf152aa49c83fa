// SPDX-License-Identifier: Apache-2.0
//! The API over real sockets: what a client sees, request by request.

// Helpers of tests may unwrap as tests do.
#![cfg(test)]

mod agent;
mod allocations;
mod auth;
mod belongings;
mod boot;
mod console;
mod discoveries;
mod drivers;
mod event_stream;
mod fixture;
mod fleet;
mod hardware;
mod health;
mod hostile;
mod lab;
mod limits;
mod looking_back;
mod negotiation;
mod node_changes;
mod node_parts;
mod nodes;
mod nonsense;
mod odd_values;
mod page;
mod refusals;
mod resources;
mod routing;
mod verbs;
