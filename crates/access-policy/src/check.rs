// SPDX-License-Identifier: Apache-2.0
//! Compiled check strings and their evaluation.

use crate::caller::{Caller, CallerScope};
use crate::target::PolicyTarget;

/// A compiled check string. References to other rules are indices into the list of all rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// `@` or an empty text: always allowed.
    Always,
    /// `!`: never allowed.
    Never,
    /// `rule:name`.
    Rule(usize),
    /// `role:name`.
    Role(Template),
    /// `attribute:value`: compares an attribute of the caller.
    Attribute(CallerAttribute, Template),
    /// `'literal':%(key)s`: compares a constant.
    Literal(Box<str>, Template),
    /// `not …`.
    Not(Box<Check>),
    /// `… and …`.
    All(Box<[Check]>),
    /// `… or …`.
    Any(Box<[Check]>),
}

/// An attribute of the caller that a check can compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallerAttribute {
    UserId,
    ProjectId,
    ProjectName,
    SystemScope,
    /// An attribute that oslo.policy has and callers of Ferrite do not, such as a domain. It never
    /// matches.
    Unavailable,
}

/// The value of a check: constant text and `%(key)s` substitutions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Template {
    /// Text without substitutions.
    Constant(Box<str>),
    /// One substitution and nothing else, which is the usual case.
    Key(TargetKey),
    /// Any other mix.
    Pieces(Box<[TemplatePiece]>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TemplatePiece {
    Text(Box<str>),
    Key(TargetKey),
}

/// What `%(key)s` stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetKey {
    NodeOwner,
    NodeLessee,
    AllocationOwner,
    RunbookOwner,
    ProjectId,
    ProjectName,
    UserId,
    ServiceProject,
}

/// What a check is evaluated with.
#[derive(Clone, Copy)]
pub(crate) struct CheckContext<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) target: &'a PolicyTarget<'a>,
    pub(crate) service_project: Option<&'a str>,
    /// The checks of all rules, for references.
    pub(crate) rules: &'a [Check],
}

impl Check {
    /// Whether the check holds. Terminates because references have no cycles.
    pub(crate) fn holds(&self, context: &CheckContext<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Rule(index) => context.rules.get(*index).is_some_and(|rule| rule.holds(context)),
            Self::Role(Template::Constant(role)) => context.caller.has_role(role),
            Self::Role(template) => {
                template.resolve(context).is_some_and(|role| context.caller.has_role(&role))
            }
            Self::Attribute(attribute, template) => {
                attribute.of(context.caller).is_some_and(|value| template.equals(value, context))
            }
            Self::Literal(value, template) => template.equals(value, context),
            Self::Not(inner) => !inner.holds(context),
            Self::All(parts) => parts.iter().all(|part| part.holds(context)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(context)),
        }
    }

    /// Calls `visit` with every rule this check refers to directly.
    pub(crate) fn references(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Self::Rule(index) => visit(*index),
            Self::Not(inner) => inner.references(visit),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.references(visit));
            }
            Self::Always
            | Self::Never
            | Self::Role(_)
            | Self::Attribute(..)
            | Self::Literal(..) => {}
        }
    }
}

impl CallerAttribute {
    /// The attribute of oslo.policy's name; `None` if there is no such attribute.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "user_id" | "user" => Self::UserId,
            "project_id" | "tenant" | "tenant_id" => Self::ProjectId,
            "project_name" => Self::ProjectName,
            "system_scope" => Self::SystemScope,
            "domain_id"
            | "is_admin"
            | "is_admin_project"
            | "is_public_api"
            | "project_domain_id"
            | "service_project_domain_id"
            | "service_project_id"
            | "service_roles"
            | "service_user_domain_id"
            | "service_user_id"
            | "user_domain_id" => Self::Unavailable,
            _ => return None,
        })
    }

    fn of(self, caller: &Caller) -> Option<&str> {
        match self {
            Self::UserId => caller.user_id.as_deref(),
            Self::ProjectId => caller.project(),
            Self::ProjectName => caller.project().and(caller.project_name.as_deref()),
            Self::SystemScope => match caller.scope {
                CallerScope::System => Some("all"),
                CallerScope::Unrestricted | CallerScope::Project(_) | CallerScope::Unscoped => None,
            },
            Self::Unavailable => None,
        }
    }
}

impl TargetKey {
    /// Keys and their names in check strings.
    pub(crate) const NAMES: &[(&str, Self)] = &[
        ("node.owner", Self::NodeOwner),
        ("node.lessee", Self::NodeLessee),
        ("allocation.owner", Self::AllocationOwner),
        ("runbook.owner", Self::RunbookOwner),
        ("project_id", Self::ProjectId),
        ("project_name", Self::ProjectName),
        ("user_id", Self::UserId),
        ("config.service_project_name", Self::ServiceProject),
    ];

    fn value<'a>(self, context: &CheckContext<'a>) -> Option<&'a str> {
        let CheckContext { caller, target, service_project, .. } = *context;
        match self {
            Self::NodeOwner => target.node_owner,
            Self::NodeLessee => target.node_lessee,
            Self::AllocationOwner => target.allocation_owner,
            Self::RunbookOwner => target.runbook_owner,
            Self::ProjectId => caller.project(),
            Self::ProjectName => caller.project().and(caller.project_name.as_deref()),
            Self::UserId => caller.user_id.as_deref(),
            Self::ServiceProject => service_project,
        }
        // A resource without an owner belongs to no caller, also not to one with an empty id.
        .filter(|value| !value.is_empty())
    }
}

impl Template {
    /// Whether the text is `value`. False if a key has no value.
    fn equals(&self, value: &str, context: &CheckContext<'_>) -> bool {
        match self {
            Self::Constant(text) => **text == *value,
            Self::Key(key) => key.value(context) == Some(value),
            Self::Pieces(_) => self.resolve(context).is_some_and(|text| text == value),
        }
    }

    /// The text; `None` if a key has no value.
    fn resolve(&self, context: &CheckContext<'_>) -> Option<String> {
        match self {
            Self::Constant(text) => Some(text.to_string()),
            Self::Key(key) => key.value(context).map(str::to_owned),
            Self::Pieces(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    TemplatePiece::Text(text) => Some(&**text),
                    TemplatePiece::Key(key) => key.value(context),
                })
                .collect(),
        }
    }
}
