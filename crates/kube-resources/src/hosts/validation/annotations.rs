// SPDX-License-Identifier: Apache-2.0
//! Rules for annotations of hosts and claims.

use super::super::annotations::{
    self, AnnotationError, Annotations, HARDWARE_DETAILS, HostRebootMode, INSPECT,
    INSPECT_DISABLED, RebootRequest, STATUS, given_hardware_details, is_reboot_annotation,
};
use super::super::bare_metal_host::BareMetalHost;
use super::super::host_status::{BareMetalHostStatus, HostErrorType, OperationalStatus};
use crate::field_error::FieldError;

/// Checks all annotations of a host that contain requests.
pub(super) fn check_host(host: &BareMetalHost) -> Vec<FieldError> {
    let Some(annotations) = &host.metadata.annotations else { return Vec::new() };
    let mut errors = Vec::new();
    errors.extend(status(annotations));
    errors.extend(check_reboots(annotations));
    errors.extend(inspect(annotations));
    errors.extend(hardware_details(annotations, host.is_inspection_disabled()));
    errors
}

fn error(key: &str, problem: impl Into<String>) -> FieldError {
    FieldError::new(format!("metadata.annotations[{key}]"), problem)
}

fn unreadable(key: &str, cause: &AnnotationError) -> FieldError {
    error(key, cause.to_string())
}

/// The whole status is restored from it, so unknown fields and values are errors.
fn status(annotations: &Annotations) -> Option<FieldError> {
    let value = annotations.get(STATUS).filter(|value| !value.is_empty())?;
    let status: BareMetalHostStatus = match annotations::parse_strictly(value) {
        Ok(status) => status,
        Err(cause) => return Some(unreadable(STATUS, &cause)),
    };
    if let OperationalStatus::Other(other) = &status.operational_status {
        let values = OperationalStatus::VALUES[1..].join(", ");
        let problem =
            format!("has the operationalStatus {other:?}; use one of {values}, or nothing");
        return Some(error(STATUS, problem));
    }
    if let Some(HostErrorType::Other(other)) = &status.error_type {
        let values = HostErrorType::VALUES.join(", ");
        return Some(error(STATUS, format!("has the errorType {other:?}; use one of {values}")));
    }
    None
}

/// Checks the reboot annotations of a host or a claim.
pub(super) fn check_reboots(annotations: &Annotations) -> Vec<FieldError> {
    let reboots = annotations.iter().filter(|(key, _)| is_reboot_annotation(key));
    reboots
        .filter_map(|(key, value)| match RebootRequest::parse(value) {
            Err(cause) => Some(unreadable(key, &cause)),
            Ok(RebootRequest { mode: Some(HostRebootMode::Other(mode)), .. }) => {
                Some(error(key, format!("has the mode {mode:?}; use hard or soft")))
            }
            Ok(_) => None,
        })
        .collect()
}

fn inspect(annotations: &Annotations) -> Option<FieldError> {
    let value = annotations.get(INSPECT)?;
    (!value.is_empty() && value != INSPECT_DISABLED).then(|| {
        error(
            INSPECT,
            format!("{value:?} is not supported; use \"disabled\", or \"\" to inspect again"),
        )
    })
}

/// Given details would be replaced by those of an inspection.
fn hardware_details(annotations: &Annotations, is_disabled: bool) -> Option<FieldError> {
    match given_hardware_details(annotations) {
        Ok(None) => None,
        _ if !is_disabled => Some(error(
            HARDWARE_DETAILS,
            "is used only without inspection; set spec.inspectionMode to disabled",
        )),
        Ok(Some(_)) => None,
        Err(cause) => Some(unreadable(HARDWARE_DETAILS, &cause)),
    }
}
