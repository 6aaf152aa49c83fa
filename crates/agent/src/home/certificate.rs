// SPDX-License-Identifier: Apache-2.0
//! The certificate the agent makes for itself. The server is told it with the heartbeat and accepts
//! no other.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};

use crate::agent::keep_secret;

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

/// A certificate, and its key.
pub struct OwnCertificate {
    /// As the server is told it.
    pub pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Where it is kept, with its key, for an agent that is started again: servers accept no other until
/// the machine is switched off.
pub const CERTIFICATE_FILE: &str = "/run/ferrite-agent.pem";

impl OwnCertificate {
    /// The one that is kept in `file`; or else makes one and keeps it there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn kept_or_made(
        file: Option<&Path>,
        hostname: &str,
        address: IpAddr,
        curve: &str,
    ) -> Result<Self, CertificateError> {
        let kept = file.and_then(|file| std::fs::read_to_string(file).ok());
        if let Some(kept) = kept.and_then(|pem| Self::of(&pem)) {
            return Ok(kept);
        }
        let (made, key) = Self::make(hostname, address, curve)?;
        if let Some(file) = file {
            keep_secret(file, &format!("{}{key}", made.pem));
        }
        Ok(made)
    }

    /// What was kept; none if it is not all there.
    fn of(kept: &str) -> Option<Self> {
        let (pem, key) = kept.split_at(kept.find(KEY_BEGINS)?);
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
        let kept = Self { pem: pem.to_owned(), certificate, key };
        kept.serving(None).is_ok().then_some(kept)
    }

    /// What a listener needs that speaks no TLS older than `least`.
    ///
    /// # Errors
    /// If TLS does not take the certificate.
    pub fn serving(&self, least: Option<&str>) -> Result<Arc<ServerConfig>, CertificateError> {
        let versions: &[_] = match least {
            Some("1.3") => &[&TLS13],
            _ => &[&TLS13, &TLS12],
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        Ok(Arc::new(tls))
    }

    /// Makes one for an address of this machine, with the curve that was asked for, and its key in PEM.
    fn make(
        hostname: &str,
        address: IpAddr,
        curve: &str,
    ) -> Result<(Self, String), CertificateError> {
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
        let made = Self {
            pem: certificate.pem(),
            certificate: CertificateDer::from(certificate.der().to_vec()),
            key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        };
        Ok((made, key.serialize_pem()))
    }
}

/// What a private key in PEM begins with.
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_agent_that_is_started_again_has_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.pem");
        let start = || {
            let address = [192, 0, 2, 7].into();
            OwnCertificate::kept_or_made(Some(&file), "machine", address, "p256").unwrap().pem
        };
        let first = start();
        assert_eq!(start(), first);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else reads the key");
        // What is broken is made anew.
        std::fs::write(&file, &first).unwrap();
        assert_ne!(start(), first);
    }

    #[test]
    fn the_server_says_which_tls_is_too_old() {
        let (made, _) = OwnCertificate::make("machine", [192, 0, 2, 7].into(), "p256").unwrap();
        let client = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(made.certificate.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth()
        };
        for (least, version, taken) in [
            (Some("1.3"), &TLS12, false),
            (Some("1.3"), &TLS13, true),
            (Some("1.2"), &TLS12, true),
            (None, &TLS12, true),
        ] {
            let name = std::net::IpAddr::from([192, 0, 2, 7]).into();
            let mut client =
                rustls::ClientConnection::new(Arc::new(client(&[version])), name).unwrap();
            let mut server = rustls::ServerConnection::new(made.serving(least).unwrap()).unwrap();
            let mut hello = Vec::new();
            client.write_tls(&mut hello).unwrap();
            server.read_tls(&mut hello.as_slice()).unwrap();
            assert_eq!(server.process_new_packets().is_ok(), taken, "{least:?} {version:?}");
        }
    }

    #[test]
    fn openssl_reads_it() {
        let (made, _) = OwnCertificate::make("machine", [192, 0, 2, 7].into(), "p384").unwrap();
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
