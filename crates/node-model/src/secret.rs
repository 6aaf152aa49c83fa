// SPDX-License-Identifier: Apache-2.0
//! Values that must not be shown, and how to tell from its key that a value is one.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::{JsonObject, mask_urls};

/// What stands in the place of a secret wherever it can be seen.
pub const MASK: &str = "******";

/// A value that does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself: for handing to the machine it belongs to, never for showing.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// What marks a key as a secret's wherever it stands in it.
const MARKS: [&str; 12] = [
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
];
/// Keys of secrets that would mark too much if they were only a part.
const WHOLE: [&str; 4] = ["ipmi_hex_kg_key", "configdrive", "image_url", "fernet"];

/// Whether the value under `key` in a free-form object is a secret. Matches what Ironic masks.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    WHOLE.contains(&key.as_str()) || MARKS.iter().any(|mark| key.contains(mark))
}

/// So many letters of base64 in a row are a key: those of boot plans have 43, and nothing that people
/// name things by has as many.
const KEY: usize = 40;

/// The text with `…` in the place of every key. The URLs of what machines boot hold one, which opens
/// what they name to whoever has it; a BMC may repeat them in what it says.
#[must_use]
pub fn without_keys(text: &str) -> String {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|letter| !is_letter(letter)) {
        let run = part.trim_end_matches(|letter| !is_letter(letter));
        if run.len() >= KEY {
            shown.push('…');
            shown.push_str(&part[run.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

/// `object` with [`MASK`] in the place of every secret, at any depth, and of every password in a URL.
/// Most objects hold none, and are given back without being parsed.
#[must_use]
pub fn masked(object: &JsonObject) -> Cow<'_, JsonObject> {
    if object.is_empty() || !mentions_secret(object.as_str()) {
        return Cow::Borrowed(object);
    }
    let mut members = object.parse();
    mask_members(&mut members);
    Cow::Owned(JsonObject::from(members))
}

/// Whether some key in the JSON text could be a secret's, or some URL have a password. No key that
/// is hides behind an escape: JSON is kept as we write it, and we escape none of the letters they are
/// made of.
fn mentions_secret(text: &str) -> bool {
    // Roughly: in JSON text a URL may have escapes in it.
    if text.contains("://") && text.contains('@') {
        return true;
    }
    let text = text.to_ascii_lowercase();
    MARKS.iter().chain(&WHOLE).any(|mark| text.contains(mark))
}

fn mask_members(members: &mut Map<String, Value>) {
    for (key, value) in members {
        if is_secret_key(key) {
            // What is not set is no secret.
            if !value.is_null() {
                *value = Value::String(MASK.to_owned());
            }
        } else {
            mask_within(value);
        }
    }
}

fn mask_within(value: &mut Value) {
    match value {
        Value::Object(members) => mask_members(members),
        Value::Array(items) => items.iter_mut().for_each(mask_within),
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
    fn secrets_do_not_print() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), MASK);
    }

    #[test]
    fn keys() {
        for key in ["ipmi_password", "redfish_password", "Agent_Secret_Token", "configdrive"] {
            assert!(is_secret_key(key), "{key}");
        }
        for key in ["ipmi_address", "deploy_kernel", "redfish_username"] {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn keys_are_taken_out_of_texts() {
        let key = "Ab-_".repeat(11);
        for (text, shown) in [
            (format!("http://10.0.0.1:6180/{key}/boot.iso"), "http://10.0.0.1:6180/…/boot.iso"),
            (format!("'{key}' is not {key}"), "'…' is not …"),
            (key[..KEY].to_owned(), "…"),
            (key[..KEY - 1].to_owned(), &key[..KEY - 1]),
            (String::new(), ""),
            ("é€ pxelinux.cfg/01-52-54".to_owned(), "é€ pxelinux.cfg/01-52-54"),
            (
                "8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11".to_owned(),
                "8f2b6f0e-2b1a-4a57-9d0c-3c1f4a9d7f11",
            ),
        ] {
            assert_eq!(without_keys(&text), shown);
        }
    }

    #[test]
    fn objects_are_masked_at_any_depth() {
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
            assert_eq!(masked(&JsonObject::from_stored(text)).as_str(), shown);
        }
    }

    #[test]
    fn objects_without_secrets_are_not_parsed() {
        for text in ["{}", r#"{"logical_disks":[{"size_gb":100}]}"#] {
            let object = JsonObject::from_stored(text);
            assert!(matches!(masked(&object), Cow::Borrowed(_)), "{text}");
        }
    }
}
