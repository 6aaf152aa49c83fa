// SPDX-License-Identifier: Apache-2.0
//! The image that an instance requests, parsed and checked from `instance_info`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::requested_firmware::{RequestedFirmware, capability_in};
use crate::{DriverError, DriverProperty, DriverTarget, PublishedImage};

/// The image of an instance, from `instance_info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceImage<'a> {
    /// The source URL.
    pub source: &'a str,
    /// Algorithm and checksum, or the URL of a checksum file.
    pub checksum: Option<(String, String)>,
    /// The declared disk format.
    pub format: Option<&'a str>,
    /// `http` or `local`, if the instance chooses.
    pub download_source: Option<&'a str>,
    /// Credentials for the registry or web server.
    pub pull_secret: Option<&'a str>,
    /// The whole value of the `Authorization` header.
    pub authorization: Option<&'a str>,
    /// The agent's proxies, by scheme.
    pub proxies: BTreeMap<String, String>,
    /// Hosts that the agent reaches without a proxy.
    pub no_proxy: Option<&'a str>,
    /// The partitions to create; `None` for a whole-disk image.
    pub partitions: Option<ImagePartitions>,
}

/// The partitions around an image of a root file system, in MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePartitions {
    /// Size of the root partition.
    pub root: u64,
    /// Size of the swap partition; 0 for none.
    pub swap: u64,
    /// Size of the ephemeral partition; 0 for none.
    pub ephemeral: u64,
    /// File system of the ephemeral partition.
    pub ephemeral_format: String,
    /// Whether an existing ephemeral partition keeps its data.
    pub preserve_ephemeral: bool,
}

impl<'a> InstanceImage<'a> {
    /// Parses and checks the image of the instance of `target`.
    pub fn from_target(target: &DriverTarget<'a>) -> Result<Self, DriverError> {
        let info = target.instance_info;
        let Some(source) = instance_text(info, "image_source")? else {
            return Err(DriverError::missing(
                "instance_info/image_source",
                "give the image to deploy",
            ));
        };
        let image = Self {
            source,
            checksum: checksum(info)?,
            format: instance_text(info, "image_disk_format")?,
            download_source: instance_text(info, "image_download_source")?,
            pull_secret: pull_secret(target, source)?,
            authorization: instance_text(info, "image_request_authorization_secret")?,
            proxies: proxies(target)?,
            no_proxy: no_proxy(target)?,
            partitions: partitions(info)?,
        };
        if image.is_http() && image.checksum.is_none() {
            return Err(DriverError::missing(
                "instance_info/image_checksum",
                "an image from a web server needs it, or image_os_hash_algo with \
                 image_os_hash_value",
            ));
        }
        Ok(image)
    }

    /// Whether an agent can download it directly.
    #[must_use]
    pub fn is_http(&self) -> bool {
        let scheme = self.source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        matches!(scheme.as_deref(), Some("http" | "https"))
    }

    /// The image at its source URL.
    #[must_use]
    pub fn at_source_url(&self) -> PublishedImage {
        PublishedImage {
            url: self.source.to_owned(),
            checksum: self.checksum.clone(),
            format: self.format.map(str::to_owned),
        }
    }

    /// Whether it is a whole-disk image.
    pub fn is_whole_disk(&self) -> bool {
        self.partitions.is_none()
    }
}

/// The `driver_info` key with the proxy for http.
pub const HTTP_PROXY: DriverProperty = (
    "image_http_proxy",
    "URL of the proxy through which the agent fetches images with http:// addresses. Optional.",
);
/// The `driver_info` key with the proxy for https.
pub const HTTPS_PROXY: DriverProperty = (
    "image_https_proxy",
    "URL of the proxy through which the agent fetches images with https:// addresses. Optional.",
);
/// The `driver_info` key with the hosts that are reached without a proxy.
pub const NO_PROXY: DriverProperty = (
    "image_no_proxy",
    "Host names, IP addresses and domains (with a leading dot) that the agent reaches without a \
     proxy, separated by commas. Optional.",
);
/// The `driver_info` key with the credentials for container registries.
pub const PULL_SECRET: DriverProperty = (
    "image_pull_secret",
    "Credentials for container registries, for instances without their own: user:password, or a \
     token. Optional; defaults to the credentials configured for the registry.",
);

/// Credentials for the registry or web server at `source`: the instance's, or else the node's. The
/// node's are used for registries only, so that an instance cannot send them to another server.
pub fn pull_secret<'a>(
    target: &DriverTarget<'a>,
    source: &str,
) -> Result<Option<&'a str>, DriverError> {
    let key = PULL_SECRET.0;
    let instance_secret = instance_text(target.instance_info, key)?;
    let is_registry = source.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"));
    if instance_secret.is_some() || !is_registry {
        return Ok(instance_secret);
    }
    object_text("driver_info", target.driver_info, key)
}

fn proxies(target: &DriverTarget<'_>) -> Result<BTreeMap<String, String>, DriverError> {
    let mut proxies = BTreeMap::new();
    for (scheme, key) in [("http", HTTP_PROXY.0), ("https", HTTPS_PROXY.0)] {
        let Some(proxy) = object_text("driver_info", target.driver_info, key)? else { continue };
        if let Some((scheme, _)) = proxy.split_once("://")
            && !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
        {
            return Err(DriverError::invalid(
                format!("driver_info/{key}"),
                "a proxy URL starts with http:// or https://",
            ));
        }
        proxies.insert(scheme.to_owned(), proxy.to_owned());
    }
    Ok(proxies)
}

fn no_proxy<'a>(target: &DriverTarget<'a>) -> Result<Option<&'a str>, DriverError> {
    let key = NO_PROXY.0;
    let Some(hosts) = object_text("driver_info", target.driver_info, key)? else { return Ok(None) };
    let is_host = |host: &str| {
        host.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-._:[]".contains(&letter))
    };
    if hosts.split(',').all(|host| is_host(host.trim())) {
        return Ok(Some(hosts));
    }
    Err(DriverError::invalid(
        format!("driver_info/{key}"),
        "give host names, IP addresses and domains, separated by commas; write a domain with a \
             leading dot, not with a star",
    ))
}

/// A capability of the instance, or else of the node. `capabilities` may be an object or text such as
/// `name:value,…` in both.
pub fn capability(target: &DriverTarget<'_>, name: &str) -> Option<String> {
    let of_instance = target.instance_info.get("capabilities");
    of_instance
        .and_then(|given| capability_in(given, name))
        .or_else(|| capability_in(&target.node.properties.get("capabilities")?, name))
}

/// Boot mode of the deployed system: `uefi` or `bios`.
pub fn boot_mode(target: &DriverTarget<'_>) -> String {
    let requested = RequestedFirmware::from_target(target).unwrap_or_default().boot_mode;
    requested
        .map(|mode| mode.as_str().to_owned())
        .or_else(|| target.node.boot_mode.clone())
        .filter(|mode| mode == "bios" || mode == "uefi")
        .unwrap_or_else(|| "uefi".to_owned())
}

fn partitions(info: &Map<String, Value>) -> Result<Option<ImagePartitions>, DriverError> {
    let is_partition = match instance_text(info, "image_type")? {
        Some("partition") => true,
        Some("whole-disk" | "whole-disk-image") => false,
        Some(other) => {
            return Err(DriverError::invalid(
                "instance_info/image_type",
                format!("it is '{other}', and must be whole-disk or partition"),
            ));
        }
        // An image with separate kernel and ramdisk is a partition image.
        None => {
            instance_text(info, "kernel")?.is_some() && instance_text(info, "ramdisk")?.is_some()
        }
    };
    if !is_partition {
        return Ok(None);
    }
    let gib = |key: &str| {
        Ok::<_, DriverError>(instance_number(info, key)?.map(|gib| gib.saturating_mul(1024)))
    };
    let root = gib("root_gb")?.filter(|mib| *mib > 0).ok_or_else(|| {
        DriverError::missing(
            "instance_info/root_gb",
            "a partition image needs the size of the root partition in GiB",
        )
    })?;
    Ok(Some(ImagePartitions {
        root,
        swap: instance_number(info, "swap_mb")?.unwrap_or(0),
        ephemeral: gib("ephemeral_gb")?.unwrap_or(0),
        ephemeral_format: instance_text(info, "ephemeral_format")?.unwrap_or("ext4").to_owned(),
        preserve_ephemeral: info
            .get("preserve_ephemeral")
            .and_then(node_model::parse_bool)
            .unwrap_or(false),
    }))
}

fn checksum(info: &Map<String, Value>) -> Result<Option<(String, String)>, DriverError> {
    match (instance_text(info, "image_os_hash_algo")?, instance_text(info, "image_os_hash_value")?)
    {
        (Some(algorithm), Some(value)) => {
            return Ok(Some((algorithm.to_ascii_lowercase(), value.to_owned())));
        }
        (Some(_), None) => {
            return Err(DriverError::missing(
                "instance_info/image_os_hash_value",
                "image_os_hash_algo is given without it",
            ));
        }
        (None, Some(_)) => {
            return Err(DriverError::missing(
                "instance_info/image_os_hash_algo",
                "image_os_hash_value is given without it",
            ));
        }
        (None, None) => {}
    }
    let Some(checksum) = instance_text(info, "image_checksum")? else { return Ok(None) };
    if checksum.contains("://") {
        return Ok(Some(("sha256".to_owned(), checksum.to_owned())));
    }
    const BY_LENGTH: [(usize, &str); 3] = [(32, "md5"), (64, "sha256"), (128, "sha512")];
    let algorithm = BY_LENGTH.iter().find(|(digits, _)| *digits == checksum.len());
    match algorithm.filter(|_| checksum.bytes().all(|digit| digit.is_ascii_hexdigit())) {
        Some((_, algorithm)) => Ok(Some(((*algorithm).to_owned(), checksum.to_owned()))),
        None => Err(DriverError::invalid(
            "instance_info/image_checksum",
            "use an MD5, SHA-256 or SHA-512 digest in hexadecimal, or the URL of a file with one",
        )),
    }
}

fn instance_text<'a>(
    info: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, DriverError> {
    object_text("instance_info", info, key)
}

fn object_text<'a>(
    object: &str,
    info: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, DriverError> {
    match info.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(DriverError::invalid(format!("{object}/{key}"), "it must be text"))
        }
    }
}

/// A number, which clients may also send as text.
fn instance_number(info: &Map<String, Value>, key: &str) -> Result<Option<u64>, DriverError> {
    let invalid =
        || DriverError::invalid(format!("instance_info/{key}"), "it must be a whole number");
    match info.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number.as_u64().map(Some).ok_or_else(invalid),
        Some(Value::String(text)) => text.trim().parse().map(Some).map_err(|_| invalid()),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => Err(invalid()),
    }
}
