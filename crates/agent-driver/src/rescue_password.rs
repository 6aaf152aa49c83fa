// SPDX-License-Identifier: Apache-2.0
//! Hash of the rescue password in crypt(3) format.

use drivers::DriverError;
use sha_crypt::{PasswordHasher as _, ShaCrypt};

/// 12 bytes are 16 characters in base64, the longest salt that crypt(3) reads.
const SALT_BYTES: usize = 12;

/// Hashes the password with SHA-512 and a new salt.
pub(super) fn hash_password(password: &str) -> Result<String, DriverError> {
    let failed = |why: String| DriverError::failed("hash the password", why);
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt)
        .map_err(|_| failed("the system has no source of random numbers".to_owned()))?;
    hash_with_salt(password, &salt).map_err(|error| failed(error.to_string()))
}

fn hash_with_salt(
    password: &str,
    salt: &[u8; SALT_BYTES],
) -> Result<String, sha_crypt::password_hash::Error> {
    let hashed = ShaCrypt::default().hash_password_with_salt(password.as_bytes(), salt)?;
    Ok(hashed.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected value is the output of glibc's `crypt`.
    #[test]
    fn matches_glibc_crypt() {
        let hashed = hash_with_salt("open sesame", b"twelve bytes").unwrap();
        let expected = "$6$rounds=5000$oRLNgNLNU6KSoJqQ$LRK.LubMHkX/7fPMRvb7Oy47.Lq0B6os0TUVuNf2Gz0Wv4kWJfWnGSuu.wzwzJVj.ICvpuAxR1QL5U9iNi4ZE0";
        assert_eq!(hashed, expected);
        let (one, other) =
            (hash_password("open sesame").unwrap(), hash_password("open sesame").unwrap());
        assert!(one.starts_with("$6$") && one != other, "{one} {other}");
    }
}
