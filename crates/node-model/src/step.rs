// SPDX-License-Identifier: Apache-2.0
//! Steps of cleaning, deployment, service and verification.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::named_enum;

named_enum! {
    /// The kind of job that a step belongs to.
    StepFlow {
        /// Cleaning, automated or manual.
        Clean = "clean",
        /// Deployment.
        Deploy = "deploy",
        /// Service of an active machine.
        Service = "service",
        /// Verification of a newly enrolled node.
        Verify = "verify",
    }
}

/// The only member of a step's arguments when they are stored encrypted. Requests with an argument of
/// this name are rejected.
pub const SEALED_ARGUMENTS: &str = "ferrite:sealed";

/// A step of a job, or of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The driver interface that runs it (`deploy`, `raid`, …). Text, because reserved steps accept
    /// any interface and agents define their own.
    pub interface: String,
    /// The name within the interface.
    pub step: String,
    /// The arguments from the user or the template.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub args: JsonObject,
    /// Higher priorities run first; zero disables the step.
    #[serde(default)]
    pub priority: i64,
    /// Whether the job may be aborted while the step runs.
    #[serde(default)]
    pub abortable: bool,
    /// Whether an abort was requested that takes effect when the step ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abort_after: bool,
    /// Whether the step needs the ramdisk.
    #[serde(default)]
    pub requires_ramdisk: bool,
    /// Whether the machine is rebooted after the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot_requested: bool,
    /// Whether the step runs on the child nodes instead of the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub execute_on_child_nodes: bool,
    /// Restricts the step to these child nodes; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_child_node_execution: Vec<String>,
}

impl Step {
    /// A step without arguments.
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

    /// `interface.step`, as in settings and messages.
    #[must_use]
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.interface, self.step)
    }
}

/// A step that a driver or an agent offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AvailableStep {
    /// The step with its default priority and no arguments.
    pub step: Step,
    /// The accepted arguments; others are rejected.
    pub arguments: Cow<'static, [StepArgument]>,
}

/// An argument of a step. Those of drivers are compiled in, those of agents are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepArgument {
    /// The name.
    pub name: Cow<'static, str>,
    /// Whether it is mandatory.
    pub required: bool,
    /// The description.
    pub description: Cow<'static, str>,
}

impl StepArgument {
    /// A mandatory argument.
    #[must_use]
    pub const fn required(name: &'static str, description: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), required: true, description: Cow::Borrowed(description) }
    }

    /// An optional argument.
    #[must_use]
    pub const fn optional(name: &'static str, description: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), required: false, description: Cow::Borrowed(description) }
    }
}
