// SPDX-License-Identifier: Apache-2.0
//! The default rules. Names, checks and scopes of `baremetal:…` are those of Ironic 39 with
//! `enforce_new_defaults` and `enforce_scope`, which are its defaults.

mod ferrite_rules;
mod identity_rules;
mod node_rules;
mod personas;
mod resource_rules;
mod tenancy_rules;

use crate::caller::CallerScope;

/// A rule of the default policy.
#[derive(Debug)]
pub(crate) struct PolicyRule {
    pub(crate) name: &'static str,
    pub(crate) scopes: RuleScopes,
    pub(crate) check: &'static str,
    /// The requests it protects, as `METHOD path`.
    pub(crate) operations: &'static [&'static str],
    pub(crate) description: &'static str,
}

/// Which callers a rule can match at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleScopes {
    /// Callers of every scope.
    Any,
    /// Callers with system scope.
    System,
    /// Callers without system scope.
    Project,
}

const fn rule(
    name: &'static str,
    scopes: RuleScopes,
    check: &'static str,
    operations: &'static [&'static str],
    description: &'static str,
) -> PolicyRule {
    PolicyRule { name, scopes, check, operations, description }
}

/// All rules, in the order of the reference page.
pub(crate) fn all_rules() -> impl Iterator<Item = &'static PolicyRule> {
    rule_groups().iter().flat_map(|(_, rules)| rules.iter())
}

/// The rules under the headings of the reference page.
pub(crate) const fn rule_groups() -> &'static [(&'static str, &'static [PolicyRule])] {
    &[
        ("Nodes", node_rules::RULES),
        ("Other resources", resource_rules::RULES),
        ("Ferrite's own API", ferrite_rules::RULES),
        ("Deployments, quotas and audit log", tenancy_rules::RULES),
        ("Users, projects and tokens", identity_rules::RULES),
        ("Helper rules", personas::RULES),
    ]
}

impl RuleScopes {
    pub(crate) fn allows(self, scope: &CallerScope) -> bool {
        match self {
            Self::Any => true,
            Self::System => *scope == CallerScope::System,
            Self::Project => *scope != CallerScope::System,
        }
    }
}
