// SPDX-License-Identifier: Apache-2.0
//! Strategic merge of parts of a pod, as `kubectl patch` does it: objects are merged, lists with keys
//! are merged by key, everything else is replaced.

use serde_json::{Map, Value};

/// Lists of a container that are merged, with their keys. Other lists, such as `args`, are replaced.
const LIST_KEYS: &[(&str, &[&str])] = &[
    ("env", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
];

/// Handlers of a probe. Kubernetes accepts one.
const PROBE_HANDLERS: &[&str] = &["exec", "grpc", "httpGet", "tcpSocket"];
/// Sources of the value of a variable. Kubernetes accepts one.
const VALUE_SOURCES: &[&str] = &["value", "valueFrom"];

/// Merges a container into one with the same name.
pub(super) fn merge_container(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        let list_keys = LIST_KEYS.iter().find(|(list, _)| list == key).map(|(_, keys)| *keys);
        match (target.get_mut(key), value, list_keys) {
            (Some(Value::Array(items)), Value::Array(patches), Some(keys)) => {
                merge_list(items, patches, keys);
            }
            (Some(Value::Object(probe)), Value::Object(patch), _) if key.ends_with("Probe") => {
                merge_probe(probe, patch);
            }
            _ => merge_value(target, key, value),
        }
    }
}

/// Merges a probe. Another handler replaces the existing one.
pub(super) fn merge_probe(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    remove_alternatives(target, patch, PROBE_HANDLERS);
    merge_object(target, patch);
}

/// Merges a volume into one with the same name. Another source replaces the existing one.
pub(super) fn merge_volume(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    let has_source = patch.keys().any(|key| key != "name");
    target.retain(|key, _| !has_source || key == "name" || patch.contains_key(key));
    merge_object(target, patch);
}

fn merge_object(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        merge_value(target, key, value);
    }
}

/// `null` removes a field.
fn merge_value(target: &mut Map<String, Value>, key: &str, value: &Value) {
    match (target.get_mut(key), value) {
        (_, Value::Null) => {
            target.remove(key);
        }
        (Some(Value::Object(existing)), Value::Object(patch)) => merge_object(existing, patch),
        _ => {
            target.insert(key.to_owned(), value.clone());
        }
    }
}

fn merge_list(items: &mut Vec<Value>, patches: &[Value], keys: &[&str]) {
    for patch in patches {
        let is_same =
            |item: &Value| keys.iter().all(|key| key_value(item, key) == key_value(patch, key));
        let existing = items.iter_mut().find(|item| is_same(item)).and_then(Value::as_object_mut);
        match (existing, patch.as_object()) {
            (Some(existing), Some(patch)) => {
                remove_alternatives(existing, patch, VALUE_SOURCES);
                merge_object(existing, patch);
            }
            _ => items.push(patch.clone()),
        }
    }
}

/// The protocol of a port has a default.
fn key_value(item: &Value, key: &str) -> Value {
    match item.get(key) {
        None if key == "protocol" => Value::from("TCP"),
        found => found.cloned().unwrap_or_default(),
    }
}

fn remove_alternatives(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    alternatives: &[&str],
) {
    if alternatives.iter().any(|alternative| patch.contains_key(*alternative)) {
        target.retain(|key, _| !alternatives.contains(&key.as_str()) || patch.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(
        merge: fn(&mut Map<String, Value>, &Map<String, Value>),
        target: Value,
        patch: Value,
    ) -> Value {
        let mut target = target.as_object().unwrap().clone();
        merge(&mut target, patch.as_object().unwrap());
        Value::Object(target)
    }

    #[test]
    fn containers_are_merged_by_the_keys_of_their_lists() {
        let container = json!({
            "name": "ironic",
            "args": ["serve"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"name": "api", "containerPort": 6385, "protocol": "TCP"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"runAsUser": 997, "capabilities": {"drop": ["ALL"]}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 1}, "timeoutSeconds": 5},
        });
        let patch = json!({
            "name": "ironic",
            "args": ["serve", "--verbose"],
            "env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "C", "value": "3"}],
            "ports": [{"containerPort": 6385, "hostPort": 7000}, {"containerPort": 6385, "protocol": "UDP"}],
            "volumeMounts": [{"mountPath": "/data", "readOnly": true}],
            "securityContext": {"runAsUser": 0, "privileged": null},
            "livenessProbe": {"tcpSocket": {"port": 2}},
            "resources": {"limits": {"cpu": "1"}},
            "fieldOfTheFuture": {"a": [1]},
        });
        assert_eq!(
            merged(merge_container, container, patch),
            json!({
                "name": "ironic",
                "args": ["serve", "--verbose"],
                "env": [{"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "C", "value": "3"}],
                "ports": [{"name": "api", "containerPort": 6385, "protocol": "TCP", "hostPort": 7000},
                          {"containerPort": 6385, "protocol": "UDP"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
                "securityContext": {"runAsUser": 0, "capabilities": {"drop": ["ALL"]}},
                "livenessProbe": {"tcpSocket": {"port": 2}, "timeoutSeconds": 5},
                "resources": {"limits": {"cpu": "1"}},
                "fieldOfTheFuture": {"a": [1]},
            })
        );
    }

    #[test]
    fn the_source_of_a_volume_is_replaced() {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "a"}});
        let patch = json!({"name": "data", "hostPath": {"path": "/srv"}});
        assert_eq!(merged(merge_volume, volume.clone(), patch.clone()), patch);
        let same = json!({"name": "data", "persistentVolumeClaim": {"readOnly": true}});
        assert_eq!(
            merged(merge_volume, volume, same),
            json!({"name": "data", "persistentVolumeClaim": {"claimName": "a", "readOnly": true}})
        );
    }

    #[test]
    fn timings_of_a_probe_keep_its_handler() {
        let probe = json!({"httpGet": {"path": "/readyz", "port": 1}, "failureThreshold": 12});
        assert_eq!(
            merged(merge_probe, probe, json!({"failureThreshold": 99})),
            json!({"httpGet": {"path": "/readyz", "port": 1}, "failureThreshold": 99})
        );
    }
}
