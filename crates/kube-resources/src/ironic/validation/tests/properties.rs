// SPDX-License-Identifier: Apache-2.0
//! Validation never panics, whatever a manifest contains.

use proptest::prelude::*;

use super::super::super::database::IronicDatabase;
use super::super::super::defaults::IronicPorts;
use super::super::{dhcp_pools, validate_ironic_database};
use super::*;
use crate::crds::all_crds;

/// Texts near the limits of the rules.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "",
            "192.0.2.1",
            "192.0.2.0/24",
            "192.0.2.0/32",
            "2001:db8::/64",
            "::/0",
            "0.0.0.0/0",
            "255.255.255.255",
            "::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "latest",
            "38.0",
            "0.1",
            "keepalived",
            "1-4094",
            "file://",
            "oci://a",
            "00:53:00:12:34:56",
            "10Gi",
            "ü://ü/",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ]
}

/// Values of the types of a schema, without its other limits.
fn of_schema(schema: &Value) -> BoxedStrategy<Value> {
    match schema["type"].as_str() {
        Some("object") => {
            let mut fields = Just(json!({})).boxed();
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
        Some("integer") => any::<i32>().prop_map(Value::from).boxed(),
        _ => text().prop_map(Value::from).boxed(),
    }
}

/// The schema of the spec of a kind, without the parts that are those of pods: rules read only their
/// names.
fn spec_schema(crd: &str) -> Value {
    let document = all_crds().iter().find(|document| document.name == crd).unwrap();
    let crd: Value = serde_saphyr::from_str(document.yaml).unwrap();
    let mut spec =
        crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone();
    let named = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for list in ["containers", "initContainers", "volumes"] {
        if let Some(items) =
            spec.pointer_mut(&format!("/properties/overrides/properties/{list}/items"))
        {
            *items = named.clone();
        }
    }
    for part in ["/properties/affinity", "/properties/tolerations/items"] {
        if let Some(schema) = spec.pointer_mut(part) {
            *schema = named.clone();
        }
    }
    for probe in ["httpdLivenessProbe", "httpdReadinessProbe"] {
        if let Some(schema) = spec.pointer_mut(&format!("/properties/overrides/properties/{probe}"))
        {
            *schema = named.clone();
        }
    }
    spec
}

fn assert_complete(errors: &[FieldError]) {
    for FieldError { path, problem } in errors {
        assert!(path.starts_with("spec"), "{path}");
        assert!(!problem.is_empty(), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn installations(
        old in of_schema(&spec_schema("ironics.ironic.metal3.io")),
        new in of_schema(&spec_schema("ironics.ironic.metal3.io")),
    ) {
        let (old, new) = (ironic(old), ironic(new));
        let errors = validate_ironic_update(&old, &new, &rules());
        assert_complete(&errors);
        let _ = IronicPorts::of(&new.spec.networking);
        for pool in dhcp_pools(&new.spec) {
            prop_assert!(pool.network.contains(pool.range.begin));
            prop_assert!(pool.network.contains(pool.range.end));
        }
    }

    #[test]
    fn database_servers(spec in of_schema(&spec_schema("ironicdatabases.ironic.metal3.io"))) {
        let database: IronicDatabase = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_complete(&validate_ironic_database(&database));
    }

    #[test]
    fn malformed_objects_are_errors(text in "\\PC{0,40}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = serde_json::from_value::<Ironic>(json!({"spec": value}));
        }
    }
}
