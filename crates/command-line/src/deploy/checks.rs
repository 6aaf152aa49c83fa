// SPDX-License-Identifier: Apache-2.0
//! Checks of deploy options that need no server.

use serde_json::{Map, Value, json};

use crate::cli_error::CliError;

const SCHEMES: [&str; 5] = ["http", "https", "file", "oci", "glance"];

/// Whether a text is a supported image URL or the UUID of an image in Glance.
#[must_use]
pub fn is_image_reference(text: &str) -> bool {
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_complete = match scheme {
            "file" => host.is_empty() && !path.is_empty(),
            "glance" => !host.is_empty(),
            _ => is_host(host) && !path.is_empty(),
        };
        SCHEMES.contains(&scheme) && is_complete && is_printable(rest)
    });
    is_url || uuid::Uuid::parse_str(text).is_ok()
}

/// Checks that `--image` is a supported URL or the UUID of an image in Glance.
pub(super) fn check_image(text: &str) -> Result<(), CliError> {
    if is_image_reference(text) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--image {:?} is not an image URL: use http://HOST/PATH, https://, file:///PATH, oci://, or \
         the UUID of an image in Glance",
        without_password(text)
    )))
}

/// Whether an image from a web server has no checksum, which most deploy interfaces require.
pub(super) fn lacks_checksum(instance: &Map<String, Value>) -> bool {
    let source = instance.get("image_source").and_then(Value::as_str).unwrap_or_default();
    let scheme = source.split_once("://").map(|(scheme, _)| scheme);
    matches!(scheme, Some("http" | "https"))
        && !["image_checksum", "image_os_hash_value"].iter().any(|key| instance.contains_key(*key))
}

/// A hint for server errors about a missing checksum.
pub(super) fn checksum_hint(error: &str, instance: &Map<String, Value>) -> &'static str {
    if error.contains("checksum") && lacks_checksum(instance) {
        "; give it with --checksum"
    } else {
        ""
    }
}

/// Converts a checksum, or the URL of a checksum file, to fields of `instance_info`; `None` if it is
/// neither.
#[must_use]
pub fn checksum_instance_info(text: &str) -> Option<Map<String, Value>> {
    let is_url = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(host, path)| is_host(host) && !path.is_empty() && is_printable(path));
    let (named, hash) =
        text.split_once(':').map_or((None, text), |(name, hash)| (Some(name), hash));
    let is_hash = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let algorithm = match hash.len() {
        64 if is_hash => Some("sha256"),
        128 if is_hash => Some("sha512"),
        _ => None,
    };
    let fields = match algorithm {
        _ if is_url => json!({ "image_checksum": text }),
        Some(algorithm) if named.is_none_or(|named| named == algorithm) => {
            json!({ "image_os_hash_algo": algorithm, "image_os_hash_value": hash })
        }
        Some(_) | None => return None,
    };
    fields.as_object().cloned()
}

/// Converts `--checksum` to fields of `instance_info`.
pub(super) fn checksum_fields(text: &str) -> Result<Map<String, Value>, CliError> {
    checksum_instance_info(text).ok_or_else(|| {
        CliError::Usage(format!(
            "--checksum {:?} is neither a SHA-256 (64 hexadecimal digits) nor a SHA-512 (128) nor the \
             http:// or https:// URL of a checksum file; give other kinds with --instance-info \
             image_checksum=…",
            without_password(text)
        ))
    })
}

/// Checks that a name is a valid DNS name.
pub(super) fn check_hostname(name: &str) -> Result<(), CliError> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--hostname {name:?} is not a hostname: letters, digits and - in labels of at most 63 characters, \
         separated by dots"
    )))
}

/// Checks a trait name.
pub(super) fn check_trait_name(name: &str) -> Result<(), CliError> {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..=255).contains(&name.len()) && name.bytes().all(is_part) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--trait {name:?} is not a trait: use upper-case names such as CUSTOM_GPU or HW_CPU_X86_VMX"
    )))
}

fn is_host(host: &str) -> bool {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    !host.is_empty() && !host.starts_with(':')
}

fn is_printable(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_whitespace() || letter.is_control())
}

fn without_password(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_image_urls() {
        for image_url in [
            "http://images/a.raw",
            "https://user:p@images:8443/d/a.qcow2?x=1",
            "file:///srv/a.raw",
            "oci://registry/debian:13",
            "1be26c0b-03f2-4d2e-ae87-c02d7f33c123",
        ] {
            check_image(image_url).unwrap();
        }
        for invalid in [
            "",
            "debian",
            "/srv/a.raw",
            "file://srv/a.raw",
            "http://",
            "http:///a.raw",
            "http://images",
            "http://images/a b.raw",
            "ftp://images/a.raw",
            "htpp://images/a.raw",
        ] {
            assert!(matches!(check_image(invalid), Err(CliError::Usage(_))), "{invalid}");
        }
        let message = check_image("ftp://ann:hush@images/a").unwrap_err().to_string();
        assert!(!message.contains("hush"), "{message}");
    }

    #[test]
    fn parses_checksums() {
        let (short, long) = ("0a".repeat(32), "0b".repeat(64));
        for (text, algorithm, value) in [
            (short.clone(), "sha256", short.clone()),
            (format!("sha256:{short}"), "sha256", short.clone()),
            (long.clone(), "sha512", long.clone()),
        ] {
            let fields = checksum_fields(&text).unwrap();
            assert_eq!(fields["image_os_hash_algo"], algorithm);
            assert_eq!(fields["image_os_hash_value"], value.as_str());
        }
        let url = "https://images/SHA256SUMS";
        assert_eq!(checksum_fields(url).unwrap()["image_checksum"], url);
        let swapped = format!("sha512:{short}");
        let not_hex = "x".repeat(64);
        for invalid in ["", "abc", &"0".repeat(32), &swapped, &not_hex, "http://images", "SUMS"] {
            assert!(matches!(checksum_fields(invalid), Err(CliError::Usage(_))), "{invalid}");
        }
    }

    #[test]
    fn images_from_web_servers_need_a_checksum() {
        for (instance, expected) in [
            (json!({"image_source": "http://images/a"}), true),
            (json!({"image_source": "https://images/a", "kernel": "x"}), true),
            (json!({"image_source": "https://images/a", "image_checksum": "x"}), false),
            (json!({"image_source": "https://images/a", "image_os_hash_value": "x"}), false),
            (json!({"image_source": "file:///a"}), false),
            (json!({"image_source": "oci://registry/a"}), false),
        ] {
            assert_eq!(lacks_checksum(instance.as_object().unwrap()), expected, "{instance}");
        }
    }

    #[test]
    fn checks_hostnames_and_traits() {
        for (name, is_valid) in [
            ("web", true),
            ("web-1.example.org", true),
            ("WEB1", true),
            ("", false),
            ("web_1", false),
            ("-web", false),
            ("web.", false),
            ("wéb", false),
            ("web 1", false),
        ] {
            assert_eq!(check_hostname(name).is_ok(), is_valid, "{name}");
        }
        assert!(check_hostname(&"a".repeat(64)).is_err());
        for (name, is_valid) in
            [("CUSTOM_A1", true), ("custom_a", false), ("", false), ("A B", false)]
        {
            assert_eq!(check_trait_name(name).is_ok(), is_valid, "{name}");
        }
    }
}
