// SPDX-License-Identifier: Apache-2.0
//! Applies the overrides of an `Ironic` to a pod.

use std::collections::BTreeMap;

use kube_resources::ironic::overrides::IronicOverrides;
use kube_resources::ironic::service::Ironic;
use serde_json::{Map, Value};

use super::keepalived::KEEPALIVED_CONTAINER;
use super::pod::{DOWNLOADER_CONTAINER, SERVICE_CONTAINER};
use super::strategic_merge::{merge_container, merge_probe, merge_volume};
use super::support::SupportReport;

/// Containers of Metal3's pods whose work the service does itself.
const REPLACED_CONTAINERS: &[&str] =
    &["httpd", "dnsmasq", "ramdisk-logs", "ironic-prometheus-exporter"];

/// A function that merges an override into an existing item.
type MergeItem = fn(&mut Map<String, Value>, &Map<String, Value>);

/// Annotations that a user adds.
pub(super) fn annotations(ironic: &Ironic) -> Map<String, Value> {
    to_json(ironic.spec.overrides.as_ref().map(|overrides| &overrides.annotations))
}

/// Labels that a user adds.
pub(super) fn labels(ironic: &Ironic) -> Map<String, Value> {
    to_json(ironic.spec.overrides.as_ref().map(|overrides| &overrides.labels))
}

fn to_json(map: Option<&BTreeMap<String, String>>) -> Map<String, Value> {
    let entries = map.into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
}

/// Merges containers, probes and volumes into a pod.
pub(super) fn apply(
    overrides: Option<&IronicOverrides>,
    pod: &mut Value,
    report: &mut SupportReport,
) {
    let Some(overrides) = overrides else { return };
    reject_replaced_containers(overrides, report);
    probes(overrides, pod, report);
    merge_named(pod, "containers", &overrides.containers, merge_container);
    merge_named(pod, "initContainers", &overrides.init_containers, merge_container);
    volumes(overrides, pod);
    for (index, container) in overrides.containers.iter().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_new = ![SERVICE_CONTAINER, KEEPALIVED_CONTAINER].contains(&name);
        report_missing_image("containers", index, name, container, is_new, report);
    }
    for (index, container) in overrides.init_containers.iter().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_new = name != DOWNLOADER_CONTAINER;
        report_missing_image("initContainers", index, name, container, is_new, report);
    }
}

/// Merges volumes into those of a pod; also for Jobs.
pub(super) fn volumes(overrides: &IronicOverrides, pod: &mut Value) {
    merge_named(pod, "volumes", &overrides.volumes, merge_volume);
}

fn merge_named(pod: &mut Value, list: &str, patches: &[Map<String, Value>], merge: MergeItem) {
    for patch in patches {
        let items = match pod.get_mut(list) {
            Some(Value::Array(items)) => items,
            _ => {
                pod[list] = Value::Array(Vec::new());
                let Some(items) = pod[list].as_array_mut() else { return };
                items
            }
        };
        let existing = items
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .find(|item| item.get("name") == patch.get("name"));
        match existing {
            Some(existing) => merge(existing, patch),
            None => items.push(Value::Object(patch.clone())),
        }
    }
}

/// An override of a container that does not exist would otherwise become a container of its own.
fn reject_replaced_containers(overrides: &IronicOverrides, report: &mut SupportReport) {
    for (index, container) in overrides.containers.iter().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        if REPLACED_CONTAINERS.contains(&name) {
            report.reject(
                format!("spec.overrides.containers[{index}].name"),
                format!("there is no container {name:?}, the container {SERVICE_CONTAINER:?} does its work; override that one"),
            );
        }
    }
}

/// Kubernetes would reject the pod with a message that does not name the override.
fn report_missing_image(
    list: &str,
    index: usize,
    name: &str,
    container: &Map<String, Value>,
    is_new: bool,
    report: &mut SupportReport,
) {
    if is_new && !container.contains_key("image") && !REPLACED_CONTAINERS.contains(&name) {
        report.reject(
            format!("spec.overrides.{list}[{index}].image"),
            format!("is missing; the pod has no container {name:?} to change"),
        );
    }
}

/// The probes of Metal3's image server are those of the service.
fn probes(overrides: &IronicOverrides, pod: &mut Value, report: &mut SupportReport) {
    for (field, probe, patch) in [
        ("httpdLivenessProbe", "livenessProbe", &overrides.httpd_liveness_probe),
        ("httpdReadinessProbe", "readinessProbe", &overrides.httpd_readiness_probe),
    ] {
        let Some(patch) = patch else { continue };
        if patch.contains_key("exec") {
            report.reject(
                format!("spec.overrides.{field}.exec"),
                "the image of the service has no shell and no curl; use httpGet or tcpSocket",
            );
        }
        let existing = pod["containers"][0][probe].as_object_mut();
        if let Some(existing) = existing {
            merge_probe(existing, patch);
        }
    }
}
