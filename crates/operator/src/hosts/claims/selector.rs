// SPDX-License-Identifier: Apache-2.0
//! Which hosts a claim requests, as it can be compared with labels.

use std::collections::BTreeMap;

use kube_resources::hosts::host_claim::{HostClaim, HostLabelRequirement};
use kube_resources::hosts::names::FAILURE_DOMAIN_LABEL;

/// Labels of an object.
pub(in crate::hosts) type ObjectLabels = BTreeMap<String, String>;

/// The hosts that a claim requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hosts) struct HostRequest {
    /// The only namespace in which to search.
    pub(in crate::hosts) namespace: Option<String>,
    requirements: Vec<LabelRequirement>,
    failure_domain: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelOperator {
    In,
    /// Also holds without the label.
    NotIn,
    Exists,
    DoesNotExist,
    /// Does not exist in Metal3; validation reports it. Holds for no host.
    Unknown,
}

impl HostRequest {
    pub(in crate::hosts) fn of(claim: &HostClaim) -> Self {
        let selector = &claim.spec.host_selector;
        let labels = selector.match_labels.iter().map(|(key, value)| LabelRequirement {
            key: key.clone(),
            operator: LabelOperator::In,
            values: vec![value.clone()],
        });
        let expressions = selector.match_expressions.iter().map(LabelRequirement::of);
        Self {
            namespace: selector.in_namespace.clone(),
            requirements: labels.chain(expressions).collect(),
            failure_domain: claim.spec.failure_domain.clone(),
        }
    }

    /// Whether hosts of a namespace can be chosen.
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
    }

    /// Whether a host with these labels can be chosen.
    pub(super) fn matches(&self, labels: &ObjectLabels) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// The request for the preferred hosts only; `None` if all are equally good.
    pub(super) fn preferred(&self) -> Option<Self> {
        let domain = self.failure_domain.clone()?;
        let mut preferred = Self { failure_domain: None, ..self.clone() };
        preferred.requirements.push(LabelRequirement {
            key: FAILURE_DOMAIN_LABEL.to_owned(),
            operator: LabelOperator::In,
            values: vec![domain],
        });
        Some(preferred)
    }

    /// Labels of which a host must have one value each.
    pub(super) fn required_labels(&self) -> impl Iterator<Item = (&str, &[String])> {
        let required = self.requirements.iter().filter(|it| it.operator == LabelOperator::In);
        required.map(|requirement| (requirement.key.as_str(), requirement.values.as_slice()))
    }
}

impl LabelRequirement {
    fn of(requirement: &HostLabelRequirement) -> Self {
        // Metal3 accepts any case.
        let operator = match requirement.operator.to_lowercase().as_str() {
            "=" | "==" | "in" => LabelOperator::In,
            "!=" | "notin" => LabelOperator::NotIn,
            "exists" => LabelOperator::Exists,
            "!" => LabelOperator::DoesNotExist,
            _ => LabelOperator::Unknown,
        };
        Self { key: requirement.key.clone(), operator, values: requirement.values.clone() }
    }

    fn holds(&self, labels: &ObjectLabels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelOperator::In => is_listed,
            LabelOperator::NotIn => !is_listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_resources::hosts::host_claim::LABEL_OPERATORS;
    use serde_json::{Value, json};

    use super::*;

    fn request(spec: Value) -> HostRequest {
        HostRequest::of(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    #[test]
    fn operators_compare_labels() {
        let labels = ObjectLabels::from([("rack".to_owned(), "7".to_owned())]);
        for (key, operator, values, expected) in [
            ("rack", "=", json!(["7"]), true),
            ("rack", "==", json!(["8"]), false),
            ("rack", "!=", json!(["8"]), true),
            ("rack", "!=", json!(["7"]), false),
            ("row", "!=", json!(["7"]), true),
            ("rack", "in", json!(["6", "7"]), true),
            ("rack", "In", json!(["6", "7"]), true),
            ("row", "in", json!(["6", "7"]), false),
            ("rack", "notin", json!(["6", "7"]), false),
            ("row", "notin", json!(["6", "7"]), true),
            ("rack", "exists", json!([]), true),
            ("row", "exists", json!([]), false),
            ("rack", "!", json!([]), false),
            ("row", "!", json!([]), true),
            ("rack", "gt", json!(["6"]), false),
        ] {
            let request = request(json!({"hostSelector": {"matchExpressions": [
                {"key": key, "operator": operator, "values": values}]}}));
            assert_eq!(request.matches(&labels), expected, "{key} {operator} {values}");
        }
    }

    #[test]
    fn all_valid_operators_are_known() {
        for (operator, _) in LABEL_OPERATORS {
            let requirement =
                HostLabelRequirement { operator: (*operator).to_owned(), ..Default::default() };
            assert_ne!(LabelRequirement::of(&requirement).operator, LabelOperator::Unknown);
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let both = request(json!({"hostSelector": {"matchLabels": {"rack": "7"},
            "matchExpressions": [{"key": "gpu", "operator": "exists", "values": []}]}}));
        let labels = |text: &str| -> ObjectLabels { serde_json::from_str(text).unwrap() };
        assert!(both.matches(&labels(r#"{"rack": "7", "gpu": ""}"#)));
        assert!(!both.matches(&labels(r#"{"rack": "7"}"#)));
        assert!(!both.matches(&labels(r#"{"gpu": ""}"#)));
        assert!(request(json!({})).matches(&ObjectLabels::new()));
    }
}
