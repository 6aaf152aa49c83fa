// SPDX-License-Identifier: Apache-2.0
//! Rules for the URLs of ramdisks.

use super::super::overrides::{AgentImagePair, CpuArchitecture};
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(images: &[AgentImagePair]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, image) in images.iter().enumerate() {
        let base = format!("spec.overrides.agentImages[{index}]");
        for (field, url) in [("kernel", &image.kernel), ("initramfs", &image.initramfs)] {
            errors.extend(image_url(&format!("{base}.{field}"), url));
        }
        let path = format!("{base}.architecture");
        if let Some(CpuArchitecture::Other(architecture)) = &image.architecture {
            let values = CpuArchitecture::VALUES.join(", ");
            let problem = format!("{architecture:?} is not supported; use one of {values}");
            errors.push(FieldError::new(&path, problem));
        }
        let is_unique =
            images[..index].iter().all(|other| other.architecture != image.architecture);
        let name = image.architecture.as_ref().map_or("", CpuArchitecture::as_str);
        errors.extend(required(
            is_unique,
            &path,
            format!("{name:?} occurs twice; remove one entry"),
        ));
    }
    errors
}

fn image_url(path: &str, url: &str) -> Option<FieldError> {
    let problem = match url.split_once("://") {
        _ if url.is_empty() => "is empty; set it".to_owned(),
        Some(("file", file)) if file.starts_with('/') => return None,
        Some(("file", _)) => {
            format!("{url:?} is not an absolute path; use file:/// and the path")
        }
        Some(("http" | "https" | "oci", rest)) => {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if !host.is_empty() {
                return None;
            }
            format!("{url:?} has no host")
        }
        _ => format!("{url:?} is not a URL of scheme file, http, https or oci"),
    };
    Some(FieldError::new(path, problem))
}
