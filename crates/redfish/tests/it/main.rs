// SPDX-License-Identifier: Apache-2.0
//! Tests of the client against small servers with the defects of real BMCs.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod bmc;
mod connections;
mod finding;
mod recording;
mod requests;
mod sessions;
mod trust;
