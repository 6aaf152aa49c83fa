// SPDX-License-Identifier: Apache-2.0
//! Images and custom deployments as `instance_info`, deploy interface and deploy steps.

use serde_json::{Map, Value, json};

use super::super::host_image::{CustomDeploy, HostImage, ImageChecksumType};
use super::FieldChanges;

/// Priority of the step of a custom deployment: it replaces the step that writes the image.
const CUSTOM_DEPLOY_PRIORITY: u32 = 80;
const DEFAULT_PERSISTENCE: &str = "Default";

/// What the operator's configuration sets for `force_persistent_boot_device`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootDevicePersistence {
    /// For live ISOs.
    pub live_iso: Option<String>,
    /// For images that are written to a disk.
    pub direct: Option<String>,
}

/// Changes of a node before a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageChanges {
    /// Changes of `instance_info`.
    pub instance_info: FieldChanges,
    /// The deploy interface; `None` is the driver's default.
    pub deploy_interface: Option<&'static str>,
    /// The value of `driver_info.force_persistent_boot_device`; `None` leaves it unchanged.
    pub force_persistent_boot_device: Option<String>,
}

/// Translates the requested image and custom deployment. `pull_secret` is `user:password` for an
/// OCI registry.
#[must_use]
pub fn image_changes(
    image: Option<&HostImage>,
    custom_deploy: Option<&CustomDeploy>,
    pull_secret: Option<&str>,
    persistence: &BootDevicePersistence,
) -> ImageChanges {
    let image = image.filter(|image| !image.url.is_empty());
    let mut info = cleared_image();
    let is_custom = custom_deploy.is_some_and(|deploy| !deploy.method.is_empty());
    let (deploy_interface, persistence) = match image {
        Some(image) if image.is_live_iso() && !is_custom => {
            info.insert("boot_iso", Some(json!(image.url)));
            (Some("ramdisk"), Some(persistence.live_iso.clone()))
        }
        _ => {
            if let Some(image) = image {
                info.insert("image_source", Some(json!(image.url)));
                info.insert("image_disk_format", image.format.as_ref().map(|format| json!(format)));
                info.insert("image_pull_secret", pull_secret.map(|secret| json!(secret)));
                info.extend(checksum(image));
            }
            match is_custom {
                true => (Some("custom-agent"), None),
                false => (None, Some(persistence.direct.clone())),
            }
        }
    };
    let force_persistent_boot_device =
        persistence.map(|set| set.unwrap_or_else(|| DEFAULT_PERSISTENCE.to_owned()));
    ImageChanges { instance_info: info, deploy_interface, force_persistent_boot_device }
}

/// Fields of an earlier image must not remain.
fn cleared_image() -> FieldChanges {
    [
        "boot_iso",
        "image_source",
        "image_disk_format",
        "image_pull_secret",
        "image_checksum",
        "image_os_hash_algo",
        "image_os_hash_value",
    ]
    .map(|key| (key, None))
    .into()
}

/// The fields that contain the checksum. Without an algorithm Ironic detects it.
fn checksum(image: &HostImage) -> Vec<(&'static str, Option<Value>)> {
    let Some(checksum) = image.checksum.as_ref().filter(|_| !image.is_live_iso()) else {
        return Vec::new();
    };
    match &image.checksum_type {
        None | Some(ImageChecksumType::Auto) => vec![("image_checksum", Some(json!(checksum)))],
        Some(algorithm) => vec![
            ("image_os_hash_algo", Some(json!(algorithm))),
            ("image_os_hash_value", Some(json!(checksum))),
        ],
    }
}

/// Whether a node already has an image, so that a failed deployment must not be repeated with it.
#[must_use]
pub fn has_image(instance_info: &Map<String, Value>, image: &HostImage) -> bool {
    let has = |key: &str, expected: Option<&Value>| {
        instance_info.get(key).filter(|value| !value.is_null()) == expected
    };
    if image.is_live_iso() {
        return has("boot_iso", Some(&json!(image.url)));
    }
    let expected: FieldChanges = cleared_image().into_iter().chain(checksum(image)).collect();
    let checksum_fields = ["image_checksum", "image_os_hash_algo", "image_os_hash_value"];
    has("image_source", Some(&json!(image.url)))
        && checksum_fields.iter().all(|key| has(key, expected.get(key).and_then(Option::as_ref)))
}

/// The value of `deploy_steps` of the request that starts a deployment; empty without a custom
/// deployment.
#[must_use]
pub fn custom_deploy_steps(custom_deploy: Option<&CustomDeploy>) -> Vec<Value> {
    let method = custom_deploy.map(|deploy| &deploy.method).filter(|method| !method.is_empty());
    method
        .map(|method| {
            json!({
                "interface": "deploy",
                "step": method,
                "args": {},
                "priority": CUSTOM_DEPLOY_PRIORITY,
            })
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(value: Value) -> HostImage {
        serde_json::from_value(value).unwrap()
    }

    fn custom(method: &str) -> CustomDeploy {
        CustomDeploy { method: method.to_owned() }
    }

    /// The fields that are set; all others of an image must be removed.
    fn set_fields(changes: &ImageChanges) -> Value {
        assert_eq!(changes.instance_info.len(), cleared_image().len());
        let set = changes
            .instance_info
            .iter()
            .filter_map(|(key, value)| value.clone().map(|value| ((*key).to_owned(), value)));
        Value::Object(set.collect())
    }

    #[test]
    fn images_become_instance_info() {
        let check = |requested: Value, expected: Value, interface: Option<&str>| {
            let requested = image(requested);
            let changes = image_changes(
                Some(&requested),
                None,
                requested.is_oci().then_some("user:password"),
                &BootDevicePersistence::default(),
            );
            assert_eq!(set_fields(&changes), expected);
            assert_eq!(changes.deploy_interface, interface);
            assert_eq!(changes.force_persistent_boot_device.as_deref(), Some("Default"));
        };
        check(
            json!({"url": "http://a/i", "checksum": "c", "format": "qcow2"}),
            json!({"image_source": "http://a/i", "image_checksum": "c", "image_disk_format": "qcow2"}),
            None,
        );
        check(
            json!({"url": "http://a/i", "checksum": "c", "checksumType": "auto"}),
            json!({"image_source": "http://a/i", "image_checksum": "c"}),
            None,
        );
        check(
            json!({"url": "http://a/i", "checksum": "c", "checksumType": "sha512"}),
            json!({"image_source": "http://a/i", "image_os_hash_algo": "sha512",
                "image_os_hash_value": "c"}),
            None,
        );
        check(
            json!({"url": "oci://a/i:1"}),
            json!({"image_source": "oci://a/i:1", "image_pull_secret": "user:password"}),
            None,
        );
        check(
            json!({"url": "http://a/i.iso", "format": "live-iso", "checksum": "ignored"}),
            json!({"boot_iso": "http://a/i.iso"}),
            Some("ramdisk"),
        );
    }

    #[test]
    fn custom_deployments_need_no_image() {
        let persistence = BootDevicePersistence::default();
        let changes = image_changes(None, Some(&custom("install")), None, &persistence);
        assert_eq!(set_fields(&changes), json!({}));
        assert_eq!(changes.deploy_interface, Some("custom-agent"));
        assert_eq!(changes.force_persistent_boot_device, None);
        let requested = image(json!({"url": "http://a/i.iso", "format": "live-iso"}));
        let changes = image_changes(Some(&requested), Some(&custom("install")), None, &persistence);
        assert_eq!(
            set_fields(&changes),
            json!({"image_source": "http://a/i.iso", "image_disk_format": "live-iso"})
        );
        assert_eq!(
            custom_deploy_steps(Some(&custom("install"))),
            [json!({"interface": "deploy", "step": "install", "args": {}, "priority": 80})]
        );
        assert!(custom_deploy_steps(Some(&custom(""))).is_empty());
        assert!(custom_deploy_steps(None).is_empty());
    }

    #[test]
    fn persistence_is_configured_per_kind_of_image() {
        let persistence =
            BootDevicePersistence { live_iso: Some("Never".into()), direct: Some("Always".into()) };
        let check = |requested: Value, expected: &str| {
            let changes = image_changes(Some(&image(requested)), None, None, &persistence);
            assert_eq!(changes.force_persistent_boot_device.as_deref(), Some(expected));
        };
        check(json!({"url": "http://a/i", "format": "live-iso"}), "Never");
        check(json!({"url": "http://a/i", "checksum": "c"}), "Always");
    }

    #[test]
    fn a_node_has_an_image_if_source_and_checksum_are_equal() {
        let check = |info: Value, requested: Value, expected: bool| {
            let info = info.as_object().unwrap();
            assert_eq!(has_image(info, &image(requested.clone())), expected, "{requested}");
        };
        let stored = || json!({"image_source": "http://a/i", "image_checksum": "c", "x": 1});
        check(stored(), json!({"url": "http://a/i", "checksum": "c"}), true);
        check(stored(), json!({"url": "http://a/i", "checksum": "d"}), false);
        check(stored(), json!({"url": "http://a/j", "checksum": "c"}), false);
        let md5 = json!({"url": "http://a/i", "checksum": "c", "checksumType": "md5"});
        check(stored(), md5, false);
        check(json!({"image_source": "oci://a"}), json!({"url": "oci://a"}), true);
        check(
            json!({"image_source": "oci://a", "image_checksum": null}),
            json!({"url": "oci://a"}),
            true,
        );
        let iso = json!({"url": "http://a/i", "format": "live-iso"});
        check(json!({"boot_iso": "http://a/i"}), iso.clone(), true);
        check(stored(), iso, false);
    }
}
