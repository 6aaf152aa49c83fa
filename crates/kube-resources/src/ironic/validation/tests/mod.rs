// SPDX-License-Identifier: Apache-2.0
//! Tables of valid and invalid installations: one test per rule, with the complete messages.

mod networks;
mod properties;
mod rules;

use expect_test::Expect;
use serde_json::{Value, json};

use super::super::service::Ironic;
use super::super::versions::{IronicVersion, SupportedVersions};
use super::{IronicRules, validate_ironic, validate_ironic_update};
use crate::field_error::FieldError;

fn rules() -> IronicRules {
    let default = IronicVersion::parse("0.1").unwrap();
    IronicRules { versions: SupportedVersions::new(default), ..IronicRules::default() }
}

fn ironic(spec: Value) -> Ironic {
    let object = json!({"metadata": {"name": "ironic", "namespace": "lab"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn messages(errors: &[FieldError]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// Compares the errors of an installation.
fn check(spec: Value, expected: Expect) {
    expected.assert_eq(&messages(&validate_ironic(&ironic(spec), &rules())));
}

/// Compares the errors of an update.
fn check_update(old: Value, new: Value, expected: Expect) {
    let errors = validate_ironic_update(&ironic(old), &ironic(new), &rules());
    expected.assert_eq(&messages(&errors));
}

/// The installation is valid.
fn valid(spec: Value) {
    let errors = validate_ironic(&ironic(spec.clone()), &rules());
    assert_eq!(messages(&errors), "", "{spec}");
}

fn database() -> Value {
    json!({"credentialsName": "db", "host": "db.example", "name": "ironic"})
}
