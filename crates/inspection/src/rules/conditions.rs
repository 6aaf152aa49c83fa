// SPDX-License-Identifier: Apache-2.0
//! The fourteen condition operators, each also inverted with `!`.

use std::cmp::Ordering;

use agent_protocol::parse_bool;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::operation::{
    CompiledOperation, OperationArgs, OperationDefinitionError, OperationError, OperationSignature,
    arg, entry_and_op, text_arg,
};
use super::values;
use crate::IpNetwork;
use crate::address::parse_address;
use crate::inspection_draft::InspectionDraft;

/// Limit for compiled regular expressions.
const MAX_REGEX_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct CompiledCondition {
    operator: &'static ConditionOperator,
    operation: CompiledOperation,
    inverted: bool,
    loop_mode: LoopMode,
    /// Compiled in advance, unless the pattern depends on a loop item.
    regex: Option<Regex>,
}

/// How the results of a loop are combined.
#[derive(Clone, Copy, PartialEq, Debug)]
enum LoopMode {
    Any,
    All,
    Last,
}

type CheckFn = fn(&OperationArgs, Option<&Regex>) -> Result<bool, OperationError>;

#[derive(Debug)]
struct ConditionOperator {
    signature: OperationSignature,
    check: CheckFn,
    /// Converts the argument `regex` to a pattern, for operators that have it.
    pattern: Option<fn(&str) -> String>,
}

const fn comparison(name: &'static str, check: CheckFn) -> ConditionOperator {
    let signature = OperationSignature {
        name,
        required: &["values"],
        optional: &["force_strings"],
        templates: &["values"],
    };
    ConditionOperator { signature, check, pattern: None }
}

const fn on_value(name: &'static str, check: CheckFn) -> ConditionOperator {
    let signature =
        OperationSignature { name, required: &["value"], optional: &[], templates: &["value"] };
    ConditionOperator { signature, check, pattern: None }
}

const fn on_pattern(name: &'static str, pattern: fn(&str) -> String) -> ConditionOperator {
    let signature = OperationSignature {
        name,
        required: &["value", "regex"],
        optional: &[],
        templates: &["value"],
    };
    ConditionOperator { signature, check: search, pattern: Some(pattern) }
}

static OPERATORS: &[ConditionOperator] = &[
    comparison("eq", |args, _| all_adjacent(args, |a, b| Ok(values::equal(a, b)))),
    comparison("ne", |args, _| all_adjacent(args, |a, b| Ok(!values::equal(a, b)))),
    comparison("lt", |args, _| all_ordered(args, Ordering::is_lt)),
    comparison("gt", |args, _| all_ordered(args, Ordering::is_gt)),
    comparison("le", |args, _| all_ordered(args, Ordering::is_le)),
    comparison("ge", |args, _| all_ordered(args, Ordering::is_ge)),
    on_value("is-empty", |args, _| {
        Ok(matches!(
            values::python_str(arg(args, "value"), false).as_str(),
            "" | "None" | "[]" | "{}"
        ))
    }),
    ConditionOperator {
        signature: OperationSignature {
            name: "in-net",
            required: &["address", "subnet"],
            optional: &[],
            templates: &["address", "subnet"],
        },
        check: in_net,
        pattern: None,
    },
    // Anchored at the start, and at the end unless the pattern does that.
    on_pattern("matches", |regex| {
        format!(r"\A(?:{regex}{})", if regex.ends_with('$') { "" } else { "$" })
    }),
    on_pattern("contains", str::to_owned),
    ConditionOperator {
        signature: OperationSignature {
            name: "one-of",
            required: &["value"],
            optional: &["values"],
            templates: &["value"],
        },
        check: one_of,
        pattern: None,
    },
    on_value("is-none", |args, _| {
        let value = arg(args, "value");
        Ok(value.is_null() || value == "None")
    }),
    on_value("is-true", |args, _| Ok(parse_truth(arg(args, "value")) == Some(true))),
    on_value("is-false", |args, _| {
        let value = arg(args, "value");
        Ok(value.is_null() || parse_truth(value) == Some(false))
    }),
];

impl CompiledCondition {
    pub(super) fn compile(entry: &Value) -> Result<Self, OperationDefinitionError> {
        let (entry, op) = entry_and_op(entry)?;
        let (name, inverted) = parse_operator(op)?;
        let operator =
            OPERATORS.iter().find(|operator| operator.signature.name == name).ok_or_else(|| {
                let known: Vec<&str> =
                    OPERATORS.iter().map(|operator| operator.signature.name).collect();
                let name = name.chars().take(80).collect();
                OperationDefinitionError::Unknown {
                    what: "operator",
                    name,
                    known: known.join(", "),
                }
            })?;
        let operation = CompiledOperation::compile(&operator.signature, entry)?;
        let multiple = match entry.get("multiple").map(Value::as_str) {
            // "first" means the first item that holds, which is the same as "any".
            None | Some(Some("any" | "first")) => LoopMode::Any,
            Some(Some("all")) => LoopMode::All,
            Some(Some("last")) => LoopMode::Last,
            Some(_) => return Err(OperationDefinitionError::Multiple),
        };
        let regex = match operator.pattern {
            Some(pattern) if !operation.is_loop() => {
                let regex = text_arg(operation.raw_args(), "regex")
                    .map_err(|error| OperationDefinitionError::Regex(error.to_string()))?;
                Some(compile_regex(&pattern(regex)).map_err(OperationDefinitionError::Regex)?)
            }
            Some(_) | None => None,
        };
        Ok(Self { operator, operation, inverted, loop_mode: multiple, regex })
    }

    pub(super) fn op(&self) -> &'static str {
        self.operation.name()
    }

    /// Returns whether the condition holds. Stops iterating when the result is determined.
    pub(crate) fn holds(
        &self,
        draft: &mut InspectionDraft<'_>,
        mask: bool,
    ) -> Result<bool, OperationError> {
        let mut last = false;
        for item in self.operation.iterations() {
            last = self.check(draft, item, mask)?;
            match self.loop_mode {
                LoopMode::Any if last => return Ok(true),
                LoopMode::All if !last => return Ok(false),
                LoopMode::Any | LoopMode::All | LoopMode::Last => {}
            }
        }
        Ok(last)
    }

    fn check(
        &self,
        draft: &mut InspectionDraft<'_>,
        item: Option<&Value>,
        mask: bool,
    ) -> Result<bool, OperationError> {
        let mut args = self.operation.args(draft, item, mask);
        if item.is_some() && self.operation.signature().optional.contains(&"force_strings") {
            args.insert("force_strings".to_owned(), Value::Bool(true));
        }
        let in_loop = match (&self.regex, self.operator.pattern) {
            (None, Some(pattern)) => Some(
                compile_regex(&pattern(text_arg(&args, "regex")?))
                    .map_err(OperationError::Regex)?,
            ),
            (Some(_), _) | (None, None) => None,
        };
        let holds = (self.operator.check)(&args, self.regex.as_ref().or(in_loop.as_ref()))?;
        Ok(holds != self.inverted)
    }
}

/// Returns the operator's name without `!`, and whether it is inverted.
fn parse_operator(op: &str) -> Result<(&str, bool), OperationDefinitionError> {
    let op = op.trim();
    match op.strip_prefix('!') {
        _ if op.matches('!').count() > 1 => Err(OperationDefinitionError::InvertedTwice),
        Some(name) => Ok((name.trim(), true)),
        None => Ok((op, false)),
    }
}

/// Returns true if `holds` for each value and its successor.
fn all_adjacent(
    args: &OperationArgs,
    holds: impl Fn(&Value, &Value) -> Result<bool, OperationError>,
) -> Result<bool, OperationError> {
    let expected = OperationError::Argument { name: "values", expected: "a list" };
    let list = arg(args, "values").as_array().ok_or(expected)?;
    let force_strings = parse_bool(arg(args, "force_strings")).unwrap_or(false);
    for pair in list.windows(2) {
        let holds = if force_strings {
            let text = |value: &Value| Value::String(values::python_str(value, false));
            holds(&text(&pair[0]), &text(&pair[1]))?
        } else {
            holds(&pair[0], &pair[1])?
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all_ordered(args: &OperationArgs, holds: fn(Ordering) -> bool) -> Result<bool, OperationError> {
    all_adjacent(args, |left, right| {
        let incomparable =
            || OperationError::Incomparable(values::type_name(left), values::type_name(right));
        values::compare(left, right).map(holds).ok_or_else(incomparable)
    })
}

fn in_net(args: &OperationArgs, _: Option<&Regex>) -> Result<bool, OperationError> {
    let invalid = |name, expected| OperationError::Argument { name, expected };
    let subnet: IpNetwork = text_arg(args, "subnet")?
        .parse()
        .map_err(|_| invalid("subnet", "a network such as 10.0.0.0/8"))?;
    let address = parse_address(text_arg(args, "address")?)
        .ok_or_else(|| invalid("address", "an IP address"))?;
    Ok(subnet.contains(address))
}

fn one_of(args: &OperationArgs, _: Option<&Regex>) -> Result<bool, OperationError> {
    let value = arg(args, "value");
    match arg(args, "values") {
        Value::Null => Ok(false),
        Value::Array(list) => Ok(list.iter().any(|other| values::equal(value, other))),
        Value::Object(members) => Ok(value.as_str().is_some_and(|key| members.contains_key(key))),
        Value::String(text) => Ok(value.as_str().is_some_and(|part| text.contains(part))),
        Value::Bool(_) | Value::Number(_) => {
            Err(OperationError::Argument { name: "values", expected: "a list" })
        }
    }
}

fn search(args: &OperationArgs, regex: Option<&Regex>) -> Result<bool, OperationError> {
    Ok(regex.is_some_and(|regex| regex.is_match(&values::python_str(arg(args, "value"), false))))
}

/// Converts a value to a Boolean; `None` if it is neither true nor false.
fn parse_truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.to_lowercase().as_str() {
            "yes" | "true" => Some(true),
            "no" | "false" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn compile_regex(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        let lines = error.to_string();
        // The `regex` crate prints the pattern with a marker over several lines; the last line has the
        // reason.
        lines.lines().last().unwrap_or(&lines).trim().trim_start_matches("error: ").to_owned()
    })
}
