// SPDX-License-Identifier: Apache-2.0
//! The webhooks: which path checks which kind, with which rules.

use kube_resources::deprecations::{host_deploy_policy_warnings, host_warnings, ironic_warnings};
use kube_resources::field_error::FieldError;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::validation::{
    validate_bmc_event_subscription, validate_data_image, validate_firmware_components,
    validate_host, validate_host_claim, validate_host_deploy_policy, validate_host_update,
};
use kube_resources::ironic::service::Ironic;
use kube_resources::ironic::validation::{
    IronicRules, validate_ironic, validate_ironic_database, validate_ironic_update,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::review::{AdmissionReviewRequest, ReviewVerdict, ReviewedOperation};

/// One webhook.
#[derive(Debug)]
pub(super) struct ReviewRule {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    /// Checks a request; fails if the request itself is malformed.
    pub(super) check: RuleCheck,
}

type RuleCheck = fn(&AdmissionReviewRequest, &IronicRules) -> Result<ReviewVerdict, String>;

/// All webhooks.
pub(super) fn review_rules() -> &'static [ReviewRule] {
    RULES
}

const RULES: &[ReviewRule] = &[
    ReviewRule {
        path: "/validate-ironic-metal3-io-v1alpha1-ironic",
        kind: "Ironic",
        check: |request, rules| {
            review(request, ironic_warnings, |new: &Ironic, old| match old {
                Some(old) => validate_ironic_update(old, new, rules),
                None => validate_ironic(new, rules),
            })
        },
    },
    ReviewRule {
        path: "/validate-ironic-metal3-io-v1alpha1-ironicdatabase",
        kind: "IronicDatabase",
        check: |request, _| review(request, no_warnings, |new, _| validate_ironic_database(new)),
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-baremetalhost",
        kind: "BareMetalHost",
        check: |request, _| {
            review(request, host_warnings, |new: &BareMetalHost, old| match old {
                Some(old) => validate_host_update(old, new),
                None => validate_host(new),
            })
        },
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-bmceventsubscription",
        kind: "BMCEventSubscription",
        check: |request, _| {
            review(request, no_warnings, |new, _| validate_bmc_event_subscription(new))
        },
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-dataimage",
        kind: "DataImage",
        check: |request, _| review(request, no_warnings, |new, _| validate_data_image(new)),
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-hostclaim",
        kind: "HostClaim",
        check: |request, _| review(request, no_warnings, |new, _| validate_host_claim(new)),
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-hostdeploypolicy",
        kind: "HostDeployPolicy",
        check: |request, _| {
            review(request, host_deploy_policy_warnings, |new, _| validate_host_deploy_policy(new))
        },
    },
    ReviewRule {
        path: "/validate-metal3-io-v1alpha1-hostfirmwarecomponents",
        kind: "HostFirmwareComponents",
        check: |request, _| {
            review(request, no_warnings, |new, _| validate_firmware_components(new))
        },
    },
];

fn no_warnings<T>(_: &T) -> Vec<String> {
    Vec::new()
}

/// Applies the rules of one kind. `rules` gets the new object, and the stored one on updates.
fn review<T: DeserializeOwned>(
    request: &AdmissionReviewRequest,
    warnings: impl Fn(&T) -> Vec<String>,
    rules: impl Fn(&T, Option<&T>) -> Vec<FieldError>,
) -> Result<ReviewVerdict, String> {
    let is_update = match request.operation {
        ReviewedOperation::Create => false,
        ReviewedOperation::Update => true,
        ReviewedOperation::Delete | ReviewedOperation::Connect => {
            return Ok(ReviewVerdict::default());
        }
    };
    // Only finalizers can be removed then, which must always be possible.
    if is_update && request.object.pointer("/metadata/deletionTimestamp").is_some() {
        return Ok(ReviewVerdict::default());
    }
    let new: T = match parse(&request.object) {
        Ok(new) => new,
        Err(error) => return Ok(ReviewVerdict { errors: vec![error], warnings: Vec::new() }),
    };
    // A stored object that cannot be parsed is no reason to reject its correction.
    let old: Option<T> = if is_update { parse(&request.old_object).ok() } else { None };
    let errors = rules(&new, old.as_ref());
    let mut warnings = warnings(&new);
    if is_update && has_same_request(&request.object, &request.old_object) {
        warnings.extend(errors.iter().map(ToString::to_string));
        return Ok(ReviewVerdict { errors: Vec::new(), warnings });
    }
    Ok(ReviewVerdict { errors, warnings })
}

/// Whether an update changes nothing that the rules check.
fn has_same_request(new: &Value, old: &Value) -> bool {
    ["/spec", "/metadata/annotations"]
        .iter()
        .all(|pointer| new.pointer(pointer) == old.pointer(pointer))
}

/// Parses an object. The schema of the CRD rejects most objects that fail here.
fn parse<T: DeserializeOwned>(object: &Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        FieldError::new(path, format!("is malformed: {}", error.into_inner()))
    })
}
