// SPDX-License-Identifier: Apache-2.0
//! The certificate the agent makes for itself. The server is told it with the heartbeat and accepts
//! no other.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Clocks may be a little behind.
const VALID_BEFORE: Duration = Duration::from_secs(3600);
const VALID_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It could not be made.
    #[error("the agent's certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("the agent's certificate cannot be used")]
    Use(#[from] rustls::Error),
}

/// A certificate, and what is needed to serve with it.
pub struct OwnCertificate {
    /// As the server is told it.
    pub pem: String,
    /// For the listener.
    pub tls: Arc<ServerConfig>,
}

impl OwnCertificate {
    /// Makes one for an address of this machine, with the curve that was asked for.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(hostname: &str, address: IpAddr, curve: &str) -> Result<Self, CertificateError> {
        let algorithm = match curve {
            "p256" | "P256" => &PKCS_ECDSA_P256_SHA256,
            _ => &PKCS_ECDSA_P384_SHA384,
        };
        let key = KeyPair::generate_for(algorithm)?;
        let mut params = CertificateParams::default();
        let now = SystemTime::now();
        params.not_before = (now - VALID_BEFORE).into();
        params.not_after = (now + VALID_FOR).into();
        params.distinguished_name.push(DnType::CommonName, hostname);
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        Ok(Self { pem: certificate.pem(), tls: Arc::new(tls) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openssl_reads_it() {
        let made = OwnCertificate::make("machine", [192, 0, 2, 7].into(), "p384").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.pem");
        std::fs::write(&path, &made.pem).unwrap();
        let text = std::process::Command::new("openssl")
            .args(["x509", "-noout", "-text", "-in"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        for part in ["NIST CURVE: P-384", "CN = machine", "IP Address:192.0.2.7"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
