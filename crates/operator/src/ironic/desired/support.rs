// SPDX-License-Identifier: Apache-2.0
//! Fields of an `Ironic` that the service does not support, or that have no effect.

use std::fmt;

/// A field that requests what the service does not offer. It blocks the installation, so that it is
/// never ignored silently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedField {
    /// Path of the field.
    pub path: String,
    /// What is not offered, and what to use instead.
    pub reason: String,
}

impl fmt::Display for UnsupportedField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.reason)
    }
}

/// A field that has no effect. The condition `FieldsWithoutEffect` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldNotice {
    /// Path of the field.
    pub path: String,
    /// Why it has no effect.
    pub reason: String,
}

impl fmt::Display for FieldNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.reason)
    }
}

/// What was found while objects were computed.
#[derive(Debug, Default)]
pub(super) struct SupportReport {
    pub(super) unsupported: Vec<UnsupportedField>,
    pub(super) notices: Vec<FieldNotice>,
}

impl SupportReport {
    /// Records a field that blocks the installation.
    pub(super) fn reject(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.unsupported.push(UnsupportedField { path: path.into(), reason: reason.into() });
    }

    /// Records a field without effect.
    pub(super) fn notice(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.notices.push(FieldNotice { path: path.into(), reason: reason.into() });
    }
}
