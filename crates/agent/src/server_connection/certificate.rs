// SPDX-License-Identifier: Apache-2.0
//! The self-signed certificate of the command API. The heartbeat contains it, and the server accepts
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

use crate::agent::store_secret;

/// Tolerated clock difference of the server.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);
const VALIDITY: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate cannot be generated or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Generation failed.
    #[error("cannot generate the agent's certificate")]
    Generate(#[from] rcgen::Error),
    /// The TLS library rejected it.
    #[error("cannot use the agent's certificate")]
    Use(#[from] rustls::Error),
}

/// A self-signed certificate with its private key.
pub struct AgentCertificate {
    /// The certificate in PEM, for the heartbeat.
    pub pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Keeps certificate and key across restarts of the agent: servers accept no other certificate until
/// the machine is powered off.
pub const CERTIFICATE_FILE: &str = "/run/ferrite-agent.pem";

impl AgentCertificate {
    /// Loads the certificate from `file`, or generates one and stores it there.
    ///
    /// # Errors
    /// If it cannot be generated.
    pub fn load_or_generate(
        file: Option<&Path>,
        hostname: &str,
        address: IpAddr,
        curve: &str,
    ) -> Result<Self, CertificateError> {
        let stored = file.and_then(|file| std::fs::read_to_string(file).ok());
        if let Some(certificate) = stored.and_then(|pem| Self::parse(&pem)) {
            return Ok(certificate);
        }
        let (certificate, key) = Self::generate(hostname, address, curve)?;
        if let Some(file) = file {
            store_secret(file, &format!("{}{key}", certificate.pem));
        }
        Ok(certificate)
    }

    /// Parses a stored certificate and key. Returns `None` if they are incomplete or unusable.
    fn parse(stored: &str) -> Option<Self> {
        let (pem, key) = stored.split_at(stored.find(PRIVATE_KEY_HEADER)?);
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
        let parsed = Self { pem: pem.to_owned(), certificate, key };
        parsed.server_config(None).is_ok().then_some(parsed)
    }

    /// Returns a TLS server configuration with this minimum version (`1.2` by default).
    ///
    /// # Errors
    /// If the TLS library rejects the certificate.
    pub fn server_config(
        &self,
        min_version: Option<&str>,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let versions: &[_] = match min_version {
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

    /// Generates a certificate for an address of this machine. Also returns the key in PEM.
    fn generate(
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
        params.not_before = (now - CLOCK_TOLERANCE).into();
        params.not_after = (now + VALIDITY).into();
        params.distinguished_name.push(DnType::CommonName, hostname);
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key)?;
        let generated = Self {
            pem: certificate.pem(),
            certificate: CertificateDer::from(certificate.der().to_vec()),
            key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        };
        Ok((generated, key.serialize_pem()))
    }
}

/// The start of a private key in PEM.
const PRIVATE_KEY_HEADER: &str = "-----BEGIN PRIVATE KEY";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn restarted_agent_reuses_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.pem");
        let start = || {
            let address = [192, 0, 2, 7].into();
            AgentCertificate::load_or_generate(Some(&file), "machine", address, "p256").unwrap().pem
        };
        let first = start();
        assert_eq!(start(), first);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only root may read the key");
        // An incomplete file is replaced.
        std::fs::write(&file, &first).unwrap();
        assert_ne!(start(), first);
    }

    #[test]
    fn enforces_minimum_tls_version() {
        let (certificate, _) =
            AgentCertificate::generate("machine", [192, 0, 2, 7].into(), "p256").unwrap();
        let client = |versions: &[&'static rustls::SupportedProtocolVersion]| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificate.certificate.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            rustls::ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth()
        };
        for (min_version, version, accepted) in [
            (Some("1.3"), &TLS12, false),
            (Some("1.3"), &TLS13, true),
            (Some("1.2"), &TLS12, true),
            (None, &TLS12, true),
        ] {
            let name = std::net::IpAddr::from([192, 0, 2, 7]).into();
            let mut client =
                rustls::ClientConnection::new(Arc::new(client(&[version])), name).unwrap();
            let mut server =
                rustls::ServerConnection::new(certificate.server_config(min_version).unwrap())
                    .unwrap();
            let mut hello = Vec::new();
            client.write_tls(&mut hello).unwrap();
            server.read_tls(&mut hello.as_slice()).unwrap();
            assert_eq!(
                server.process_new_packets().is_ok(),
                accepted,
                "{min_version:?} {version:?}"
            );
        }
    }

    #[test]
    fn openssl_parses_certificate() {
        let (certificate, _) =
            AgentCertificate::generate("machine", [192, 0, 2, 7].into(), "p384").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.pem");
        std::fs::write(&path, &certificate.pem).unwrap();
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
