// SPDX-License-Identifier: Apache-2.0
//! Which namespaces with hosts admit a claim: the policies of these namespaces.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube_resources::hosts::host_deploy_policy::{
    HostDeployPolicy, NamespaceLabel, NamespacePattern,
};

use super::selector::ObjectLabels;

/// All policies, ready for comparisons.
#[derive(Debug, Default)]
pub(in crate::hosts) struct PolicySet {
    policies: Vec<CompiledPolicy>,
    /// Policies that admit nothing because of an invalid pattern: namespace, name and problem.
    pub(in crate::hosts) invalid: Vec<(String, String, String)>,
}

#[derive(Debug)]
struct CompiledPolicy {
    namespace: String,
    names: Option<Vec<String>>,
    pattern: Option<NamespacePattern>,
    labels: Vec<NamespaceLabel>,
}

/// The namespaces that admit a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::hosts) struct Admission {
    /// Their hosts can be chosen.
    pub(in crate::hosts) namespaces: BTreeSet<String>,
    /// Whether a policy compares labels of the claim's namespace, so that other labels may mean another
    /// result.
    pub(in crate::hosts) depends_on_labels: bool,
}

impl PolicySet {
    /// Compiles the policies. One with an invalid pattern admits nothing and does not affect the others;
    /// in Metal3 no claim is bound while there is one.
    pub(in crate::hosts) fn compile<'a>(
        policies: impl IntoIterator<Item = &'a HostDeployPolicy>,
    ) -> Self {
        let mut set = Self::default();
        for policy in policies {
            let Some(constraints) = &policy.spec.host_claim_namespaces else { continue };
            let namespace = policy.namespace().unwrap_or_default();
            let pattern = constraints.name_matches.as_deref().map(NamespacePattern::compile);
            match pattern.transpose() {
                Ok(pattern) => set.policies.push(CompiledPolicy {
                    namespace,
                    names: constraints.names.clone(),
                    pattern,
                    labels: constraints.has_labels.clone(),
                }),
                Err(problem) => set.invalid.push((namespace, policy.name_any(), problem)),
            }
        }
        set
    }

    /// The namespaces that admit claims of a namespace with these labels. Without labels, policies that
    /// compare them do not hold.
    pub(in crate::hosts) fn admission(
        &self,
        claim_namespace: &str,
        labels: Option<&ObjectLabels>,
    ) -> Admission {
        let mut admission = Admission::default();
        for policy in self.policies.iter().filter(|policy| policy.names_match(claim_namespace)) {
            admission.depends_on_labels |= !policy.labels.is_empty();
            if policy.labels_match(labels) {
                admission.namespaces.insert(policy.namespace.clone());
            }
        }
        admission
    }
}

impl CompiledPolicy {
    fn names_match(&self, name: &str) -> bool {
        let is_listed = |names: &Vec<String>| names.iter().any(|listed| listed == name);
        self.names.as_ref().is_none_or(is_listed)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }

    fn labels_match(&self, labels: Option<&ObjectLabels>) -> bool {
        self.labels.iter().all(|required| {
            let found = labels.and_then(|labels| labels.get(&required.name));
            found.is_some_and(|found| required.value.as_ref().is_none_or(|value| value == found))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(namespace: &str, constraints: Value) -> HostDeployPolicy {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": namespace},
            "spec": {"hostClaimNamespaces": constraints}}))
        .unwrap()
    }

    fn labels(text: &str) -> ObjectLabels {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn all_constraints_of_a_policy_must_hold() {
        let labels = labels(r#"{"tier": "gold", "empty": ""}"#);
        for (constraints, expected) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({"names": []}), false),
            (json!({"names": ["team-a", "team-b"]}), true),
            (json!({"names": ["team"]}), false),
            (json!({"nameMatches": ""}), true),
            (json!({"nameMatches": "team"}), true),
            (json!({"nameMatches": "^team$"}), false),
            (json!({"nameMatches": "^team-[ab]$"}), true),
            (json!({"hasLabels": []}), true),
            (json!({"hasLabels": [{"name": "tier"}]}), true),
            (json!({"hasLabels": [{"name": "tier", "value": ""}]}), true),
            (json!({"hasLabels": [{"name": "tier", "value": "gold"}]}), true),
            (json!({"hasLabels": [{"name": "tier", "value": "silver"}]}), false),
            (json!({"hasLabels": [{"name": "empty"}]}), true),
            (json!({"hasLabels": [{"name": "other"}]}), false),
            (json!({"hasLabels": [{"name": "tier"}, {"name": "other"}]}), false),
            (json!({"names": ["team-a"], "nameMatches": "^x"}), false),
            (json!({"names": ["team-a"], "hasLabels": [{"name": "other"}]}), false),
            (
                json!({"names": ["team-a"], "nameMatches": "a$", "hasLabels": [{"name": "tier"}]}),
                true,
            ),
        ] {
            let set = PolicySet::compile([&policy("infra", constraints.clone())]);
            let admission = set.admission("team-a", Some(&labels));
            assert_eq!(admission.namespaces.contains("infra"), expected, "{constraints}");
        }
    }

    #[test]
    fn one_policy_suffices_and_invalid_ones_admit_nothing() {
        let policies = [
            policy("infra", json!({"names": ["other"]})),
            policy("infra", json!({"names": ["team"]})),
            policy("broken", json!({"names": ["team"], "nameMatches": "("})),
            policy("labelled", json!({"hasLabels": [{"name": "tier"}]})),
        ];
        let set = PolicySet::compile(&policies);
        assert_eq!(set.invalid.len(), 1);
        assert_eq!(set.invalid[0].0, "broken");
        let names = |admission: Admission| Vec::from_iter(admission.namespaces);
        let admission = set.admission("team", None);
        assert!(admission.depends_on_labels);
        assert_eq!(names(admission), ["infra"]);
        assert_eq!(
            names(set.admission("team", Some(&labels(r#"{"tier": ""}"#)))),
            ["infra", "labelled"]
        );
        let only_names = PolicySet::compile(&policies[..2]);
        assert!(!only_names.admission("team", None).depends_on_labels);
    }
}
