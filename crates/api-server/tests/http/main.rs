// SPDX-License-Identifier: Apache-2.0
//! The API over real sockets, as clients see it.

// Helper functions of tests may unwrap as tests do.
#![cfg(test)]

mod ferrite;
mod hostile_input;
mod ironic;
mod server;
mod support;
