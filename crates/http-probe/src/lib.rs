// SPDX-License-Identifier: Apache-2.0
//! Starts a Ferrite and asks it things over HTTP, for the end-to-end tests and the benchmark.
//!
//! Blocking and std only: a test that says what it does line by line is worth more here than
//! speed, and the client must cost little beside the server that is measured. Not for production.

mod client;
mod server;

pub use client::{Answer, Client};
pub use server::{Server, StartError, Stopped, send_signal};
