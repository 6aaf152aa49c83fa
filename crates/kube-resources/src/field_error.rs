// SPDX-License-Identifier: Apache-2.0
//! A violated validation rule: the field, and what to do about it.

use std::fmt;

/// A rule that an object violates. Displayed as `spec.image.checksum: …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.raid.hardwareRAIDVolumes[0].controller`.
    pub path: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl FieldError {
    /// Creates the error.
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for FieldError {}
