// SPDX-License-Identifier: Apache-2.0
//! Rules for images, of hosts and of claims.

use super::super::host_image::{HostImage, HostImageFormat, ImageChecksumType};
use super::url;
use crate::field_error::FieldError;

/// Checks an image at the given path.
pub(super) fn check(path: &str, image: &HostImage) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(url::downloadable(&format!("{path}.url"), &image.url));
    errors.extend(checksum(path, image));
    errors.extend(known_checksum_type(path, image));
    errors.extend(known_format(path, image));
    errors
}

/// OCI images contain checksums, and a live ISO is not verified.
fn checksum(path: &str, image: &HostImage) -> Option<FieldError> {
    let path = format!("{path}.checksum");
    match (&image.checksum, image.is_oci()) {
        _ if image.is_live_iso() => None,
        (None, true) | (Some(_), false) => None,
        (None, false) => Some(FieldError::new(
            path,
            "is missing; set it to the checksum of the image or the URL of a checksum file",
        )),
        (Some(_), true) => Some(FieldError::new(
            path,
            "is not supported for OCI images, which contain checksums; remove it",
        )),
    }
}

fn known_checksum_type(path: &str, image: &HostImage) -> Option<FieldError> {
    let Some(ImageChecksumType::Other(name)) = &image.checksum_type else { return None };
    let values = ImageChecksumType::VALUES.join(", ");
    Some(FieldError::new(
        format!("{path}.checksumType"),
        format!("{name:?} is not supported; use one of {values}"),
    ))
}

fn known_format(path: &str, image: &HostImage) -> Option<FieldError> {
    let Some(HostImageFormat::Other(name)) = &image.format else { return None };
    let values = HostImageFormat::VALUES.join(", ");
    Some(FieldError::new(
        format!("{path}.format"),
        format!("{name:?} is not supported; use one of {values}"),
    ))
}
