// SPDX-License-Identifier: Apache-2.0
//! Objects that are computed for installations.

#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod databases;
mod fields;
mod fixtures;
mod goldens;
mod networking;
mod unsupported;
