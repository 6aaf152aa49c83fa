// SPDX-License-Identifier: Apache-2.0
//! Tests of the state machine: tables of single decisions, and whole life cycles with a provisioner.

mod failures;
pub(crate) mod lab;
mod life_cycles;
mod tables;
