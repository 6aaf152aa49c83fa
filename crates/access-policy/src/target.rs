// SPDX-License-Identifier: Apache-2.0
//! The resource that a rule is evaluated for.

/// The projects that own or lease the resource of a request. A rule that compares a project which is
/// not set does not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyTarget<'a> {
    /// `%(node.owner)s`.
    pub node_owner: Option<&'a str>,
    /// `%(node.lessee)s`.
    pub node_lessee: Option<&'a str>,
    /// `%(allocation.owner)s`.
    pub allocation_owner: Option<&'a str>,
    /// `%(runbook.owner)s`.
    pub runbook_owner: Option<&'a str>,
}

impl<'a> PolicyTarget<'a> {
    /// No resource, as for lists and new resources.
    pub const NONE: Self =
        Self { node_owner: None, node_lessee: None, allocation_owner: None, runbook_owner: None };

    /// A node, or a resource that belongs to it.
    #[must_use]
    pub const fn node(owner: Option<&'a str>, lessee: Option<&'a str>) -> Self {
        Self { node_owner: owner, node_lessee: lessee, ..Self::NONE }
    }

    /// An allocation.
    #[must_use]
    pub const fn allocation(owner: Option<&'a str>) -> Self {
        Self { allocation_owner: owner, ..Self::NONE }
    }

    /// A runbook.
    #[must_use]
    pub const fn runbook(owner: Option<&'a str>) -> Self {
        Self { runbook_owner: owner, ..Self::NONE }
    }
}
