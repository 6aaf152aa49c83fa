// SPDX-License-Identifier: Apache-2.0
//! Mappings of the host file, and errors with the path of the key.

use std::fmt;

use command_line::closest_match;
use serde_json::{Map, Value};

/// An invalid host file. The text never contains values, which may be secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::run) struct HostFileError(String);

/// The position of a value, such as `deploy.ssh_keys[0]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FieldPath(String);

/// A mapping at a path.
pub(super) struct HostSection {
    path: FieldPath,
    fields: Map<String, Value>,
}

impl HostFileError {
    pub(super) fn whole_file(problem: impl fmt::Display) -> Self {
        Self(format!("it {problem}"))
    }

    /// A problem that begins with the name of a key of the section.
    pub(super) fn in_section(path: &FieldPath, problem: &str) -> Self {
        Self(format!("{path}.{problem}"))
    }
}

impl FieldPath {
    pub(super) fn root() -> Self {
        Self(String::new())
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Self(if self.0.is_empty() { key.to_owned() } else { format!("{}.{key}", self.0) })
    }

    fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(super) fn error(&self, problem: impl fmt::Display) -> HostFileError {
        match self.0.as_str() {
            "" => HostFileError::whole_file(problem),
            path => HostFileError(format!("{path}: {problem}")),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HostSection {
    pub(super) fn new(path: FieldPath, value: Value) -> Result<Self, HostFileError> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(path.error("is not a mapping of keys to values")),
        }
    }

    pub(super) fn path(&self) -> &FieldPath {
        &self.path
    }

    /// Rejects unknown keys.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<(), HostFileError> {
        let Some(key) = self.fields.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let meant = match closest_match(key, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("known keys are {}", known.join(", ")),
        };
        Err(self.path.key(key).error(format!("unknown key; {meant}")))
    }

    /// Removes a value. An explicit null counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn put(&mut self, key: &str, value: Value) {
        self.fields.insert(key.to_owned(), value);
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, HostFileError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(self.path.key(key).error("is not a text")),
        }
    }

    pub(super) fn section(&mut self, key: &str) -> Result<Option<Self>, HostFileError> {
        let path = self.path.key(key);
        self.take(key).map(|value| Self::new(path, value)).transpose()
    }

    /// The items of a list with their paths.
    pub(super) fn list(
        &mut self,
        key: &str,
    ) -> Result<Option<Vec<(FieldPath, Value)>>, HostFileError> {
        let path = self.path.key(key);
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                Ok(Some(items.map(|(index, item)| (path.item(index), item)).collect()))
            }
            Some(_) => Err(path.error("is not a list")),
        }
    }

    /// A list of steps. The API checks their arguments.
    pub(super) fn steps(&mut self, key: &str) -> Result<Vec<Value>, HostFileError> {
        let mut steps = Vec::new();
        for (path, step) in self.list(key)?.unwrap_or_default() {
            for field in ["interface", "step"] {
                if !step[field].is_string() {
                    return Err(path.key(field).error("is missing"));
                }
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// The values that were not taken, without nulls.
    pub(super) fn into_fields(self) -> Map<String, Value> {
        self.fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}
