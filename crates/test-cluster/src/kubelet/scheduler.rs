// SPDX-License-Identifier: Apache-2.0
//! Chooses nodes for pods: selectors, affinity, taints and host ports; then the node with the fewest
//! pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, Taint,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Returns the name of a node on which the pod can run. `pods` are all pods of the cluster.
pub(super) fn choose_node<'a>(
    pod: &Pod,
    nodes: &[Node],
    pods: impl Iterator<Item = &'a Pod>,
) -> Option<String> {
    let mut on_node: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for other in pods.filter(|other| !is_finished(other)) {
        let node = other.spec.as_ref().and_then(|spec| spec.node_name.clone());
        on_node.entry(node.unwrap_or_default()).or_default().push(other);
    }
    let spec = pod.spec.as_ref()?;
    let others = |node: &Node| on_node.get(&node.name_any()).map_or(&[][..], Vec::as_slice);
    nodes
        .iter()
        .filter(|node| selects(spec, node) && tolerates(spec, node))
        .filter(|node| !ports_conflict(spec, others(node)) && !repels(pod, others(node)))
        .min_by_key(|node| (others(node).len(), node.name_any()))
        .map(kube::ResourceExt::name_any)
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let selected =
        spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required =
        spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()).and_then(
            |affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref(),
        );
    selected
        && required.is_none_or(|selector| {
            selector.node_selector_terms.iter().any(|term| term_matches(term, node))
        })
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.labels();
    let name = node.name_any();
    let by_label = term
        .match_expressions
        .iter()
        .flatten()
        .all(|rule| requirement_matches(rule, labels.get(&rule.key).map(String::as_str)));
    // The only field is metadata.name.
    let by_field =
        term.match_fields.iter().flatten().all(|rule| requirement_matches(rule, Some(&name)));
    by_label && by_field
}

fn requirement_matches(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let (found, limit) = (number(value), number(values.first().map(String::as_str)));
    match rule.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => found.zip(limit).is_some_and(|(found, limit)| found > limit),
        "Lt" => found.zip(limit).is_some_and(|(found, limit)| found < limit),
        _ => false,
    }
}

fn tolerates(spec: &PodSpec, node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| is_tolerated(taint, toleration)))
}

fn is_tolerated(taint: &Taint, toleration: &Toleration) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let value_matches = toleration.operator.as_deref() == Some("Exists")
        || toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && value_matches
}

fn ports_conflict(spec: &PodSpec, others: &[&Pod]) -> bool {
    let wanted = host_ports(spec);
    others.iter().filter_map(|other| other.spec.as_ref()).any(|other| {
        let used = host_ports(other);
        wanted.iter().any(|port| used.contains(port))
    })
}

fn host_ports(spec: &PodSpec) -> Vec<(String, i32)> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some((port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), port.host_port?))
        })
        .collect()
}

/// Whether required anti-affinity keeps the pod away from these pods of one node.
fn repels(pod: &Pod, others: &[&Pod]) -> bool {
    let rules = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref())
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_deref());
    rules.unwrap_or_default().iter().any(|rule: &PodAffinityTerm| {
        rule.topology_key == HOSTNAME_LABEL
            && others.iter().any(|other| {
                other.namespace() == pod.namespace()
                    && rule
                        .label_selector
                        .as_ref()
                        .is_some_and(|selector| labels_match(selector, other.labels()))
            })
    })
}

fn labels_match(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let rules = selector.match_expressions.iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && rules.into_iter().all(|rule| {
            let rule = NodeSelectorRequirement {
                key: rule.key.clone(),
                operator: rule.operator.clone(),
                values: rule.values.clone(),
            };
            requirement_matches(&rule, labels.get(&rule.key).map(String::as_str))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, taints: Value) -> Node {
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": "10"}},
            "spec": {"taints": taints},
        });
        serde_json::from_value(node).expect("a node")
    }

    fn pod(spec: Value) -> Pod {
        let labels = json!({"app": "x"});
        serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec}))
            .expect("a pod")
    }

    #[test]
    fn pods_run_where_they_may() {
        let nodes = [
            node("a", json!([{"key": "control-plane", "effect": "NoSchedule"}])),
            node("b", json!([])),
        ];
        let with = |fields: Value| {
            let mut spec = json!({"containers": [{"name": "c"}]});
            spec.as_object_mut().expect("a map").extend(fields.as_object().expect("a map").clone());
            pod(spec)
        };
        let affinity = |kind: &str, rule: Value| {
            with(json!({
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{kind: [rule]}]}}},
            }))
        };
        for (pod, expected) in [
            (with(json!({})), Some("b")),
            (with(json!({"tolerations": [{"operator": "Exists"}]})), Some("a")),
            (
                with(json!({"tolerations": [{"key": "control-plane", "effect": "NoExecute"}]})),
                Some("b"),
            ),
            (with(json!({"nodeSelector": {"disk": "11"}})), None),
            (
                affinity(
                    "matchFields",
                    json!({"key": "metadata.name", "operator": "In", "values": ["b"]}),
                ),
                Some("b"),
            ),
            (
                affinity(
                    "matchExpressions",
                    json!({"key": "disk", "operator": "Gt", "values": ["9"]}),
                ),
                Some("a"),
            ),
            (
                affinity("matchExpressions", json!({"key": "disk", "operator": "DoesNotExist"})),
                None,
            ),
        ] {
            let chosen = choose_node(&pod, &nodes, [].into_iter());
            assert_eq!(chosen.as_deref(), expected, "{pod:?}");
        }
    }

    #[test]
    fn pods_avoid_each_other() {
        let nodes = [node("a", json!([])), node("b", json!([]))];
        let on = |name: &str, spec: Value| {
            let mut pod = pod(spec);
            pod.spec.as_mut().expect("a spec").node_name = Some(name.to_owned());
            pod
        };
        let port =
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]});
        let apart = json!({
            "containers": [{"name": "c"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "x"}}}]}},
        });
        for spec in [port, apart] {
            let (first, second) = (on("a", spec.clone()), on("b", spec.clone()));
            let wanted = pod(spec);
            let chosen = choose_node(&wanted, &nodes, [&first].into_iter());
            assert_eq!(chosen.as_deref(), Some("b"));
            assert_eq!(choose_node(&wanted, &nodes, [&first, &second].into_iter()), None);
        }
        let plain = json!({"containers": [{"name": "c"}]});
        let chosen = choose_node(&pod(plain.clone()), &nodes, [&on("a", plain)].into_iter());
        assert_eq!(chosen.as_deref(), Some("b"), "the node with fewer pods");
    }
}
