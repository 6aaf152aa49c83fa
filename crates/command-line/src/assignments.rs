// SPDX-License-Identifier: Apache-2.0
//! `key=value` arguments.
//!
//! A value is a string, so that a numeric password stays a string; `key:=JSON` gives any other value, and
//! `key=@FILE` reads the string from a file, so that a secret does not appear in the process list.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::cli_error::CliError;
use crate::output::parse_json_or_yaml;

/// A parsed `key=value` argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    value: AssignmentValue,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AssignmentValue {
    Text(String),
    Json(Value),
    File(String),
    JsonFile(String),
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| "it must be KEY=VALUE, KEY:=JSON, KEY=@FILE or KEY:=@FILE".to_owned())?;
        let (key, value) = match (key.strip_suffix(':'), value.strip_prefix('@')) {
            (Some(key), Some(file)) => (key, AssignmentValue::JsonFile(file.to_owned())),
            (Some(key), None) => {
                let value = serde_json::from_str(value)
                    .map_err(|error| format!("the value after := is not valid JSON: {error}"))?;
                (key, AssignmentValue::Json(value))
            }
            (None, Some(file)) => (key, AssignmentValue::File(file.to_owned())),
            (None, None) => (key, AssignmentValue::Text(value.to_owned())),
        };
        if key.is_empty() {
            return Err("it must begin with a key".to_owned());
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl Assignment {
    /// Returns the value; reads it from its file if necessary.
    pub(crate) fn value(&self) -> Result<Value, CliError> {
        match &self.value {
            AssignmentValue::Text(text) => Ok(Value::from(text.as_str())),
            AssignmentValue::Json(value) => Ok(value.clone()),
            AssignmentValue::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| CliError::Unreadable { path: path.into(), source })?;
                Ok(Value::from(text.strip_suffix('\n').unwrap_or(&text)))
            }
            AssignmentValue::JsonFile(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| CliError::Unreadable { path: path.into(), source })?;
                parse_json_or_yaml(&text, path)
            }
        }
    }
}

/// Builds an object from assignments; dots in keys separate nested objects.
pub(crate) fn to_object(assignments: &[Assignment]) -> Result<Map<String, Value>, CliError> {
    let mut object = Map::new();
    for assignment in assignments {
        let mut parent = &mut object;
        let mut parts = assignment.key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                parent.insert(part.to_owned(), assignment.value()?);
                break;
            }
            let inner = parent.entry(part).or_insert_with(|| Value::Object(Map::new()));
            parent = inner.as_object_mut().ok_or_else(|| {
                CliError::Usage(format!("{part} in {} already has another value", assignment.key))
            })?;
        }
    }
    Ok(object)
}

/// Converts a dotted key to a JSON pointer.
pub(crate) fn json_pointer(key: &str) -> String {
    let escaped = |part: &str| part.replace('~', "~0").replace('/', "~1");
    key.split('.').map(|part| format!("/{}", escaped(part))).collect()
}

/// Whether a patch for this key depends on the current value: a nested member needs its parent object.
pub(crate) fn is_nested(key: &str) -> bool {
    key.split('.').count() > 2
}

/// Builds the JSON patch that applies assignments to a resource. Missing parent objects are created.
pub(crate) fn json_patch(resource: &Value, assignments: &[(String, Value)]) -> Vec<Value> {
    let mut resource = resource.clone();
    let mut operations = Vec::new();
    for (key, value) in assignments {
        let parts: Vec<&str> = key.split('.').collect();
        // The top-level field always exists.
        let mut depth = 1;
        let mut inside = parts.first().map_or(&Value::Null, |field| &resource[*field]);
        while depth + 1 < parts.len() && inside[parts[depth]].is_object() {
            inside = &inside[parts[depth]];
            depth += 1;
        }
        let target = parts.get(..=depth).unwrap_or(&parts);
        let mut added = value.clone();
        for part in parts.iter().skip(target.len()).rev() {
            let mut parent = Map::new();
            parent.insert((*part).to_owned(), added);
            added = Value::Object(parent);
        }
        let path = json_pointer(&target.join("."));
        if let Some(parent) =
            path.rsplit_once('/').and_then(|(above, _)| resource.pointer_mut(above))
            && let (Some(members), Some(last)) = (parent.as_object_mut(), target.last())
        {
            members.insert((*last).to_owned(), added.clone());
        }
        operations.push(json!({ "op": "add", "path": path, "value": added }));
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_strings_by_default() {
        let given = ["a=1", "b:=1", "c.d=x=y", "c.e:=[true]", "f="];
        let assignments: Vec<Assignment> = given.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(
            Value::Object(to_object(&assignments).unwrap()),
            json!({"a": "1", "b": 1, "c": {"d": "x=y", "e": [true]}, "f": ""})
        );
        for wrong in ["a", "=1", "a:=x"] {
            assert!(wrong.parse::<Assignment>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn patch_creates_missing_parent_objects() {
        let resource = json!({"name": "n", "extra": {"there": {"x": 1}, "text": "t"}});
        let given =
            ["name=m", "extra.there.y=1", "extra.a.b.c=2", "extra.a.b.d=3", "extra.text.z=4"].map(
                |text: &str| {
                    let assignment: Assignment = text.parse().unwrap();
                    (assignment.key.clone(), assignment.value().unwrap())
                },
            );
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        assert_eq!(
            json_patch(&resource, &given),
            [
                add("/name", json!("m")),
                add("/extra/there/y", json!("1")),
                add("/extra/a", json!({"b": {"c": "2"}})),
                add("/extra/a/b/d", json!("3")),
                add("/extra/text", json!({"z": "4"})),
            ]
        );
    }

    #[test]
    fn converts_keys_to_json_pointers() {
        assert_eq!(json_pointer("name"), "/name");
        assert_eq!(json_pointer("driver_info.redfish_address"), "/driver_info/redfish_address");
        assert_eq!(json_pointer("extra.a/b.c~"), "/extra/a~1b/c~0");
    }
}
