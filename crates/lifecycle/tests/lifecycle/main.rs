// SPDX-License-Identifier: Apache-2.0
//! Tests of the crate's public functions: transcripts of jobs, and properties that hold for any order
//! of events.

mod support;

mod agent_steps;
mod boot_attempts;
mod diagram;
mod jobs;
mod properties;
mod provision_requests;
mod waits;
