// SPDX-License-Identifier: Apache-2.0
//! The image an instance asks for: checked as far as its fields go, and told to the agent.

use std::collections::BTreeMap;

use agent_protocol::ImageInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::AgentSettings;
use crate::interfaces::Property;
use crate::{Error, OfferedImage, Target};

/// What `instance_info` says about the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageOrder<'a> {
    /// Where it comes from.
    pub source: &'a str,
    /// Its checksum by an algorithm, or the URL of a file with it.
    pub checksum: Option<(String, String)>,
    /// What it is declared to be.
    pub format: Option<&'a str>,
    /// `http` or `local`, if the instance says which.
    pub download_source: Option<&'a str>,
    /// What opens the registry or the server it is on.
    pub pull_secret: Option<&'a str>,
    /// All of what its server wants to see as `Authorization`.
    pub authorization: Option<&'a str>,
    /// Through which proxies an agent fetches it, by scheme.
    pub proxies: BTreeMap<String, String>,
    /// Which hosts the agent asks without a proxy.
    pub no_proxy: Option<&'a str>,
    /// What its partitions are to be, if it is not a whole disk.
    pub partitions: Option<Partitions>,
}

/// The partitions around an image of a root file system, in MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    root: u64,
    swap: u64,
    ephemeral: u64,
    ephemeral_format: String,
    preserve_ephemeral: bool,
}

impl<'a> ImageOrder<'a> {
    /// What the instance of `target` asks for.
    pub fn of(target: &Target<'a>) -> Result<Self, Error> {
        let info = target.instance_info;
        let Some(source) = text(info, "image_source")? else {
            return Err(Error::missing("instance_info/image_source", "give the image to deploy"));
        };
        let order = Self {
            source,
            checksum: checksum(info)?,
            format: text(info, "image_disk_format")?,
            download_source: text(info, "image_download_source")?,
            pull_secret: pull_secret(target, source)?,
            authorization: text(info, "image_request_authorization_secret")?,
            proxies: proxies(target)?,
            no_proxy: no_proxy(target)?,
            partitions: partitions(info)?,
        };
        if order.is_on_the_web() && order.checksum.is_none() {
            return Err(Error::missing(
                "instance_info/image_checksum",
                "an image from a web server needs it, or image_os_hash_algo with \
                 image_os_hash_value",
            ));
        }
        Ok(order)
    }

    /// Whether an agent can fetch it by itself.
    #[must_use]
    pub fn is_on_the_web(&self) -> bool {
        let scheme = self.source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        matches!(scheme.as_deref(), Some("http" | "https"))
    }

    /// The image as it is at its source.
    #[must_use]
    pub fn straight(&self) -> OfferedImage {
        OfferedImage {
            url: self.source.to_owned(),
            checksum: self.checksum.clone(),
            format: self.format.map(str::to_owned),
        }
    }

    /// What its web server wants to see as `Authorization`: what was given for that, or else what a
    /// pull secret comes to. A bare token is the password of a user without a name.
    fn server_authorization(&self) -> Option<String> {
        let of_secret = |secret: &str| {
            let secret = secret.trim();
            let nobody = if secret.contains(':') { "" } else { ":" };
            format!("Basic {}", STANDARD.encode(format!("{nobody}{secret}")))
        };
        self.authorization.map(str::to_owned).or_else(|| self.pull_secret.map(of_secret))
    }

    /// Whether it is a whole disk.
    pub(super) fn is_whole_disk(&self) -> bool {
        self.partitions.is_none()
    }

    /// What the agent is told, who finds the image where `offered` says.
    pub(super) fn info(
        &self,
        target: &Target<'_>,
        offered: OfferedImage,
        settings: &AgentSettings,
        boot_mode: &str,
    ) -> ImageInfo {
        let is_straight = offered.url == self.source;
        let name = self.source.trim_end_matches('/').rsplit('/').next().unwrap_or(self.source);
        let mut info = ImageInfo {
            id: name.to_owned(),
            urls: vec![offered.url],
            disk_format: offered.format,
            container_format: Some("bare".to_owned()),
            stream_raw_images: settings.stream_raw_images,
            node_uuid: Some(target.node.id.to_string()),
            image_type: Some(
                if self.is_whole_disk() { "whole-disk" } else { "partition" }.to_owned(),
            ),
            ..ImageInfo::default()
        };
        // What we serve needs neither, and our address may be out of a proxy's reach.
        if is_straight {
            info.image_request_authorization =
                self.server_authorization().map(|header| STANDARD.encode(header));
            info.proxies.clone_from(&self.proxies);
            // Without a proxy there is nothing to go round.
            let no_proxy = self.no_proxy.filter(|_| !self.proxies.is_empty());
            info.no_proxy = no_proxy.map(str::to_owned);
        }
        if let Some((algorithm, value)) = offered.checksum {
            if algorithm == "md5" {
                info.checksum = Some(value);
            } else {
                info.os_hash_algo = Some(algorithm);
                info.os_hash_value = Some(value);
            }
        }
        if let Some(partitions) = &self.partitions {
            info.root_mb = Some(partitions.root);
            info.swap_mb = Some(partitions.swap);
            info.ephemeral_mb = Some(partitions.ephemeral);
            info.ephemeral_format = Some(partitions.ephemeral_format.clone());
            info.preserve_ephemeral = Some(partitions.preserve_ephemeral);
            info.deploy_boot_mode = Some(boot_mode.to_owned());
            info.boot_option = Some("local".to_owned());
            let label = capability(target, "disk_label");
            info.disk_label =
                Some(label.unwrap_or_else(|| {
                    if boot_mode == "uefi" { "gpt" } else { "msdos" }.to_owned()
                }));
        }
        info
    }
}

/// The `driver_info` keys about how an agent fetches images.
pub(super) const HTTP_PROXY: Property = (
    "image_http_proxy",
    "URL of the proxy through which the agent fetches images with http:// addresses. Optional.",
);
pub(super) const HTTPS_PROXY: Property = (
    "image_https_proxy",
    "URL of the proxy through which the agent fetches images with https:// addresses. Optional.",
);
pub(super) const NO_PROXY: Property = (
    "image_no_proxy",
    "Host names, IP addresses and domains (with a dot before them) that the agent asks without a \
     proxy, separated by commas. Optional.",
);
pub(super) const PULL_SECRET: Property = (
    "image_pull_secret",
    "What opens container registries for instances that do not bring their own: user:password, or \
     a token. Optional; what is configured for the registry if not given.",
);

/// What opens the registry or the server at `source`: what comes with the instance, or else what the
/// node has for registries. The latter is not shown to any web server that an instance names.
pub(super) fn pull_secret<'a>(target: &Target<'a>, source: &str) -> Result<Option<&'a str>, Error> {
    let key = PULL_SECRET.0;
    let of_instance = text(target.instance_info, key)?;
    let is_registry = source.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"));
    if of_instance.is_some() || !is_registry {
        return Ok(of_instance);
    }
    text_in("driver_info", target.driver_info, key)
}

fn proxies(target: &Target<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut proxies = BTreeMap::new();
    for (scheme, key) in [("http", HTTP_PROXY.0), ("https", HTTPS_PROXY.0)] {
        let Some(proxy) = text_in("driver_info", target.driver_info, key)? else { continue };
        if let Some((spoken, _)) = proxy.split_once("://")
            && !matches!(spoken.to_ascii_lowercase().as_str(), "http" | "https")
        {
            return Err(Error::invalid(
                format!("driver_info/{key}"),
                "a proxy is spoken to by http:// or https://",
            ));
        }
        proxies.insert(scheme.to_owned(), proxy.to_owned());
    }
    Ok(proxies)
}

fn no_proxy<'a>(target: &Target<'a>) -> Result<Option<&'a str>, Error> {
    let key = NO_PROXY.0;
    let Some(hosts) = text_in("driver_info", target.driver_info, key)? else { return Ok(None) };
    let is_host = |host: &str| {
        host.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-._:[]".contains(&letter))
    };
    if hosts.split(',').all(|host| is_host(host.trim())) {
        return Ok(Some(hosts));
    }
    Err(Error::invalid(
        format!("driver_info/{key}"),
        "give host names, IP addresses and domains, separated by commas; a domain has a dot before \
         it and no star",
    ))
}

/// A capability of the instance, or else of the node: `capabilities` is an object in the one and
/// `name:value,…` in the other, and either is taken in both.
pub(super) fn capability(target: &Target<'_>, name: &str) -> Option<String> {
    let in_value = |value: &Value| match value {
        Value::Object(map) => map.get(name).and_then(Value::as_str).map(str::to_owned),
        Value::String(text) => {
            let mut pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
            pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    let of_instance = target.instance_info.get("capabilities").and_then(in_value);
    of_instance.or_else(|| in_value(&target.node.properties.get("capabilities")?))
}

/// How the deployed system boots: `uefi` or `bios`.
pub(super) fn boot_mode(target: &Target<'_>) -> String {
    capability(target, "boot_mode")
        .or_else(|| target.node.boot_mode.clone())
        .filter(|mode| mode == "bios" || mode == "uefi")
        .unwrap_or_else(|| "uefi".to_owned())
}

fn partitions(info: &Map<String, Value>) -> Result<Option<Partitions>, Error> {
    let is_partition = match text(info, "image_type")? {
        Some("partition") => true,
        Some("whole-disk" | "whole-disk-image") => false,
        Some(other) => {
            return Err(Error::invalid(
                "instance_info/image_type",
                format!("it is '{other}', and must be whole-disk or partition"),
            ));
        }
        // An image that brings its kernel along is one of a root file system.
        None => text(info, "kernel")?.is_some() && text(info, "ramdisk")?.is_some(),
    };
    if !is_partition {
        return Ok(None);
    }
    let gib = |key: &str| Ok::<_, Error>(number(info, key)?.map(|gib| gib.saturating_mul(1024)));
    let root = gib("root_gb")?.filter(|mib| *mib > 0).ok_or_else(|| {
        Error::missing(
            "instance_info/root_gb",
            "an image of a partition needs the size of the root partition in GiB",
        )
    })?;
    Ok(Some(Partitions {
        root,
        swap: number(info, "swap_mb")?.unwrap_or(0),
        ephemeral: gib("ephemeral_gb")?.unwrap_or(0),
        ephemeral_format: text(info, "ephemeral_format")?.unwrap_or("ext4").to_owned(),
        preserve_ephemeral: info
            .get("preserve_ephemeral")
            .and_then(agent_protocol::flag)
            .unwrap_or(false),
    }))
}

fn checksum(info: &Map<String, Value>) -> Result<Option<(String, String)>, Error> {
    match (text(info, "image_os_hash_algo")?, text(info, "image_os_hash_value")?) {
        (Some(algorithm), Some(value)) => {
            return Ok(Some((algorithm.to_ascii_lowercase(), value.to_owned())));
        }
        (Some(_), None) => {
            return Err(Error::missing(
                "instance_info/image_os_hash_value",
                "image_os_hash_algo is given without it",
            ));
        }
        (None, Some(_)) => {
            return Err(Error::missing(
                "instance_info/image_os_hash_algo",
                "image_os_hash_value is given without it",
            ));
        }
        (None, None) => {}
    }
    let Some(checksum) = text(info, "image_checksum")? else { return Ok(None) };
    if checksum.contains("://") {
        return Ok(Some(("sha256".to_owned(), checksum.to_owned())));
    }
    const BY_LENGTH: [(usize, &str); 3] = [(32, "md5"), (64, "sha256"), (128, "sha512")];
    let algorithm = BY_LENGTH.iter().find(|(digits, _)| *digits == checksum.len());
    match algorithm.filter(|_| checksum.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        Some((_, algorithm)) => Ok(Some(((*algorithm).to_owned(), checksum.to_owned()))),
        None => Err(Error::invalid(
            "instance_info/image_checksum",
            "use an MD5, SHA-256 or SHA-512 digest in hexadecimal, or the URL of a file with one",
        )),
    }
}

fn text<'a>(info: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Error> {
    text_in("instance_info", info, key)
}

fn text_in<'a>(
    object: &str,
    info: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, Error> {
    match info.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Error::invalid(format!("{object}/{key}"), "it must be text"))
        }
    }
}

/// A number, which clients also write as text.
fn number(info: &Map<String, Value>, key: &str) -> Result<Option<u64>, Error> {
    let wrong = || Error::invalid(format!("instance_info/{key}"), "it must be a whole number");
    match info.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number.as_u64().map(Some).ok_or_else(wrong),
        Some(Value::String(text)) => text.trim().parse().map(Some).map_err(|_| wrong()),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use node_model::{Node, NodeId, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::{DriverSettings, NoBootServices, Registry};

    /// What the instance asks for, in words, or what is wrong with it.
    fn order(instance_info: Value) -> Result<String, String> {
        order_on(json!({}), instance_info, None)
    }

    /// The same on a node with this `driver_info`, where the image is served `elsewhere`.
    fn order_on(
        driver_info: Value,
        instance_info: Value,
        elsewhere: Option<&str>,
    ) -> Result<String, String> {
        let registry =
            Registry::new(&DriverSettings::default(), std::sync::Arc::new(NoBootServices)).unwrap();
        let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let driver = registry.compose(&node).unwrap();
        let Value::Object(info) = instance_info else { panic!("not an object") };
        let Value::Object(driver_info) = driver_info else { panic!("not an object") };
        let target = Target::new(&driver, &node, &driver_info, &info, Timestamp(0));
        let order = ImageOrder::of(&target).map_err(|error| error.to_string())?;
        let mut offered = order.straight();
        offered.url = elsewhere.map_or(offered.url, str::to_owned);
        let told = order.info(&target, offered, &AgentSettings::default(), "uefi");
        Ok(serde_json::to_string(&told).unwrap().replace(&node.id.to_string(), "NODE"))
    }

    #[test]
    fn images() {
        let digest = "d41d8cd98f00b204e9800998ecf8427e";
        for (instance_info, told) in [
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
            let found = order(instance_info.clone());
            assert!(found.as_ref().is_ok_and(|found| found.contains(told)), "{found:?}");
        }
        for (instance_info, problem) in [
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
            let refused = order(instance_info.clone()).expect_err("something is wrong with it");
            assert!(refused.contains(problem), "{instance_info}: {refused}");
        }
    }

    #[test]
    fn how_an_image_is_fetched() {
        let image = |more: Value| {
            let mut info = json!({"image_source": "https://h/i", "image_checksum": "0".repeat(64)});
            info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            info
        };
        let proxied = json!({
            "image_http_proxy": "http://p:3128", "image_https_proxy": "p:3128",
            "image_no_proxy": "10.0.0.1, .example,[fe80::1]:80",
        });
        for (driver_info, instance_info, told) in [
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
            let told_so = order_on(driver_info.clone(), image(instance_info.clone()), None);
            assert!(told_so.as_ref().is_ok_and(|text| text.contains(told)), "{told_so:?}");
            // From us it comes without.
            let ours = order_on(driver_info, image(instance_info), Some("http://us/i")).unwrap();
            assert!(!ours.contains(told), "{ours}");
        }
        let of_node = json!({"image_pull_secret": "me:hush", "image_no_proxy": "h"});
        let told = order_on(of_node, image(json!({})), None).unwrap();
        assert!(!told.contains("authorization"), "it is for registries: {told}");
        assert!(!told.contains("no_proxy"), "there is no proxy: {told}");
        for (driver_info, problem) in [
            (json!({"image_http_proxy": "socks5://p"}), "driver_info/image_http_proxy"),
            (json!({"image_https_proxy": 3128}), "driver_info/image_https_proxy"),
            (json!({"image_no_proxy": "*.example"}), "driver_info/image_no_proxy"),
        ] {
            let refused = order_on(driver_info, image(json!({})), None).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn what_opens_a_registry() {
        let registry =
            Registry::new(&DriverSettings::default(), std::sync::Arc::new(NoBootServices));
        let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        let driver = registry.unwrap().compose(&node).unwrap();
        for (of_node, of_instance, source, opens) in [
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
            let (of_node, of_instance) = (info(of_node), info(of_instance));
            let target = Target::new(&driver, &node, &of_node, &of_instance, Timestamp(0));
            assert_eq!(pull_secret(&target, source).unwrap(), opens, "{source}");
        }
    }
}
