// SPDX-License-Identifier: Apache-2.0
//! The reference page of all rules, `docs/policy.md`.

use std::fmt::Write as _;

use crate::rules::{PolicyRule, RuleScopes, rule_groups};

const INTRODUCTION: &str = "\
# Policy rules

This page is generated from the rules in the code. [Users, roles and projects](guide/tenancy.md)
explains how they are used and overridden. The names, checks and scopes of the rules `baremetal:…` are
those of Ironic 39; rules named `ferrite:…` protect what Ironic does not have.

A check is written in the language of oslo.policy:

| check | matches |
|---|---|
| `role:member` | callers with the role |
| `system_scope:all` | callers whose roles apply to the whole system |
| `project_id:%(node.owner)s` | callers of the project that owns the node; also `node.lessee`, `allocation.owner`, `runbook.owner` |
| `project_name:infra`, `user_id:…` | callers of the project or user |
| `rule:name` | what the other rule matches |
| `@`, `!` | every caller, no caller |

`and`, `or`, `not` and parentheses combine checks. A rule for the scope *system* never matches a caller
of a project.
";

/// The text of `docs/policy.md`.
#[must_use]
pub fn reference_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, rules) in rule_groups() {
        let _ = write!(page, "\n## {title}\n");
        for rule in *rules {
            write_rule(&mut page, rule);
        }
    }
    page
}

fn write_rule(page: &mut String, rule: &PolicyRule) {
    let _ = write!(page, "\n### `{}`\n\n{}\n\n", rule.name, rule.description);
    if !rule.operations.is_empty() {
        let operations: Vec<String> =
            rule.operations.iter().map(|operation| format!("`{operation}`")).collect();
        let _ = writeln!(page, "- requests: {}", operations.join(", "));
    }
    match rule.scopes {
        RuleScopes::Any => {}
        RuleScopes::System => page.push_str("- scope: system\n"),
        RuleScopes::Project => page.push_str("- scope: project\n"),
    }
    let _ = writeln!(page, "- default: `{}`", rule.check);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE=1` writes the page.
    #[test]
    fn generated_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.md");
        let current = reference_page();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(checked_in == current, "docs/policy.md is out of date; run cargo xtask docs");
    }
}
