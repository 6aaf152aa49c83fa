// SPDX-License-Identifier: Apache-2.0
//! Rules for the annotations of a host.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn errors(spec: Value, annotations: &[(&str, &str)]) -> String {
    let mut host = host_with(spec);
    let pairs = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    host.metadata.annotations = Some(pairs.collect());
    messages(&validate_host(&host))
}

fn check_annotation(key: &str, value: &str, expected: Expect) {
    expected.assert_eq(&errors(json!({}), &[(key, value)]));
}

#[test]
fn reboots() {
    for value in
        ["", "{}", r#"{"mode":"hard"}"#, r#"{"mode":"soft","force":true}"#, r#"{"mode":""}"#]
    {
        assert_eq!(errors(json!({}), &[("reboot.metal3.io", value)]), "", "{value}");
        assert_eq!(errors(json!({}), &[("reboot.metal3.io/key", value)]), "", "{value}");
    }
    check_annotation(
        "reboot.metal3.io",
        "hard",
        expect![[r#"
            metadata.annotations[reboot.metal3.io]: is not valid JSON for this annotation (expected value at line 1 column 1)
        "#]],
    );
    check_annotation(
        "reboot.metal3.io/key",
        r#"{"mode":"cold"}"#,
        expect![[r#"
            metadata.annotations[reboot.metal3.io/key]: has the mode "cold"; use hard or soft
        "#]],
    );
    check_annotation(
        "reboot.metal3.io",
        r#"{"force":"yes"}"#,
        expect![[r#"
            metadata.annotations[reboot.metal3.io]: is not valid JSON for this annotation (invalid type: string "yes", expected a boolean at line 1 column 14)
        "#]],
    );
    assert_eq!(errors(json!({}), &[("reboot.metal3.iox", "anything")]), "");
}

#[test]
fn status() {
    let key = "baremetalhost.metal3.io/status";
    let complete = r#"{"operationalStatus":"servicing","errorType":"servicing error",
        "errorMessage":"","poweredOn":true,"errorCount":0,
        "provisioning":{"state":"provisioned","ID":"x","image":{"url":""}},
        "operationHistory":{"register":{"start":null,"end":null}},
        "goodCredentials":{"credentials":{"name":"a","namespace":"b"},"credentialsVersion":"1"}}"#;
    for value in ["", "{}", complete] {
        assert_eq!(errors(json!({}), &[(key, value)]), "", "{value}");
    }
    check_annotation(
        key,
        "{",
        expect![[r#"
            metadata.annotations[baremetalhost.metal3.io/status]: is not valid JSON for this annotation (EOF while parsing an object at line 1 column 1)
        "#]],
    );
    check_annotation(
        key,
        r#"{"provisioning":{"unknown":1}}"#,
        expect![[r#"
            metadata.annotations[baremetalhost.metal3.io/status]: has unknown fields: provisioning.unknown; remove them
        "#]],
    );
    check_annotation(
        key,
        r#"{"operationalStatus":"fine"}"#,
        expect![[r#"
            metadata.annotations[baremetalhost.metal3.io/status]: has the operationalStatus "fine"; use one of OK, discovered, error, delayed, detached, servicing, or nothing
        "#]],
    );
    check_annotation(
        key,
        r#"{"errorType":"detach error"}"#,
        expect![[r#"
            metadata.annotations[baremetalhost.metal3.io/status]: has the errorType "detach error"; use one of provisioned registration error, registration error, inspection error, preparation error, provisioning error, power management error, servicing error
        "#]],
    );
}

#[test]
fn inspection() {
    let key = "inspect.metal3.io";
    let mac = json!({"bootMACAddress": "00:53:00:12:34:56"});
    assert_eq!(errors(mac.clone(), &[(key, "disabled")]), "");
    assert_eq!(errors(mac, &[(key, "")]), "");
    check_annotation(
        key,
        "yes",
        expect![[r#"
            metadata.annotations[inspect.metal3.io]: "yes" is not supported; use "disabled", or "" to inspect again
        "#]],
    );
    let with_mode = |mode: &str, value: &str| {
        let spec = json!({"inspectionMode": mode, "bootMACAddress": "00:53:00:12:34:56"});
        errors(spec, &[(key, value)])
    };
    assert_eq!(with_mode("disabled", "disabled"), "");
    assert_eq!(with_mode("disabled", ""), "");
    assert_eq!(with_mode("agent", ""), "");
    expect![[r#"
        spec.inspectionMode: agent contradicts the annotation inspect.metal3.io=disabled; remove the annotation
    "#]].assert_eq(&with_mode("agent", "disabled"));
}

#[test]
fn hardware_details() {
    let key = "inspect.metal3.io/hardwaredetails";
    let disabled = || json!({"inspectionMode": "disabled", "bootMACAddress": "00:53:00:12:34:56"});
    assert_eq!(errors(disabled(), &[(key, r#"{"cpu":{"arch":"x86_64"}}"#)]), "");
    assert_eq!(errors(json!({}), &[(key, "")]), "");
    check_annotation(
        key,
        "{}",
        expect![[r#"
            metadata.annotations[inspect.metal3.io/hardwaredetails]: is used only without inspection; set spec.inspectionMode to disabled
        "#]],
    );
    expect![[r#"
        metadata.annotations[inspect.metal3.io/hardwaredetails]: has unknown fields: cpu.cores; remove them
    "#]].assert_eq(&errors(disabled(), &[(key, r#"{"cpu":{"cores":4}}"#)]));
    expect![[r#"
        metadata.annotations[inspect.metal3.io/hardwaredetails]: is not valid JSON for this annotation (expected value at line 1 column 1)
    "#]].assert_eq(&errors(disabled(), &[(key, "x")]));
}
