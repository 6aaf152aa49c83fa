// SPDX-License-Identifier: Apache-2.0
//! Rules for event subscriptions, data images, firmware components, claims and policies.

use expect_test::{Expect, expect};
use serde_json::json;

use super::super::{
    validate_bmc_event_subscription, validate_data_image, validate_firmware_components,
    validate_host_claim, validate_host_deploy_policy,
};
use super::*;

fn object<T: serde::de::DeserializeOwned>(spec: Value) -> T {
    let metadata = json!({"name": "x", "namespace": "lab"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

#[test]
fn event_subscriptions() {
    let check = |spec: Value, expected: Expect| {
        expected.assert_eq(&messages(&validate_bmc_event_subscription(&object(spec))));
    };
    let to = |destination: &str| json!({"hostName": "host-0", "destination": destination});
    check(to("https://host/"), expect![[r#""#]]);
    check(to("http://host:8080/path?x=y"), expect![[r#""#]]);
    check(
        json!({}),
        expect![[r#"
            spec.hostName: is missing; set it to the name of a BareMetalHost
            spec.destination: is missing; set it to the URL that receives the events
        "#]],
    );
    check(
        to("host"),
        expect![[r#"
            spec.destination: is not an absolute URL; use one such as https://host/path
        "#]],
    );
    check(
        to("https://host"),
        expect![[r#"
            spec.destination: has no path; add a slash after the host
        "#]],
    );
    check(
        to("https:///path"),
        expect![[r#"
            spec.destination: has no host; add it after the scheme
        "#]],
    );
    let headers = |namespace: &str| {
        let mut spec = to("https://host/");
        spec["httpHeadersRef"] = json!({"name": "s", "namespace": namespace});
        spec
    };
    check(headers("lab"), expect![[r#""#]]);
    check(
        headers("other"),
        expect![[r#"
            spec.httpHeadersRef.namespace: "other" is not the namespace of this object; copy the Secret to lab and remove the field
        "#]],
    );
}

#[test]
fn data_images() {
    let check = |url: &str, expected: Expect| {
        expected.assert_eq(&messages(&validate_data_image(&object(json!({"url": url})))));
    };
    check("http://host/data.iso", expect![[r#""#]]);
    check(
        "",
        expect![[r#"
            spec.url: is empty; set it to the URL of the file
        "#]],
    );
    check(
        "data.iso",
        expect![[r#"
            spec.url: "data.iso" is not an absolute URL; use one such as https://host/file
        "#]],
    );
}

#[test]
fn firmware_components() {
    let check = |updates: Value, expected: Expect| {
        let components = object(json!({"updates": updates}));
        expected.assert_eq(&messages(&validate_firmware_components(&components)));
    };
    let url = "https://host/f.bin";
    check(
        json!([{"component": "bmc", "url": url}, {"component": "bios", "url": url},
            {"component": "nic:NIC1", "url": url}]),
        expect![[r#""#]],
    );
    check(
        json!([{"component": "bmc", "url": url}, {"component": "psu", "url": "x"}]),
        expect![[r#"
            spec.updates[1].component: "psu" cannot be updated; use bmc, bios, or a name that starts with nic:
            spec.updates[1].url: "x" is not an absolute URL; use one such as https://host/file
        "#]],
    );
}

#[test]
fn claims() {
    let check = |spec: Value, expected: Expect| {
        expected.assert_eq(&messages(&validate_host_claim(&object(spec))));
    };
    check(json!({"poweredOn": true}), expect![[r#""#]]);
    check(
        json!({"userData": {"name": "s", "namespace": "other"}}),
        expect![[r#"
            spec.userData.namespace: "other" is not the namespace of this object; copy the Secret to lab and remove the field
        "#]],
    );
    check(
        json!({"image": {"url": "http://host/i"}}),
        expect![[r#"
            spec.image.checksum: is missing; set it to the checksum of the image or the URL of a checksum file
        "#]],
    );
    let labels = |labels: Value| json!({"hostSelector": {"matchLabels": labels}});
    check(labels(json!({"example.com/rack": "7", "a": ""})), expect![[r#""#]]);
    check(
        labels(json!({"a b": "-x"})),
        expect![[r#"
            spec.hostSelector.matchLabels[a b]: is not a label key; use at most 63 letters, digits, '-', '_' or '.', and a letter or digit at both ends
            spec.hostSelector.matchLabels[a b]: is not a label value; use at most 63 letters, digits, '-', '_' or '.', and a letter or digit at both ends
        "#]],
    );
    check(
        labels(json!({"Example/rack": "7", "x/": "1"})),
        expect![[r#"
            spec.hostSelector.matchLabels[Example/rack]: has an invalid prefix; use a lower-case DNS name before the slash
            spec.hostSelector.matchLabels[x/]: is not a label key; use at most 63 letters, digits, '-', '_' or '.', and a letter or digit at both ends
        "#]],
    );
    let expression = |operator: &str, values: Value| {
        let expression = json!({"key": "rack", "operator": operator, "values": values});
        json!({"hostSelector": {"matchExpressions": [expression]}})
    };
    for (operator, values) in [
        ("=", json!(["7"])),
        ("==", json!(["7"])),
        ("!=", json!(["7"])),
        ("in", json!(["7", "8"])),
        ("notin", json!(["7"])),
        ("exists", json!([])),
        ("!", json!([])),
    ] {
        check(expression(operator, values), expect![[r#""#]]);
    }
    check(
        expression("=", json!([])),
        expect![[r#"
            spec.hostSelector.matchExpressions[0].values: has 0; the operator "=" takes exactly one value
        "#]],
    );
    check(
        expression("in", json!([])),
        expect![[r#"
            spec.hostSelector.matchExpressions[0].values: has 0; the operator "in" takes at least one value
        "#]],
    );
    check(
        expression("exists", json!(["7"])),
        expect![[r#"
            spec.hostSelector.matchExpressions[0].values: has 1; the operator "exists" takes no value
        "#]],
    );
    check(
        expression("gt", json!(["7"])),
        expect![[r#"
            spec.hostSelector.matchExpressions[0].operator: "gt" is not supported; use one of = == != in notin exists !
        "#]],
    );
    check(
        expression("in", json!(["ok", "not ok"])),
        expect![[r#"
            spec.hostSelector.matchExpressions[0].values[1]: "not ok" is not a label value; use at most 63 letters, digits, '-', '_' or '.', and a letter or digit at both ends
        "#]],
    );
    let key = json!({"hostSelector": {"matchExpressions": [
        {"key": "", "operator": "exists", "values": []}]}});
    check(
        key,
        expect![[r#"
            spec.hostSelector.matchExpressions[0].key: "" is not a label key; use at most 63 letters, digits, '-', '_' or '.', and a letter or digit at both ends
        "#]],
    );
}

#[test]
fn reboots_of_claims() {
    let claim = serde_json::from_value(json!({
        "metadata": {"annotations": {"reboot.metal3.io": "{"}}, "spec": {},
    }));
    expect![[r#"
        metadata.annotations[reboot.metal3.io]: is not valid JSON for this annotation (EOF while parsing an object at line 1 column 1)
    "#]].assert_eq(&messages(&validate_host_claim(&claim.unwrap())));
}

#[test]
fn deploy_policies() {
    let check = |constraints: Value, expected: Expect| {
        let policy = object(json!({"hostClaimNamespaces": constraints}));
        expected.assert_eq(&messages(&validate_host_deploy_policy(&policy)));
    };
    check(Value::Null, expect![[r#""#]]);
    check(json!({}), expect![[r#""#]]);
    check(
        json!({"names": ["a"], "nameMatches": "^team-.*$", "hasLabels": [{"name": "b"}]}),
        expect![[r#""#]],
    );
    check(
        json!({"nameMatches": "team-[a"}),
        expect![[r#"
            spec.hostClaimNamespaces.nameMatches: is not a valid regular expression: unclosed character class; use RE2 syntax such as ^team-[a-z]+$
        "#]],
    );
}
