// SPDX-License-Identifier: Apache-2.0
//! Objects that Metal3's operator wrote for the same owner.
//!
//! Server-side apply keeps what other clients wrote: a Deployment would keep their containers, commands
//! and variables. So before the first apply their fields are transferred to our field manager, and
//! apply then removes those that are not desired. kubectl does the same for objects of
//! client-side apply.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::api::DynamicObject;
use kube_resources::ironic::names::APPLIED_HASH;
use serde_json::{Map, Value, json};

const APPLY: &str = "Apply";
/// The controllers of Kubernetes, which write annotations of workloads.
const KUBERNETES: &str = "kube-controller-manager";

/// The JSON merge patch that transfers the fields of other clients to `manager`; `None` if the manager
/// has applied the object before, or no client has fields. Fails with a conflict if the object changed
/// since it was read.
pub(super) fn takeover_patch(
    object: &DynamicObject,
    api_version: &str,
    manager: &str,
) -> Option<Value> {
    let metadata = &object.metadata;
    let annotations = metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(APPLIED_HASH)) {
        return None;
    }
    let entries = transferred(metadata.managed_fields.as_ref()?, api_version, manager)?;
    let version = &metadata.resource_version;
    Some(json!({"metadata": {"resourceVersion": version, "managedFields": entries}}))
}

fn transferred(
    entries: &[ManagedFieldsEntry],
    api_version: &str,
    manager: &str,
) -> Option<Vec<ManagedFieldsEntry>> {
    // The status belongs to others.
    let (others, mut kept): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| {
        entry.subresource.as_deref().is_none_or(str::is_empty)
            && entry.api_version.as_deref() == Some(api_version)
            && entry.manager.as_deref() != Some(KUBERNETES)
    });
    if others.is_empty() {
        return None;
    }
    let mut fields = Value::Object(Map::new());
    for entry in &others {
        unite(&mut fields, entry.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0));
    }
    kept.push(ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some(APPLY.to_owned()),
        api_version: Some(api_version.to_owned()),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        subresource: None,
        time: others.iter().filter_map(|entry| entry.time.clone()).max(),
    });
    Some(kept)
}

/// Adds the fields of another set. A set is an object of objects.
fn unite(set: &mut Value, more: &Value) {
    if let (Value::Object(set), Value::Object(more)) = (set, more) {
        for (name, value) in more {
            unite(set.entry(name.clone()).or_insert_with(|| json!({})), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(metadata: Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": metadata}))
        .unwrap()
    }

    #[test]
    fn fields_of_other_clients_are_transferred_once() {
        let entry = |manager: &str, subresource: &str, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1",
                "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource})
        };
        let status = entry("kube-controller-manager", "status", json!({"f:status": {}}));
        let entries = json!([
            entry("manager", "", json!({"f:spec": {"f:replicas": {}, "f:template": {"f:a": {}}}})),
            entry("kubectl-edit", "", json!({"f:spec": {"f:template": {"f:b": {}}}})),
            status,
        ]);
        let first = object(json!({"resourceVersion": "7", "managedFields": entries}));
        let patch = takeover_patch(&first, "apps/v1", "ferrite").unwrap();
        let fields = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:a": {}, "f:b": {}}}});
        let expected = json!({"metadata": {"resourceVersion": "7", "managedFields": [
            status,
            {"manager": "ferrite", "operation": "Apply", "apiVersion": "apps/v1",
                "fieldsType": "FieldsV1", "fieldsV1": fields},
        ]}});
        assert_eq!(patch, expected);

        for metadata in [
            json!({"managedFields": [status]}),
            json!({}),
            json!({"managedFields": entries, "annotations": {APPLIED_HASH: "x"}}),
        ] {
            let patch = takeover_patch(&object(metadata.clone()), "apps/v1", "ferrite");
            assert_eq!(patch, None, "{metadata}");
        }
    }
}
