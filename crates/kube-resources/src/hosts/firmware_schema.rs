// SPDX-License-Identifier: Apache-2.0
//! `FirmwareSchema`: types and limits of the BIOS settings of a hardware model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// Types and limits of BIOS settings. Hosts with equal schemas share an object.
    pub struct FirmwareSchema in "metal3.io" / "v1alpha1", plural "firmwareschemas" {
        spec: FirmwareSchemaSpec,
    }
}

/// The schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FirmwareSchemaSpec {
    /// Vendor of the hardware.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hardware_vendor: Option<String>,
    /// Model of the hardware.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hardware_model: Option<String>,
    /// Settings by name.
    #[serde(deserialize_with = "null_is_default")]
    pub schema: BTreeMap<String, BiosSettingSchema>,
}

/// Type and limits of one BIOS setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BiosSettingSchema {
    /// Type; `None` if the BMC has no registry.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub attribute_type: Option<BiosAttributeType>,
    /// Values of an enumeration.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub allowable_values: Vec<String>,
    /// Smallest integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    /// Largest integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<i64>,
    /// Shortest string, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<i64>,
    /// Longest string, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<i64>,
    /// Whether it cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Whether the value identifies one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
}

text_enum! {
    /// Type of a BIOS setting.
    pub enum BiosAttributeType {
        /// One of the allowable values.
        Enumeration = "Enumeration",
        /// Text.
        Text = "String",
        /// Integer.
        Integer = "Integer",
        /// `true` or `false`.
        Boolean = "Boolean",
        /// Password, which cannot be set.
        Password = "Password",
    }
}
