// SPDX-License-Identifier: Apache-2.0
//! The password of the rescue system, as login programs keep it.

use sha_crypt::{PasswordHasher as _, ShaCrypt};

use crate::Error;

/// The password hashed with SHA-512 and a new salt.
pub(super) fn hash(password: &str) -> Result<String, Error> {
    let hashed = ShaCrypt::default().hash_password(password.as_bytes());
    let hashed = hashed.map_err(|error| Error::failed("hash the password", error.to_string()))?;
    Ok(hashed.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use sha_crypt::{PasswordVerifier as _, ShaCrypt};

    use super::*;

    #[test]
    fn the_password_opens_and_salts_differ() {
        let (one, other) = (hash("open sesame").unwrap(), hash("open sesame").unwrap());
        assert!(one.starts_with("$6$") && one != other, "{one} {other}");
        let parsed = sha_crypt::PasswordHash::new(&one).unwrap();
        assert!(ShaCrypt::default().verify_password(b"open sesame", &parsed).is_ok());
        assert!(ShaCrypt::default().verify_password(b"close sesame", &parsed).is_err());
    }
}
