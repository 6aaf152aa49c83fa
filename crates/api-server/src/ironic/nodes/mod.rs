// SPDX-License-Identifier: Apache-2.0
//! Nodes and their sub-resources, one file per subject.
//!
//! A change of a node's record is made here, in one transaction; an action on the machine is passed
//! to the conductor.

pub(crate) mod children;
pub(crate) mod console;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod hardware;
pub(crate) mod history;
pub(crate) mod indicators;
pub(crate) mod list;
pub(crate) mod maintenance;
pub(crate) mod management;
pub(crate) mod path_node;
pub(crate) mod power;
pub(crate) mod provision;
pub(crate) mod raid;
pub(crate) mod show;
pub(crate) mod states;
pub(crate) mod traits;
pub(crate) mod update;
mod update_rules;
pub(crate) mod validate;
pub(crate) mod vendor_passthru;
pub(crate) mod vifs;
pub(crate) mod virtual_media;
