// SPDX-License-Identifier: Apache-2.0
//! The policy: default rules, overridden by the operator's file.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::caller::{Caller, CallerScope};
use crate::check::{Check, CheckContext};
use crate::parse::{SyntaxError, parse_check, referenced_rules};
use crate::reduced::ReducedRules;
use crate::rules::{RuleScopes, all_rules};
use crate::target::PolicyTarget;

/// Maximum size of a policy file in bytes.
const MAX_FILE: usize = 1 << 20;
/// Prefix of optional rules for single steps: `baremetal:step:execute:<interface>.<step>`.
const STEP_PREFIX: &str = "baremetal:step:execute:";
/// Rules that cannot be overridden, with the reason.
const FIXED: &[(&str, &str)] = &[
    ("show_password", "secrets are never shown"),
    ("show_instance_secrets", "secrets are never shown"),
    ("baremetal:node:ipa_heartbeat", AGENTS),
    ("baremetal:driver:ipa_lookup", AGENTS),
    ("baremetal:driver:ipa_continue_inspection", AGENTS),
];
const AGENTS: &str = "agents have no user; conductor.agent_boot_proof restricts them";

/// Decides what callers may do. Check strings are compiled once.
#[derive(Debug)]
pub struct Policy {
    checks: Vec<Check>,
    scopes: Vec<RuleScopes>,
    index: HashMap<Box<str>, usize>,
    service_project: Option<Box<str>>,
    reduced: ReducedRules,
}

/// A policy file is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is not a map of rule names to check strings.
    #[error("the policy is not a YAML or JSON map of rule names to check strings: {0}")]
    Format(String),
    /// A value is not a text.
    #[error(
        "policy rule \"{0}\": its value must be a text such as \"role:admin and system_scope:all\""
    )]
    NotAText(String),
    /// The rule does not exist.
    #[error("policy rule \"{0}\" does not exist; docs/policy.md lists all rules{hint}", hint = hint(.1.as_deref()))]
    UnknownRule(String, Option<String>),
    /// The rule cannot be overridden.
    #[error("policy rule \"{0}\" cannot be changed: {1}")]
    Fixed(String, &'static str),
    /// The check string of a rule is invalid.
    #[error("policy rule \"{rule}\": in \"{check}\": {problem}")]
    Syntax {
        /// The rule.
        rule: String,
        /// The beginning of its check string.
        check: String,
        /// What is wrong.
        problem: String,
    },
    /// Rules refer to each other in a circle.
    #[error("policy rule \"{0}\" refers to itself through {1}")]
    Cycle(String, String),
}

fn hint(similar: Option<&str>) -> String {
    similar.map_or_else(String::new, |name| format!(". Did you mean \"{name}\"?"))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PolicyFileValue {
    Text(String),
    Other(IgnoredAny),
}

impl Policy {
    /// The default rules, overridden by a YAML or JSON map of rule names to check strings.
    ///
    /// The map may define further rules if another rule of the map refers to them, and rules for
    /// single steps.
    ///
    /// # Errors
    /// Fails if the map is malformed, names an unknown rule, has an invalid check string, or if rules
    /// refer to each other in a circle.
    pub fn with_overrides(yaml: Option<&str>) -> Result<Self, PolicyError> {
        let overrides = yaml.map_or_else(|| Ok(BTreeMap::new()), parse_file)?;
        let mut names: Vec<Box<str>> = Vec::new();
        let mut scopes = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let mut index: HashMap<Box<str>, usize> = HashMap::new();
        let mut add = |name: &str, scope: RuleScopes, text: String| {
            index.insert(name.into(), names.len());
            names.push(name.into());
            scopes.push(scope);
            texts.push(text);
        };
        for rule in all_rules() {
            let text = overrides.get(rule.name).map_or(rule.check, String::as_str);
            add(rule.name, rule.scopes, text.to_owned());
        }
        let known: HashSet<&str> = all_rules().map(|rule| rule.name).collect();
        let referenced: HashSet<&str> =
            overrides.values().flat_map(|text| referenced_rules(text)).collect();
        for (name, text) in &overrides {
            let fixed = FIXED.iter().find(|(fixed, _)| fixed == name);
            if let Some((_, reason)) = fixed.filter(|(rule, _)| !is_default(rule, text)) {
                return Err(PolicyError::Fixed(name.clone(), reason));
            }
            if known.contains(name.as_str()) {
                continue;
            }
            if !name.starts_with(STEP_PREFIX) && !referenced.contains(name.as_str()) {
                return Err(PolicyError::UnknownRule(name.clone(), similar_rule(name)));
            }
            add(name, RuleScopes::Any, text.clone());
        }
        let mut checks = Vec::with_capacity(texts.len());
        for (name, text) in names.iter().zip(&texts) {
            let check = parse_check(text, &|name| index.get(name).copied())
                .map_err(|problem| syntax_error(name, text, &problem))?;
            checks.push(check);
        }
        check_cycles(&names, &checks)?;
        Ok(Self { checks, scopes, index, service_project: None, reduced: ReducedRules::default() })
    }

    /// Sets the project whose `service` role applies to the whole system; `None` disables this.
    #[must_use]
    pub fn with_service_project(mut self, name: Option<&str>) -> Self {
        self.service_project = name.filter(|name| !name.is_empty()).map(Into::into);
        self
    }

    /// Whether the rule exists.
    #[must_use]
    pub fn has_rule(&self, rule: &str) -> bool {
        self.index.contains_key(rule)
    }

    /// Whether `caller` may do what `rule` protects to `target`. False for an unknown rule.
    #[must_use]
    pub fn allows(&self, rule: &str, caller: &Caller, target: &PolicyTarget<'_>) -> bool {
        if caller.scope == CallerScope::Unrestricted {
            return true;
        }
        let Some(&index) = self.index.get(rule) else { return false };
        if !self.scopes[index].allows(&caller.scope) {
            return false;
        }
        let rules = self.reduced.of(caller, &self.checks);
        let context = CheckContext {
            caller,
            target,
            service_project: self.service_project.as_deref(),
            rules: &rules,
        };
        rules[index].holds(&context)
    }

    #[cfg(test)]
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The rules of requests that `caller` matches for `target`, in alphabetical order, without helper
    /// rules.
    #[must_use]
    pub fn allowed_rules(&self, caller: &Caller, target: &PolicyTarget<'_>) -> Vec<&str> {
        let protects_requests =
            |name: &&str| name.starts_with("baremetal:") || name.starts_with("ferrite:");
        let names = self.index.keys().map(|name| &**name).filter(protects_requests);
        let mut allowed: Vec<&str> =
            names.filter(|name| self.allows(name, caller, target)).collect();
        allowed.sort_unstable();
        allowed
    }

    /// Whether `caller` may request this step. Steps without a rule of their own are allowed.
    #[must_use]
    pub fn allows_step(
        &self,
        interface: &str,
        step: &str,
        caller: &Caller,
        target: &PolicyTarget<'_>,
    ) -> bool {
        let rule = format!("{STEP_PREFIX}{interface}.{step}");
        !self.has_rule(&rule) || self.allows(&rule, caller, target)
    }
}

/// Whether `text` is the default check of the rule. An empty text and `@` are the same.
fn is_default(name: &str, text: &str) -> bool {
    let normalized = |check: &str| check.trim().replace('@', "");
    all_rules().any(|rule| rule.name == name && normalized(rule.check) == normalized(text))
}

fn parse_file(text: &str) -> Result<BTreeMap<String, String>, PolicyError> {
    if text.len() > MAX_FILE {
        return Err(PolicyError::Format(format!("it is larger than {MAX_FILE} bytes")));
    }
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(BTreeMap::new());
    }
    let file: BTreeMap<String, PolicyFileValue> =
        serde_saphyr::from_str(text).map_err(|error| PolicyError::Format(error.to_string()))?;
    file.into_iter()
        .map(|(name, value)| match value {
            PolicyFileValue::Text(text) => Ok((name, text)),
            PolicyFileValue::Other(IgnoredAny) => Err(PolicyError::NotAText(name)),
        })
        .collect()
}

fn syntax_error(rule: &str, text: &str, problem: &SyntaxError) -> PolicyError {
    let check: String = text.chars().take(120).collect();
    PolicyError::Syntax { rule: rule.to_owned(), check, problem: problem.to_string() }
}

/// A rule whose name differs in few characters.
fn similar_rule(name: &str) -> Option<String> {
    let same_letters = |known: &str| {
        let letters = |text: &str| text.replace([':', '_', '-', '.'], "").to_lowercase();
        letters(known) == letters(name)
    };
    all_rules().map(|rule| rule.name).find(|known| same_letters(known)).map(str::to_owned)
}

/// Fails if a rule refers to itself, directly or through others.
fn check_cycles(names: &[Box<str>], checks: &[Check]) -> Result<(), PolicyError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Open,
        Active,
        Done,
    }
    // Iterative, because a file can define long chains of rules.
    let references: Vec<Vec<usize>> = checks
        .iter()
        .map(|check| {
            let mut found = Vec::new();
            check.references(&mut |index| found.push(index));
            found
        })
        .collect();
    let mut visits = vec![Visit::Open; checks.len()];
    for start in 0..checks.len() {
        let mut path: Vec<(usize, usize)> = Vec::new();
        if visits[start] == Visit::Open {
            visits[start] = Visit::Active;
            path.push((start, 0));
        }
        while let Some((rule, next)) = path.last_mut() {
            let Some(&reference) = references[*rule].get(*next) else {
                visits[*rule] = Visit::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match visits[reference] {
                Visit::Done => {}
                Visit::Open => {
                    visits[reference] = Visit::Active;
                    path.push((reference, 0));
                }
                Visit::Active => {
                    let cycle = path.iter().skip_while(|(rule, _)| *rule != reference);
                    let through: Vec<&str> = cycle.map(|(rule, _)| &*names[*rule]).collect();
                    let name = names[reference].to_string();
                    return Err(PolicyError::Cycle(name, through.join(" -> ")));
                }
            }
        }
        check_depth(&references, start, names)?;
    }
    Ok(())
}

/// Fails if a chain of references is so long that evaluating it would need much stack.
fn check_depth(
    references: &[Vec<usize>],
    start: usize,
    names: &[Box<str>],
) -> Result<(), PolicyError> {
    const MAX_CHAIN: usize = 64;
    let mut level = vec![start];
    for _ in 0..MAX_CHAIN {
        let mut below: Vec<usize> =
            level.iter().flat_map(|rule| references[*rule].iter().copied()).collect();
        below.sort_unstable();
        below.dedup();
        if below.is_empty() {
            return Ok(());
        }
        level = below;
    }
    let problem = format!("rules refer to each other in a chain of more than {MAX_CHAIN}");
    Err(PolicyError::Syntax { rule: names[start].to_string(), check: String::new(), problem })
}
