// SPDX-License-Identifier: Apache-2.0
//! The Kubernetes manifests of the operator, from which the installation file, the kustomize folders
//! and the Helm chart are made.
//!
//! The part of kustomize that the manifests use is evaluated here, on the text, so that comments and
//! order survive. Validation compares the result with kustomize.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::archive_tree::ArchiveTree;
use super::source_commit::PackageVersion;

const KUSTOMIZATION: &str = "kustomization.yaml";
/// The kustomization that is installed by default, for all namespaces. Its other variants are for
/// single namespaces, and for operator and service in one pod.
const INSTALLED: &str = "cluster-wide";
const VARIANTS: &[&str] = &["base", INSTALLED, "namespaced", "with-service"];
/// The kustomization that names the folder of the custom resource definitions.
const BASE: &str = "base";
/// Keys of a kustomization that are evaluated. `namespace` changes nothing: every object names it.
const SUPPORTED_KEYS: &[&str] = &["apiVersion", "kind", "labels", "namespace", "resources"];

/// The kind of custom resource definitions.
pub(super) const DEFINITION: &str = "CustomResourceDefinition";

/// One object, with its text as it was written.
pub(super) struct OperatorObject {
    pub(super) text: String,
    pub(super) object: Value,
    /// Whether it is only part of the variant for all namespaces.
    pub(super) is_cluster_wide_only: bool,
}

/// All objects of an installation.
pub(super) struct OperatorManifests {
    /// Folder with the variants.
    folder: PathBuf,
    pub(super) documents: Vec<OperatorObject>,
    /// The namespace of the operator.
    pub(super) namespace: String,
    /// The image of the operator as the manifests name it.
    pub(super) image: String,
    pub(super) replicas: u64,
}

impl OperatorObject {
    pub(super) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or("unnamed")
    }

    /// The lower-case kind and the name, unique in an installation.
    pub(super) fn file_name(&self) -> String {
        format!("{}-{}.yaml", self.kind().to_lowercase(), self.name()).replace(['/', ':'], "-")
    }
}

impl OperatorManifests {
    /// Reads the variant for all namespaces below `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let installed = folder.join(INSTALLED);
        let mut documents = read_kustomization(&installed)?;
        let in_base: Vec<String> =
            read_kustomization(&folder.join(BASE))?.iter().map(OperatorObject::file_name).collect();
        for document in &mut documents {
            document.is_cluster_wide_only = !in_base.contains(&document.file_name());
        }
        let mut deployments = documents.iter().filter(|document| document.kind() == "Deployment");
        let (Some(deployment), None) = (deployments.next(), deployments.next()) else {
            bail!("the operator must have exactly one Deployment");
        };
        let field = |pointer: &str| {
            let value = deployment.object.pointer(pointer);
            value.with_context(|| format!("the Deployment has no {pointer}"))
        };
        let namespace = field("/metadata/namespace")?.as_str().unwrap_or_default().to_owned();
        let image = field("/spec/template/spec/containers/0/image")?;
        let image = image.as_str().unwrap_or_default().to_owned();
        let replicas = field("/spec/replicas")?.as_u64().unwrap_or(1);
        Ok(Self { folder: folder.to_owned(), documents, namespace, image, replicas })
    }

    /// The image without its tag.
    pub(super) fn repository(&self) -> &str {
        // A colon before the last slash belongs to the port of the registry.
        let name_start = self.image.rfind('/').map_or(0, |slash| slash + 1);
        match self.image[name_start..].find(':') {
            Some(colon) => &self.image[..name_start + colon],
            None => &self.image,
        }
    }

    /// One file with everything, for `kubectl apply --server-side -f`.
    pub(super) fn installation_file(&self, image: &str) -> String {
        let documents = self
            .documents
            .iter()
            .map(|document| format!("---\n{}\n", document.text.trim().replace(&self.image, image)));
        documents.collect()
    }

    /// The folders for `kubectl apply -k`, with the custom resource definitions beside them.
    pub(super) fn kustomize_folders(
        &self,
        repository: &str,
        version: &PackageVersion,
    ) -> Result<ArchiveTree> {
        let mut tree = ArchiveTree::default();
        for variant in VARIANTS {
            for (name, text) in text_files(&self.folder.join(variant))? {
                tree.file(&format!("{variant}/{name}"), text);
            }
        }
        let base = self.folder.join(BASE);
        let path = base.join(KUSTOMIZATION);
        let mut text = fs::read_to_string(&path)?;
        let outside: Vec<String> = resources(&parse(&text)?)?
            .into_iter()
            .filter(|resource| resource.starts_with("../"))
            .collect();
        let [definitions] = outside.as_slice() else {
            bail!("{} must name one folder outside, with the definitions", path.display());
        };
        for (name, content) in text_files(&base.join(definitions))? {
            tree.file(&format!("crds/{name}"), content);
        }
        text = text.replace(definitions.as_str(), "../crds");
        text.push_str(&format!(
            "images:\n  - name: {}\n    newName: {repository}\n    newTag: {}\n",
            self.repository(),
            version.semantic
        ));
        tree.file(&format!("{BASE}/{KUSTOMIZATION}"), text);
        Ok(tree)
    }
}

/// The YAML files of a folder by name.
fn text_files(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()));
    for entry in entries? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the objects of a kustomization with its labels.
fn read_kustomization(folder: &Path) -> Result<Vec<OperatorObject>> {
    let path = folder.join(KUSTOMIZATION);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let kustomization = parse(&text).with_context(|| path.display().to_string())?;
    for key in kustomization.as_object().context("a kustomization is a mapping")?.keys() {
        if !SUPPORTED_KEYS.contains(&key.as_str()) {
            bail!("{}: `{key}` would change the objects, but not the chart", path.display());
        }
    }
    let mut all = Vec::new();
    for resource in resources(&kustomization)? {
        let path = folder.join(&resource);
        if path.is_dir() {
            all.extend(read_kustomization(&path)?);
        } else {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            all.extend(documents(&text).with_context(|| path.display().to_string())?);
        }
    }
    for labels in kustomization["labels"].as_array().into_iter().flatten() {
        if labels.as_object().is_none_or(|fields| fields.keys().any(|key| key != "pairs")) {
            bail!("{}: only `pairs` of labels are supported", path.display());
        }
        for (name, value) in labels["pairs"].as_object().into_iter().flatten() {
            let value = value.as_str().context("the value of a label is a text")?;
            for document in &mut all {
                add_label(document, name, value)?;
            }
        }
    }
    Ok(all)
}

fn resources(kustomization: &Value) -> Result<Vec<String>> {
    let resources = kustomization["resources"].as_array().into_iter().flatten();
    resources.map(|path| Ok(path.as_str().context("a resource is a path")?.to_owned())).collect()
}

fn add_label(document: &mut OperatorObject, name: &str, value: &str) -> Result<()> {
    let existing = &document.object["metadata"]["labels"][name];
    if existing == value {
        return Ok(());
    }
    if !existing.is_null() {
        bail!("{} has {name}={existing}", document.file_name());
    }
    document.text = insert_metadata(&document.text, "labels", name, value)?;
    document.object = parse(&document.text)?;
    Ok(())
}

/// Adds a label or an annotation to the text of an object.
pub(super) fn insert_metadata(text: &str, field: &str, name: &str, value: &str) -> Result<String> {
    let heading = format!("  {field}:");
    let line = format!("    {name}: {value}");
    let mut lines: Vec<&str> = text.lines().collect();
    let metadata = lines.iter().position(|line| *line == "metadata:");
    let metadata = metadata.context("the manifest has no metadata")?;
    let end = lines[metadata + 1..].iter().position(|line| !line.starts_with(' '));
    let end = end.map_or(lines.len(), |end| metadata + 1 + end);
    match lines[metadata..end].iter().position(|line| *line == heading) {
        Some(at) => lines.insert(metadata + at + 1, &line),
        None => {
            lines.insert(metadata + 1, &line);
            lines.insert(metadata + 1, &heading);
        }
    }
    Ok(lines.join("\n"))
}

/// Splits a stream of documents. Empty ones and comments between them are left out.
pub(super) fn documents(text: &str) -> Result<Vec<OperatorObject>> {
    let mut texts = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" {
            texts.push(String::new());
        } else if let Some(last) = texts.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let mut documents = Vec::new();
    for text in texts {
        let is_empty = text.lines().all(|line| {
            let line = line.trim_start();
            line.is_empty() || line.starts_with('#')
        });
        if !is_empty {
            let object = parse(&text)?;
            documents.push(OperatorObject { text, object, is_cluster_wide_only: false });
        }
    }
    Ok(documents)
}

fn parse(text: &str) -> Result<Value> {
    // The limits are for hostile input; schemas exceed them.
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_str_with_options(text, options).context("the document is not valid YAML")
}

#[cfg(test)]
mod tests {
    use super::super::source_commit::SourceCommit;
    use super::super::test_manifests::example;
    use super::*;

    #[test]
    fn finds_namespace_image_and_replicas() {
        let (_folder, manifests) = example();
        assert_eq!(manifests.namespace, "ferrite-system");
        assert_eq!(manifests.image, "registry.example:5000/ferrite:latest");
        assert_eq!(manifests.repository(), "registry.example:5000/ferrite");
        assert_eq!(manifests.replicas, 2);
        let cluster_wide = manifests.documents.iter().filter(|one| one.is_cluster_wide_only);
        let names: Vec<String> = cluster_wide.map(OperatorObject::file_name).collect();
        assert_eq!(names, ["clusterrolebinding-ferrite-operator-hosts.yaml"]);
    }

    #[test]
    fn installation_file_has_all_objects_with_labels_and_the_new_image() {
        let (_folder, manifests) = example();
        let text = manifests.installation_file("mirror.example/ferrite:1.2.0");
        let objects = documents(&text).unwrap();
        assert_eq!(objects.len(), manifests.documents.len());
        assert_eq!(objects[0].file_name(), "customresourcedefinition-things.example.yaml");
        for document in &objects {
            let labels = &document.object["metadata"]["labels"];
            assert_eq!(labels["app.kubernetes.io/part-of"], "ferrite", "{}", document.text);
        }
        assert!(text.contains("image: mirror.example/ferrite:1.2.0"), "{text}");
        assert!(!text.contains(":latest"), "{text}");
    }

    #[test]
    fn kustomize_folders_contain_the_definitions() {
        let (_folder, manifests) = example();
        let version = SourceCommit::example().version("1.2.0");
        let tree = manifests.kustomize_folders("mirror.example/ferrite", &version).unwrap();
        let paths: Vec<&str> = tree.files().map(|(path, _)| path).collect();
        let expected = [
            "base/kustomization.yaml",
            "base/operator.yaml",
            "base/roles.yaml",
            "cluster-wide/bindings.yaml",
            "cluster-wide/kustomization.yaml",
            "crds/kustomization.yaml",
            "crds/things.yaml",
            "namespaced/kustomization.yaml",
            "with-service/kustomization.yaml",
        ];
        assert_eq!(paths, expected);
        let (_, base) = tree.files().next().unwrap();
        let base = parse(std::str::from_utf8(base).unwrap()).unwrap();
        assert_eq!(base["resources"][0], "../crds");
        assert_eq!(base["images"][0]["name"], "registry.example:5000/ferrite");
        assert_eq!(base["images"][0]["newTag"], version.semantic);
    }

    #[test]
    fn rejects_what_the_chart_would_not_have() {
        let folder = tempfile::tempdir().unwrap();
        let cases = [
            ("namePrefix: x\nresources: []\n", "`namePrefix` would change"),
            ("labels: [{pairs: {}, includeSelectors: true}]\n", "only `pairs`"),
            ("resources: [missing.yaml]\n", "missing.yaml"),
        ];
        for (text, expected) in cases {
            fs::write(folder.path().join(KUSTOMIZATION), text).unwrap();
            let error = read_kustomization(folder.path()).err().unwrap();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[test]
    fn metadata_is_added_to_existing_fields() {
        let text = "metadata:\n  labels:\n    a: b\n  name: c\nspec: {}";
        let expected = "metadata:\n  labels:\n    k: v\n    a: b\n  name: c\nspec: {}";
        assert_eq!(insert_metadata(text, "labels", "k", "v").unwrap(), expected);
        let expected =
            "metadata:\n  annotations:\n    k: v\n  labels:\n    a: b\n  name: c\nspec: {}";
        assert_eq!(insert_metadata(text, "annotations", "k", "v").unwrap(), expected);
        let error = insert_metadata("spec: {}", "labels", "k", "v").unwrap_err();
        assert!(error.to_string().contains("no metadata"), "{error}");
    }
}
