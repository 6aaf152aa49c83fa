// SPDX-License-Identifier: Apache-2.0
//! JSON merge patches that contain only what changed.

use serde::Serialize;
use serde_json::{Map, Value};

/// The JSON of a status. Its types have no values that JSON cannot represent.
pub(super) fn as_json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The patch that turns one value into another; `None` if they are equal.
pub(super) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old_fields), Value::Object(new_fields)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new_fields {
        match old_fields.get(key) {
            Some(previous) => {
                patch.extend(merge_patch(previous, value).map(|it| (key.clone(), it)))
            }
            None => _ = patch.insert(key.clone(), value.clone()),
        }
    }
    for key in old_fields.keys().filter(|key| !new_fields.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differences_are_sent() {
        for (old, new, expected) in [
            (json!({}), json!({}), None),
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}}))),
            (json!({"a": 1, "b": 2}), json!({"b": 3}), Some(json!({"a": null, "b": 3}))),
            (
                json!({"a": {"b": 1, "c": {"d": 1}}, "e": [1, 2]}),
                json!({"a": {"b": 1, "c": {}}, "e": [2]}),
                Some(json!({"a": {"c": {"d": null}}, "e": [2]})),
            ),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}}))),
        ] {
            assert_eq!(merge_patch(&old, &new), expected, "{old} {new}");
        }
    }
}
