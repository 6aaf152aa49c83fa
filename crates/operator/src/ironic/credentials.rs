// SPDX-License-Identifier: Apache-2.0
//! Content of the Secrets that the operator generates: API credentials and sealing keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// Work factor of bcrypt, as in Metal3's operator.
const BCRYPT_COST: u32 = 10;
/// Characters of generated passwords. There are 64, so each is equally likely.
const PASSWORD_CHARACTERS: &[u8; 64] =
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
/// Random bytes for a password: one per character.
pub const PASSWORD_RANDOM_BYTES: usize = 32;
/// Random bytes for a bcrypt hash.
pub const SALT_BYTES: usize = 16;
/// Random bytes of a sealing key.
pub const SEALING_KEY_BYTES: usize = 32;

/// Why credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// The user name is missing.
    #[error("the key username is missing or empty")]
    NoUserName,
    /// The password is missing.
    #[error("the key password is missing or empty")]
    NoPassword,
    /// The user name has characters that the user file cannot contain.
    #[error("the user name {0:?} has other characters than letters, digits, - and _")]
    InvalidUserName(String),
    /// The password cannot be hashed.
    #[error("the password cannot be hashed: {0}")]
    Unhashable(String),
}

/// API credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiCredentials {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Line of the user file.
    pub htpasswd: String,
}

impl ApiCredentials {
    /// Generates credentials for an installation.
    pub fn generate(
        ironic: &str,
        password: &[u8; PASSWORD_RANDOM_BYTES],
        salt: [u8; SALT_BYTES],
    ) -> Result<Self, CredentialsError> {
        let password = random_password(password);
        // Names of objects may have dots, which the user file does not allow.
        Self::with_password(&ironic.replace('.', "-"), &password, salt)
    }

    /// Credentials of an existing Secret. Blanks and line feeds around the values are ignored.
    pub fn with_password(
        username: &str,
        password: &str,
        salt: [u8; SALT_BYTES],
    ) -> Result<Self, CredentialsError> {
        let (username, password) = (username.trim(), password.trim());
        check(username, password)?;
        let hash = bcrypt::hash_with_salt(password, BCRYPT_COST, salt)
            .map_err(|error| CredentialsError::Unhashable(error.to_string()))?
            .format_for_version(bcrypt::Version::TwoY);
        Ok(Self {
            username: username.to_owned(),
            password: password.to_owned(),
            htpasswd: format!("{username}:{hash}"),
        })
    }
}

/// A password with these random bytes.
#[must_use]
pub fn random_password(random: &[u8; PASSWORD_RANDOM_BYTES]) -> String {
    let characters = PASSWORD_CHARACTERS;
    random
        .iter()
        .map(|byte| char::from(characters[usize::from(*byte) % characters.len()]))
        .collect()
}

fn check(username: &str, password: &str) -> Result<(), CredentialsError> {
    let is_allowed =
        |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
    if username.is_empty() {
        return Err(CredentialsError::NoUserName);
    }
    if password.is_empty() {
        return Err(CredentialsError::NoPassword);
    }
    if !username.chars().all(is_allowed) {
        return Err(CredentialsError::InvalidUserName(username.to_owned()));
    }
    Ok(())
}

/// Whether the user file of a Secret has the user and password of the Secret. If it has not, the
/// operator writes it again.
#[must_use]
pub fn is_current_htpasswd(htpasswd: &str, username: &str, password: &str) -> bool {
    let Some((user, hash)) = htpasswd.trim().split_once(':') else { return false };
    user == username.trim() && bcrypt::verify(password.trim(), hash).unwrap_or(false)
}

/// A sealing key in the notation of `ferrite secrets new-key`.
#[must_use]
pub fn sealing_key(random: &[u8; SEALING_KEY_BYTES]) -> String {
    STANDARD.encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_credentials_match_their_user_file() {
        let random: [u8; PASSWORD_RANDOM_BYTES] =
            std::array::from_fn(|index| u8::try_from(index * 8).unwrap());
        let made = ApiCredentials::generate("lab.ironic", &random, [7; SALT_BYTES]).unwrap();
        assert_eq!(made.username, "lab-ironic");
        assert_eq!(made.password, "aiqyGOW4aiqyGOW4aiqyGOW4aiqyGOW4");
        assert!(made.htpasswd.starts_with("lab-ironic:$2y$10$"), "{}", made.htpasswd);
        assert!(is_current_htpasswd(&made.htpasswd, "lab-ironic", &made.password));
        for (htpasswd, username, password) in [
            (made.htpasswd.as_str(), "lab-ironic", "other"),
            (&made.htpasswd, "other", &made.password),
            ("lab-ironic", "lab-ironic", &made.password),
            ("lab-ironic:plain", "lab-ironic", "plain"),
            ("", "", ""),
        ] {
            assert!(!is_current_htpasswd(htpasswd, username, password), "{htpasswd} {username}");
        }
    }

    #[test]
    fn blanks_around_values_are_ignored() {
        let made = ApiCredentials::with_password("admin\n", " secret \n", [0; SALT_BYTES]).unwrap();
        assert_eq!((made.username.as_str(), made.password.as_str()), ("admin", "secret"));
        assert!(is_current_htpasswd(&made.htpasswd, "admin\n", "secret\n"));
    }

    #[test]
    fn unusable_credentials_are_rejected() {
        let error =
            |user, password| ApiCredentials::with_password(user, password, [0; SALT_BYTES]).err();
        assert_eq!(error(" ", "x"), Some(CredentialsError::NoUserName));
        assert_eq!(error("x", "\n"), Some(CredentialsError::NoPassword));
        assert_eq!(error("a:b", "x"), Some(CredentialsError::InvalidUserName("a:b".to_owned())));
    }

    #[test]
    fn sealing_keys_are_base64() {
        assert_eq!(sealing_key(&[0; 32]), format!("{}=", "A".repeat(43)));
    }
}
