// SPDX-License-Identifier: Apache-2.0
//! Values that must not be shown, and how to tell from its key that a value is one.

use std::fmt;

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

/// Whether the value under `key` in a free-form object is a secret. Matches what Ironic masks.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
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
    const WHOLE: [&str; 4] = ["ipmi_hex_kg_key", "configdrive", "image_url", "fernet"];
    let key = key.to_ascii_lowercase();
    WHOLE.contains(&key.as_str()) || MARKS.iter().any(|mark| key.contains(mark))
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
}
