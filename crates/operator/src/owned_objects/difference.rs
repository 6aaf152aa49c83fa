// SPDX-License-Identifier: Apache-2.0
//! Whether a stored object has everything that is desired.
//!
//! Fields that others add (defaults of the API server, other controllers, users) do not count. What was
//! desired before and is not any more is noticed by the hash in an annotation, not here.

use serde_json::{Map, Value};

/// Fields whose values are quantities, which the API server writes in another notation: `1000m` as `1`.
const QUANTITY_FIELDS: &[&str] = &["requests", "limits", "capacity", "sizeLimit"];

/// Whether `stored` has all values of `desired`.
pub(crate) fn is_contained(desired: &Value, stored: &Value) -> bool {
    contained(desired, stored, false)
}

fn contained(desired: &Value, stored: &Value, is_quantity: bool) -> bool {
    match (desired, stored) {
        // The API server does not store empty values of most fields.
        (_, Value::Null) => is_empty(desired),
        (Value::Object(desired), Value::Object(stored)) => all_fields(desired, stored, is_quantity),
        (Value::Array(desired), Value::Array(stored)) => all_items(desired, stored),
        (Value::String(desired), Value::String(stored)) if is_quantity => {
            desired == stored
                || quantity(desired).is_some() && quantity(desired) == quantity(stored)
        }
        // A quantity may be written as a number.
        (Value::Number(_), Value::String(stored)) if is_quantity => {
            quantity(&desired.to_string()) == quantity(stored)
        }
        _ => desired == stored,
    }
}

fn all_fields(
    desired: &Map<String, Value>,
    stored: &Map<String, Value>,
    is_quantity: bool,
) -> bool {
    desired.iter().all(|(name, value)| {
        let is_quantity = is_quantity || QUANTITY_FIELDS.contains(&name.as_str());
        contained(value, stored.get(name).unwrap_or(&Value::Null), is_quantity)
    })
}

/// Lists of objects may have more items than desired, such as a container that another controller
/// adds. Other lists have to be equal.
fn all_items(desired: &[Value], stored: &[Value]) -> bool {
    if desired.iter().all(Value::is_object) && !desired.is_empty() {
        return desired.iter().all(|item| stored.iter().any(|other| is_contained(item, other)));
    }
    desired == stored
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// The value of a quantity such as `500m`, `0.5`, `10Gi` or `1e3`.
fn quantity(text: &str) -> Option<f64> {
    const SUFFIXES: &[(&str, f64)] = &[
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| {
        Some((text.strip_suffix(suffix)?, factor)).filter(|(number, _)| !number.is_empty())
    });
    let (number, factor) = suffix.unwrap_or((text, &1.0));
    number.parse::<f64>().ok().filter(|value| value.is_finite()).map(|value| value * factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_others_do_not_count() {
        let stored = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"ours": "1", "theirs": "2"}},
            "spec": {
                "replicas": 1,
                "containers": [
                    {"name": "sidecar", "image": "s"},
                    {"name": "ironic", "image": "i", "args": ["serve"],
                     "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
                ],
            },
        });
        for (desired, expected) in [
            (json!({"metadata": {"labels": {"ours": "1"}}}), true),
            (json!({"metadata": {"labels": {"ours": "2"}}}), false),
            (json!({"metadata": {"labels": {"missing": "1"}}}), false),
            (json!({"spec": {"containers": [{"name": "ironic", "image": "i"}]}}), true),
            (json!({"spec": {"containers": [{"name": "ironic", "image": "j"}]}}), false),
            (json!({"spec": {"containers": [{"name": "ironic", "args": ["serve", "x"]}]}}), false),
            (json!({"spec": {"containers": [{"name": "ironic", "args": []}]}}), false),
        ] {
            assert_eq!(is_contained(&desired, &stored), expected, "{desired}");
        }
    }

    #[test]
    fn empty_values_equal_missing_ones() {
        for value in [json!(null), json!(false), json!(""), json!(0), json!({}), json!([])] {
            assert!(is_contained(&json!({"field": value}), &json!({})), "{value}");
        }
        assert!(is_contained(&json!({"a": {"b": {}}}), &json!({})));
        assert!(!is_contained(&json!({"hostNetwork": false}), &json!({"hostNetwork": true})));
        assert!(!is_contained(&json!({"a": "x"}), &json!({})));
        assert!(!is_contained(&json!({"a": ["x"]}), &json!({"a": []})));
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (desired, stored, expected) in [
            (json!("1000m"), "1", true),
            (json!("0.5"), "500m", true),
            (json!("1024Mi"), "1Gi", true),
            (json!(2), "2", true),
            (json!("1e3"), "1k", true),
            (json!("1Gi"), "1G", false),
            (json!("m"), "x", false),
        ] {
            let desired = json!({"resources": {"limits": {"cpu": desired}}});
            let stored = json!({"resources": {"limits": {"cpu": stored}}});
            assert_eq!(is_contained(&desired, &stored), expected, "{desired} {stored}");
        }
        // Not in other fields.
        assert!(!is_contained(&json!({"value": "1000m"}), &json!({"value": "1"})));
    }
}
