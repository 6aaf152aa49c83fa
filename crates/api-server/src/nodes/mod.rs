// SPDX-License-Identifier: Apache-2.0
//! Nodes: the resource itself, and everything that can be asked of one.
//!
//! One file per subject. What changes a node's record is done here in full, in one transaction;
//! what acts on the machine is handed to the conductor.

pub(crate) mod caretakers;
pub(crate) mod change;
pub(crate) mod change_rules;
pub(crate) mod children;
pub(crate) mod console;
pub(crate) mod console_stream;
pub(crate) mod create;
pub(crate) mod findings;
pub(crate) mod history;
pub(crate) mod indicators;
pub(crate) mod list;
pub(crate) mod maintenance;
pub(crate) mod management;
pub(crate) mod power;
pub(crate) mod provision;
pub(crate) mod raid;
pub(crate) mod reach;
pub(crate) mod remove;
pub(crate) mod show;
pub(crate) mod states;
pub(crate) mod traits;
pub(crate) mod validate;
pub(crate) mod vendor;
pub(crate) mod vifs;
pub(crate) mod vmedia;
