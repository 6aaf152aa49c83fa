// SPDX-License-Identifier: Apache-2.0
//! Values that must not be shown, and the rules by which keys of secrets are recognised.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::url_secrets::may_have_url_secret;
use crate::{JsonObject, mask_urls};

/// Replaces a secret in all output.
pub const MASK: &str = "******";

/// A value that `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself: for use with the machine it belongs to, never for output.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// A key that contains one of these belongs to a secret. The first lines are what Ironic masks.
const SECRET_KEY_PARTS: [&str; 24] = [
    "password",
    "admin_pass",
    "adminpass",
    "auth_token",
    "new_pass",
    "secret",
    "sys_pswd",
    "token",
    "passphrase",
    "private_key",
    "snmp_auth_key",
    "snmp_priv_key",
    "passwd",
    "pswd",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "privatekey",
    "ssh_key",
    "credential",
    "community",
    "cert_pem",
    "key_pem",
];
/// A key that equals one of these belongs to a secret. As substrings they would match too much.
const SECRET_KEYS: [&str; 6] =
    ["ipmi_hex_kg_key", "configdrive", "image_url", "fernet", "user_data", "userdata"];
/// A key that ends with this belongs to public keys.
const PUBLIC_KEYS: &str = "ssh_keys";

/// Whether the value under `key` in a free-form object is a secret: what Ironic masks, and other names
/// of credentials. Hyphens count as underscores.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    let key = key.strip_suffix(PUBLIC_KEYS).unwrap_or(&key);
    SECRET_KEYS.contains(&key) || SECRET_KEY_PARTS.iter().any(|part| key.contains(part))
}

/// A run of this many base64url characters counts as a key: the keys of boot plans have 43, and names
/// are shorter.
const KEY_LENGTH: usize = 40;

/// Replaces every boot plan key in `text` by `…`. URLs of boot files contain the key, which grants
/// access to the file, and a BMC may repeat such a URL in its messages.
#[must_use]
pub fn redact_boot_keys(text: &str) -> String {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|letter| !is_letter(letter)) {
        let run = part.trim_end_matches(|letter| !is_letter(letter));
        if run.len() >= KEY_LENGTH {
            shown.push('…');
            shown.push_str(&part[run.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

/// `object` with [`MASK`] in the place of every secret, at any depth, and of every secret in a URL.
/// Objects without secrets are returned without being parsed.
#[must_use]
pub fn mask_secrets(object: &JsonObject) -> Cow<'_, JsonObject> {
    if object.is_empty() || !may_contain_secret(object.as_str()) {
        return Cow::Borrowed(object);
    }
    let mut members = object.parse();
    mask_members(&mut members);
    Cow::Owned(JsonObject::from(members))
}

/// Whether the JSON text may contain the key of a secret, or a URL with one. A substring search is
/// sufficient for keys: the stored JSON escapes none of the letters they consist of.
fn may_contain_secret(text: &str) -> bool {
    if may_have_url_secret(text) {
        return true;
    }
    let text = text.to_ascii_lowercase().replace('-', "_");
    SECRET_KEY_PARTS.iter().chain(&SECRET_KEYS).any(|part| text.contains(part))
}

fn mask_members(members: &mut Map<String, Value>) {
    for (key, value) in members {
        if is_secret_key(key) {
            // A null value is not a secret.
            if !value.is_null() {
                *value = Value::String(MASK.to_owned());
            }
        } else {
            mask_value(value);
        }
    }
}

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(members) => mask_members(members),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::String(text) => {
            if let Cow::Owned(shown) = mask_urls(text) {
                *text = shown;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_is_masked() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), MASK);
    }

    #[test]
    fn recognises_keys_of_secrets() {
        for key in [
            "ipmi_password",
            "redfish_password",
            "Agent_Secret_Token",
            "configdrive",
            "user_data",
            "user-data",
            "my_api_key",
            "apiKey",
            "snmp_community",
            "credential",
            "ssh_key_contents",
            "cert_pem",
            "secret_ssh_keys",
        ] {
            assert!(is_secret_key(key), "{key}");
        }
        for key in [
            "ipmi_address",
            "deploy_kernel",
            "redfish_username",
            "image_checksum",
            "public_key",
            "ssh_public_keys",
            "ssh_keys",
            // A kernel parameter with a public key.
            "sshkey",
            "authorized_keys",
            "user_data_url",
            "root_device",
        ] {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn redacts_boot_keys() {
        let key = "Ab-_".repeat(11);
        for (text, shown) in [
            (format!("http://10.0.0.1:6180/{key}/boot.iso"), "http://10.0.0.1:6180/…/boot.iso"),
            (format!("'{key}' is not {key}"), "'…' is not …"),
            (key[..KEY_LENGTH].to_owned(), "…"),
            (key[..KEY_LENGTH - 1].to_owned(), &key[..KEY_LENGTH - 1]),
            (String::new(), ""),
            ("é€ pxelinux.cfg/01-52-54".to_owned(), "é€ pxelinux.cfg/01-52-54"),
            (
                "8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11".to_owned(),
                "8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11",
            ),
        ] {
            assert_eq!(redact_boot_keys(&text), shown);
        }
    }

    #[test]
    fn masks_objects_at_any_depth() {
        for (text, shown) in [
            (r#"{"Bmc_Password":"hunter2"}"#, r#"{"Bmc_Password":"******"}"#),
            (
                r#"{"a":[1,[{"configdrive":{"x":"hunter2"}}]],"b":"token"}"#,
                r#"{"a":[1,[{"configdrive":"******"}]],"b":"token"}"#,
            ),
            (r#"{"password":null,"pin":1}"#, r#"{"password":null,"pin":1}"#),
            (r#"{"my_image_url_list":["http://x"]}"#, r#"{"my_image_url_list":["http://x"]}"#),
            (r#"{"a":[{"url":"http://u:p@h/i"}]}"#, r#"{"a":[{"url":"http://u:******@h/i"}]}"#),
            (r#"{"url":"http://u:\"p@h/i"}"#, r#"{"url":"http://u:******@h/i"}"#),
        ] {
            assert_eq!(mask_secrets(&JsonObject::from_stored(text)).as_str(), shown);
        }
    }

    #[test]
    fn does_not_parse_objects_without_secrets() {
        for text in ["{}", r#"{"logical_disks":[{"size_gb":100}]}"#] {
            let object = JsonObject::from_stored(text);
            assert!(matches!(mask_secrets(&object), Cow::Borrowed(_)), "{text}");
        }
    }
}
