// SPDX-License-Identifier: Apache-2.0
//! Validation and translation never panic, whatever a manifest contains.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::super::super::annotations;
use super::super::super::ironic_payloads::config_drive::{ConfigDriveInputs, config_drive};
use super::super::super::ironic_payloads::hardware_details::{IronicInventory, hardware_details};
use super::super::super::ironic_payloads::{image, raid, root_device};
use super::super::{
    validate_bmc_event_subscription, validate_data_image, validate_firmware_components,
    validate_host_claim, validate_host_deploy_policy, validate_host_update,
};
use super::*;
use crate::crds::all_crds;

/// Texts near the limits of the rules.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "",
            "1",
            "1+0",
            "live-iso",
            "disabled",
            "UEFI",
            "oci://",
            "http://",
            "://",
            "/dev/",
            "redfish://[",
            "ipmi://:1",
            "00:53:00:12:34:56",
            "%",
            "in",
            "exists",
            "eth0",
            "ü://ü/",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ]
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((text(), inner), 0..4)
                .prop_map(|pairs| Value::Object(Map::from_iter(pairs))),
        ]
    })
}

/// The schema of the spec of a kind.
fn spec_schema(crd: &str) -> Value {
    let document = all_crds().iter().find(|document| document.name == crd).unwrap();
    let crd: Value = serde_saphyr::from_str(document.yaml).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

/// Values of the types of a schema, without its other limits.
fn of_schema(schema: &Value) -> BoxedStrategy<Value> {
    match schema["type"].as_str() {
        Some("object") => {
            let mut fields = Just(Value::Object(Map::new())).boxed();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let name = name.clone();
                let value = proptest::option::of(of_schema(property));
                fields = (fields, value)
                    .prop_map(move |(mut object, value)| {
                        if let Some(value) = value {
                            object[&name] = value;
                        }
                        object
                    })
                    .boxed();
            }
            fields
        }
        Some("array") => proptest::collection::vec(of_schema(&schema["items"]), 0..3)
            .prop_map(Value::from)
            .boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => any::<i64>().prop_map(Value::from).boxed(),
        _ if schema["format"] == "date-time" => Just(json!("2026-11-17T10:00:00Z")).boxed(),
        _ => text().prop_map(Value::from).boxed(),
    }
}

/// Objects with every field of the right type, and objects with anything.
fn spec_of(crd: &str) -> impl Strategy<Value = Value> + use<> {
    prop_oneof![4 => of_schema(&spec_schema(crd)), 1 => arbitrary_json()]
}

/// Annotations with arbitrary values.
fn metadata() -> impl Strategy<Value = Value> {
    let key = proptest::sample::select(vec![
        annotations::REBOOT,
        annotations::STATUS,
        annotations::INSPECT,
        annotations::HARDWARE_DETAILS,
        annotations::DETACHED,
    ]);
    let value = prop_oneof![text(), arbitrary_json().prop_map(|value| value.to_string())];
    (text(), proptest::collection::btree_map(key, value, 0..4))
        .prop_map(|(name, annotations)| json!({"name": name, "annotations": annotations}))
}

/// A malformed object is an error of the reader, not of the rules.
fn read<T: serde::de::DeserializeOwned>(metadata: &Value, spec: &Value) -> Option<T> {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).ok()
}

/// Every error of any kind names a field and states a problem.
fn assert_complete(errors: &[FieldError]) {
    for FieldError { path, problem } in errors {
        assert!(path.starts_with("spec") || path.starts_with("metadata."), "{path}");
        assert!(!problem.is_empty(), "{path}");
    }
}

#[test]
fn values_of_the_schema_can_be_read() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let schema = of_schema(&spec_schema("baremetalhosts.metal3.io"));
    let result = runner.run(&schema, |spec| {
        prop_assert!(read::<BareMetalHost>(&json!({}), &spec).is_some(), "{}", spec);
        Ok(())
    });
    assert_eq!(result, Ok(()));
}

proptest! {
    #[test]
    fn hosts(
        metadata in metadata(),
        old in spec_of("baremetalhosts.metal3.io"),
        new in spec_of("baremetalhosts.metal3.io"),
    ) {
        if let (Some(old), Some(new)) = (read(&json!({}), &old), read(&metadata, &new)) {
            assert_complete(&validate_host_update(&old, &new));
        }
    }

    #[test]
    fn other_kinds(
        metadata in metadata(),
        subscription in spec_of("bmceventsubscriptions.metal3.io"),
        image in spec_of("dataimages.metal3.io"),
        components in spec_of("hostfirmwarecomponents.metal3.io"),
        claim in spec_of("hostclaims.metal3.io"),
        policy in spec_of("hostdeploypolicies.metal3.io"),
    ) {
        if let Some(subscription) = read(&metadata, &subscription) {
            assert_complete(&validate_bmc_event_subscription(&subscription));
        }
        if let Some(image) = read(&metadata, &image) {
            assert_complete(&validate_data_image(&image));
        }
        if let Some(components) = read(&metadata, &components) {
            assert_complete(&validate_firmware_components(&components));
        }
        if let Some(claim) = read(&metadata, &claim) {
            assert_complete(&validate_host_claim(&claim));
        }
        if let Some(policy) = read(&metadata, &policy) {
            assert_complete(&validate_host_deploy_policy(&policy));
        }
    }

    #[test]
    fn translations(
        metadata in metadata(),
        spec in spec_of("baremetalhosts.metal3.io"),
        text in text(),
    ) {
        let Some(host) = read::<BareMetalHost>(&metadata, &spec) else { return Ok(()) };
        if let Some(annotations) = &host.metadata.annotations {
            let _ = annotations::requested_reboot(annotations, false);
            let _ = annotations::detach_request(annotations);
            let _ = annotations::restored_status(annotations);
        }
        let spec = &host.spec;
        let custom_deploy = spec.custom_deploy.as_ref();
        let persistence = Default::default();
        let _ = image::image_changes(spec.image.as_ref(), custom_deploy, None, &persistence);
        if let Some(requested) = &spec.raid {
            let _ = raid::logical_disks(requested, false);
            let _ = raid::raid_clean_steps("redfish", Some(requested), None);
        }
        if let Some(hints) = &spec.root_device_hints {
            let _ = root_device::root_device(hints);
        }
        let inputs = ConfigDriveInputs { meta_data: Some(&text), ..Default::default() };
        let _ = config_drive(spec.image.as_ref(), &inputs);
    }

    #[test]
    fn inventories(details in inventory(), plugin_data in arbitrary_json()) {
        let data = json!({"inventory": details, "plugin_data": plugin_data});
        if let Ok(data) = serde_json::from_value::<IronicInventory>(data) {
            let _ = hardware_details(&data);
        }
    }
}

/// Inventories whose interesting values are arbitrary.
fn inventory() -> impl Strategy<Value = Value> {
    let nic = (text(), text(), any::<i64>()).prop_map(|(name, mac, speed)| {
        json!({"name": name, "mac_address": mac, "ipv4_address": mac, "speed_mbps": speed})
    });
    let disk = (text(), any::<bool>()).prop_map(
        |(name, rotational)| json!({"name": name, "by_path": name, "rotational": rotational}),
    );
    let nics = proptest::collection::vec(nic, 0..3);
    let disks = proptest::collection::vec(disk, 0..3);
    let made = (nics, disks, arbitrary_json()).prop_map(|(interfaces, disks, frequency)| {
        json!({"interfaces": interfaces, "disks": disks, "cpu": {"frequency": frequency}})
    });
    prop_oneof![made, arbitrary_json()]
}
