// SPDX-License-Identifier: Apache-2.0
//! A step: one named thing that cleaning, deploying, servicing or verifying does.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::named;

named! {
    /// Which work a step belongs to.
    StepFlow {
        /// Cleaning, automated or manual.
        Clean = "clean",
        /// Deployment.
        Deploy = "deploy",
        /// Service of an active machine.
        Service = "service",
        /// The check of a newly enrolled machine.
        Verify = "verify",
    }
}

/// The one member that a step's arguments have where they are kept encrypted. No step has an argument
/// of this name, and nobody may give one.
pub const SEALED_ARGUMENTS: &str = "ferrite:sealed";

/// One step as it will be, or is being, carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Which driver interface carries it out (`deploy`, `raid`, …). Text, because reserved steps
    /// accept any and agents bring their own.
    pub interface: String,
    /// Its name within the interface.
    pub step: String,
    /// Arguments, as given by the user or the template.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub args: JsonObject,
    /// Higher runs first; zero is disabled.
    #[serde(default)]
    pub priority: i64,
    /// Whether the work may be aborted while it runs.
    #[serde(default)]
    pub abortable: bool,
    /// Abort has been asked for and happens when the step ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abort_after: bool,
    /// Whether the ramdisk must be running for it.
    #[serde(default)]
    pub requires_ramdisk: bool,
    /// Whether the machine is rebooted after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot_requested: bool,
    /// Whether it runs on the node's children instead of the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub execute_on_child_nodes: bool,
    /// Only these children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_child_node_execution: Vec<String>,
}

impl Step {
    /// A step without arguments, for an interface and name.
    #[must_use]
    pub fn new(interface: &str, step: &str, priority: i64) -> Self {
        Self {
            interface: interface.to_owned(),
            step: step.to_owned(),
            args: JsonObject::empty(),
            priority,
            abortable: false,
            abort_after: false,
            requires_ramdisk: false,
            reboot_requested: false,
            execute_on_child_nodes: false,
            limit_child_node_execution: Vec::new(),
        }
    }

    /// `interface.step`, as policies and messages name it.
    #[must_use]
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.interface, self.step)
    }
}

/// A step that a driver or an agent says it can carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepOffer {
    /// The step with its default priority and no arguments.
    pub step: Step,
    /// The arguments it takes; others are refused.
    pub arguments: Cow<'static, [StepArgument]>,
}

/// An argument of a step. A driver's are known when it is compiled, an agent's are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepArgument {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whether the step cannot do without it.
    pub required: bool,
    /// What it means.
    pub description: Cow<'static, str>,
}

impl StepArgument {
    /// An argument the step cannot do without.
    #[must_use]
    pub const fn required(name: &'static str, description: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), required: true, description: Cow::Borrowed(description) }
    }

    /// An argument the step can do without.
    #[must_use]
    pub const fn optional(name: &'static str, description: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), required: false, description: Cow::Borrowed(description) }
    }
}
