// SPDX-License-Identifier: Apache-2.0
//! `key=value` on the command line.
//!
//! A value is a text, so that a password of digits stays one; `key:=JSON` gives anything else, and
//! `key=@FILE` the text in a file, so that a secret need not be seen in the list of processes.

use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::parsed;

/// A key and what it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) key: String,
    value: Given,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Given {
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
            (Some(key), Some(file)) => (key, Given::JsonFile(file.to_owned())),
            (Some(key), None) => {
                let value = serde_json::from_str(value)
                    .map_err(|error| format!("what follows := is no JSON: {error}"))?;
                (key, Given::Json(value))
            }
            (None, Some(file)) => (key, Given::File(file.to_owned())),
            (None, None) => (key, Given::Text(value.to_owned())),
        };
        if key.is_empty() {
            return Err("it must begin with a key".to_owned());
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl Assignment {
    /// The value, read from its file if it is in one.
    pub(crate) fn value(&self) -> Result<Value, Failure> {
        match &self.value {
            Given::Text(text) => Ok(Value::from(text.as_str())),
            Given::Json(value) => Ok(value.clone()),
            Given::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| Failure::Unreadable { path: path.into(), source })?;
                Ok(Value::from(text.strip_suffix('\n').unwrap_or(&text)))
            }
            Given::JsonFile(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| Failure::Unreadable { path: path.into(), source })?;
                parsed(&text, path)
            }
        }
    }
}

/// All of them as an object; keys with dots are members of members.
pub(crate) fn object(assignments: &[Assignment]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for assignment in assignments {
        let mut place = &mut object;
        let mut parts = assignment.key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                place.insert(part.to_owned(), assignment.value()?);
                break;
            }
            let inner = place.entry(part).or_insert_with(|| Value::Object(Map::new()));
            place = inner.as_object_mut().ok_or_else(|| {
                Failure::Usage(format!("{part} in {} is something else already", assignment.key))
            })?;
        }
    }
    Ok(object)
}

/// Where a key with dots is in a JSON patch.
pub(crate) fn pointer(key: &str) -> String {
    let escaped = |part: &str| part.replace('~', "~0").replace('/', "~1");
    key.split('.').map(|part| format!("/{}", escaped(part))).collect()
}

/// Whether what is changed by a key depends on what is there: a member of a member needs its parent.
pub(crate) fn is_deep(key: &str) -> bool {
    key.split('.').count() > 2
}

/// The JSON patch that makes a thing what assignments say. Objects on the way to a member that are not
/// there are made.
pub(crate) fn patch(thing: &Value, assignments: &[(String, Value)]) -> Vec<Value> {
    let mut thing = thing.clone();
    let mut operations = Vec::new();
    for (key, value) in assignments {
        let parts: Vec<&str> = key.split('.').collect();
        // The field itself is always there.
        let mut depth = 1;
        let mut inside = parts.first().map_or(&Value::Null, |field| &thing[*field]);
        while depth + 1 < parts.len() && inside[parts[depth]].is_object() {
            inside = &inside[parts[depth]];
            depth += 1;
        }
        let place = parts.get(..=depth).unwrap_or(&parts);
        let mut added = value.clone();
        for part in parts.iter().skip(place.len()).rev() {
            let mut parent = Map::new();
            parent.insert((*part).to_owned(), added);
            added = Value::Object(parent);
        }
        let path = pointer(&place.join("."));
        if let Some(parent) = path.rsplit_once('/').and_then(|(above, _)| thing.pointer_mut(above))
            && let (Some(members), Some(last)) = (parent.as_object_mut(), place.last())
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
    fn values_are_texts_unless_said_otherwise() {
        let given = ["a=1", "b:=1", "c.d=x=y", "c.e:=[true]", "f="];
        let assignments: Vec<Assignment> = given.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(
            Value::Object(object(&assignments).unwrap()),
            json!({"a": "1", "b": 1, "c": {"d": "x=y", "e": [true]}, "f": ""})
        );
        for wrong in ["a", "=1", "a:=x"] {
            assert!(wrong.parse::<Assignment>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn members_of_members_are_made_where_they_are_missing() {
        let thing = json!({"name": "n", "extra": {"there": {"x": 1}, "text": "t"}});
        let given =
            ["name=m", "extra.there.y=1", "extra.a.b.c=2", "extra.a.b.d=3", "extra.text.z=4"].map(
                |text: &str| {
                    let assignment: Assignment = text.parse().unwrap();
                    (assignment.key.clone(), assignment.value().unwrap())
                },
            );
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        assert_eq!(
            patch(&thing, &given),
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
    fn keys_are_places() {
        assert_eq!(pointer("name"), "/name");
        assert_eq!(pointer("driver_info.redfish_address"), "/driver_info/redfish_address");
        assert_eq!(pointer("extra.a/b.c~"), "/extra/a~1b/c~0");
    }
}
