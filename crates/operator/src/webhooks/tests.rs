// SPDX-License-Identifier: Apache-2.0
//! Reviews as the API server sends them, and the complete responses.

use expect_test::{Expect, expect};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const IRONIC: &str = "/validate-ironic-metal3-io-v1alpha1-ironic";
const HOST: &str = "/validate-metal3-io-v1alpha1-baremetalhost";

fn handler() -> WebhookHandler {
    WebhookHandler::new(IronicRules::default(), OperatorMetrics::new())
}

fn post(path: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
    let request =
        BufferedRequest { method: Method::POST, path: path.to_owned(), body: body.into().into() };
    let response = handler().respond(&request);
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let body = futures_util::future::FutureExt::now_or_never(body.frame()).flatten().unwrap();
    (status, String::from_utf8(body.unwrap().into_data().unwrap().to_vec()).unwrap())
}

fn object(spec: Value) -> Value {
    json!({"metadata": {"name": "lab", "namespace": "metal3"}, "spec": spec})
}

fn review(kind: &str, operation: &str, object: Value, old_object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "metal3.io", "version": "v1alpha1", "kind": kind},
            "resource": {"group": "metal3.io", "version": "v1alpha1", "resource": "x"},
            "name": "lab", "namespace": "metal3", "operation": operation,
            "userInfo": {"username": "admin"},
            "object": object, "oldObject": old_object, "dryRun": false,
        },
    })
}

/// The response to a well-formed review.
fn respond(path: &str, review: &Value) -> Value {
    let (status, body) = post(path, review.to_string());
    assert_eq!(status, 200, "{body}");
    let response: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(response["kind"], "AdmissionReview");
    assert_eq!(response["response"]["uid"], review["request"]["uid"]);
    response
}

fn check(path: &str, review: &Value, expected: Expect) {
    let response = respond(path, review);
    expected.assert_eq(&serde_json::to_string_pretty(&response).unwrap());
}

#[test]
fn a_valid_object_is_allowed() {
    check(
        IRONIC,
        &review("Ironic", "CREATE", object(json!({})), Value::Null),
        expect![[r#"
            {
              "apiVersion": "admission.k8s.io/v1",
              "kind": "AdmissionReview",
              "response": {
                "allowed": true,
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002"
              }
            }"#]],
    );
}

#[test]
fn an_invalid_object_is_rejected_with_all_fields() {
    check(
        IRONIC,
        &review(
            "Ironic",
            "CREATE",
            object(json!({"highAvailability": true, "networking": {"ipAddress": "here"}})),
            Value::Null,
        ),
        expect![[r#"
            {
              "apiVersion": "admission.k8s.io/v1",
              "kind": "AdmissionReview",
              "response": {
                "allowed": false,
                "status": {
                  "code": 422,
                  "details": {
                    "causes": [
                      {
                        "field": "spec.highAvailability",
                        "message": "needs a database that all replicas share; set spec.database or spec.databaseRef",
                        "reason": "FieldValueInvalid"
                      },
                      {
                        "field": "spec.networking.ipAddress",
                        "message": "\"here\" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1",
                        "reason": "FieldValueInvalid"
                      },
                      {
                        "field": "spec.networking.ipAddress",
                        "message": "cannot be used with highAvailability, where each node has its own address; use interface or macAddresses",
                        "reason": "FieldValueInvalid"
                      }
                    ],
                    "kind": "Ironic",
                    "name": "lab"
                  },
                  "message": "spec.highAvailability: needs a database that all replicas share; set spec.database or spec.databaseRef; spec.networking.ipAddress: \"here\" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1; spec.networking.ipAddress: cannot be used with highAvailability, where each node has its own address; use interface or macAddresses",
                  "reason": "Invalid"
                },
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002"
              }
            }"#]],
    );
}

#[test]
fn deprecated_fields_cause_warnings() {
    check(
        HOST,
        &review(
            "BareMetalHost",
            "CREATE",
            object(json!({"online": true, "hardwareProfile": "dell"})),
            Value::Null,
        ),
        expect![[r#"
            {
              "apiVersion": "admission.k8s.io/v1",
              "kind": "AdmissionReview",
              "response": {
                "allowed": true,
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "warnings": [
                  "spec.hardwareProfile: deprecated; use spec.rootDeviceHints"
                ]
              }
            }"#]],
    );
}

#[test]
fn updates_are_compared_with_the_stored_object() {
    let host = |mac: &str| object(json!({"online": true, "bootMACAddress": mac}));
    let (old, new) = (host("00:53:00:00:00:01"), host("00:53:00:00:00:02"));
    check(
        HOST,
        &review("BareMetalHost", "UPDATE", new, old),
        expect![[r#"
        {
          "apiVersion": "admission.k8s.io/v1",
          "kind": "AdmissionReview",
          "response": {
            "allowed": false,
            "status": {
              "code": 422,
              "details": {
                "causes": [
                  {
                    "field": "spec.bootMACAddress",
                    "message": "cannot be changed; keep 00:53:00:00:00:01, or delete and create the host; if the machine was replaced, set the annotation baremetalhost.metal3.io/accept-replaced-machine in the same change",
                    "reason": "FieldValueInvalid"
                  }
                ],
                "kind": "BareMetalHost",
                "name": "lab"
              },
              "message": "spec.bootMACAddress: cannot be changed; keep 00:53:00:00:00:01, or delete and create the host; if the machine was replaced, set the annotation baremetalhost.metal3.io/accept-replaced-machine in the same change",
              "reason": "Invalid"
            },
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002"
          }
        }"#]],
    );
}

#[test]
fn objects_that_cannot_be_parsed_are_rejected_with_the_field() {
    let wrong = object(json!({"online": true, "raid": {"hardwareRAIDVolumes": [{"level": {}}]}}));
    let response = respond(HOST, &review("BareMetalHost", "CREATE", wrong.clone(), Value::Null));
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.raid.hardwareRAIDVolumes[0].level: "), "{message}");
    // Its correction is accepted.
    let corrected = object(json!({"online": true}));
    let response = respond(HOST, &review("BareMetalHost", "UPDATE", corrected, wrong));
    assert_eq!(response["response"]["allowed"], true);
}

#[test]
fn stored_objects_that_violate_rules_can_be_labelled_and_deleted() {
    let stored = object(json!({"online": false, "disablePowerOff": true}));
    let is_allowed = |operation: &str, new: &Value, old: &Value| {
        let review = review("BareMetalHost", operation, new.clone(), old.clone());
        respond(HOST, &review)["response"]["allowed"].clone()
    };
    assert_eq!(is_allowed("CREATE", &stored, &Value::Null), false);
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let response = respond(HOST, &review("BareMetalHost", "UPDATE", labelled, stored.clone()));
    assert_eq!(response["response"]["allowed"], true);
    assert!(response["response"]["warnings"][0].as_str().unwrap().starts_with("spec.online: "));
    let mut changed = stored.clone();
    changed["spec"]["description"] = json!("rack 7");
    assert_eq!(is_allowed("UPDATE", &changed, &stored), false);
    changed["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    assert_eq!(is_allowed("UPDATE", &changed, &stored), true);
    assert_eq!(is_allowed("DELETE", &Value::Null, &stored), true);
}

#[test]
fn malformed_reviews_are_rejected() {
    let mut texts = String::new();
    let valid = || review("Ironic", "CREATE", object(json!({})), Value::Null);
    let edited = |edit: fn(&mut Value)| {
        let mut review = valid();
        edit(&mut review);
        review.to_string()
    };
    for body in [
        String::new(),
        "[]".to_owned(),
        "{".to_owned(),
        edited(|review| review["apiVersion"] = json!("admission.k8s.io/v1beta1")),
        edited(|review| review["kind"] = json!("Ironic")),
        edited(|review| review["request"] = Value::Null),
        edited(|review| review["request"]["uid"] = json!("")),
        edited(|review| review["request"]["operation"] = json!("PATCH")),
        edited(|review| review["request"]["object"] = Value::Null),
        edited(|review| review["request"]["operation"] = json!("UPDATE")),
        edited(|review| review["request"]["kind"]["kind"] = json!("BareMetalHost")),
    ] {
        let (status, text) = post(IRONIC, body);
        assert_eq!(status, 400, "{text}");
        texts.push_str(&text);
    }
    expect![[r#"
        the body is no AdmissionReview: EOF while parsing a value at line 1 column 0
        the body is no AdmissionReview: invalid length 2, expected struct ReviewDocument with 3 elements at line 1 column 2
        the body is no AdmissionReview: EOF while parsing an object at line 1 column 1
        the body is a "AdmissionReview" of "admission.k8s.io/v1beta1"; send AdmissionReview of admission.k8s.io/v1
        the body is a "Ironic" of "admission.k8s.io/v1"; send AdmissionReview of admission.k8s.io/v1
        the review has no request
        request.uid is empty
        the body is no AdmissionReview: request.operation: unknown variant `PATCH`, expected one of `CREATE`, `UPDATE`, `DELETE`, `CONNECT` at line 1 column 291
        request.object is missing
        request.oldObject is missing
        /validate-ironic-metal3-io-v1alpha1-ironic is for Ironic, but the review is for BareMetalHost; correct the path in the ValidatingWebhookConfiguration
    "#]].assert_eq(&texts);
}

#[test]
fn other_paths_and_methods() {
    assert_eq!(post("/validate", "{}").0, 404);
    let request =
        BufferedRequest { method: Method::GET, path: IRONIC.to_owned(), body: Vec::new().into() };
    assert_eq!(handler().respond(&request).status(), 405);
}

#[test]
fn every_path_is_derived_from_its_kind() {
    for rule in review_rules() {
        assert!(rule.path.ends_with(&format!("-v1alpha1-{}", rule.kind.to_lowercase())));
    }
}

#[test]
fn responses_stay_small() {
    let updates: Vec<Value> =
        (0..1000).map(|number| json!({"component": format!("psu{number}"), "url": "x"})).collect();
    let review = review(
        "HostFirmwareComponents",
        "CREATE",
        object(json!({"updates": updates})),
        Value::Null,
    );
    let response = respond("/validate-metal3-io-v1alpha1-hostfirmwarecomponents", &review);
    let message = response["response"]["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("; and 1968 more"), "{message}");
}

proptest! {
    #[test]
    fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (status, _) = post(HOST, body);
        prop_assert_eq!(status, 400);
    }
}
