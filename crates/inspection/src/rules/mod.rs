// SPDX-License-Identifier: Apache-2.0
//! Inspection rules: conditions over a report, and actions to run if they hold.
//!
//! Rules are compiled once and run for every report. They read the changes of hooks and of earlier
//! rules. The language is Ironic's, except that
//! - a number and a text that contains a number are compared as numbers: interpolation converts every
//!   number to text, so the comparison would otherwise never hold or fail the inspection;
//! - `is-none` also holds for the text `None`, to which interpolation converts null;
//! - regular expressions have no look-around and no back-references, so that they run in linear time
//!   on untrusted text;
//! - `set-capability` replaces an existing capability instead of adding a second one;
//! - a port can also be given by its MAC address, so that rules can change ports that a hook of the
//!   same inspection created.

mod actions;
pub(crate) mod conditions;
mod operation;
mod template;
mod values;

use std::cmp::Reverse;

use node_model::{InspectionRule, RuleId, Sensitive};
use serde_json::Value;

use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::{InspectionLogLevel, InspectionLogSource};
use crate::settings::MaskSecrets;
use actions::CompiledAction;
pub(crate) use actions::is_trait;
use conditions::CompiledCondition;

pub use operation::{OperationDefinitionError, OperationError};

/// The phase after the hooks; the only one that exists.
pub const MAIN_PHASE: &str = "main";

/// Compiled rules, in the order of their execution.
#[derive(Default, Debug)]
pub struct RuleSet(Vec<CompiledRule>);

/// An invalid rule. The message contains the invalid entry and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The rule has no actions.
    #[error("a rule needs at least one action")]
    NoActions,
    /// A condition or action is invalid.
    #[error("{list}[{index}]{}: {reason}", .op.as_deref().map(|op| format!(" ({op})")).unwrap_or_default())]
    Entry {
        /// `conditions` or `actions`.
        list: &'static str,
        /// The index, from zero.
        index: usize,
        /// The operator or action, if given.
        op: Option<String>,
        /// The cause.
        reason: OperationDefinitionError,
    },
}

/// A stored rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("inspection rule {rule} cannot be used")]
pub struct StoredRuleError {
    /// The rule.
    pub rule: RuleId,
    /// The cause.
    #[source]
    pub source: Box<RuleError>,
}

/// A rule failed the inspection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFailure {
    /// Its `fail` action was executed.
    #[error("rule {rule} refuses the machine: {message}")]
    Refused {
        /// The rule.
        rule: RuleId,
        /// The message of the action.
        message: String,
    },
    /// A condition or action failed.
    #[error("rule {rule}, {list}[{index}] ({op})")]
    Operation {
        /// The rule.
        rule: RuleId,
        /// `conditions` or `actions`.
        list: &'static str,
        /// The index, from zero.
        index: usize,
        /// The operator or action.
        op: &'static str,
        /// The cause.
        #[source]
        source: OperationError,
    },
}

#[derive(Debug)]
struct CompiledRule {
    id: RuleId,
    sensitive: Sensitive,
    conditions: Vec<CompiledCondition>,
    actions: Vec<CompiledAction>,
}

/// Validates the conditions and actions of a rule.
///
/// # Errors
/// If an operator is unknown, an argument is missing or unexpected, or a regular expression is
/// invalid.
pub fn validate_rule(conditions: &[Value], actions: &[Value]) -> Result<(), RuleError> {
    compile_conditions(conditions)?;
    compile_actions(actions)?;
    Ok(())
}

impl RuleSet {
    /// Compiles the rules of the main phase and sorts them by descending priority, then by age, oldest
    /// first.
    ///
    /// # Errors
    /// If [`validate_rule`] rejects one of them.
    pub fn compile<'r>(
        rules: impl IntoIterator<Item = &'r InspectionRule>,
    ) -> Result<Self, StoredRuleError> {
        let mut rules: Vec<&InspectionRule> = rules
            .into_iter()
            .filter(|rule| rule.phase.as_deref().is_none_or(|phase| phase == MAIN_PHASE))
            .collect();
        rules.sort_by_key(|rule| (Reverse(rule.priority), rule.created_at, rule.id));
        let compile = |rule: &InspectionRule| -> Result<CompiledRule, RuleError> {
            Ok(CompiledRule {
                id: rule.id,
                sensitive: rule.sensitive,
                conditions: compile_conditions(&rule.conditions.parse())?,
                actions: compile_actions(&rule.actions.parse())?,
            })
        };
        let compiled = rules.into_iter().map(|rule| {
            compile(rule)
                .map_err(|source| StoredRuleError { rule: rule.id, source: Box::new(source) })
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn run(&self, draft: &mut InspectionDraft<'_>) -> Result<(), RuleFailure> {
        self.0.iter().try_for_each(|rule| rule.run(draft))
    }
}

impl CompiledRule {
    fn run(&self, draft: &mut InspectionDraft<'_>) -> Result<(), RuleFailure> {
        draft.source = InspectionLogSource::Rule(self.id);
        let mask = match draft.settings.mask_secrets {
            MaskSecrets::Always => true,
            MaskSecrets::Sensitive => self.sensitive == Sensitive::No,
            MaskSecrets::Never => false,
        };
        let operation_error = |list, index, op, source| RuleFailure::Operation {
            rule: self.id,
            list,
            index,
            op,
            source,
        };
        for (index, condition) in self.conditions.iter().enumerate() {
            let holds = condition
                .holds(draft, mask)
                .map_err(|error| operation_error("conditions", index, condition.op(), error))?;
            if !holds {
                draft.log(
                    InspectionLogLevel::Debug,
                    format!("skipped: conditions[{index}] does not hold"),
                );
                return Ok(());
            }
        }
        for (index, action) in self.actions.iter().enumerate() {
            let Err(error) = action.run(draft, mask) else { continue };
            return Err(if let OperationError::FailAction(message) = error {
                RuleFailure::Refused { rule: self.id, message }
            } else {
                operation_error("actions", index, action.op(), error)
            });
        }
        Ok(())
    }
}

pub(crate) fn compile_conditions(
    conditions: &[Value],
) -> Result<Vec<CompiledCondition>, RuleError> {
    compile_list("conditions", conditions, CompiledCondition::compile)
}

fn compile_actions(actions: &[Value]) -> Result<Vec<CompiledAction>, RuleError> {
    if actions.is_empty() {
        return Err(RuleError::NoActions);
    }
    compile_list("actions", actions, CompiledAction::compile)
}

fn compile_list<T>(
    list: &'static str,
    entries: &[Value],
    compile: fn(&Value) -> Result<T, OperationDefinitionError>,
) -> Result<Vec<T>, RuleError> {
    let entry = |(index, entry): (usize, &Value)| {
        compile(entry).map_err(|reason| {
            let op = entry.get("op").and_then(Value::as_str);
            let op = op.map(|op| op.chars().take(80).collect());
            RuleError::Entry { list, index, op, reason }
        })
    };
    entries.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_invalid_entry() {
        let log = json!([{"op": "log", "args": {"msg": "x"}}]);
        for (conditions, actions, message) in [
            (json!([]), json!([]), "a rule needs at least one action"),
            (json!([5]), log.clone(), "conditions[0]: it must be an object"),
            (json!([{"args": {}}]), log.clone(), "conditions[0]: it has no op"),
            (json!([{"op": "eq"}]), log.clone(), "conditions[0] (eq): it has no args"),
            (
                json!([{"op": "eq", "args": 5}]),
                log.clone(),
                "conditions[0] (eq): args must be an object or a list",
            ),
            (
                json!([{"op": "eq", "args": {"values": [1, 1]}}, {"op": "like", "args": {}}]),
                log.clone(),
                "conditions[1] (like): there is no operator \"like\"; the operators are eq, ne, lt, gt, le, ge, \
                 is-empty, in-net, matches, contains, one-of, is-none, is-true, is-false",
            ),
            (
                json!([{"op": "!!eq", "args": {}}]),
                log.clone(),
                "conditions[0] (!!eq): an operator can be inverted once only",
            ),
            (
                json!([{"op": "matches", "args": {"value": "a", "pattern": "b"}}]),
                log.clone(),
                "conditions[0] (matches): the argument regex is missing",
            ),
            (
                json!([{"op": "is-true", "args": {"value": "a", "force": 1}}]),
                log.clone(),
                "conditions[0] (is-true): there is no argument \"force\"",
            ),
            (
                json!([{"op": "eq", "args": {"values": []}, "multiple": "some", "loop": [1]}]),
                log.clone(),
                "conditions[0] (eq): multiple must be any, all, first or last",
            ),
            (
                json!([{"op": "eq", "args": {"values": []}, "loop": "x"}]),
                log.clone(),
                "conditions[0] (eq): loop must be an object or a list",
            ),
            (
                json!([]),
                json!([{"op": "log", "args": []}]),
                "actions[0] (log): the argument msg is missing",
            ),
            (
                json!([]),
                json!([{"op": "log", "args": ["a", "info", "b"]}]),
                "actions[0] (log): it takes at most 2 arguments",
            ),
        ] {
            let error = validate_rule(conditions.as_array().unwrap(), actions.as_array().unwrap());
            assert_eq!(error.unwrap_err().to_string(), message);
        }
        let regex = json!([{"op": "contains", "args": {"value": "a", "regex": "(?=a)"}}]);
        let error = validate_rule(regex.as_array().unwrap(), log.as_array().unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("conditions[0] (contains): the regular expression cannot be used: "),
            "{error}"
        );
    }
}
