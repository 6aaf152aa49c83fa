// SPDX-License-Identifier: Apache-2.0
//! The password of the rescue system, as login programs keep it.

use sha_crypt::{PasswordHasher as _, ShaCrypt};

use crate::Error;

/// Sixteen letters when written down, which is all of a salt that login programs read.
const SALT: usize = 12;

/// The password hashed with SHA-512 and a new salt.
pub(super) fn hash(password: &str) -> Result<String, Error> {
    let failed = |why: String| Error::failed("hash the password", why);
    let mut salt = [0; SALT];
    getrandom::fill(&mut salt)
        .map_err(|_| failed("this system has no source of random numbers".to_owned()))?;
    salted(password, &salt).map_err(|error| failed(error.to_string()))
}

fn salted(password: &str, salt: &[u8; SALT]) -> Result<String, sha_crypt::password_hash::Error> {
    let hashed = ShaCrypt::default().hash_password_with_salt(password.as_bytes(), salt)?;
    Ok(hashed.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `crypt` of the C library makes of the same words.
    #[test]
    fn login_programs_agree() {
        let hashed = salted("open sesame", b"twelve bytes").unwrap();
        let of_the_c_library = "$6$rounds=5000$oRLNgNLNU6KSoJqQ$LRK.LubMHkX/7fPMRvb7Oy47.Lq0B6os0TUVuNf2Gz0Wv4kWJfWnGSuu.wzwzJVj.ICvpuAxR1QL5U9iNi4ZE0";
        assert_eq!(hashed, of_the_c_library);
        let (one, other) = (hash("open sesame").unwrap(), hash("open sesame").unwrap());
        assert!(one.starts_with("$6$") && one != other, "{one} {other}");
    }
}
