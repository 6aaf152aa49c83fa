// SPDX-License-Identifier: Apache-2.0
//! Translations between resources and Ironic's JSON, for any Ironic. No IO.
//!
//! The values are those that Metal3's operator sends, so that a node that it registered is not
//! changed when Ferrite's operator takes over.

pub mod capabilities;
pub mod config_drive;
pub mod deploy_ramdisk;
pub mod firmware;
pub mod hardware_details;
pub mod image;
pub mod raid;
pub mod root_device;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

/// New values of fields; `None` removes a field. Fields that are not listed stay unchanged.
pub type FieldChanges = BTreeMap<&'static str, Option<Value>>;

/// A step of manual cleaning or servicing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IronicStep {
    /// Interface that implements the step.
    pub interface: &'static str,
    /// Name of the step.
    pub step: &'static str,
    /// Arguments.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

impl IronicStep {
    fn without_arguments(interface: &'static str, step: &'static str) -> Self {
        Self { interface, step, args: Map::new() }
    }

    /// A step with the single argument `settings`.
    fn with_settings(interface: &'static str, step: &'static str, settings: Vec<Value>) -> Self {
        let args = Map::from_iter([("settings".to_owned(), Value::Array(settings))]);
        Self { interface, step, args }
    }
}
