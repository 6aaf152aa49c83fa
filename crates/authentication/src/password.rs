// SPDX-License-Identifier: Apache-2.0
//! Password hashes: argon2id for users of the store, bcrypt in htpasswd files.

use std::hash::BuildHasher as _;
use std::hash::RandomState;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use node_model::Secret;

/// Shortest and longest accepted new passwords, in bytes.
const MIN_PASSWORD_BYTES: usize = 8;
const MAX_PASSWORD_BYTES: usize = 512;

/// Salt and digest of a bcrypt hash that no password is known for, without its cost.
const BCRYPT_DECOY: &str = "DbmIZ/a5LByoJHgFItyZCeIEHz6koX4IsVr8yh9T6dM9bqyNpNVjS";
/// An argon2id hash with the parameters of new passwords that no password is known for.
const ARGON2_DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$ZmVycml0ZS1kZWNveS1zYWx0\
                            $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A password cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// It has a wrong length.
    #[error("a password must have {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES} bytes")]
    Length,
    /// The hash function failed.
    #[error("cannot hash the password: {0}")]
    Hash(String),
}

/// Fails if a new password is too short or too long.
///
/// # Errors
/// Fails if the length is not allowed.
pub fn check_new_password(password: &Secret<String>) -> Result<(), PasswordError> {
    let length = password.reveal().len();
    if (MIN_PASSWORD_BYTES..=MAX_PASSWORD_BYTES).contains(&length) {
        Ok(())
    } else {
        Err(PasswordError::Length)
    }
}

/// Hashes a new password with argon2id. Takes tens of milliseconds.
pub(crate) fn hash_password(password: &Secret<String>) -> Result<Secret<String>, PasswordError> {
    check_new_password(password)?;
    let hash = Argon2::default()
        .hash_password(password.reveal().as_bytes())
        .map_err(|error| PasswordError::Hash(error.to_string()))?;
    Ok(Secret::new(hash.to_string()))
}

/// Whether the password matches a bcrypt or argon2 hash. Takes tens to hundreds of milliseconds.
pub(crate) fn verify_password(password: &Secret<String>, hash: &str) -> bool {
    let password = password.reveal();
    if is_bcrypt(hash) {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    match PasswordHash::new(hash) {
        Ok(hash) => Argon2::default().verify_password(password.as_bytes(), &hash).is_ok(),
        Err(_) => false,
    }
}

/// Whether `hash` is a bcrypt hash.
pub(crate) fn is_bcrypt(hash: &str) -> bool {
    hash.len() == 60 && ["$2y$", "$2a$", "$2b$"].iter().any(|prefix| hash.starts_with(prefix))
}

/// The cost of a bcrypt hash.
pub(crate) fn bcrypt_cost(hash: &str) -> Option<u32> {
    hash.get(4..6)?.parse().ok()
}

/// Selects the hash that is verified for an unknown user, so that the response takes as long as for
/// a user who exists.
///
/// Hashes of existing users may have different costs. Each unknown name gets the cost of one of
/// them, always the same one, in the same proportions: the response time does not reveal whether the
/// user exists.
#[derive(Debug, Default)]
pub(crate) struct DecoyHashes {
    keys: RandomState,
}

impl DecoyHashes {
    /// The hash for an unknown user. `bcrypt_costs` are those of the existing users of the htpasswd
    /// file; `has_argon2` is whether users of the store exist.
    pub(crate) fn select(&self, user: &str, bcrypt_costs: &[u32], has_argon2: bool) -> String {
        let choices = bcrypt_costs.len() + usize::from(has_argon2);
        let number = self.keys.hash_one(user);
        let choice = usize::try_from(number % (choices.max(1) as u64)).unwrap_or(0);
        match bcrypt_costs.get(choice) {
            Some(cost) => format!("$2b${cost:02}${BCRYPT_DECOY}"),
            None => ARGON2_DECOY.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.to_owned())
    }

    #[test]
    fn verifies_argon2_and_bcrypt() {
        let argon2 = hash_password(&secret("correct horse")).unwrap();
        assert!(
            argon2.reveal().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{}",
            argon2.reveal()
        );
        let bcrypt = bcrypt::hash("correct horse", 4).unwrap();
        for hash in [argon2.reveal().as_str(), &bcrypt] {
            assert!(verify_password(&secret("correct horse"), hash));
            assert!(!verify_password(&secret("wrong horse"), hash));
        }
        assert!(!verify_password(&secret("x"), "not a hash"));
    }

    #[test]
    fn checks_the_length_of_new_passwords() {
        for (password, is_allowed) in
            [("", false), ("1234567", false), ("12345678", true), (&"x".repeat(513), false)]
        {
            assert_eq!(check_new_password(&secret(password)).is_ok(), is_allowed, "{password}");
        }
    }

    /// M7: a hash of cost 12 was verified for unknown users of a file with cost 10.
    #[test]
    fn decoys_have_the_costs_of_existing_users() {
        let decoys = DecoyHashes::default();
        let costs = |bcrypt: &[u32], has_argon2: bool| {
            let mut found: Vec<Option<u32>> = (0..500)
                .map(|number| {
                    let hash = decoys.select(&format!("user{number}"), bcrypt, has_argon2);
                    is_bcrypt(&hash).then(|| bcrypt_cost(&hash).unwrap())
                })
                .collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        assert_eq!(costs(&[10, 10], false), [Some(10)]);
        assert_eq!(costs(&[5, 12, 12], false), [Some(5), Some(12)]);
        assert_eq!(costs(&[5], true), [None, Some(5)]);
        assert_eq!(costs(&[], true), [None]);
        // The same name always takes the same time.
        assert_eq!(
            decoys.select("x", &[4, 5, 6, 7], true),
            decoys.select("x", &[4, 5, 6, 7], true)
        );
    }

    /// A malformed decoy would be rejected without computing a hash.
    #[test]
    fn decoys_are_well_formed() {
        let decoys = DecoyHashes::default();
        let hash = PasswordHash::new(ARGON2_DECOY).unwrap();
        let result = Argon2::default().verify_password(b"x", &hash);
        assert!(matches!(result, Err(argon2::password_hash::Error::PasswordInvalid)), "{result:?}");
        assert!(!bcrypt::verify("x", &decoys.select("x", &[4], false)).unwrap());
    }
}
