// SPDX-License-Identifier: Apache-2.0
//! Rules for `BMCEventSubscription`, `DataImage` and `HostFirmwareComponents`.

use super::super::bmc_event_subscription::BMCEventSubscription;
use super::super::data_image::DataImage;
use super::super::host_firmware_components::{HostFirmwareComponents, is_supported_component};
use super::{secrets, url};
use crate::field_error::FieldError;

/// Checks a subscription.
#[must_use]
pub fn validate_bmc_event_subscription(subscription: &BMCEventSubscription) -> Vec<FieldError> {
    let spec = &subscription.spec;
    let mut errors = Vec::new();
    if spec.host_name.is_none() {
        errors.push(FieldError::new(
            "spec.hostName",
            "is missing; set it to the name of a BareMetalHost",
        ));
    }
    errors.extend(destination(spec.destination.as_deref()));
    errors.extend(secrets::same_namespace(
        subscription.metadata.namespace.as_deref(),
        &[("spec.httpHeadersRef", spec.http_headers_ref.as_ref())],
    ));
    errors
}

/// BMCs reject a destination without a path.
fn destination(destination: Option<&str>) -> Option<FieldError> {
    let problem = match destination.map(url::split) {
        None => "is missing; set it to the URL that receives the events",
        Some(None) => "is not an absolute URL; use one such as https://host/path",
        Some(Some(parts)) if parts.authority.is_empty() => "has no host; add it after the scheme",
        Some(Some(parts)) if parts.path.is_empty() => "has no path; add a slash after the host",
        Some(Some(_)) => return None,
    };
    Some(FieldError::new("spec.destination", problem))
}

/// Checks a data image.
#[must_use]
pub fn validate_data_image(image: &DataImage) -> Vec<FieldError> {
    url::downloadable("spec.url", &image.spec.url).into_iter().collect()
}

/// Checks the requested firmware updates.
#[must_use]
pub fn validate_firmware_components(components: &HostFirmwareComponents) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, update) in components.spec.updates.iter().enumerate() {
        let path = format!("spec.updates[{index}]");
        if !is_supported_component(&update.component) {
            errors.push(FieldError::new(
                format!("{path}.component"),
                format!(
                    "{:?} cannot be updated; use bmc, bios, or a name that starts with nic:",
                    update.component
                ),
            ));
        }
        errors.extend(url::downloadable(&format!("{path}.url"), &update.url));
    }
    errors
}
