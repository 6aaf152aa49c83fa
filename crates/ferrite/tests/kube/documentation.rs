// SPDX-License-Identifier: Apache-2.0
//! The examples in the pages about Kubernetes are accepted by a cluster with our CRDs.

use std::path::Path;

use crate::cluster::TestNamespace;

/// The pages whose examples are applied.
const PAGES: [&str; 5] = [
    "kubernetes.md",
    "kubernetes-operator.md",
    "kubernetes-installations.md",
    "kubernetes-claims.md",
    "kubernetes-migration.md",
];

/// The contents of the blocks of YAML.
fn yaml_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == "```yaml") {
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_documentation_are_accepted() {
    let Some(namespace) = TestNamespace::create("documentation").await else { return };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.yaml");
    let mut count = 0;
    for page in PAGES {
        for block in yaml_blocks(&std::fs::read_to_string(docs.join(page)).unwrap()) {
            // The namespaces of the examples do not exist here.
            let block: Vec<String> = block
                .lines()
                .map(|line| match line.split_once("  namespace: ") {
                    Some((indent, _)) if indent.trim().is_empty() => {
                        format!("{indent}  namespace: {}", namespace.name)
                    }
                    _ => line.to_owned(),
                })
                .collect();
            std::fs::write(&file, block.join("\n")).unwrap();
            let path = file.to_str().unwrap();
            let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", path];
            let applied = namespace.cluster.kubectl(&arguments);
            assert!(applied.is_ok(), "{page}: {applied:?}\n{}", block.join("\n"));
            count += 1;
        }
    }
    assert!(count >= 5, "{count} examples");
    namespace.delete().await;
}
