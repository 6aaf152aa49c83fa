// SPDX-License-Identifier: Apache-2.0
//! The Helm chart of the operator, generated from its manifests so that both install the same
//! objects.
//!
//! The text of each manifest becomes a template: a few values in it are replaced by expressions, and
//! some documents and lines get a condition. Comments and order stay as they are.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::archive_tree::ArchiveTree;
use super::operator_manifests::{DEFINITION, OperatorManifests, OperatorObject, insert_metadata};
use super::source_commit::PackageVersion;

/// The name of the chart and of its folder in the archive.
pub(super) const CHART: &str = "ferrite-operator";
/// Files that go into the chart as they are.
const SOURCES: &str = "deploy/helm";
const COPIED: &[(&str, &str)] = &[
    ("_helpers.tpl", "templates/_helpers.tpl"),
    ("NOTES.txt", "templates/NOTES.txt"),
    ("values.schema.json", "values.schema.json"),
];
/// Helm deletes what a chart no longer contains, except objects with this annotation. Without its
/// definition, every custom resource would be deleted too.
pub(super) const KEEP_ANNOTATION: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// Lines of the container, before its arguments.
const CERTIFICATE_MOUNT: &str = "          {{- if .Values.webhooks.certificateSecret }}
          volumeMounts:
            - {name: webhook-certificate, mountPath: /etc/ferrite/webhooks, readOnly: true}
          {{- end }}";
/// The argument and the objects that are only needed for claims.
const CLAIM_ARGUMENT: &str = "            - --hostclaims";
const CLAIM_OBJECTS: &str = "ferrite-operator-hostclaims";
const WITH_CLAIMS: &str = "{{- if .Values.hostClaims }}";
/// Lines after the arguments.
const MORE_ARGUMENTS: &str = "            {{- range .Values.watchNamespaces }}
            - --namespace={{ . }}
            {{- end }}
            {{- if .Values.webhooks.certificateSecret }}
            - --webhook-cert-dir=/etc/ferrite/webhooks
            {{- end }}";
/// Lines of the environment, at its start.
const SERVICE_IMAGE: &str = "            {{- with .Values.serviceImage }}
            - name: IRONIC_IMAGE
              value: {{ . | quote }}
            {{- end }}";
/// Lines of the pod, before its containers.
const CERTIFICATE_VOLUME: &str = "      {{- with .Values.webhooks.certificateSecret }}
      volumes:
        - name: webhook-certificate
          secret: {secretName: {{ . | quote }}}
      {{- end }}";
/// Lines of a webhook, before `sideEffects`.
const NAMESPACE_SELECTOR: &str = "    {{- with .Values.watchNamespaces }}
    namespaceSelector:
      matchExpressions:
        - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
    {{- end }}";
/// Lines of the metadata of the webhooks.
const WEBHOOK_ANNOTATIONS: &str = "  {{- with .Values.webhooks.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}";

/// Returns the files of the chart.
pub(super) fn chart(
    root: &Path,
    manifests: &OperatorManifests,
    repository: &str,
    version: &PackageVersion,
) -> Result<ArchiveTree> {
    let mut tree = ArchiveTree::default();
    tree.file(&format!("{CHART}/Chart.yaml"), chart_file(version));
    tree.file(&format!("{CHART}/values.yaml"), values_file(manifests, repository));
    for (source, destination) in COPIED {
        let path = format!("{SOURCES}/{source}");
        let content = fs::read(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        tree.file(&format!("{CHART}/{destination}"), content);
    }
    for document in &manifests.documents {
        let folder = if document.kind() == DEFINITION { "templates/crds" } else { "templates" };
        let path = format!("{CHART}/{folder}/{}", document.file_name());
        if tree.files().any(|(existing, _)| existing == path) {
            bail!("two objects have the name {}", document.file_name());
        }
        let template = template(document, manifests)
            .with_context(|| format!("cannot make a template of {}", document.file_name()))?;
        tree.file(&path, template);
    }
    Ok(tree)
}

fn chart_file(version: &PackageVersion) -> String {
    format!(
        "apiVersion: v2\n\
         name: {CHART}\n\
         description: Operator for Ironic and BareMetalHost objects\n\
         type: application\n\
         version: {0}\n\
         appVersion: {0}\n\
         kubeVersion: \">=1.30.0-0\"\n",
        version.semantic
    )
}

fn values_file(manifests: &OperatorManifests, repository: &str) -> String {
    format!(
        "# The image of the operator.\n\
         image:\n  repository: {repository}\n  # By default the version of the chart.\n  tag: \"\"\n\
         # Image of the pods of Ironic objects, such as the one with a ramdisk. By default the image of the version.\n\
         serviceImage: \"\"\n\
         # Give hosts to HostClaim objects of namespaces that a HostDeployPolicy admits.\n\
         hostClaims: true\n\
         # Replicas of the operator. All serve webhooks; one leads.\n\
         replicas: {}\n\
         # Namespaces whose objects are managed, and in which the operator gets its rights; empty for all.\n\
         watchNamespaces: []\n\
         webhooks:\n\
         \x20 # Secret with tls.crt and tls.key, such as one of cert-manager. By default the operator has a CA of its own.\n\
         \x20 certificateSecret: \"\"\n\
         \x20 # Annotations of the webhooks, such as cert-manager.io/inject-ca-from.\n\
         \x20 annotations: {{}}\n\
         # Create the namespace of the release, with its labels. Not together with --create-namespace.\n\
         createNamespace: false\n\
         crds:\n  # Install and upgrade the custom resource definitions.\n  install: true\n",
        manifests.replicas
    )
}

/// Returns the template of an object.
fn template(document: &OperatorObject, manifests: &OperatorManifests) -> Result<String> {
    let text = document.text.trim().replace("{{", "{{ \"{{\" }}");
    let text = text.replace(&manifests.image, "{{ include \"ferrite-operator.image\" . }}");
    let mut text = replace_name(&text, &manifests.namespace, "{{ $.Release.Namespace }}");
    text = match document.kind() {
        DEFINITION => {
            let (name, value) = KEEP_ANNOTATION;
            let text = insert_metadata(&text, "annotations", name, value)?;
            conditional("{{- if .Values.crds.install }}", &text)
        }
        "Namespace" => conditional("{{- if .Values.createNamespace }}", &text),
        "Deployment" => deployment(&text, manifests.replicas)?,
        "ValidatingWebhookConfiguration" => {
            let text = insert_after(&text, "metadata:", WEBHOOK_ANNOTATIONS)?;
            insert_before_each(&text, "    sideEffects: None", NAMESPACE_SELECTOR)?
        }
        "ClusterRoleBinding" if document.is_cluster_wide_only => bindings(&text)?,
        _ => text,
    };
    if document.name() == CLAIM_OBJECTS {
        text = conditional(WITH_CLAIMS, &text);
    }
    text.push('\n');
    Ok(text)
}

fn deployment(text: &str, replicas: u64) -> Result<String> {
    let line = format!("  replicas: {replicas}");
    let text = replace_line(text, &line, "  replicas: {{ .Values.replicas }}")?;
    for existing in ["      volumes:", "          volumeMounts:"] {
        if text.lines().any(|line| line == existing) {
            bail!("the template would have two `{}`", existing.trim());
        }
    }
    let text = insert_before_each(&text, "      containers:", CERTIFICATE_VOLUME)?;
    let text = insert_after(&text, "          env:", SERVICE_IMAGE)?;
    let text = insert_before_each(&text, "          args:", CERTIFICATE_MOUNT)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let start = find_line(&lines, "          args:")?;
    let count =
        lines[start + 1..].iter().take_while(|line| line.starts_with("            - ")).count();
    lines.insert(start + 1 + count, MORE_ARGUMENTS);
    let claims = format!("            {WITH_CLAIMS}\n{CLAIM_ARGUMENT}\n            {{{{- end }}}}");
    replace_line(&lines.join("\n"), CLAIM_ARGUMENT, &claims)
}

/// One binding for the cluster, or one per namespace.
fn bindings(text: &str) -> Result<String> {
    let text = text.trim_start_matches('\n');
    let one = replace_line(text, "kind: ClusterRoleBinding", "kind: RoleBinding")?;
    let one = insert_after(&one, "metadata:", "  namespace: {{ . }}")?;
    Ok(format!(
        "{{{{- if not .Values.watchNamespaces }}}}\n{text}\n{{{{- end }}}}\n\
         {{{{- range .Values.watchNamespaces }}}}\n---\n{one}\n{{{{- end }}}}"
    ))
}

fn conditional(condition: &str, text: &str) -> String {
    format!("{condition}\n{text}\n{{{{- end }}}}")
}

/// Replaces a Kubernetes name wherever it is not a part of a longer one.
fn replace_name(text: &str, name: &str, replacement: &str) -> String {
    let continues = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let is_part = before.chars().next_back().is_some_and(continues)
            || after.chars().next().is_some_and(continues);
        result.push_str(before);
        result.push_str(if is_part { name } else { replacement });
        rest = after;
    }
    result.push_str(rest);
    result
}

/// The index of a line that occurs exactly once.
fn find_line(lines: &[&str], line: &str) -> Result<usize> {
    let mut found = lines.iter().enumerate().filter(|(_, other)| **other == line);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => bail!("the manifest has no line `{}`", line.trim()),
        (Some(_), Some(_)) => bail!("the manifest has two lines `{}`", line.trim()),
    }
}

fn replace_line(text: &str, line: &str, replacement: &str) -> Result<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = find_line(&lines, line)?;
    lines[at] = replacement;
    Ok(lines.join("\n"))
}

fn insert_after(text: &str, line: &str, inserted: &str) -> Result<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = find_line(&lines, line)?;
    lines.insert(at + 1, inserted);
    Ok(lines.join("\n"))
}

fn insert_before_each(text: &str, line: &str, inserted: &str) -> Result<String> {
    let mut lines = Vec::new();
    for other in text.lines() {
        if other == line {
            lines.push(inserted);
        }
        lines.push(other);
    }
    if lines.len() == text.lines().count() {
        bail!("the manifest has no line `{}`", line.trim());
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::source_commit::SourceCommit;
    use super::super::test_manifests::example;
    use super::*;

    fn file(name: &str) -> String {
        let (_folder, manifests) = example();
        let version = SourceCommit::example().version("1.2.0");
        let root = crate::repository::root();
        let tree = chart(&root, &manifests, "mirror.example/ferrite", &version).unwrap();
        let path = format!("{CHART}/{name}");
        let found = tree.files().find(|(path_of_file, _)| *path_of_file == path);
        let (_, content) = found.unwrap_or_else(|| panic!("{path} is missing"));
        String::from_utf8(content.to_vec()).unwrap()
    }

    #[test]
    fn values_become_expressions() {
        let deployment = file("templates/deployment-ferrite-operator.yaml");
        for expected in [
            "  namespace: {{ $.Release.Namespace }}\n",
            "  replicas: {{ .Values.replicas }}\n",
            "          image: {{ include \"ferrite-operator.image\" . }}\n",
            "            - --leader-elect\n            {{- if .Values.hostClaims }}\n",
            "            - --hostclaims\n            {{- end }}\n            {{- range .Values",
            "{{- end }}\n          args:\n",
            "{{- end }}\n      containers:\n",
            "  name: ferrite-operator\n",
        ] {
            assert!(deployment.contains(expected), "no {expected} in\n{deployment}");
        }
        assert!(file("values.yaml").contains("repository: mirror.example/ferrite\n"));
        let webhooks = file("templates/validatingwebhookconfiguration-ferrite-operator.yaml");
        assert!(
            webhooks.contains("values: {{ toJson . }}}\n    {{- end }}\n    sideEffects: None")
        );
    }

    #[test]
    fn definitions_and_the_namespace_are_conditional() {
        let expected = "{{- if .Values.createNamespace }}\n\
            apiVersion: v1\nkind: Namespace\nmetadata:\n\
            \x20 labels:\n    app.kubernetes.io/part-of: ferrite\n\
            \x20 name: {{ $.Release.Namespace }}\n\
            {{- end }}\n";
        assert_eq!(file("templates/namespace-ferrite-system.yaml"), expected);
        let definition = file("templates/crds/customresourcedefinition-things.example.yaml");
        assert!(definition.starts_with("{{- if .Values.crds.install }}\n# A definition.\n"));
        assert!(definition.contains("\n  annotations:\n    helm.sh/resource-policy: keep\n"));
        assert!(definition.contains("such as {{ \"{{\" }} name }}."), "{definition}");
    }

    #[test]
    fn bindings_are_for_the_cluster_or_for_namespaces() {
        let text = file("templates/clusterrolebinding-ferrite-operator-hosts.yaml");
        assert!(text.contains("kind: ClusterRoleBinding\n"), "{text}");
        assert!(text.contains("kind: RoleBinding\nmetadata:\n  namespace: {{ . }}\n"), "{text}");
    }

    #[test]
    fn permissions_for_claims_are_conditional() {
        let text = file("templates/clusterrole-ferrite-operator-hostclaims.yaml");
        assert!(text.starts_with("{{- if .Values.hostClaims }}\napiVersion: "), "{text}");
        assert!(text.ends_with("\n{{- end }}\n"), "{text}");
        assert!(file("values.yaml").contains("\nhostClaims: true\n"));
    }

    #[test]
    fn longer_names_are_not_replaced() {
        let text = "a: ns\nb: ns-1\nc: my-ns\nd: svc.ns.svc, ns/name";
        let expected = "a: X\nb: ns-1\nc: my-ns\nd: svc.X.svc, X/name";
        assert_eq!(replace_name(text, "ns", "X"), expected);
    }

    #[test]
    fn changed_manifests_are_reported() {
        let error = deployment("spec:\n  replicas: 3\n", 2).unwrap_err();
        assert!(error.to_string().contains("no line `replicas: 2`"), "{error}");
        let error = insert_before_each("a", "b", "c").unwrap_err();
        assert!(error.to_string().contains("no line `b`"), "{error}");
    }
}
