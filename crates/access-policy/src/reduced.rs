// SPDX-License-Identifier: Apache-2.0
//! Rules reduced by the roles and the kind of scope of a caller. What remains compares projects, so a
//! request evaluates a few comparisons instead of trees of roles.

use std::sync::{Arc, PoisonError, RwLock};

use crate::caller::{Caller, CallerScope};
use crate::check::{CallerAttribute, Check, Template};

/// Maximum number of entries. A full list is emptied.
const MAX_ENTRIES: usize = 64;

/// The reduced rules of the kinds of callers that made requests.
#[derive(Debug, Default)]
pub(crate) struct ReducedRules(RwLock<Vec<RulesOfRoles>>);

/// The rules for all callers with these roles in this kind of scope.
#[derive(Debug)]
struct RulesOfRoles {
    scope: ScopeKind,
    roles: Arc<[Arc<str>]>,
    rules: Arc<[Check]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScopeKind {
    System,
    Project,
    Other,
}

impl ScopeKind {
    fn of(scope: &CallerScope) -> Self {
        match scope {
            CallerScope::System => Self::System,
            CallerScope::Project(_) => Self::Project,
            CallerScope::Unrestricted | CallerScope::Unscoped => Self::Other,
        }
    }
}

impl ReducedRules {
    /// The rules for a caller, at the same positions as in `rules`.
    pub(crate) fn of(&self, caller: &Caller, rules: &[Check]) -> Arc<[Check]> {
        let scope = ScopeKind::of(&caller.scope);
        let same = |kind: &&RulesOfRoles| kind.scope == scope && kind.roles == caller.roles;
        let kinds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = kinds.iter().find(same) {
            return Arc::clone(&kind.rules);
        }
        drop(kinds);
        let reduced = reduce_all(rules, scope, caller);
        let mut kinds = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= MAX_ENTRIES {
            kinds.clear();
        }
        let (roles, rules) = (Arc::clone(&caller.roles), Arc::clone(&reduced));
        kinds.push(RulesOfRoles { scope, roles, rules });
        reduced
    }
}

fn reduce_all(rules: &[Check], scope: ScopeKind, caller: &Caller) -> Arc<[Check]> {
    let mut reduction = Reduction { rules, scope, caller, reduced: vec![None; rules.len()] };
    (0..rules.len()).map(|index| reduction.rule(index)).collect()
}

/// The reduction of all rules for one kind of caller.
struct Reduction<'a> {
    rules: &'a [Check],
    scope: ScopeKind,
    caller: &'a Caller,
    reduced: Vec<Option<Check>>,
}

impl Reduction<'_> {
    /// Terminates because references have no cycles.
    fn rule(&mut self, index: usize) -> Check {
        if let Some(reduced) = &self.reduced[index] {
            return reduced.clone();
        }
        let reduced = self.check(&self.rules[index]);
        self.reduced[index] = Some(reduced.clone());
        reduced
    }

    fn check(&mut self, check: &Check) -> Check {
        match check {
            Check::Rule(index) => match self.rule(*index) {
                // Longer checks are not copied, because rules may refer to one rule many times.
                Check::Not(_) | Check::All(_) | Check::Any(_) => Check::Rule(*index),
                short @ (Check::Always
                | Check::Never
                | Check::Rule(_)
                | Check::Role(_)
                | Check::Attribute(..)
                | Check::Literal(..)) => short,
            },
            Check::Role(Template::Constant(role)) => constant(self.caller.has_role(role)),
            Check::Attribute(attribute, template) => self.attribute(*attribute, template),
            Check::Not(inner) => {
                let inner = self.check(inner);
                if inner == Check::Always || inner == Check::Never {
                    constant(inner == Check::Never)
                } else {
                    Check::Not(Box::new(inner))
                }
            }
            Check::All(parts) => {
                let parts = self.parts(parts, &Check::Always);
                match parts.as_slice() {
                    [] => Check::Always,
                    parts if parts.contains(&Check::Never) => Check::Never,
                    [only] => only.clone(),
                    _ => Check::All(parts.into()),
                }
            }
            Check::Any(parts) => {
                let parts = self.parts(parts, &Check::Never);
                match parts.as_slice() {
                    [] => Check::Never,
                    parts if parts.contains(&Check::Always) => Check::Always,
                    [only] => only.clone(),
                    _ => Check::Any(parts.into()),
                }
            }
            Check::Always | Check::Never | Check::Role(_) | Check::Literal(..) => check.clone(),
        }
    }

    /// The reduced parts of a conjunction or disjunction without duplicates and its neutral element.
    fn parts(&mut self, parts: &[Check], neutral: &Check) -> Vec<Check> {
        let mut kept = Vec::new();
        for part in parts {
            let part = self.check(part);
            if part != *neutral && !kept.contains(&part) {
                kept.push(part);
            }
        }
        kept
    }

    /// Whether the caller has an attribute depends only on its scope; its value does not.
    fn attribute(&self, attribute: CallerAttribute, template: &Template) -> Check {
        match (attribute, template) {
            (CallerAttribute::SystemScope, Template::Constant(value)) => {
                constant(self.scope == ScopeKind::System && **value == *"all")
            }
            (CallerAttribute::ProjectId | CallerAttribute::ProjectName, _)
                if self.scope != ScopeKind::Project =>
            {
                Check::Never
            }
            (CallerAttribute::Unavailable, _) => Check::Never,
            _ => Check::Attribute(attribute, template.clone()),
        }
    }
}

fn constant(holds: bool) -> Check {
    if holds { Check::Always } else { Check::Never }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::AuthMethod;
    use crate::check::CheckContext;
    use crate::policy::Policy;
    use crate::rules::all_rules;
    use crate::target::PolicyTarget;

    fn caller(scope: CallerScope, roles: &[&str]) -> Caller {
        let roles = roles.iter().map(|role| Arc::from(*role)).collect();
        // `service_role` compares the name.
        let project_name = Some(Arc::from("service"));
        Caller { scope, roles, project_name, ..Caller::unrestricted("u", AuthMethod::ApiToken) }
    }

    /// Every rule, for every kind of caller and relation to the resource.
    #[test]
    fn reduced_rules_decide_as_complete_ones() {
        let policy = Policy::with_overrides(None).unwrap();
        let (checks, reduced) = (policy.checks(), ReducedRules::default());
        let projects = [None, Some(""), Some("p"), Some("other")];
        let scopes =
            [CallerScope::System, CallerScope::Project(Arc::from("p")), CallerScope::Unscoped];
        let roles: [&[&str]; 5] = [
            &["admin", "manager", "member", "reader"],
            &["manager", "member", "reader"],
            &["member", "reader"],
            &["service"],
            &[],
        ];
        let mut decisions = [0_usize; 2];
        for (scope, roles) in scopes.iter().flat_map(|scope| roles.map(|roles| (scope, roles))) {
            let caller = caller(scope.clone(), roles);
            let rules = reduced.of(&caller, checks);
            for (owner, lessee) in projects.iter().flat_map(|owner| projects.map(|l| (*owner, l))) {
                let target = PolicyTarget {
                    allocation_owner: owner,
                    runbook_owner: lessee,
                    ..PolicyTarget::node(owner, lessee)
                };
                let context = |rules| CheckContext {
                    caller: &caller,
                    target: &target,
                    service_project: Some("service"),
                    rules,
                };
                for (index, rule) in all_rules().enumerate() {
                    let complete = checks[index].holds(&context(checks));
                    let reduced = rules[index].holds(&context(&rules));
                    assert_eq!(complete, reduced, "{}: {caller:?} {target:?}", rule.name);
                    decisions[usize::from(complete)] += 1;
                }
            }
        }
        assert!(decisions.iter().all(|count| *count > 1000), "{decisions:?}");
    }

    #[test]
    fn number_of_entries_is_limited() {
        let (policy, reduced) = (Policy::with_overrides(None).unwrap(), ReducedRules::default());
        for number in 0..3 * MAX_ENTRIES {
            let role = format!("role{number}");
            reduced.of(&caller(CallerScope::System, &[&role]), policy.checks());
            assert!(reduced.0.read().unwrap().len() <= MAX_ENTRIES);
        }
        let system = reduced.of(&caller(CallerScope::System, &["admin"]), policy.checks());
        let again = reduced.of(&caller(CallerScope::System, &["admin"]), policy.checks());
        assert!(Arc::ptr_eq(&system, &again));
        let project =
            reduced.of(&caller(CallerScope::Project(Arc::from("p")), &["admin"]), policy.checks());
        assert!(!Arc::ptr_eq(&system, &project));
    }
}
