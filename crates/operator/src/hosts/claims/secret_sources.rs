// SPDX-License-Identifier: Apache-2.0
//! Which claims copy which Secrets.

use std::collections::{BTreeSet, HashMap};

use crate::object_key::ObjectKey;

/// Secrets, by namespace and name, and the claims that copy them.
#[derive(Debug, Default)]
pub(in crate::hosts) struct SecretSources {
    claims: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    secrets: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
}

impl SecretSources {
    /// Replaces the Secrets of a claim.
    pub(in crate::hosts) fn set(&mut self, claim: &ObjectKey, secrets: BTreeSet<ObjectKey>) {
        for secret in self.secrets.remove(claim).unwrap_or_default() {
            if let Some(claims) = self.claims.get_mut(&secret) {
                claims.remove(claim);
                if claims.is_empty() {
                    self.claims.remove(&secret);
                }
            }
        }
        for secret in &secrets {
            self.claims.entry(secret.clone()).or_default().insert(claim.clone());
        }
        if !secrets.is_empty() {
            self.secrets.insert(claim.clone(), secrets);
        }
    }

    /// The claims that copy a Secret.
    pub(in crate::hosts) fn claims_of(&self, secret: &ObjectKey) -> Vec<ObjectKey> {
        self.claims.get(secret).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_their_current_secrets() {
        let claim = |name: &str| ObjectKey::new("n", name);
        let secret = |name: &str| ObjectKey::new("n", name);
        let mut sources = SecretSources::default();
        sources.set(&claim("a"), BTreeSet::from([secret("s"), secret("t")]));
        sources.set(&claim("b"), BTreeSet::from([secret("s")]));
        assert_eq!(sources.claims_of(&secret("s")), [claim("a"), claim("b")]);
        sources.set(&claim("a"), BTreeSet::from([secret("u")]));
        assert_eq!(sources.claims_of(&secret("s")), [claim("b")]);
        assert_eq!(sources.claims_of(&secret("t")), []);
        sources.set(&claim("a"), BTreeSet::new());
        sources.set(&claim("b"), BTreeSet::new());
        assert!(sources.claims.is_empty() && sources.secrets.is_empty());
    }
}
