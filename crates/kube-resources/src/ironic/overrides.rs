// SPDX-License-Identifier: Apache-2.0
//! Changes of the objects that are generated for an `Ironic`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::optional::{non_empty, null_is_default};
use crate::text_enum::text_enum;

/// Changes of the generated objects.
///
/// Containers, probes and volumes are kept as JSON, so that fields of newer Kubernetes versions are
/// not lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct IronicOverrides {
    /// Ramdisks, by architecture.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub agent_images: Vec<AgentImagePair>,
    /// More annotations of pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Containers that are merged by name, or added.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub containers: Vec<Map<String, Value>>,
    /// Liveness probe of the image server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub httpd_liveness_probe: Option<Map<String, Value>>,
    /// Readiness probe of the image server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub httpd_readiness_probe: Option<Map<String, Value>>,
    /// Init containers that are merged by name, or added.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub init_containers: Vec<Map<String, Value>>,
    /// More labels of pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    /// Volumes that are merged by name, or added.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub volumes: Vec<Map<String, Value>>,
}

/// Kernel and initial file system of a ramdisk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentImagePair {
    /// Architecture of the machines; all others if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub architecture: Option<CpuArchitecture>,
    /// URL of the initial file system.
    pub initramfs: String,
    /// URL of the kernel.
    pub kernel: String,
}

text_enum! {
    /// CPU architecture.
    pub enum CpuArchitecture {
        /// 64-bit Arm.
        Aarch64 = "aarch64",
        /// 64-bit x86.
        X86_64 = "x86_64",
    }
}
