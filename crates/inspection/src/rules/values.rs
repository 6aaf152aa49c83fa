// SPDX-License-Identifier: Apache-2.0
//! Formats and compares values like Python, for which Ironic's rules are written.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Members that are masked for rules, depending on the settings.
const SECRET_MEMBERS: [&str; 3] = ["password", "auth_token", "bmc_password"];
/// The replacement of a masked value.
const MASKED: &str = "***";

/// Returns the replacement for the value of `key`, if it is masked.
pub(super) fn masked(key: &str, mask: bool) -> Option<Value> {
    (mask && SECRET_MEMBERS.contains(&key)).then(|| MASKED.into())
}

/// Formats like Python's `str`: `None`, `True`, text unquoted, and text in containers quoted.
pub(super) fn python_str(value: &Value, mask: bool) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            python_repr(value, mask)
        }
    }
}

/// Formats like Python's `repr`.
pub(super) fn python_repr(value: &Value, mask: bool) -> String {
    let mut out = String::new();
    write_repr(value, mask, &mut out);
    out
}

/// Compares like Python's `==`; text that contains a number also equals that number.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right || compare_numbers(left, right) == Some(Ordering::Equal),
    }
}

/// Compares texts and numbers like Python; text that contains a number is compared with a number
/// as a number. Returns `None` if the values have no order.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (left, right) => compare_numbers(left, right),
    }
}

/// Returns the type of a value, for error messages.
pub(super) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Compares two values of which at least one is a number.
fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    if left.is_string() && right.is_string() {
        return None;
    }
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(_) | None, Some(_) | None) => number(left)?.partial_cmp(&number(right)?),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Number(number) => number.as_i128(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn write_repr(value: &Value, mask: bool, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_quoted(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_repr(item, mask, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_quoted(key, out);
                out.push_str(": ");
                match masked(key, mask) {
                    Some(masked) => write_repr(&masked, mask, out),
                    None => write_repr(value, mask, out),
                }
            }
            out.push('}');
        }
    }
}

fn write_number(number: &Number, out: &mut String) {
    out.push_str(&number.to_string());
}

fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other == quote => out.extend(['\\', other]),
            other => out.push(other),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_like_python_and_masks_secrets() {
        for (value, expected) in [
            (json!(null), "None"),
            (json!(true), "True"),
            (json!(1.5), "1.5"),
            (json!("it's"), "it's"),
            (json!(["it's", 1, null]), r#"["it's", 1, None]"#),
            (json!({"a": "b\n", "password": "x"}), r"{'a': 'b\n', 'password': '***'}"),
        ] {
            assert_eq!(python_str(&value, true), expected);
        }
        assert_eq!(python_str(&json!({"password": "x"}), false), "{'password': 'x'}");
    }

    #[test]
    fn compares_numbers_in_text_as_numbers() {
        use Ordering::{Equal, Greater, Less};
        for (left, right, order_, equal_) in [
            (json!(1), json!(1.0), Some(Equal), true),
            (json!(true), json!(1), Some(Equal), true),
            (json!("131072"), json!(65536), Some(Greater), false),
            (json!("131072"), json!("65536"), Some(Less), false),
            (json!("64"), json!(64), Some(Equal), true),
            (json!("a"), json!(64), None, false),
            (json!(null), json!(0), None, false),
            (json!([1, 2]), json!([1.0, 2]), None, true),
            (json!({"a": 1}), json!({"a": true}), None, true),
            (json!(u64::MAX), json!(i64::MAX), Some(Greater), false),
        ] {
            assert_eq!(compare(&left, &right), order_, "{left} {right}");
            assert_eq!(equal(&left, &right), equal_, "{left} {right}");
        }
    }
}
