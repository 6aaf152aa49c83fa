// SPDX-License-Identifier: Apache-2.0
//! Tables of valid and invalid objects: one row per rule, with the complete message.

mod firmware;
mod host_annotations;
mod hosts;
mod other_kinds;
mod properties;
mod updates;

use expect_test::Expect;
use serde_json::{Value, json};

use super::super::bare_metal_host::BareMetalHost;
use super::validate_host;
use crate::field_error::FieldError;

/// A valid host of namespace `lab` with a Redfish BMC, and the given fields over its spec.
fn host_with(spec: Value) -> BareMetalHost {
    let mut host = json!({
        "metadata": {"name": "host-0", "namespace": "lab"},
        "spec": {
            "online": true,
            "bmc": {"address": "redfish-virtualmedia://192.0.2.1", "credentialsName": "bmc"},
        },
    });
    let fields = host["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    serde_json::from_value(host).unwrap()
}

fn messages(errors: &[FieldError]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// Compares the errors of a host with the given fields.
fn check(spec: Value, expected: Expect) {
    expected.assert_eq(&messages(&validate_host(&host_with(spec))));
}

/// The host with the given fields is valid.
fn valid(spec: Value) {
    let errors = validate_host(&host_with(spec.clone()));
    assert_eq!(messages(&errors), "", "{spec}");
}
