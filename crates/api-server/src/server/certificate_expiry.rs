// SPDX-License-Identifier: Apache-2.0
//! Certificates of this server and when they expire, for health checks.

use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;

/// From this long before its expiry on, a certificate that the operator has to replace causes a warning.
const WARNING_TIME: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Returns the certificates of this server.
pub type CertificateExpirySource = Arc<dyn Fn() -> Vec<CertificateExpiry> + Send + Sync>;

/// A certificate of this server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateExpiry {
    /// Its purpose, in metrics: `server`, `ca` or `client_ca`.
    pub name: &'static str,
    /// The configuration key of its file, if the operator has to replace it.
    pub key: Option<&'static str>,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl CertificateExpiry {
    /// A warning if the operator has to replace the certificate soon.
    #[must_use]
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let Self { key, expires_at, .. } = self;
        let key = (*key)?;
        if *expires_at <= now {
            return Some(format!("the certificate in {key} expired at {expires_at}; replace it"));
        }
        (expires_at.since(now) <= WARNING_TIME)
            .then(|| format!("the certificate in {key} expires at {expires_at}; replace it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_two_weeks_before_the_expiry() {
        const DAY: i64 = 24 * 60 * 60 * 1_000_000;
        let now = Timestamp(1_790_000_000_000_000);
        for (days, key, expected) in [
            (15, Some("api.tls.certificate"), None),
            (14, Some("api.tls.certificate"), Some("expires at")),
            (0, Some("api.tls.certificate"), Some("expired at")),
            (-1, Some("api.tls.client_ca"), Some("api.tls.client_ca")),
            // Renewed automatically.
            (1, None, None),
        ] {
            let expires_at = Timestamp(now.0 + days * DAY);
            let warning = CertificateExpiry { name: "server", key, expires_at }.warning(now);
            match (&warning, expected) {
                (Some(text), Some(expected)) => assert!(text.contains(expected), "{text}"),
                _ => assert_eq!(warning.as_deref(), expected, "{days}"),
            }
        }
    }
}
