// SPDX-License-Identifier: Apache-2.0
//! The image of an instance as the agent's `image_info` parameter.

use agent_protocol::ImageInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drivers::instance_image::{InstanceImage, capability};
use drivers::{DriverTarget, PublishedImage};

use super::AgentSettings;

/// Describes `image` to the agent, which downloads it from `offered.url`.
pub(super) fn image_info(
    image: &InstanceImage<'_>,
    target: &DriverTarget<'_>,
    published: PublishedImage,
    settings: &AgentSettings,
    boot_mode: &str,
) -> ImageInfo {
    let is_from_source = published.url == image.source;
    let name = image.source.trim_end_matches('/').rsplit('/').next().unwrap_or(image.source);
    let mut info = ImageInfo {
        id: name.to_owned(),
        urls: vec![published.url],
        disk_format: published.format,
        container_format: Some("bare".to_owned()),
        stream_raw_images: settings.stream_raw_images,
        node_uuid: Some(target.node.id.to_string()),
        image_type: Some(if image.is_whole_disk() { "whole-disk" } else { "partition" }.to_owned()),
        ..ImageInfo::default()
    };
    // Ferrite's image server needs neither, and may be unreachable through a proxy.
    if is_from_source {
        info.image_request_authorization =
            server_authorization(image).map(|header| STANDARD.encode(header));
        info.proxies.clone_from(&image.proxies);
        // Without a proxy, exceptions are meaningless.
        let no_proxy = image.no_proxy.filter(|_| !image.proxies.is_empty());
        info.no_proxy = no_proxy.map(str::to_owned);
    }
    if let Some((algorithm, value)) = published.checksum {
        if algorithm == "md5" {
            info.checksum = Some(value);
        } else {
            info.os_hash_algo = Some(algorithm);
            info.os_hash_value = Some(value);
        }
    }
    if let Some(partitions) = &image.partitions {
        info.root_mb = Some(partitions.root);
        info.swap_mb = Some(partitions.swap);
        info.ephemeral_mb = Some(partitions.ephemeral);
        info.ephemeral_format = Some(partitions.ephemeral_format.clone());
        info.preserve_ephemeral = Some(partitions.preserve_ephemeral);
        info.deploy_boot_mode = Some(boot_mode.to_owned());
        info.boot_option = Some("local".to_owned());
        let label = capability(target, "disk_label");
        info.disk_label = Some(
            label.unwrap_or_else(|| if boot_mode == "uefi" { "gpt" } else { "msdos" }.to_owned()),
        );
    }
    info
}

/// The value of the `Authorization` header for the image's web server: the one given for it, or
/// else basic authentication with the pull secret. A bare token is the password of an empty user
/// name.
fn server_authorization(image: &InstanceImage<'_>) -> Option<String> {
    let basic_auth = |secret: &str| {
        let secret = secret.trim();
        let empty_user = if secret.contains(':') { "" } else { ":" };
        format!("Basic {}", STANDARD.encode(format!("{empty_user}{secret}")))
    };
    image.authorization.map(str::to_owned).or_else(|| image.pull_secret.map(basic_auth))
}

#[cfg(test)]
mod tests {
    use drivers::instance_image::{PULL_SECRET, pull_secret};
    use node_model::{Node, NodeId, Timestamp};
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::test_registry::fake_driver;

    /// The JSON of the instance's image info, or the error text.
    fn image_info_json(instance_info: Value) -> Result<String, String> {
        image_info_json_on(json!({}), instance_info, None)
    }

    /// The same for a node with this `driver_info` and an image that is served from another URL.
    fn image_info_json_on(
        driver_info: Value,
        instance_info: Value,
        served_from: Option<&str>,
    ) -> Result<String, String> {
        let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let driver = fake_driver();
        let Value::Object(info) = instance_info else { panic!("not an object") };
        let Value::Object(driver_info) = driver_info else { panic!("not an object") };
        let target = DriverTarget::new(&driver, &node, &driver_info, &info, Timestamp(0));
        let image = InstanceImage::from_target(&target).map_err(|error| error.to_string())?;
        let mut published = image.at_source_url();
        published.url = served_from.map_or(published.url, str::to_owned);
        let info = image_info(&image, &target, published, &AgentSettings::default(), "uefi");
        Ok(serde_json::to_string(&info).unwrap().replace(&node.id.to_string(), "NODE"))
    }

    #[test]
    fn builds_image_info_or_names_invalid_key() {
        let digest = "d41d8cd98f00b204e9800998ecf8427e";
        for (instance_info, expected) in [
            (json!({"image_source": "https://h/i", "image_checksum": digest}), digest),
            (
                json!({"image_source": "https://h/i", "image_checksum": "https://h/SUMS"}),
                r#""os_hash_algo":"sha256","os_hash_value":"https://h/SUMS""#,
            ),
            (
                json!({"image_source": "http://h/i", "image_os_hash_algo": "SHA512", "image_os_hash_value": "x"}),
                r#""os_hash_algo":"sha512""#,
            ),
            (json!({"image_source": "file:///i"}), "whole-disk"),
            (json!({"image_source": "oci://h/i:latest"}), "i:latest"),
            (
                json!({"image_source": "file:///i", "image_type": "partition", "root_gb": "10", "swap_mb": 5}),
                r#""root_mb":10240,"swap_mb":5,"ephemeral_mb":0"#,
            ),
            (
                json!({"image_source": "file:///i", "kernel": "k", "ramdisk": "r", "root_gb": 1}),
                r#""disk_label":"gpt""#,
            ),
        ] {
            let json = image_info_json(instance_info.clone());
            assert!(json.as_ref().is_ok_and(|json| json.contains(expected)), "{json:?}");
        }
        for (instance_info, key) in [
            (json!({}), "image_source"),
            (json!({"image_source": ""}), "image_source"),
            (json!({"image_source": 5}), "image_source"),
            (json!({"image_source": "http://h/i"}), "image_checksum"),
            (json!({"image_source": "HTTP://h/i"}), "image_checksum"),
            (json!({"image_source": "http://h/i", "image_checksum": "abc"}), "image_checksum"),
            (
                json!({"image_source": "http://h/i", "image_os_hash_algo": "sha256"}),
                "image_os_hash_value",
            ),
            (
                json!({"image_source": "http://h/i", "image_os_hash_value": "x"}),
                "image_os_hash_algo",
            ),
            (json!({"image_source": "file:///i", "image_type": "tape"}), "image_type"),
            (json!({"image_source": "file:///i", "image_type": "partition"}), "root_gb"),
            (
                json!({"image_source": "file:///i", "image_type": "partition", "root_gb": "many"}),
                "root_gb",
            ),
        ] {
            let error =
                image_info_json(instance_info.clone()).expect_err("something is wrong with it");
            assert!(error.contains(key), "{instance_info}: {error}");
        }
    }

    #[test]
    fn proxies_and_authorization_apply_to_source_downloads_only() {
        let image = |more: Value| {
            let mut info = json!({"image_source": "https://h/i", "image_checksum": "0".repeat(64)});
            info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            info
        };
        let proxied = json!({
            "image_http_proxy": "http://p:3128", "image_https_proxy": "p:3128",
            "image_no_proxy": "10.0.0.1, .example,[fe80::1]:80",
        });
        for (driver_info, instance_info, expected) in [
            (proxied.clone(), json!({}), r#""proxies":{"http":"http://p:3128","https":"p:3128"}"#),
            (proxied.clone(), json!({}), r#""no_proxy":"10.0.0.1, .example,[fe80::1]:80""#),
            (
                json!({}),
                json!({"image_request_authorization_secret": "Bearer x"}),
                r#""image_request_authorization":"QmVhcmVyIHg=""#,
            ),
            // "Basic bWU6aHVzaA==", and the same for a token.
            (json!({}), json!({"image_pull_secret": "me:hush"}), "QmFzaWMgYldVNmFIVnphQT09"),
            (json!({}), json!({"image_pull_secret": "token"}), "QmFzaWMgT25SdmEyVnU="),
        ] {
            let from_source =
                image_info_json_on(driver_info.clone(), image(instance_info.clone()), None);
            assert!(
                from_source.as_ref().is_ok_and(|text| text.contains(expected)),
                "{from_source:?}"
            );
            // Ferrite's image server gets none of it.
            let from_ferrite =
                image_info_json_on(driver_info, image(instance_info), Some("http://us/i")).unwrap();
            assert!(!from_ferrite.contains(expected), "{from_ferrite}");
        }
        let node_info = json!({"image_pull_secret": "me:hush", "image_no_proxy": "h"});
        let json = image_info_json_on(node_info, image(json!({})), None).unwrap();
        assert!(!json.contains("authorization"), "it is for registries: {json}");
        assert!(!json.contains("no_proxy"), "there is no proxy: {json}");
        for (driver_info, key) in [
            (json!({"image_http_proxy": "socks5://p"}), "driver_info/image_http_proxy"),
            (json!({"image_https_proxy": 3128}), "driver_info/image_https_proxy"),
            (json!({"image_no_proxy": "*.example"}), "driver_info/image_no_proxy"),
        ] {
            let error = image_info_json_on(driver_info, image(json!({})), None).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn instance_pull_secret_overrides_node_pull_secret() {
        let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let driver = fake_driver();
        for (node_secret, instance_secret, source, expected) in [
            (None, Some("mine"), "oci://h/i", Some("mine")),
            (Some("ours"), Some("mine"), "oci://h/i", Some("mine")),
            (Some("ours"), None, "OCI://h/i", Some("ours")),
            (Some("ours"), Some(""), "oci://h/i", Some("ours")),
            (Some("ours"), None, "https://h/i", None),
            (None, Some("mine"), "https://h/i", Some("mine")),
        ] {
            let info = |secret: Option<&str>| {
                let entry = secret.map(|secret| (PULL_SECRET.0.to_owned(), secret.into()));
                Map::from_iter(entry)
            };
            let (driver_info, instance_info) = (info(node_secret), info(instance_secret));
            let target =
                DriverTarget::new(&driver, &node, &driver_info, &instance_info, Timestamp(0));
            assert_eq!(pull_secret(&target, source).unwrap(), expected, "{source}");
        }
    }
}
