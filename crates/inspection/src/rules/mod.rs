// SPDX-License-Identifier: Apache-2.0
//! Inspection rules: an operator's conditions over a report, and what to do when they hold.
//!
//! Rules are compiled once and run for every report. They see what the hooks changed and what
//! earlier rules changed. The language is Ironic's, except that
//! - a number and a text that reads as a number are compared as numbers, since interpolation makes
//!   text of every number and the comparison would otherwise never hold or fail the inspection;
//! - `is-none` also holds for the text `None`, which is what interpolation makes of a null;
//! - regular expressions have no look-around and no back-references, which is what makes them safe
//!   to run on a stranger's text;
//! - `set-capability` replaces a capability instead of adding it a second time;
//! - a port can also be named by its MAC address, so that rules can reach ports that a hook has
//!   only just created.

mod actions;
pub(crate) mod conditions;
mod operation;
mod template;
mod values;

use std::cmp::Reverse;

use node_model::{InspectionRule, RuleId, Sensitive};
use serde_json::Value;

use crate::draft::Draft;
use crate::findings::{Level, Source};
use crate::settings::MaskSecrets;
use actions::Action;
pub(crate) use actions::is_trait;
use conditions::Condition;

pub use operation::{Defect, Problem};

/// The phase after the hooks; the only one there is.
pub const MAIN_PHASE: &str = "main";

/// Rules ready to run, in the order they run.
#[derive(Default, Debug)]
pub struct RuleSet(Vec<Rule>);

/// A rule cannot be used. Says where in the rule, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is nothing to do.
    #[error("a rule needs at least one action")]
    NoActions,
    /// A condition or action is wrong.
    #[error("{list}[{index}]{}: {defect}", .op.as_deref().map(|op| format!(" ({op})")).unwrap_or_default())]
    Entry {
        /// `conditions` or `actions`.
        list: &'static str,
        /// Which one, from zero.
        index: usize,
        /// Its operator, if it says.
        op: Option<String>,
        /// What is wrong with it.
        defect: Defect,
    },
}

/// A stored rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("inspection rule {rule} cannot be used")]
pub struct StoredRuleError {
    /// Which.
    pub rule: RuleId,
    /// Why.
    #[source]
    pub source: Box<RuleError>,
}

/// A rule ended the inspection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFailure {
    /// Its `fail` action was reached.
    #[error("rule {rule} refuses the machine: {message}")]
    Refused {
        /// Which rule.
        rule: RuleId,
        /// The operator's words.
        message: String,
    },
    /// A condition or action could not be carried out.
    #[error("rule {rule}, {list}[{index}] ({op})")]
    Broken {
        /// Which rule.
        rule: RuleId,
        /// `conditions` or `actions`.
        list: &'static str,
        /// Which one, from zero.
        index: usize,
        /// Its operator.
        op: &'static str,
        /// What went wrong.
        #[source]
        source: Problem,
    },
}

#[derive(Debug)]
struct Rule {
    id: RuleId,
    sensitive: Sensitive,
    conditions: Vec<Condition>,
    actions: Vec<Action>,
}

/// Checks the conditions and actions of a new rule.
///
/// # Errors
/// If an operator is unknown, an argument is missing or unexpected, or a regular expression cannot
/// be used.
pub fn validate_rule(conditions: &[Value], actions: &[Value]) -> Result<(), RuleError> {
    compile_conditions(conditions)?;
    compile_actions(actions)?;
    Ok(())
}

impl RuleSet {
    /// Makes rules ready to run: those of the main phase, highest priority first, older first
    /// among equals.
    ///
    /// # Errors
    /// If one of them could not have been created through [`validate_rule`].
    pub fn compile<'r>(
        rules: impl IntoIterator<Item = &'r InspectionRule>,
    ) -> Result<Self, StoredRuleError> {
        let mut rules: Vec<&InspectionRule> = rules
            .into_iter()
            .filter(|rule| rule.phase.as_deref().is_none_or(|phase| phase == MAIN_PHASE))
            .collect();
        rules.sort_by_key(|rule| (Reverse(rule.priority), rule.created_at, rule.id));
        let compile = |rule: &InspectionRule| -> Result<Rule, RuleError> {
            Ok(Rule {
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

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn run(&self, draft: &mut Draft<'_>) -> Result<(), RuleFailure> {
        self.0.iter().try_for_each(|rule| rule.run(draft))
    }
}

impl Rule {
    fn run(&self, draft: &mut Draft<'_>) -> Result<(), RuleFailure> {
        draft.source = Source::Rule(self.id);
        let mask = match draft.settings.mask_secrets {
            MaskSecrets::Always => true,
            MaskSecrets::Sensitive => self.sensitive == Sensitive::No,
            MaskSecrets::Never => false,
        };
        let broken = |list, index, op, source| RuleFailure::Broken {
            rule: self.id,
            list,
            index,
            op,
            source,
        };
        for (index, condition) in self.conditions.iter().enumerate() {
            let holds = condition
                .holds(draft, mask)
                .map_err(|problem| broken("conditions", index, condition.op(), problem))?;
            if !holds {
                draft.note(Level::Debug, format!("skipped: conditions[{index}] does not hold"));
                return Ok(());
            }
        }
        for (index, action) in self.actions.iter().enumerate() {
            let Err(problem) = action.run(draft, mask) else { continue };
            return Err(if let Problem::Refused(message) = problem {
                RuleFailure::Refused { rule: self.id, message }
            } else {
                broken("actions", index, action.op(), problem)
            });
        }
        Ok(())
    }
}

pub(crate) fn compile_conditions(conditions: &[Value]) -> Result<Vec<Condition>, RuleError> {
    compile_list("conditions", conditions, Condition::compile)
}

fn compile_actions(actions: &[Value]) -> Result<Vec<Action>, RuleError> {
    if actions.is_empty() {
        return Err(RuleError::NoActions);
    }
    compile_list("actions", actions, Action::compile)
}

fn compile_list<T>(
    list: &'static str,
    entries: &[Value],
    compile: fn(&Value) -> Result<T, Defect>,
) -> Result<Vec<T>, RuleError> {
    let entry = |(index, entry): (usize, &Value)| {
        compile(entry).map_err(|defect| {
            let op = entry.get("op").and_then(Value::as_str);
            let op = op.map(|op| op.chars().take(80).collect());
            RuleError::Entry { list, index, op, defect }
        })
    };
    entries.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defects_are_named() {
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
            let refused =
                validate_rule(conditions.as_array().unwrap(), actions.as_array().unwrap());
            assert_eq!(refused.unwrap_err().to_string(), message);
        }
        let regex = json!([{"op": "contains", "args": {"value": "a", "regex": "(?=a)"}}]);
        let refused = validate_rule(regex.as_array().unwrap(), log.as_array().unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            refused
                .starts_with("conditions[0] (contains): the regular expression cannot be used: "),
            "{refused}"
        );
    }
}
