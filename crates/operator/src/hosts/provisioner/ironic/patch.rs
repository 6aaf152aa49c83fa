// SPDX-License-Identifier: Apache-2.0
//! A JSON patch that contains only real changes.

use kube_resources::hosts::ironic_payloads::FieldChanges;
use serde_json::{Map, Value, json};

use super::present;

/// Changes of a node.
#[derive(Debug, Default)]
pub(super) struct NodePatch {
    pub(super) operations: Vec<Value>,
}

impl NodePatch {
    /// Sets a field unless it has the value. Metal3 uses `add` also for existing fields.
    pub(super) fn set(&mut self, path: &str, current: Option<&Value>, wanted: Value) {
        if present(current) != Some(&wanted) {
            self.operations.push(json!({"op": "add", "path": path, "value": wanted}));
        }
    }

    /// Sets a text field.
    pub(super) fn set_text(&mut self, path: &str, current: Option<&str>, wanted: &str) {
        if current != Some(wanted) {
            self.operations.push(json!({"op": "add", "path": path, "value": wanted}));
        }
    }

    /// Removes a field that exists.
    pub(super) fn remove(&mut self, path: &str, is_present: bool) {
        if is_present {
            self.operations.push(json!({"op": "remove", "path": path}));
        }
    }

    /// Sets and removes members of an object.
    pub(super) fn change_members(
        &mut self,
        parent: &str,
        current: &Map<String, Value>,
        changes: &FieldChanges,
    ) {
        for (key, wanted) in changes {
            let path = format!("{parent}/{key}");
            match wanted {
                Some(wanted) => self.set(&path, current.get(*key), wanted.clone()),
                None => self.remove(&path, present(current.get(*key)).is_some()),
            }
        }
    }
}
