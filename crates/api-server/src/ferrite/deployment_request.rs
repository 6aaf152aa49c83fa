// SPDX-License-Identifier: Apache-2.0
//! The body of a new deployment, and its checks.

use std::time::Duration;

use ironic_wire::{MAX_TRAITS, WireError, is_trait, parse_fields, parse_object};
use node_model::{LeaseEndAction, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Image URLs that a deployment accepts.
const IMAGE_SCHEMES: &[&str] = &["http", "https", "file", "oci", "glance"];
/// Maximum number of candidate machines and of SSH keys.
const MAX_ITEMS: usize = 1000;
/// Maximum length of a text, except user data.
const MAX_TEXT: usize = 2000;
/// The longest lease: 100 years.
const MAX_LEASE: u64 = 100 * 366 * 24 * 3600;
/// By default the warning is given this long before the end of a lease.
const DEFAULT_WARNING: u64 = 24 * 3600;

/// The body of `POST /v1/ferrite/deployments`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentRequest {
    #[serde(default)]
    pub(super) uuid: Option<Uuid>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) project: Option<String>,
    #[serde(default)]
    pub(super) flavour: Option<String>,
    #[serde(default)]
    pub(super) resource_class: Option<String>,
    #[serde(default)]
    pub(super) traits: Vec<String>,
    #[serde(default)]
    pub(super) owner: Option<String>,
    #[serde(default)]
    pub(super) nodes: Vec<String>,
    image: String,
    #[serde(default)]
    checksum: Option<String>,
    #[serde(default)]
    instance_info: Map<String, Value>,
    #[serde(default)]
    ssh_keys: Vec<String>,
    #[serde(default)]
    user_data: Option<String>,
    #[serde(default)]
    network_data: Option<Map<String, Value>>,
    #[serde(default)]
    lease: Option<LeaseRequest>,
}

/// The requested lease.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, expecting = "an object with duration, warn_before and at_end")]
struct LeaseRequest {
    /// Seconds from now.
    duration: u64,
    /// Seconds before the end.
    #[serde(default)]
    warn_before: Option<u64>,
    #[serde(default)]
    at_end: Option<LeaseEndAction>,
}

/// Whether a field of `instance_info` changes the ramdisk. Its agent gets credentials of the operator and
/// enforces the signature policy, so users of a machine must not choose it.
fn selects_ramdisk(field: &str) -> bool {
    field.starts_with("deploy_")
        || field.starts_with("rescue_")
        || ["kernel_append_params", "ramdisk_kernel_arguments", "bootloader"].contains(&field)
}

/// The lease of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeaseTerms {
    pub(super) expires_at: Option<Timestamp>,
    pub(super) warn_seconds: i64,
    pub(super) action: LeaseEndAction,
}

impl DeploymentRequest {
    /// Parses and checks the body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let body = Value::Object(parse_object(body, "deployment")?);
        let request: Self = parse_fields(body)?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), WireError> {
        if let Some(name) = self.name.as_deref().filter(|name| !is_hostname(name)) {
            let name: String = name.chars().take(80).collect();
            let problem = format!("{name:?} is not a host name, such as web-1");
            return Err(WireError::invalid_field("name", &problem));
        }
        if self.flavour.is_none() && self.resource_class.is_none() && self.nodes.is_empty() {
            return Err(WireError::invalid(
                "Name a flavour, a resource_class or nodes, so that a machine can be chosen.",
            ));
        }
        for (field, text) in [
            ("project", &self.project),
            ("flavour", &self.flavour),
            ("resource_class", &self.resource_class),
            ("owner", &self.owner),
            ("checksum", &self.checksum),
        ] {
            if text.as_deref().is_some_and(|text| text.is_empty() || text.len() > 255) {
                return Err(WireError::invalid_field(field, "it must have 1 to 255 characters"));
            }
        }
        if self.traits.len() > MAX_TRAITS || !self.traits.iter().all(|name| is_trait(name)) {
            let problem = format!("it must be a list of at most {MAX_TRAITS} traits");
            return Err(WireError::invalid_field("traits", &problem));
        }
        if self.nodes.len() > MAX_ITEMS {
            return Err(WireError::invalid_field("nodes", "it has too many entries"));
        }
        if !is_image(&self.image) {
            let problem = "it must be an http://, https://, file://, oci:// or glance:// URL, or the UUID \
                           of an image in Glance";
            return Err(WireError::invalid_field("image", problem));
        }
        self.checksum.as_deref().map_or(Ok(()), |sum| checksum_fields(sum).map(drop))?;
        if self.ssh_keys.len() > MAX_ITEMS || !self.ssh_keys.iter().all(|key| is_public_key(key)) {
            let problem = "it must be a list of public keys as in authorized_keys";
            return Err(WireError::invalid_field("ssh_keys", problem));
        }
        if self.instance_info.contains_key("traits") {
            let problem = "traits are given as traits of the deployment";
            return Err(WireError::invalid_field("instance_info", problem));
        }
        if let Some(name) = self.instance_info.keys().find(|name| selects_ramdisk(name)) {
            let problem = format!("{name} selects the ramdisk, which only the operator does");
            return Err(WireError::invalid_field("instance_info", &problem));
        }
        let is_lease = |lease: &LeaseRequest| {
            (1..=MAX_LEASE).contains(&lease.duration)
                && lease.warn_before.is_none_or(|before| before <= lease.duration)
        };
        if self.lease.as_ref().is_some_and(|lease| !is_lease(lease)) {
            let problem = format!(
                "duration must have 1 to {MAX_LEASE} seconds, and warn_before at most as many as duration"
            );
            return Err(WireError::invalid_field("lease", &problem));
        }
        Ok(())
    }

    /// What is stored as `instance` of the deployment.
    pub(super) fn instance(&self) -> Result<Map<String, Value>, WireError> {
        let mut info = self.instance_info.clone();
        info.insert("image_source".to_owned(), json!(self.image));
        if let Some(checksum) = &self.checksum {
            info.extend(checksum_fields(checksum)?);
        }
        let mut instance = Map::new();
        instance.insert("instance_info".to_owned(), Value::Object(info));
        if !self.ssh_keys.is_empty() {
            instance.insert("ssh_keys".to_owned(), json!(self.ssh_keys));
        }
        if let Some(user_data) = &self.user_data {
            instance.insert("user_data".to_owned(), json!(user_data));
        }
        if let Some(network_data) = &self.network_data {
            instance.insert("network_data".to_owned(), json!(network_data));
        }
        Ok(instance)
    }

    /// The lease, which begins now.
    pub(super) fn lease(&self, now: Timestamp) -> LeaseTerms {
        let Some(lease) = &self.lease else {
            let action = LeaseEndAction::Undeploy;
            return LeaseTerms { expires_at: None, warn_seconds: 0, action };
        };
        // A warning at the start of a short lease would be useless.
        let default = DEFAULT_WARNING.min(lease.duration / 4);
        let warn_before = lease.warn_before.unwrap_or(default);
        LeaseTerms {
            expires_at: Some(now.plus(Duration::from_secs(lease.duration))),
            warn_seconds: i64::try_from(warn_before).unwrap_or(i64::MAX),
            action: lease.at_end.unwrap_or(LeaseEndAction::Undeploy),
        }
    }
}

impl LeaseTerms {
    /// The lease, ended after `max` if it has no end. Fails if it would be longer.
    pub(super) fn limited(self, max: Option<Duration>, now: Timestamp) -> Result<Self, WireError> {
        let Some(max) = max else { return Ok(self) };
        match self.expires_at {
            Some(end) if end > now.plus(max) => {
                let problem =
                    format!("the operator allows at most {} seconds from now", max.as_secs());
                Err(WireError::invalid_field("lease", &problem))
            }
            Some(_) => Ok(self),
            None => {
                let warning = DEFAULT_WARNING.min(max.as_secs() / 4);
                let warn_seconds = i64::try_from(warning).unwrap_or(i64::MAX);
                Ok(Self { expires_at: Some(now.plus(max)), warn_seconds, ..self })
            }
        }
    }
}

/// The changes of `PATCH /v1/ferrite/deployments/{deployment}`.
#[derive(Deserialize, Debug, Default, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentLeaseChange {
    /// Seconds to add to the lease, from its end or, if that has passed, from now.
    #[serde(default)]
    extend_by: Option<u64>,
    /// Seconds from now.
    #[serde(default)]
    duration: Option<u64>,
    /// Removes the end of the lease.
    #[serde(default)]
    unlimited: bool,
    #[serde(default)]
    warn_before: Option<u64>,
    #[serde(default)]
    at_end: Option<LeaseEndAction>,
}

impl DeploymentLeaseChange {
    pub(super) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut body = parse_object(body, "deployment")?;
        let lease = body.remove("lease").ok_or_else(|| WireError::missing("lease"))?;
        if let Some(unknown) = body.keys().next() {
            return Err(WireError::unexpected(&[unknown]));
        }
        let change: Self = parse_fields(lease)?;
        let ends = [change.extend_by.is_some(), change.duration.is_some(), change.unlimited];
        if ends.iter().filter(|is_given| **is_given).count() > 1 {
            return Err(WireError::invalid_field(
                "lease",
                "only one of extend_by, duration and unlimited can be given",
            ));
        }
        if change.extend_by == Some(0) || change.duration == Some(0) {
            let problem = "times must have at least 1 second; delete the deployment to end it now";
            return Err(WireError::invalid_field("lease", problem));
        }
        let seconds = [change.extend_by, change.duration, change.warn_before];
        if seconds.iter().flatten().any(|seconds| *seconds > MAX_LEASE) {
            let problem = format!("times must have at most {MAX_LEASE} seconds");
            return Err(WireError::invalid_field("lease", &problem));
        }
        Ok(change)
    }

    /// The lease after the change. Fails if it would be longer than `max`, or shorter than its warning.
    pub(super) fn apply(
        self,
        before: LeaseTerms,
        max: Option<Duration>,
        now: Timestamp,
    ) -> Result<LeaseTerms, WireError> {
        let expires_at = match (self.extend_by, self.duration) {
            _ if self.unlimited => None,
            (Some(seconds), _) => {
                let start = before.expires_at.map_or(now, |end| end.max(now));
                Some(start.plus(Duration::from_secs(seconds)))
            }
            (None, Some(seconds)) => Some(now.plus(Duration::from_secs(seconds))),
            (None, None) => before.expires_at,
        };
        if self.unlimited && max.is_some() {
            let problem = "the operator does not allow leases without an end";
            return Err(WireError::invalid_field("lease", problem));
        }
        let remaining = expires_at.map_or(i64::MAX, |end| end.0.saturating_sub(now.0) / 1_000_000);
        let warn_before = self.warn_before.and_then(|seconds| i64::try_from(seconds).ok());
        if warn_before.is_some_and(|seconds| seconds > remaining.max(0)) {
            let problem = "warn_before must have at most as many seconds as the lease";
            return Err(WireError::invalid_field("lease", problem));
        }
        let after = LeaseTerms {
            expires_at,
            warn_seconds: warn_before.unwrap_or(before.warn_seconds.min(remaining.max(0))),
            action: self.at_end.unwrap_or(before.action),
        };
        // A change of something else is allowed if the operator lowered the maximum meanwhile.
        if after.expires_at == before.expires_at { Ok(after) } else { after.limited(max, now) }
    }
}

fn is_hostname(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name that looks like a UUID could not be distinguished from one.
    name.len() <= 253 && name.split('.').all(is_label) && Uuid::try_parse(name).is_err()
}

fn is_image(text: &str) -> bool {
    let is_printable = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let is_url = text
        .split_once("://")
        .is_some_and(|(scheme, rest)| IMAGE_SCHEMES.contains(&scheme) && rest.len() > 1);
    text.len() <= MAX_TEXT && is_printable && (is_url || Uuid::try_parse(text).is_ok())
}

/// Whether a text is an `authorized_keys` entry, with optional options and comment.
fn is_public_key(line: &str) -> bool {
    let parts: Vec<&str> = line.split_whitespace().collect();
    line.len() <= 16 * 1024
        && !line.contains('\n')
        && parts.windows(2).any(|pair| {
            let is_type = ["ssh-", "ecdsa-", "sk-"].iter().any(|kind| pair[0].starts_with(kind));
            let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            is_type && pair[1].bytes().all(is_base64)
        })
}

/// The fields of `instance_info` for a checksum.
fn checksum_fields(text: &str) -> Result<Map<String, Value>, WireError> {
    let is_hash = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let algorithm = match text.len() {
        64 if is_hash => Some("sha256"),
        128 if is_hash => Some("sha512"),
        _ => None,
    };
    let is_url = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    let mut fields = Map::new();
    match algorithm {
        Some(algorithm) => {
            fields.insert("image_os_hash_algo".to_owned(), json!(algorithm));
            fields.insert("image_os_hash_value".to_owned(), json!(text));
        }
        None if is_url => {
            fields.insert("image_checksum".to_owned(), json!(text));
        }
        None => {
            let problem = "it must be a SHA-256 or SHA-512 in hexadecimal digits, or the URL of a \
                           checksum file";
            return Err(WireError::invalid_field("checksum", problem));
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &Value) -> Result<DeploymentRequest, WireError> {
        DeploymentRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn rejects_invalid_requests() {
        let valid = json!({"resource_class": "big", "image": "http://images/a"});
        parse(&valid).unwrap();
        for (field, value) in [
            ("image", json!("debian")),
            ("image", json!("http://a b/")),
            ("name", json!("-web")),
            ("name", json!("4b7a1a3c-6a2c-4a9a-9a77-2d5a3c5ab001")),
            ("resource_class", json!("")),
            ("traits", json!(["gpu"])),
            ("checksum", json!("abc")),
            ("ssh_keys", json!(["hello"])),
            ("ssh_keys", json!(["ssh-ed25519 AAAA\nssh-ed25519 BBBB"])),
            ("instance_info", json!({"traits": []})),
            ("lease", json!({"duration": 0})),
            ("lease", json!({"duration": 60, "warn_before": 61})),
            ("lease", json!({"duration": 60, "at_end": "explode"})),
            ("unknown", json!(1)),
        ] {
            let mut body = valid.clone();
            body[field] = value;
            assert_eq!(parse(&body).unwrap_err().status(), 400, "{body}");
        }
        assert_eq!(parse(&json!({"image": "http://images/a"})).unwrap_err().status(), 400);
    }

    #[test]
    fn computes_leases() {
        let now = Timestamp::from_secs(1000);
        let body = json!({"nodes": ["n"], "image": "oci://r/i", "lease": {"duration": 400}});
        let lease = parse(&body).unwrap().lease(now);
        let end = Timestamp::from_secs(1400);
        assert_eq!((lease.expires_at, lease.warn_seconds), (Some(end), 100));
        for (change, later, expected) in [
            (json!({"extend_by": 100}), 1000, Some(1500)),
            (json!({"extend_by": 100}), 2000, Some(2100)),
            (json!({"duration": 50}), 1200, Some(1250)),
            (json!({"unlimited": true}), 1200, None),
            (json!({"at_end": "notify"}), 1200, Some(1400)),
        ] {
            let parsed =
                DeploymentLeaseChange::parse(json!({"lease": change}).to_string().as_bytes());
            let changed = parsed.unwrap().apply(lease, None, Timestamp::from_secs(later)).unwrap();
            assert_eq!(changed.expires_at, expected.map(Timestamp::from_secs), "{change}");
            assert!(changed.warn_seconds <= 100, "{change}");
        }
        let shortened = DeploymentLeaseChange { duration: Some(50), ..Default::default() };
        assert_eq!(shortened.apply(lease, None, now).unwrap().warn_seconds, 50);
        let late_warning = DeploymentLeaseChange { warn_before: Some(401), ..Default::default() };
        assert!(late_warning.apply(lease, None, now).is_err());
        let unlimited = DeploymentLeaseChange { unlimited: true, ..Default::default() };
        assert!(unlimited.apply(lease, Some(Duration::from_secs(400)), now).is_err());
        // The operator's maximum applies to longer leases and to those without an end.
        let max = Some(Duration::from_secs(400));
        assert_eq!(lease.limited(max, now).unwrap().expires_at, Some(end));
        assert!(lease.limited(Some(Duration::from_secs(399)), now).is_err());
        let unlimited = LeaseTerms { expires_at: None, ..lease };
        assert_eq!(unlimited.limited(max, now).unwrap().expires_at, Some(end));
        assert_eq!(unlimited.limited(None, now).unwrap().expires_at, None);
        for invalid in [json!({}), json!({"lease": {"duration": 1, "unlimited": true}})] {
            assert!(
                DeploymentLeaseChange::parse(invalid.to_string().as_bytes()).is_err(),
                "{invalid}"
            );
        }
    }
}
