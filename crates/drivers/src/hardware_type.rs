// SPDX-License-Identifier: Apache-2.0
//! Hardware types, and which implementations each of them supports.

use node_model::InterfaceKind;

/// A hardware type, named by a node's `driver` field.
#[derive(Debug, PartialEq, Eq)]
pub struct HardwareType {
    /// The name.
    pub name: &'static str,
    /// The supported implementations per interface, best first: the first enabled one is the default.
    pub supported: &'static [(InterfaceKind, &'static [&'static str])],
    /// Whether nodes may use every enabled implementation. True only for fake hardware.
    pub accepts_any: bool,
}

impl HardwareType {
    /// The supported implementations of `kind`, best first.
    #[must_use]
    pub fn supported(&self, kind: InterfaceKind) -> &'static [&'static str] {
        let row = self.supported.iter().find(|(supported, _)| *supported == kind);
        row.map_or(&[], |(_, names)| names)
    }

    /// Whether a node of this type may use `implementation` of `kind`.
    #[must_use]
    pub fn accepts(&self, kind: InterfaceKind, implementation: &str) -> bool {
        self.accepts_any || self.supported(kind).contains(&implementation)
    }
}
