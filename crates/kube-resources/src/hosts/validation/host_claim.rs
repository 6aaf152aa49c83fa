// SPDX-License-Identifier: Apache-2.0
//! Rules for a `HostClaim`.

use super::super::host_claim::{
    HostClaim, HostClaimSelector, HostLabelRequirement, LABEL_OPERATORS, LabelValueCount,
};
use super::{annotations, image, label, secrets};
use crate::field_error::FieldError;

/// Checks a claim.
#[must_use]
pub fn validate_host_claim(claim: &HostClaim) -> Vec<FieldError> {
    let spec = &claim.spec;
    let mut errors = secrets::same_namespace(
        claim.metadata.namespace.as_deref(),
        &[
            ("spec.userData", spec.user_data.as_ref()),
            ("spec.networkData", spec.network_data.as_ref()),
            ("spec.metaData", spec.meta_data.as_ref()),
        ],
    );
    errors.extend(match_labels(&spec.host_selector));
    for (index, requirement) in spec.host_selector.match_expressions.iter().enumerate() {
        let path = format!("spec.hostSelector.matchExpressions[{index}]");
        errors.extend(match_expression(&path, requirement));
    }
    if let Some(requested) = &spec.image {
        errors.extend(image::check("spec.image", requested));
    }
    if let Some(requests) = &claim.metadata.annotations {
        errors.extend(annotations::check_reboots(requests));
    }
    errors
}

fn match_labels(selector: &HostClaimSelector) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in &selector.match_labels {
        let path = format!("spec.hostSelector.matchLabels[{key}]");
        let problems = [label::key_problem(key), label::value_problem(value)];
        errors.extend(problems.into_iter().flatten().map(|text| FieldError::new(&path, text)));
    }
    errors
}

fn match_expression(path: &str, requirement: &HostLabelRequirement) -> Vec<FieldError> {
    let HostLabelRequirement { key, operator, values } = requirement;
    let mut errors = Vec::new();
    if let Some(problem) = label::key_problem(key) {
        errors.push(FieldError::new(format!("{path}.key"), format!("{key:?} {problem}")));
    }
    let Some((_, count)) = LABEL_OPERATORS.iter().find(|(name, _)| name == operator) else {
        let names: Vec<&str> = LABEL_OPERATORS.iter().map(|(name, _)| *name).collect();
        errors.push(FieldError::new(
            format!("{path}.operator"),
            format!("{operator:?} is not supported; use one of {}", names.join(" ")),
        ));
        return errors;
    };
    let needed = match count {
        LabelValueCount::Zero if !values.is_empty() => Some("no value"),
        LabelValueCount::One if values.len() != 1 => Some("exactly one value"),
        LabelValueCount::AtLeastOne if values.is_empty() => Some("at least one value"),
        LabelValueCount::Zero | LabelValueCount::One | LabelValueCount::AtLeastOne => None,
    };
    if let Some(needed) = needed {
        errors.push(FieldError::new(
            format!("{path}.values"),
            format!("has {}; the operator {operator:?} takes {needed}", values.len()),
        ));
    }
    for (index, value) in values.iter().enumerate() {
        if let Some(problem) = label::value_problem(value) {
            let path = format!("{path}.values[{index}]");
            errors.push(FieldError::new(path, format!("{value:?} {problem}")));
        }
    }
    errors
}
