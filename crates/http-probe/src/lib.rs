// SPDX-License-Identifier: Apache-2.0
//! HTTP client and server process for the end-to-end tests and benchmarks.
//!
//! Blocking and std only: tests read top to bottom without a runtime, and the client costs little
//! CPU time next to the server being measured. Not for production use.

mod client;
mod server;

pub use client::{ProbeClient, ProbeResponse, ProbeTls, ProbeTlsStream};
pub use server::{ServerExit, ServerProcess, ServerStartError, send_signal};
