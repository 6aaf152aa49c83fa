// SPDX-License-Identifier: Apache-2.0
//! Objects of typical installations, compared with files.
//!
//! Each folder of `tests/goldens` has `ironic.yaml` and the expected `objects.yaml`.
//! `UPDATE_EXPECT=1` writes the latter.

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use operator::ironic::desired::{DesiredObjects, desired_objects};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fixtures;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 6, "{cases:?}");
    cases
}

fn desired(case: &Path) -> DesiredObjects {
    let text = std::fs::read_to_string(case.join("ironic.yaml")).unwrap();
    let ironic = fixtures::from_object(&serde_saphyr::from_str(&text).unwrap());
    let mut settings = fixtures::settings();
    if case.ends_with("overrides") {
        settings.ramdisk_downloader_image = Some("registry.example/downloader:1".to_owned());
    }
    desired_objects(&ironic, &fixtures::facts(&ironic), &settings)
        .unwrap_or_else(|error| panic!("{}: {error}", case.display()))
}

/// All objects in the order in which they are applied.
fn all(desired: &DesiredObjects) -> Vec<&Value> {
    desired.prerequisites.iter().chain(&desired.schema_job).chain(&desired.objects).collect()
}

#[test]
fn objects_equal_the_files() {
    for case in cases() {
        let desired = desired(&case);
        let mut text = String::from("# SPDX-License-Identifier: Apache-2.0\n");
        for object in all(&desired) {
            text += "---\n";
            text += &serde_saphyr::to_string(object).unwrap();
        }
        for absent in &desired.absent {
            text += &format!("# absent: {} {}\n", absent.kind, absent.name);
        }
        for notice in &desired.notices {
            text += &format!("# notice: {notice}\n");
        }
        expect_file![case.join("objects.yaml")].assert_eq(&text);
    }
}

#[test]
fn objects_have_only_fields_of_kubernetes() {
    for case in cases() {
        check_types(&desired(&case));
    }
}

/// Every object is read by its type, without unknown fields.
pub(crate) fn check_types(desired: &DesiredObjects) {
    all(desired).into_iter().for_each(check_object);
}

/// The object is read by its type, without unknown fields.
pub(crate) fn check_object(object: &Value) {
    match object["kind"].as_str().unwrap() {
        "ConfigMap" => check::<ConfigMap>(object),
        "DaemonSet" => check::<DaemonSet>(object),
        "Deployment" => check::<Deployment>(object),
        "Ingress" => check::<Ingress>(object),
        "Job" => check::<Job>(object),
        "PersistentVolumeClaim" => check::<PersistentVolumeClaim>(object),
        "Secret" => check::<Secret>(object),
        "Service" => check::<Service>(object),
        "StatefulSet" => check::<StatefulSet>(object),
        // Not a kind of Kubernetes itself.
        "ServiceMonitor" => {}
        other => panic!("no type for {other}"),
    }
}

fn check<T: DeserializeOwned>(object: &Value) {
    let mut unknown = Vec::new();
    let read: Result<T, _> =
        serde_ignored::deserialize(object, |path| unknown.push(path.to_string()));
    if let Err(error) = read {
        panic!("{}: {error}", object["kind"]);
    }
    assert!(unknown.is_empty(), "{}: {unknown:?}", object["kind"]);
}

/// Every key of the configuration is documented, so it is one that the service accepts.
#[test]
fn configuration_has_only_documented_keys() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut documented = vec!["data_dir".to_owned()];
    let mut section = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## `[") {
            let name = title.split(']').next().unwrap();
            section = name.trim_start_matches('[').to_owned();
        } else if let Some(key) = line.strip_prefix("| `") {
            documented.push(format!("{section}.{}", key.split('`').next().unwrap()));
        }
    }
    for case in cases() {
        let desired = desired(&case);
        let map = all(&desired).into_iter().find(|object| object["kind"] == "ConfigMap").unwrap();
        let text = map["data"]["ferrite.toml"].as_str().unwrap();
        let table: toml::Table = text.parse().unwrap();
        let mut keys = Vec::new();
        collect_keys(&toml::Value::Table(table), "", &mut keys);
        for key in keys {
            let is_documented = documented.iter().any(|known| {
                key == *known
                    || key.starts_with(&format!("{known}.")) && known.contains("_by_arch")
                    || key.starts_with("dhcp.networks.hosts.")
            });
            assert!(is_documented, "{}: {key}", case.display());
        }
    }
}

fn collect_keys(value: &toml::Value, path: &str, keys: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_keys(value, &path, keys);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            items.iter().for_each(|item| collect_keys(item, path, keys));
        }
        toml::Value::Array(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Float(_)
        | toml::Value::Integer(_)
        | toml::Value::String(_) => keys.push(path.to_owned()),
    }
}
