// SPDX-License-Identifier: Apache-2.0
//! Named lists of steps: deploy templates, selected by trait, and runbooks, selected by name.

use serde::{Deserialize, Serialize};

use crate::{DeployTemplateId, JsonObject, RunbookId, Timestamp};

/// Steps added to a deployment if the instance requests the trait of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeployTemplate {
    /// The id.
    pub id: DeployTemplateId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The unique name; a trait name.
    pub name: String,
    /// The steps; at least one.
    pub steps: Vec<TemplateStep>,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}

/// A step of a deploy template.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TemplateStep {
    /// The interface.
    pub interface: String,
    /// The step.
    pub step: String,
    /// The arguments.
    #[serde(default)]
    pub args: JsonObject,
    /// The priority among the driver's steps; zero disables the driver's step of that name.
    pub priority: i64,
}

/// An approved list of steps. Users may run it without permission to run arbitrary steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runbook {
    /// The id.
    pub id: RunbookId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The unique name.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// The steps; at least one.
    pub steps: Vec<RunbookStep>,
    /// The runbook may run on nodes with any of these traits. Sorted.
    pub traits: Vec<String>,
    /// Whether the job runs without booting the ramdisk.
    pub disable_ramdisk: bool,
    /// Whether every project can read it.
    pub public: bool,
    /// The project that owns it.
    pub owner: Option<String>,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}

/// A step of a runbook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunbookStep {
    /// The interface.
    pub interface: String,
    /// The step.
    pub step: String,
    /// The arguments.
    #[serde(default)]
    pub args: JsonObject,
    /// Steps with a lower order run first.
    pub order: i64,
}
