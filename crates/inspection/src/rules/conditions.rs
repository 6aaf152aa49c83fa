// SPDX-License-Identifier: Apache-2.0
//! The fourteen operators, each also inverted with `!`.

use std::cmp::Ordering;

use agent_protocol::flag;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::operation::{Args, Defect, Operation, Problem, Signature, arg, entry_and_op, text_arg};
use super::values;
use crate::Network;
use crate::address::parse_address;
use crate::draft::Draft;

/// A compiled program larger than this is a mistake or an attack.
const MAX_REGEX_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Condition {
    operator: &'static Operator,
    operation: Operation,
    inverted: bool,
    multiple: Multiple,
    /// Compiled in advance where no loop changes it.
    regex: Option<Regex>,
}

/// How the rounds of a loop make one answer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Multiple {
    Any,
    All,
    Last,
}

type Check = fn(&Args, Option<&Regex>) -> Result<bool, Problem>;

#[derive(Debug)]
struct Operator {
    signature: Signature,
    check: Check,
    /// How the argument `regex` becomes a pattern, for those that have it.
    pattern: Option<fn(&str) -> String>,
}

const fn comparison(name: &'static str, check: Check) -> Operator {
    let signature = Signature {
        name,
        required: &["values"],
        optional: &["force_strings"],
        templates: &["values"],
    };
    Operator { signature, check, pattern: None }
}

const fn on_value(name: &'static str, check: Check) -> Operator {
    let signature = Signature { name, required: &["value"], optional: &[], templates: &["value"] };
    Operator { signature, check, pattern: None }
}

const fn on_pattern(name: &'static str, pattern: fn(&str) -> String) -> Operator {
    let signature =
        Signature { name, required: &["value", "regex"], optional: &[], templates: &["value"] };
    Operator { signature, check: search, pattern: Some(pattern) }
}

static OPERATORS: &[Operator] = &[
    comparison("eq", |args, _| chained(args, |a, b| Ok(values::equal(a, b)))),
    comparison("ne", |args, _| chained(args, |a, b| Ok(!values::equal(a, b)))),
    comparison("lt", |args, _| ordered(args, Ordering::is_lt)),
    comparison("gt", |args, _| ordered(args, Ordering::is_gt)),
    comparison("le", |args, _| ordered(args, Ordering::is_le)),
    comparison("ge", |args, _| ordered(args, Ordering::is_ge)),
    on_value("is-empty", |args, _| {
        Ok(matches!(values::text(arg(args, "value"), false).as_str(), "" | "None" | "[]" | "{}"))
    }),
    Operator {
        signature: Signature {
            name: "in-net",
            required: &["address", "subnet"],
            optional: &[],
            templates: &["address", "subnet"],
        },
        check: in_net,
        pattern: None,
    },
    // From the beginning, and to the end unless it says so itself.
    on_pattern("matches", |regex| {
        format!(r"\A(?:{regex}{})", if regex.ends_with('$') { "" } else { "$" })
    }),
    on_pattern("contains", str::to_owned),
    Operator {
        signature: Signature {
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
    on_value("is-true", |args, _| Ok(truth(arg(args, "value")) == Some(true))),
    on_value("is-false", |args, _| {
        let value = arg(args, "value");
        Ok(value.is_null() || truth(value) == Some(false))
    }),
];

impl Condition {
    pub(super) fn compile(entry: &Value) -> Result<Self, Defect> {
        let (entry, op) = entry_and_op(entry)?;
        let (name, inverted) = parse_operator(op)?;
        let operator =
            OPERATORS.iter().find(|operator| operator.signature.name == name).ok_or_else(|| {
                let known: Vec<&str> =
                    OPERATORS.iter().map(|operator| operator.signature.name).collect();
                let name = name.chars().take(80).collect();
                Defect::Unknown { what: "operator", name, known: known.join(", ") }
            })?;
        let operation = Operation::compile(&operator.signature, entry)?;
        let multiple = match entry.get("multiple").map(Value::as_str) {
            // "first" is the first that holds, so it asks the same as "any".
            None | Some(Some("any" | "first")) => Multiple::Any,
            Some(Some("all")) => Multiple::All,
            Some(Some("last")) => Multiple::Last,
            Some(_) => return Err(Defect::Multiple),
        };
        let regex = match operator.pattern {
            Some(pattern) if !operation.is_loop() => {
                let regex = text_arg(operation.written(), "regex")
                    .map_err(|error| Defect::Regex(error.to_string()))?;
                Some(compile_regex(&pattern(regex)).map_err(Defect::Regex)?)
            }
            Some(_) | None => None,
        };
        Ok(Self { operator, operation, inverted, multiple, regex })
    }

    pub(super) fn op(&self) -> &'static str {
        self.operation.name()
    }

    /// Whether it holds. Rounds after the answer is clear are not looked at.
    pub(crate) fn holds(&self, draft: &mut Draft<'_>, mask: bool) -> Result<bool, Problem> {
        let mut last = false;
        for item in self.operation.rounds() {
            last = self.check(draft, item, mask)?;
            match self.multiple {
                Multiple::Any if last => return Ok(true),
                Multiple::All if !last => return Ok(false),
                Multiple::Any | Multiple::All | Multiple::Last => {}
            }
        }
        Ok(last)
    }

    fn check(
        &self,
        draft: &mut Draft<'_>,
        item: Option<&Value>,
        mask: bool,
    ) -> Result<bool, Problem> {
        let mut args = self.operation.args(draft, item, mask);
        if item.is_some() && self.operation.signature().optional.contains(&"force_strings") {
            args.insert("force_strings".to_owned(), Value::Bool(true));
        }
        let in_loop = match (&self.regex, self.operator.pattern) {
            (None, Some(pattern)) => {
                Some(compile_regex(&pattern(text_arg(&args, "regex")?)).map_err(Problem::Regex)?)
            }
            (Some(_), _) | (None, None) => None,
        };
        let holds = (self.operator.check)(&args, self.regex.as_ref().or(in_loop.as_ref()))?;
        Ok(holds != self.inverted)
    }
}

/// The operator's name without its exclamation mark, and whether there was one.
fn parse_operator(op: &str) -> Result<(&str, bool), Defect> {
    let op = op.trim();
    match op.strip_prefix('!') {
        _ if op.matches('!').count() > 1 => Err(Defect::InvertedTwice),
        Some(name) => Ok((name.trim(), true)),
        None => Ok((op, false)),
    }
}

/// Whether each value relates so to the next.
fn chained(
    args: &Args,
    holds: impl Fn(&Value, &Value) -> Result<bool, Problem>,
) -> Result<bool, Problem> {
    let expected = Problem::Argument { name: "values", expected: "a list" };
    let list = arg(args, "values").as_array().ok_or(expected)?;
    let force_strings = flag(arg(args, "force_strings")).unwrap_or(false);
    for pair in list.windows(2) {
        let holds = if force_strings {
            let text = |value: &Value| Value::String(values::text(value, false));
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

fn ordered(args: &Args, holds: fn(Ordering) -> bool) -> Result<bool, Problem> {
    chained(args, |left, right| {
        let incomparable = || Problem::Incomparable(values::kind(left), values::kind(right));
        values::order(left, right).map(holds).ok_or_else(incomparable)
    })
}

fn in_net(args: &Args, _: Option<&Regex>) -> Result<bool, Problem> {
    let wrong = |name, expected| Problem::Argument { name, expected };
    let subnet: Network = text_arg(args, "subnet")?
        .parse()
        .map_err(|_| wrong("subnet", "a network such as 10.0.0.0/8"))?;
    let address = parse_address(text_arg(args, "address")?)
        .ok_or_else(|| wrong("address", "an IP address"))?;
    Ok(subnet.contains(address))
}

fn one_of(args: &Args, _: Option<&Regex>) -> Result<bool, Problem> {
    let value = arg(args, "value");
    match arg(args, "values") {
        Value::Null => Ok(false),
        Value::Array(list) => Ok(list.iter().any(|other| values::equal(value, other))),
        Value::Object(members) => Ok(value.as_str().is_some_and(|key| members.contains_key(key))),
        Value::String(text) => Ok(value.as_str().is_some_and(|part| text.contains(part))),
        Value::Bool(_) | Value::Number(_) => {
            Err(Problem::Argument { name: "values", expected: "a list" })
        }
    }
}

fn search(args: &Args, regex: Option<&Regex>) -> Result<bool, Problem> {
    Ok(regex.is_some_and(|regex| regex.is_match(&values::text(arg(args, "value"), false))))
}

/// What a value says about truth, if it says something.
fn truth(value: &Value) -> Option<bool> {
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
        // The library draws the pattern with a pointer over several lines; the last says it all.
        lines.lines().last().unwrap_or(&lines).trim().trim_start_matches("error: ").to_owned()
    })
}
