// SPDX-License-Identifier: Apache-2.0
//! Reading single values out of request bodies.
//!
//! Each function says in its problem what was expected; whoever calls knows which field it was.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use std::borrow::Cow;

use node_model::Mac;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{WireError, excerpt};

/// The longest text most columns hold.
pub(crate) const SHORT_TEXT: usize = 255;

/// What is wrong with a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It is wrong.
    Wrong(Cow<'static, str>),
    /// It is this text, and should be a UUID.
    NotUuid(String),
    /// It uses something of a later microversion: what, and which.
    TooNew(Cow<'static, str>, u16),
}

impl Problem {
    /// The refusal of the request in which `field` has this problem.
    #[must_use]
    pub fn in_field(self, field: &str) -> WireError {
        match self {
            Self::Wrong(problem) => WireError::invalid_field(field, &problem),
            // Clients know these words.
            Self::NotUuid(text) => {
                WireError::invalid(format!("Expected UUID for {field}: '{text}'"))
            }
            Self::TooNew(what, since) => WireError::too_new(&what, since),
        }
    }

    /// The same problem, at a place within the value.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::TooNew(..) => self,
            Self::Wrong(_) | Self::NotUuid(_) => format!("{place}: {}", self.words()).into(),
        }
    }

    /// What is wrong, without the field it is in.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Wrong(words) | Self::TooNew(words, _) => words.into_owned(),
            Self::NotUuid(text) => format!("expected a UUID, got '{text}'"),
        }
    }
}

impl From<&'static str> for Problem {
    fn from(problem: &'static str) -> Self {
        Self::Wrong(Cow::Borrowed(problem))
    }
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Wrong(Cow::Owned(problem))
    }
}

/// Text of at most `longest` characters, or null.
pub(crate) fn text(value: Value, longest: usize) -> Result<Option<String>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if fits(&text, longest) => Ok(Some(text)),
        Value::String(text) => Err(too_long(&text, longest)),
        other => Err(expected("a string or null", &other)),
    }
}

/// Text of one to `longest` characters.
pub(crate) fn mandatory_text(value: Value, longest: usize) -> Result<String, Problem> {
    match value {
        Value::Null => Err("it is mandatory and cannot be null or removed".into()),
        Value::String(text) if text.is_empty() => Err("it must not be empty".into()),
        Value::String(text) if fits(&text, longest) => Ok(text),
        Value::String(text) => Err(too_long(&text, longest)),
        other => Err(expected("a string", &other)),
    }
}

/// Text of one to `longest` characters, or null.
pub(crate) fn text_or_null(value: Value, longest: usize) -> Result<Option<String>, Problem> {
    if value.is_null() { Ok(None) } else { mandatory_text(value, longest).map(Some) }
}

/// A flag, also as one of the words Ironic takes, or null.
pub(crate) fn flag(value: &Value) -> Result<Option<bool>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        Value::String(word) => flag_from_word(word).map(Some),
        other => Err(expected("a boolean", other)),
    }
}

/// A flag written as a word.
pub(crate) fn flag_from_word(word: &str) -> Result<bool, Problem> {
    const YES: [&str; 6] = ["1", "t", "true", "on", "y", "yes"];
    const NO: [&str; 6] = ["0", "f", "false", "off", "n", "no"];
    let is = |words: &[&str]| words.iter().any(|known| word.trim().eq_ignore_ascii_case(known));
    if is(&YES) {
        Ok(true)
    } else if is(&NO) {
        Ok(false)
    } else {
        Err(format!(
            "'{}' is not a boolean; use one of {}, {}",
            excerpt(word),
            YES.join(", "),
            NO.join(", ")
        )
        .into())
    }
}

/// An object; null counts as the empty one.
pub(crate) fn object(value: Value) -> Result<Map<String, Value>, Problem> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        other => Err(expected("an object or null", &other)),
    }
}

/// An array; null counts as the empty one.
pub(crate) fn array(value: Value) -> Result<Vec<Value>, Problem> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => Ok(items),
        other => Err(expected("an array", &other)),
    }
}

/// An array of strings; null counts as the empty one.
pub(crate) fn texts(value: Value) -> Result<Vec<String>, Problem> {
    array(value)?.into_iter().map(|item| mandatory_text(item, SHORT_TEXT)).collect()
}

/// Clients know the words "is too long".
fn too_long(text: &str, longest: usize) -> Problem {
    format!("'{}' is too long; it may have {longest} characters", excerpt(text)).into()
}

/// A UUID or null.
pub(crate) fn uuid(value: &Value) -> Result<Option<Uuid>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => uuid_from_text(text).map(Some),
        other => Err(expected("a UUID", other)),
    }
}

/// A UUID in text.
pub(crate) fn uuid_from_text(text: &str) -> Result<Uuid, Problem> {
    Uuid::try_parse(text).map_err(|_| Problem::NotUuid(excerpt(text).to_string()))
}

/// A UUID.
pub(crate) fn mandatory_uuid(value: &Value) -> Result<Uuid, Problem> {
    uuid(value)?.ok_or_else(|| "it is mandatory and cannot be null or removed".into())
}

/// A hardware address or null.
pub(crate) fn mac(value: &Value) -> Result<Option<Mac>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            text.parse().map(Some).map_err(|problem| Problem::from(format!("{problem}")))
        }
        other => Err(expected("a MAC address", other)),
    }
}

/// A whole number. Digits in a string are taken as well.
pub(crate) fn integer(value: &Value) -> Result<i64, Problem> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(digits) => digits.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.ok_or_else(|| expected("an integer", value))
}

/// One of a few words.
pub(crate) fn one_of(word: &str, allowed: &[&str]) -> Result<(), Problem> {
    if allowed.contains(&word) {
        Ok(())
    } else {
        Err(format!("'{}' is not one of {}", excerpt(word), allowed.join(", ")).into())
    }
}

/// What was expected, and what came instead.
pub(crate) fn expected(what: &str, got: &Value) -> Problem {
    let kind = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    format!("expected {what}, got {kind}").into()
}

fn fits(text: &str, longest: usize) -> bool {
    text.len() <= longest || text.chars().count() <= longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_flags() {
        for (word, flag) in
            [("TRUE", true), ("1", true), ("y", true), ("Off", false), ("no", false)]
        {
            assert_eq!(flag_from_word(word), Ok(flag), "{word}");
        }
        assert!(flag_from_word("maybe").is_err());
        assert!(super::flag(&Value::from(1)).is_err());
    }

    #[test]
    fn text_is_measured_in_characters() {
        assert_eq!(text("é".repeat(80).into(), 80), Ok(Some("é".repeat(80))));
        assert!(text("é".repeat(81).into(), 80).is_err());
    }
}
