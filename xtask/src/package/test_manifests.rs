// SPDX-License-Identifier: Apache-2.0
//! Small manifests for the tests of the package writers.

use std::fs;

use tempfile::TempDir;

use super::operator_manifests::OperatorManifests;

const DEFINITION: &str = "\
# A definition.
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example
spec:
  description: Uses templates such as {{ name }}.
";

const OPERATOR: &str = "\
# The operator.
---
apiVersion: v1
kind: Namespace
metadata:
  name: ferrite-system
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: ferrite-operator
  namespace: ferrite-system
spec:
  replicas: 2
  selector:
    matchLabels: {app: ferrite-operator}
  template:
    metadata:
      labels: {app: ferrite-operator}
    spec:
      serviceAccountName: ferrite-operator
      containers:
        - name: operator
          image: registry.example:5000/ferrite:latest
          args:
            - --leader-elect
            - --hostclaims
          env:
            - name: POD_NAMESPACE
              value: ferrite-system
          ports:
            - {name: webhooks, containerPort: 9443}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: ferrite-operator
webhooks:
  - name: things.example
    clientConfig:
      service:
        name: ferrite-operator
        namespace: ferrite-system
    failurePolicy: Fail
    sideEffects: None
";

const CLAIM_ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: ferrite-operator-hostclaims
";

const BINDINGS: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: ferrite-operator-hosts
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: ferrite-operator-hosts
subjects:
  - kind: ServiceAccount
    name: ferrite-operator
    namespace: ferrite-system
";

const LABELS: &str = "labels:\n  - pairs:\n      app.kubernetes.io/part-of: ferrite\n";

/// An operator with one custom resource definition. The folder is deleted when it is dropped.
pub(super) fn example() -> (TempDir, OperatorManifests) {
    let folder = tempfile::tempdir().unwrap();
    let base = format!("{LABELS}resources: [../../crds, operator.yaml, roles.yaml]\n");
    let cluster_wide = format!("{LABELS}resources: [../base, bindings.yaml]\n");
    for (path, text) in [
        ("crds/kustomization.yaml", "resources: [things.yaml]\n"),
        ("crds/things.yaml", DEFINITION),
        ("operator/base/kustomization.yaml", &base),
        ("operator/base/operator.yaml", OPERATOR),
        ("operator/base/roles.yaml", CLAIM_ROLE),
        ("operator/cluster-wide/kustomization.yaml", &cluster_wide),
        ("operator/cluster-wide/bindings.yaml", BINDINGS),
        ("operator/namespaced/kustomization.yaml", "resources: [../base]\n"),
        ("operator/with-service/kustomization.yaml", "resources: [../cluster-wide]\n"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let manifests = OperatorManifests::read(&folder.path().join("operator")).unwrap();
    (folder, manifests)
}
