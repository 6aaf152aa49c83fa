// SPDX-License-Identifier: Apache-2.0
//! The types read every property of the CRD schemas and write nothing else.
//!
//! Samples are built from the schema. An object with every property set must be equal after it was
//! read and written; a default object must have the required properties and none that the schema
//! does not have.

#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

use std::collections::BTreeSet;
use std::fmt::Debug;

use kube_core::Resource;
use kube_resources::crds::all_crds;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::bmc_event_subscription::BMCEventSubscription;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::firmware_schema::FirmwareSchema;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_claim::HostClaim;
use kube_resources::hosts::host_deploy_policy::HostDeployPolicy;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_update_policy::HostUpdatePolicy;
use kube_resources::hosts::preprovisioning_image::PreprovisioningImage;
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::service::Ironic;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Runs a check for every kind and returns the names of their CRDs.
macro_rules! for_every_kind {
    ($check:ident) => {
        [
            $check::<BareMetalHost>(),
            $check::<BMCEventSubscription>(),
            $check::<DataImage>(),
            $check::<FirmwareSchema>(),
            $check::<HardwareData>(),
            $check::<HostClaim>(),
            $check::<HostDeployPolicy>(),
            $check::<HostFirmwareComponents>(),
            $check::<HostFirmwareSettings>(),
            $check::<HostUpdatePolicy>(),
            $check::<Ironic>(),
            $check::<IronicDatabase>(),
            $check::<PreprovisioningImage>(),
        ]
    };
}

trait Kind:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Debug + Default + PartialEq
{
}

impl<T> Kind for T where
    T: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Debug + Default + PartialEq
{
}

#[test]
fn every_crd_has_a_type() {
    let typed = BTreeSet::from(for_every_kind!(crd_name));
    let documents: BTreeSet<String> =
        all_crds().iter().map(|document| document.name.to_owned()).collect();
    assert_eq!(typed, documents);
}

#[test]
fn names_of_types_equal_those_of_the_crds() {
    for_every_kind!(check_names);
}

#[test]
fn objects_with_every_property_are_unchanged() {
    for_every_kind!(check_complete_objects);
}

#[test]
fn default_objects_are_valid() {
    for_every_kind!(check_default_object);
}

#[test]
fn unknown_fields_are_ignored() {
    for_every_kind!(check_unknown_fields);
}

fn crd_name<T: Kind>() -> String {
    format!("{}.{}", T::plural(&()), T::group(&()))
}

fn crd<T: Kind>() -> Value {
    let name = crd_name::<T>();
    let document = all_crds().iter().find(|document| document.name == name).expect(&name);
    serde_saphyr::from_str(document.yaml).unwrap()
}

fn schema<T: Kind>() -> Value {
    crd::<T>()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn read<T: Kind>(object: Value) -> T {
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{}: {error}", crd_name::<T>()))
}

fn check_names<T: Kind>() {
    let crd = crd::<T>();
    assert_eq!(crd["spec"]["names"]["kind"], *T::kind(&()));
    assert_eq!(crd["spec"]["versions"][0]["name"], *T::version(&()));
    let object = serde_json::to_value(T::default()).unwrap();
    assert_eq!(object["apiVersion"], *T::api_version(&()));
    assert_eq!(object["kind"], *T::kind(&()));
}

/// One sample per position of enumeration values, so that every value is read.
fn check_complete_objects<T: Kind>() {
    let schema = schema::<T>();
    for variant in 0..16 {
        let mut sample = sample(&schema, "", variant);
        sample["apiVersion"] = json!(T::api_version(&()));
        sample["kind"] = json!(T::kind(&()));
        sample["metadata"] = json!({"name": "sample"});
        let object: T = read(sample.clone());
        // Free texts of the samples start with `text`; values of enumerations do not.
        let text = format!("{object:?}").replace("Other(\"text", "");
        let unknown = text.find("Other(").map(|at| text[at..].chars().take(60).collect::<String>());
        assert_eq!(unknown, None, "{}: a value of the schema has no variant", crd_name::<T>());
        let mut written = serde_json::to_value(&object).unwrap();
        remove_empty_objects(&mut sample);
        remove_empty_objects(&mut written);
        assert_eq!(written, sample, "{}", crd_name::<T>());
    }
}

fn check_default_object<T: Kind>() {
    let schema = schema::<T>();
    let with_status = json!({"status": {}});
    for object in [T::default(), serde_json::from_value(with_status).unwrap()] {
        let mut written = serde_json::to_value(object).unwrap();
        written.as_object_mut().unwrap().remove("metadata");
        let mut problems = Vec::new();
        check_against(&schema, &written, crd_name::<T>(), &mut problems);
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

fn check_unknown_fields<T: Kind>() {
    let object: T = read(json!({
        "apiVersion": "x", "kind": "x", "metadata": {"managedFields": [], "unknown": 1},
        "spec": {"unknown": {"a": [1]}}, "status": {"unknown": 1}, "unknown": 1,
    }));
    let text = serde_json::to_string(&object).unwrap();
    assert!(!text.contains("unknown"), "{text}");
}

/// A value that the schema accepts, with every property. Distinct texts show swapped fields.
fn sample(schema: &Value, path: &str, variant: usize) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<&Value> = values.iter().filter(|value| **value != json!("")).collect();
        return values[variant % values.len()].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if variant.is_multiple_of(2) { json!(7) } else { json!("text") };
    }
    match schema["type"].as_str() {
        Some("object") => sample_object(schema, path, variant),
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(1);
            let item = |index| sample(&schema["items"], &format!("{path}[{index}]"), variant);
            (0..count).map(item).collect()
        }
        Some("boolean") => json!(true),
        Some("integer") => json!(7),
        Some("number") => json!(2.5),
        Some("string") => sample_text(schema, path),
        other => panic!("{path}: type {other:?}"),
    }
}

fn sample_object(schema: &Value, path: &str, variant: usize) -> Value {
    let mut object = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        object.insert(name.clone(), sample(property, &format!("{path}.{name}"), variant));
    }
    if schema["additionalProperties"].is_object() {
        let value = sample(&schema["additionalProperties"], &format!("{path}.key"), variant);
        object.insert("key".to_owned(), value);
    }
    Value::Object(object)
}

fn sample_text(schema: &Value, path: &str) -> Value {
    match (schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("date-time"), _) => json!("2026-11-17T10:00:00Z"),
        (Some("uri"), _) => json!(format!("https://text{}", path.replace(['.', '[', ']'], ""))),
        (Some(other), _) => panic!("{path}: format {other}"),
        (None, Some(pattern)) if pattern.starts_with("[0-9a-fA-F]{2}") => {
            json!("00:53:00:12:34:56")
        }
        _ => json!(format!("text{}", path.replace(['.', '[', ']'], ""))),
    }
}

/// Objects that are empty are not written.
fn remove_empty_objects(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.values_mut().for_each(remove_empty_objects);
        fields.retain(|_, field| *field != json!({}));
    }
}

/// Checks properties, required ones, types and enumerations.
fn check_against(schema: &Value, value: &Value, path: String, problems: &mut Vec<String>) {
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        problems.push(format!("{path}: {value} is not in {values:?}"));
    }
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        _ => true,
    };
    if !is_type {
        problems.push(format!("{path}: {value} is not of type {}", schema["type"]));
    }
    let Some(fields) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().unwrap();
        if !fields.contains_key(name) {
            problems.push(format!("{path}.{name}: required and missing"));
        }
    }
    if schema["additionalProperties"].is_object() {
        return;
    }
    for (name, field) in fields {
        match schema["properties"].get(name) {
            Some(property) => check_against(property, field, format!("{path}.{name}"), problems),
            None => problems.push(format!("{path}.{name}: not in the schema")),
        }
    }
}
