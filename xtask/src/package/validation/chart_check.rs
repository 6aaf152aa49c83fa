// SPDX-License-Identifier: Apache-2.0
//! Validates the chart of the operator: Helm renders the same objects as the manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::super::OperatorPackages;
use super::super::helm_chart::{CHART, KEEP_ANNOTATION};
use super::super::operator_manifests::documents;
use super::require;
use crate::shell;

/// Objects by kind, namespace and name.
type ObjectSet = BTreeMap<String, Value>;

/// `kubectl` is a program and its first arguments.
pub(super) fn check(packages: &OperatorPackages, helm: &Path, kubectl: &[PathBuf]) -> Result<()> {
    shell::output_of(Command::new(helm).args(["lint", "--strict"]).arg(&packages.chart))?;
    let installed = objects(&fs::read_to_string(&packages.installation)?)?;
    let folder = tempfile::tempdir()?;
    let archive = fs::File::open(&packages.kustomize)?;
    tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(folder.path())?;
    let kustomize = |variant: &str| -> Result<ObjectSet> {
        let mut command = Command::new(&kubectl[0]);
        command.args(&kubectl[1..]).arg("kustomize").arg(folder.path().join(variant));
        objects(&shell::output_of(&mut command)?)
    };
    let chart = |arguments: &[&str]| objects(&render(packages, helm, arguments)?);
    let cluster_wide = kustomize("cluster-wide")?;
    require_same("installation file and kustomize differ", &installed, &cluster_wide)?;
    let rendered = chart(&["--set", "createNamespace=true"])?;
    require_same("installation file and chart differ", &installed, &rendered)?;
    let rendered = chart(&["--set", "createNamespace=true", "--set", "watchNamespaces={metal3}"])?;
    let namespaced = kustomize("namespaced")?;
    require_same("kustomize and chart differ for a namespace", &namespaced, &rendered)?;
    check_values(packages, helm)
}

/// Each value changes what it should.
fn check_values(packages: &OperatorPackages, helm: &Path) -> Result<()> {
    let cases: &[(&str, &[&str])] = &[
        ("replicas=3", &["replicas: 3"]),
        ("image.repository=mirror.example/x,image.tag=t1", &["image: mirror.example/x:t1"]),
        ("serviceImage=mirror.example/y:t2", &["value: \"mirror.example/y:t2\""]),
        (
            "watchNamespaces={metal-a,metal-b}",
            &["--namespace=metal-a", "--namespace=metal-b", "namespace: metal-b", "[\"metal-a\","],
        ),
        (
            "webhooks.certificateSecret=webhook-tls",
            &["--webhook-cert-dir=/etc/ferrite/webhooks", "secretName: \"webhook-tls\""],
        ),
        ("webhooks.annotations.example/inject=a/b", &["    example/inject: a/b"]),
    ];
    for (values, expected) in cases {
        let rendered = render(packages, helm, &["--set", values])?;
        require(&format!("the chart with {values}"), &rendered, expected)?;
        objects(&rendered)?;
    }
    for invalid in ["replicas=many", "watchNamespaces={A_B}", "hostClaims=maybe", "unknown=1"] {
        if render(packages, helm, &["--set", invalid]).is_ok() {
            bail!("the chart accepts {invalid}");
        }
    }
    for more in ["", ",watchNamespaces={metal3}"] {
        let values = format!("hostClaims=false,crds.install=false{more}");
        if render(packages, helm, &["--set", &values])?.contains("-hostclaims") {
            bail!("the chart gives rights for claims with hostClaims=false");
        }
    }
    let rendered = render(packages, helm, &["--set", "crds.install=false"])?;
    if rendered.contains("kind: CustomResourceDefinition") {
        bail!("the chart installs definitions with crds.install=false");
    }
    Ok(())
}

fn require_same(message: &str, first: &ObjectSet, second: &ObjectSet) -> Result<()> {
    let differences = differences(first, second);
    if !differences.is_empty() {
        bail!("{message}:\n{}", differences.join("\n"));
    }
    Ok(())
}

fn render(packages: &OperatorPackages, helm: &Path, arguments: &[&str]) -> Result<String> {
    let mut template = Command::new(helm);
    template.args(["template", CHART]).arg(&packages.chart);
    shell::output_of(template.args(["--namespace", &packages.namespace]).args(arguments))
}

fn objects(text: &str) -> Result<ObjectSet> {
    let mut objects = ObjectSet::new();
    for document in documents(text)? {
        let mut object = document.object;
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or("-").to_owned();
        let key = format!("{} {}/{}", document_kind(&object), field("namespace"), field("name"));
        remove_keep_annotation(&mut object);
        if objects.insert(key.clone(), object).is_some() {
            bail!("{key} exists twice");
        }
    }
    Ok(objects)
}

fn document_kind(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or("-");
    format!("{} {}", text("apiVersion"), text("kind"))
}

/// Only Helm needs the annotation.
fn remove_keep_annotation(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    annotations.remove(KEEP_ANNOTATION.0);
    if annotations.is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("annotations");
    }
}

fn differences(first: &ObjectSet, second: &ObjectSet) -> Vec<String> {
    let mut differences = Vec::new();
    for (key, object) in first {
        match second.get(key) {
            None => differences.push(format!("only the first has {key}")),
            Some(other) if other != object => {
                differences.push(format!("{key}:\nfirst:  {object}\nsecond: {other}"));
            }
            Some(_) => {}
        }
    }
    let added = second.keys().filter(|key| !first.contains_key(*key));
    differences.extend(added.map(|key| format!("only the second has {key}")));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_differences_but_for_the_annotation_of_helm() {
        let first = "kind: A\nmetadata: {name: a}\n---\nkind: B\nmetadata: {name: b}\n";
        let same = "kind: B\nmetadata: {name: b, annotations: {helm.sh/resource-policy: keep}}\n\
                    ---\nkind: A\nmetadata: {name: a}\n";
        let other = "kind: A\nmetadata: {name: a}\nspec: {}\n---\nkind: C\nmetadata: {name: c}\n";
        let first = objects(first).unwrap();
        assert_eq!(differences(&first, &objects(same).unwrap()), Vec::<String>::new());
        let found = differences(&first, &objects(other).unwrap()).join("\n");
        for expected in
            ["A -/a:\nfirst", "only the first has - B -/b", "only the second has - C -/c"]
        {
            assert!(found.contains(expected), "{found}");
        }
        assert!(objects("kind: A\n---\nkind: A\n").is_err());
    }
}
