// SPDX-License-Identifier: Apache-2.0
//! Users of TLS client certificates. The certificate was verified in the handshake.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use access_policy::AuthMethod;

use super::{Authenticator, MAX_USER_BYTES, unavailable};
use crate::credential_cache::{CacheLookup, VerifiedAgainst, VerifiedCredential};
use crate::error::AuthError;
use crate::htpasswd::HtpasswdFile;
use crate::local_users;
use crate::roles::Principal;
use crate::sign_in_events::{CredentialKind, SignInOutcome};

impl Authenticator {
    /// The user of a verified client certificate: of the htpasswd file, then of the store.
    pub(super) async fn check_certificate_user(
        &self,
        user: &str,
        address: IpAddr,
    ) -> Result<Arc<Principal>, AuthError> {
        let (now, method) = (self.now(), AuthMethod::ClientCertificate);
        let htpasswd = self.htpasswd.as_ref().map(HtpasswdFile::users);
        if let Some(entry) = htpasswd.as_ref().and_then(|users| users.get(user)) {
            return Ok(Arc::new(entry.principal(user, method)));
        }
        let key = self.cache.key("certificate", user, "");
        if let Some(principal) = self.cached_principal(&key, now) {
            return Ok(principal);
        }
        let version = self.cache.version();
        let found = if self.has_local_users && user.len() <= MAX_USER_BYTES {
            let found = local_users::find_enabled_user(&self.store, user, method).await;
            found.map_err(|error| unavailable(&error))?
        } else {
            None
        };
        let kind = CredentialKind::Certificate;
        let Some(principal) = found.map(Arc::new) else {
            self.cache.remove(&key);
            self.recorder.record(kind, SignInOutcome::Rejected, user, address, now);
            return Err(AuthError::UnknownCertificateUser);
        };
        if matches!(self.cache.find(&key, Instant::now()), CacheLookup::Unknown) {
            self.recorder.record(kind, SignInOutcome::Accepted, user, address, now);
        }
        let credential = VerifiedCredential {
            principal: Arc::clone(&principal),
            against: VerifiedAgainst::Stored,
            expires_at: None,
        };
        self.cache.insert(key, credential, version, Instant::now());
        Ok(principal)
    }
}
