// SPDX-License-Identifier: Apache-2.0
//! Annotations of a `BareMetalHost` and the requests they contain.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::hardware_data::HardwareDetails;
use super::host_status::BareMetalHostStatus;
use crate::optional::non_empty;
use crate::text_enum::text_enum;

/// Stops all work on a host while it is present, with any value.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// Value of [`PAUSED`] that Cluster API Provider Metal3 sets and removes.
pub const PAUSED_BY_CAPM3: &str = "metal3.io/capm3";
/// Removes the host from the provisioning service while it is present.
pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// Status to restore, as JSON.
pub const STATUS: &str = "baremetalhost.metal3.io/status";
/// Requests a reboot; also the start of `reboot.metal3.io/<key>`.
pub const REBOOT: &str = "reboot.metal3.io";
/// Requests or disables inspection.
pub const INSPECT: &str = "inspect.metal3.io";
/// Value of [`INSPECT`] that disables inspection.
pub const INSPECT_DISABLED: &str = "disabled";
/// Hardware details to use instead of an inspection, as JSON.
pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";
/// Excludes a host from Cluster API.
pub const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";
/// Deprecated name of [`UNHEALTHY`].
pub const UNHEALTHY_DEPRECATED: &str = "capi.metal3.io/unhealthy";

/// Ends the wait for the next attempt of a failed operation. Not part of Metal3. Removed once it was
/// seen.
pub const RETRY_NOW: &str = "baremetalhost.metal3.io/retry-now";
/// Deletes a host without removing its image and without powering it off, and also if its node
/// cannot be removed. Not part of Metal3. Has no effect on a host that is not being deleted.
pub const FORCE_DELETE: &str = "baremetalhost.metal3.io/force-delete";

/// Accepts the machine behind a new `spec.bmc.address` although it is not the registered one, or cannot be
/// verified. It allows to change `spec.bootMACAddress`, and the host is inspected again. Not part of Metal3.
/// Removed once the host is registered.
pub const ACCEPT_REPLACED_MACHINE: &str = "baremetalhost.metal3.io/accept-replaced-machine";

/// A value that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AnnotationError {
    /// It is not JSON of the expected form.
    #[error("is not valid JSON for this annotation ({0})")]
    Format(#[source] serde_json::Error),
    /// It has fields that do not exist.
    #[error("has unknown fields: {0}; remove them")]
    UnknownFields(String),
}

/// The annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// Whether work on the host is paused.
#[must_use]
pub fn is_paused(annotations: &Annotations) -> bool {
    annotations.contains_key(PAUSED)
}

text_enum! {
    /// How a host is powered off.
    pub enum HostRebootMode {
        /// At once.
        Hard = "hard",
        /// By the operating system, if the BMC supports it.
        Soft = "soft",
    }
}

/// The value of one reboot annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RebootRequest {
    /// How to power off; soft if missing.
    #[serde(deserialize_with = "non_empty")]
    pub mode: Option<HostRebootMode>,
    /// Also abort a running inspection or deployment.
    pub force: bool,
}

impl RebootRequest {
    /// Parses a value. An empty one is a soft reboot.
    pub fn parse(value: &str) -> Result<Self, AnnotationError> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(value).map_err(AnnotationError::Format)
    }
}

/// Whether a key is that of a reboot annotation, with or without a suffix.
#[must_use]
pub fn is_reboot_annotation(key: &str) -> bool {
    key.strip_prefix(REBOOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What the reboot annotations of a host request together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedReboot {
    /// Hard if any of them requests it.
    pub mode: HostRebootMode,
    /// Whether an annotation with a suffix keeps the host powered off until a client removes it.
    pub is_held: bool,
    /// Annotations whose value is not valid. They count as soft reboots.
    pub invalid: Vec<String>,
}

/// Combines all reboot annotations; `None` if there are none. With `only_forced` those without
/// `force` are ignored, as in states without a running system.
#[must_use]
pub fn requested_reboot(annotations: &Annotations, only_forced: bool) -> Option<RequestedReboot> {
    let mut combined: Option<RequestedReboot> = None;
    for (key, value) in annotations.iter().filter(|(key, _)| is_reboot_annotation(key)) {
        let parsed = RebootRequest::parse(value);
        let is_valid = parsed.is_ok();
        let request = parsed.unwrap_or_default();
        if only_forced && !request.force {
            continue;
        }
        let reboot = combined.get_or_insert(RequestedReboot {
            mode: HostRebootMode::Soft,
            is_held: false,
            invalid: Vec::new(),
        });
        if request.mode == Some(HostRebootMode::Hard) {
            reboot.mode = HostRebootMode::Hard;
        }
        reboot.is_held |= key != REBOOT;
        if !is_valid {
            reboot.invalid.push(key.clone());
        }
    }
    combined
}

text_enum! {
    /// What deletion of a detached host does.
    pub enum DetachedDeleteAction {
        /// Wait until the annotation is removed.
        Delay = "delay",
        /// Delete the object without access to the host.
        Delete = "delete",
    }
}

/// The value of the annotation [`DETACHED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DetachRequest {
    /// What deletion does; delete if missing.
    #[serde(deserialize_with = "non_empty")]
    pub delete_action: Option<DetachedDeleteAction>,
    /// Abort running operations instead of waiting for them.
    pub force: bool,
}

/// The request to detach a host; `None` if there is none. Any value that is not a JSON object is
/// accepted and means the defaults.
#[must_use]
pub fn detach_request(annotations: &Annotations) -> Option<DetachRequest> {
    let value = annotations.get(DETACHED)?;
    Some(serde_json::from_str(value).unwrap_or_default())
}

/// What the annotation [`INSPECT`] requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectRequest {
    /// Never inspect.
    Disabled,
    /// Inspect again once the host is available.
    Again,
}

/// The request for or against inspection; `None` if there is none.
#[must_use]
pub fn inspect_request(annotations: &Annotations) -> Option<InspectRequest> {
    match annotations.get(INSPECT)?.as_str() {
        INSPECT_DISABLED => Some(InspectRequest::Disabled),
        _ => Some(InspectRequest::Again),
    }
}

/// The status to restore; `None` if there is none. Unknown fields are ignored.
pub fn restored_status(
    annotations: &Annotations,
) -> Result<Option<BareMetalHostStatus>, AnnotationError> {
    let value = annotations.get(STATUS).filter(|value| !value.is_empty());
    value.map(|value| serde_json::from_str(value).map_err(AnnotationError::Format)).transpose()
}

/// The hardware details to use; `None` if there are none. Unknown fields are errors, because a
/// mistyped name would silently be lost.
pub fn given_hardware_details(
    annotations: &Annotations,
) -> Result<Option<HardwareDetails>, AnnotationError> {
    let value = annotations.get(HARDWARE_DETAILS).filter(|value| !value.is_empty());
    value.map(|value| parse_strictly(value)).transpose()
}

/// Parses JSON and rejects unknown fields.
pub(super) fn parse_strictly<T: DeserializeOwned>(text: &str) -> Result<T, AnnotationError> {
    let mut unknown = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_ignored::deserialize(&mut deserializer, |path| {
        // Optional values add a `?` to the path.
        unknown.push(path.to_string().replace(".?", ""));
    })
    .map_err(AnnotationError::Format)?;
    deserializer.end().map_err(AnnotationError::Format)?;
    if unknown.is_empty() {
        Ok(value)
    } else {
        Err(AnnotationError::UnknownFields(unknown.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn reboot_annotations_have_an_optional_suffix() {
        for (key, expected) in [
            ("reboot.metal3.io", true),
            ("reboot.metal3.io/capm3", true),
            ("reboot.metal3.io/", true),
            ("reboot.metal3.ioxyz", false),
            ("xreboot.metal3.io", false),
        ] {
            assert_eq!(is_reboot_annotation(key), expected, "{key}");
        }
    }

    #[test]
    fn reboot_annotations_are_combined() {
        let combine = |pairs: &[(&str, &str)], only_forced| {
            requested_reboot(&annotations(pairs), only_forced).map(|reboot| {
                (reboot.mode.as_str().to_owned(), reboot.is_held, reboot.invalid.len())
            })
        };
        let result = |mode: &str, is_held, invalid| Some((mode.to_owned(), is_held, invalid));
        assert_eq!(combine(&[], false), None);
        assert_eq!(combine(&[("other", "")], false), None);
        assert_eq!(combine(&[(REBOOT, "")], false), result("soft", false, 0));
        assert_eq!(combine(&[(REBOOT, r#"{"mode":"hard"}"#)], false), result("hard", false, 0));
        assert_eq!(combine(&[(REBOOT, "{")], false), result("soft", false, 1));
        let mixed = [("reboot.metal3.io/a", r#"{"mode":"hard"}"#), ("reboot.metal3.io/b", "")];
        assert_eq!(combine(&mixed, false), result("hard", true, 0));
        assert_eq!(combine(&mixed, true), None, "none is forced");
        let forced = [(REBOOT, r#"{"force":true}"#), ("reboot.metal3.io/b", r#"{"mode":"hard"}"#)];
        assert_eq!(combine(&forced, true), result("soft", false, 0));
    }

    #[test]
    fn any_value_detaches() {
        let parse = |value: &str| detach_request(&annotations(&[(DETACHED, value)])).unwrap();
        assert_eq!(detach_request(&annotations(&[])), None);
        assert_eq!(parse(""), DetachRequest::default());
        assert_eq!(parse("metal3-migration"), DetachRequest::default());
        assert_eq!(parse("true"), DetachRequest::default());
        let delayed = parse(r#"{"deleteAction": "delay", "force": true}"#);
        assert_eq!(delayed.delete_action, Some(DetachedDeleteAction::Delay));
        assert!(delayed.force);
    }

    #[test]
    fn inspection_is_disabled_or_repeated() {
        let parse = |value: &str| inspect_request(&annotations(&[(INSPECT, value)]));
        assert_eq!(inspect_request(&annotations(&[])), None);
        assert_eq!(parse("disabled"), Some(InspectRequest::Disabled));
        assert_eq!(parse(""), Some(InspectRequest::Again));
        assert_eq!(parse("yes"), Some(InspectRequest::Again));
    }

    #[test]
    fn hardware_details_are_parsed_strictly() {
        let parse =
            |value: &str| given_hardware_details(&annotations(&[(HARDWARE_DETAILS, value)]));
        assert_eq!(parse("").unwrap(), None);
        let details = parse(r#"{"ramMebibytes": 1, "nics": null}"#).unwrap().unwrap();
        assert_eq!(details.ram_mebibytes, 1);
        let error = parse(r#"{"cpu": {"cores": 4}, "nics": [{"lldp": {"x": 1}}]}"#).unwrap_err();
        assert_eq!(error.to_string(), "has unknown fields: cpu.cores, nics.0.lldp.x; remove them");
        assert!(matches!(parse("{} x"), Err(AnnotationError::Format(_))));
        assert!(matches!(parse(r#"{"ramMebibytes": "x"}"#), Err(AnnotationError::Format(_))));
    }

    #[test]
    fn a_status_is_restored_without_its_unknown_fields() {
        let value = r#"{"errorCount": 2, "unknown": 1, "provisioning": {"state": "provisioned"}}"#;
        let status = restored_status(&annotations(&[(STATUS, value)])).unwrap().unwrap();
        assert_eq!(status.error_count, 2);
        assert!(restored_status(&annotations(&[(STATUS, "{")])).is_err());
        assert!(restored_status(&annotations(&[])).unwrap().is_none());
    }

    #[test]
    fn any_value_pauses() {
        assert!(is_paused(&annotations(&[(PAUSED, "")])));
        assert!(!is_paused(&annotations(&[])));
    }
}
