// SPDX-License-Identifier: Apache-2.0
//! Our CRDs equal those of Metal3's baremetal-operator, apart from descriptions.
//!
//! `METAL3_CRDS` is the folder `config/base/crds/bases` of the Go module
//! `github.com/metal3-io/baremetal-operator` in version 0.13.2. `cargo xtask test` downloads the
//! module and sets the variable.

#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use kube_resources::crds::all_crds;
use serde_json::Value;

const GROUP: &str = "metal3.io";

/// `cargo xtask test --quick` does not download the module and skips this module.
mod metal3 {
    use super::*;

    #[test]
    fn crds_equal_those_of_metal3() {
        let theirs = metal3_crds();
        let ours: BTreeMap<String, Value> = all_crds()
            .iter()
            .map(|document| parse(document.yaml))
            .filter(|(_, crd)| crd["spec"]["group"] == GROUP)
            .collect();
        assert!(!theirs.is_empty(), "the folder has no CRDs");
        let mut differences = Vec::new();
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        for name in names {
            let get = |crds: &BTreeMap<String, Value>| crds.get(name).cloned().unwrap_or_default();
            compare(name, &get(&theirs), &get(&ours), &mut differences);
        }
        assert!(differences.is_empty(), "Metal3's and our CRDs:\n{}", differences.join("\n"));
    }
}

#[test]
fn differences_are_found() {
    let theirs: Value = serde_saphyr::from_str(
        "{a: 1, b: [1, 2], description: x, c: {description: {type: string}}, d: null}",
    )
    .unwrap();
    let ours: Value = serde_saphyr::from_str("{a: 2, b: [1], description: z, e: 3}").unwrap();
    let mut differences = Vec::new();
    compare("x", &without_descriptions(theirs), &without_descriptions(ours), &mut differences);
    assert_eq!(
        differences,
        [
            "x.a: theirs 1, ours 2",
            "x.b[1]: theirs 2, ours missing",
            r#"x.c: theirs {"description":{"type":"string"}}, ours missing"#,
            "x.d: theirs null, ours missing",
            "x.e: theirs missing, ours 3",
        ]
    );
}

fn metal3_crds() -> BTreeMap<String, Value> {
    let folder = std::env::var_os("METAL3_CRDS").map(PathBuf::from).expect(
        "METAL3_CRDS is not set: run `cargo xtask test`, or set it to config/base/crds/bases of \
         the Go module github.com/metal3-io/baremetal-operator@v0.13.2",
    );
    let files = std::fs::read_dir(&folder).expect("METAL3_CRDS is a folder");
    let paths = files.map(|entry| entry.unwrap().path());
    let documents = paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    documents.map(|path| parse(&std::fs::read_to_string(path).unwrap())).collect()
}

/// Name and content of a CRD, without what may differ.
fn parse(yaml: &str) -> (String, Value) {
    let mut crd: Value = serde_saphyr::from_str(yaml).unwrap();
    // Contains the version of the generator.
    crd["metadata"].as_object_mut().unwrap().remove("annotations");
    let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
    (name, without_descriptions(crd))
}

/// Removes descriptions, but not the schema of a property with this name.
fn without_descriptions(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(key, value)| key != "description" || !value.is_string())
            .map(|(key, value)| (key, without_descriptions(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_descriptions).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn compare(path: &str, theirs: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                compare_items(&path, theirs.get(key), ours.get(key), differences);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            for index in 0..theirs.len().max(ours.len()) {
                let path = format!("{path}[{index}]");
                compare_items(&path, theirs.get(index), ours.get(index), differences);
            }
        }
        _ => compare_items(path, Some(theirs), Some(ours), differences),
    }
}

fn compare_items(
    path: &str,
    theirs: Option<&Value>,
    ours: Option<&Value>,
    differences: &mut Vec<String>,
) {
    match (theirs, ours) {
        (Some(theirs), Some(ours)) if theirs == ours => {}
        (Some(theirs), Some(ours)) if has_parts(theirs) && has_parts(ours) => {
            compare(path, theirs, ours, differences);
        }
        _ => {
            let show = |value: Option<&Value>| {
                value.map_or_else(|| "missing".to_owned(), Value::to_string)
            };
            differences.push(format!("{path}: theirs {}, ours {}", show(theirs), show(ours)));
        }
    }
}

fn has_parts(value: &Value) -> bool {
    value.is_object() || value.is_array()
}
