// SPDX-License-Identifier: Apache-2.0
//! Named lists of steps: deploy templates, matched by trait, and runbooks, called by name.

use serde::{Deserialize, Serialize};

use crate::{DeployTemplateId, JsonObject, RunbookId, Timestamp};

/// Steps added to a deployment when the instance asks for the trait of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeployTemplate {
    /// Its identity.
    pub id: DeployTemplateId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Unique; a trait name.
    pub name: String,
    /// At least one.
    pub steps: Vec<TemplateStep>,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
}

/// A step of a deploy template.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TemplateStep {
    /// The interface.
    pub interface: String,
    /// The step.
    pub step: String,
    /// Its arguments.
    #[serde(default)]
    pub args: JsonObject,
    /// Where it goes among the driver's steps; zero disables the driver's step of that name.
    pub priority: i64,
}

/// An approved list of steps that users may run without being allowed to run steps at will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runbook {
    /// Its identity.
    pub id: RunbookId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Unique.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// At least one.
    pub steps: Vec<RunbookStep>,
    /// Nodes with any of these traits may be run on. Sorted.
    pub traits: Vec<String>,
    /// Do without the ramdisk.
    pub disable_ramdisk: bool,
    /// Readable by every project.
    pub public: bool,
    /// Project that owns it.
    pub owner: Option<String>,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
}

/// A step of a runbook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunbookStep {
    /// The interface.
    pub interface: String,
    /// The step.
    pub step: String,
    /// Its arguments.
    #[serde(default)]
    pub args: JsonObject,
    /// Lower runs first.
    pub order: i64,
}
