// SPDX-License-Identifier: Apache-2.0
//! Parsing of single values in request bodies.
//!
//! The errors state what was expected; the caller adds the name of the field.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use std::borrow::Cow;

use node_model::{JsonObject, Mac, mask_secrets};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{WireError, excerpt};

/// Maximum length of text in most columns.
pub(crate) const SHORT_TEXT: usize = 255;

/// Why a value is rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// It is invalid.
    Invalid(Cow<'static, str>),
    /// It should be a UUID, but is this text.
    NotUuid(String),
    /// It requires a later microversion: what, and which.
    TooNew(Cow<'static, str>, u16),
}

impl ValueError {
    /// The error response for this value in `field`.
    #[must_use]
    pub fn in_field(self, field: &str) -> WireError {
        match self {
            Self::Invalid(error) => WireError::invalid_field(field, &error),
            // Clients match this text.
            Self::NotUuid(text) => {
                WireError::invalid(format!("Expected UUID for {field}: '{text}'"))
            }
            Self::TooNew(what, since) => WireError::too_new(&what, since),
        }
    }

    /// Adds the location within the value.
    pub(crate) fn at(self, location: impl std::fmt::Display) -> Self {
        match self {
            Self::TooNew(..) => self,
            Self::Invalid(_) | Self::NotUuid(_) => format!("{location}: {}", self.message()).into(),
        }
    }

    /// The message without the field name.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Invalid(message) | Self::TooNew(message, _) => message.into_owned(),
            Self::NotUuid(text) => format!("expected a UUID, got '{text}'"),
        }
    }
}

impl From<&'static str> for ValueError {
    fn from(error: &'static str) -> Self {
        Self::Invalid(Cow::Borrowed(error))
    }
}

impl From<String> for ValueError {
    fn from(error: String) -> Self {
        Self::Invalid(Cow::Owned(error))
    }
}

/// Text of at most `max_chars` characters, or null.
pub(crate) fn text(value: Value, max_chars: usize) -> Result<Option<String>, ValueError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if fits(&text, max_chars) => Ok(Some(text)),
        Value::String(text) => Err(too_long(&text, max_chars)),
        other => Err(unexpected_type("a string or null", &other)),
    }
}

/// Text of one to `max_chars` characters.
pub(crate) fn mandatory_text(value: Value, max_chars: usize) -> Result<String, ValueError> {
    match value {
        Value::Null => Err("it is mandatory and cannot be null or removed".into()),
        Value::String(text) if text.is_empty() => Err("it must not be empty".into()),
        Value::String(text) if fits(&text, max_chars) => Ok(text),
        Value::String(text) => Err(too_long(&text, max_chars)),
        other => Err(unexpected_type("a string", &other)),
    }
}

/// Text of one to `max_chars` characters, or null.
pub(crate) fn text_or_null(value: Value, max_chars: usize) -> Result<Option<String>, ValueError> {
    if value.is_null() { Ok(None) } else { mandatory_text(value, max_chars).map(Some) }
}

/// A boolean, also as one of the words that Ironic accepts, or null.
pub(crate) fn flag(value: &Value) -> Result<Option<bool>, ValueError> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        Value::String(word) => parse_flag(word).map(Some),
        other => Err(unexpected_type("a boolean", other)),
    }
}

/// A boolean as a word.
pub(crate) fn parse_flag(word: &str) -> Result<bool, ValueError> {
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

/// An object; null is the empty one.
pub(crate) fn object(value: Value) -> Result<Map<String, Value>, ValueError> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        other => Err(unexpected_type("an object or null", &other)),
    }
}

/// An object without secrets, for resources whose secrets are not sealed; null is the empty one.
pub(crate) fn object_without_secrets(value: Value) -> Result<Map<String, Value>, ValueError> {
    let given = object(value)?;
    let stored = JsonObject::from(given.clone());
    let masked = mask_secrets(&stored).parse();
    match given.iter().find(|(key, value)| masked.get(*key) != Some(*value)) {
        None => Ok(given),
        Some((key, _)) => Err(format!(
            "'{key}' looks like a secret, or contains one, and would be stored in plain text; only \
             driver_info, instance_info, extra and properties of nodes and properties of volume targets are \
             encrypted"
        )
        .into()),
    }
}

/// An array; null is the empty one.
pub(crate) fn array(value: Value) -> Result<Vec<Value>, ValueError> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => Ok(items),
        other => Err(unexpected_type("an array", &other)),
    }
}

/// An array of strings; null is the empty one.
pub(crate) fn texts(value: Value) -> Result<Vec<String>, ValueError> {
    array(value)?.into_iter().map(|item| mandatory_text(item, SHORT_TEXT)).collect()
}

/// Clients match the words "is too long".
fn too_long(text: &str, max_chars: usize) -> ValueError {
    format!("'{}' is too long; it may have {max_chars} characters", excerpt(text)).into()
}

/// A UUID or null.
pub(crate) fn uuid(value: &Value) -> Result<Option<Uuid>, ValueError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => parse_uuid(text).map(Some),
        other => Err(unexpected_type("a UUID", other)),
    }
}

/// A UUID in text.
pub(crate) fn parse_uuid(text: &str) -> Result<Uuid, ValueError> {
    Uuid::try_parse(text).map_err(|_| ValueError::NotUuid(excerpt(text).to_string()))
}

/// A UUID.
pub(crate) fn mandatory_uuid(value: &Value) -> Result<Uuid, ValueError> {
    uuid(value)?.ok_or_else(|| "it is mandatory and cannot be null or removed".into())
}

/// A MAC address or null.
pub(crate) fn mac(value: &Value) -> Result<Option<Mac>, ValueError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            text.parse().map(Some).map_err(|error| ValueError::from(format!("{error}")))
        }
        other => Err(unexpected_type("a MAC address", other)),
    }
}

/// An integer, also as digits in a string.
pub(crate) fn integer(value: &Value) -> Result<i64, ValueError> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(digits) => digits.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.ok_or_else(|| unexpected_type("an integer", value))
}

/// Checks that `word` is one of `allowed`.
pub(crate) fn check_one_of(word: &str, allowed: &[&str]) -> Result<(), ValueError> {
    if allowed.contains(&word) {
        Ok(())
    } else {
        Err(format!("'{}' is not one of {}", excerpt(word), allowed.join(", ")).into())
    }
}

/// Error for a value of another JSON type than expected.
pub(crate) fn unexpected_type(what: &str, got: &Value) -> ValueError {
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

fn fits(text: &str, max_chars: usize) -> bool {
    text.len() <= max_chars || text.chars().count() <= max_chars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_flag_words() {
        for (word, flag) in
            [("TRUE", true), ("1", true), ("y", true), ("Off", false), ("no", false)]
        {
            assert_eq!(parse_flag(word), Ok(flag), "{word}");
        }
        assert!(parse_flag("maybe").is_err());
        assert!(super::flag(&Value::from(1)).is_err());
    }

    #[test]
    fn text_length_is_in_characters() {
        assert_eq!(text("é".repeat(80).into(), 80), Ok(Some("é".repeat(80))));
        assert!(text("é".repeat(81).into(), 80).is_err());
    }
}
