// SPDX-License-Identifier: Apache-2.0
//! An own certificate authority (CA), for installations without certificates of their own.
//!
//! Before the CA certificate expires it is issued again with the same key and name, so that clients
//! with the previous file accept new server certificates until that file expires.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::names::CertificateNames;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of the CA certificate.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Validity of server certificates.
pub const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Certificates are valid from this long before they are issued: clocks of booting machines are
/// often set to local time.
const CLOCK_TOLERANCE: Duration = DAY;

/// A private key, in PEM. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorityKey(String);

/// A CA as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityRecord {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key.
    pub key: AuthorityKey,
    /// When the certificate expires.
    pub expires_at: SystemTime,
}

/// A certificate authority.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    record: AuthorityRecord,
}

/// A certificate cannot be issued, or a stored CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The system has no source of random numbers.
    #[error("this system has no source of random numbers")]
    NoEntropy,
    /// The stored key is malformed.
    #[error("the stored key of the certificate authority cannot be used")]
    StoredKey(#[source] rcgen::Error),
    /// Issuing failed.
    #[error("cannot issue a certificate")]
    Issue(#[source] rcgen::Error),
    /// The TLS library rejects the issued certificate.
    #[error("cannot use the issued certificate")]
    Use(#[source] rustls::Error),
}

/// A server certificate and when it has to be replaced.
pub(crate) struct IssuedCertificate {
    pub(crate) certified_key: Arc<CertifiedKey>,
    pub(crate) renew_at: SystemTime,
    pub(crate) expires_at: SystemTime,
}

/// A server certificate for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCertificatePem {
    /// The certificate, in PEM.
    pub certificate: String,
    /// Its private key.
    pub key: AuthorityKey,
    /// When it expires.
    pub expires_at: SystemTime,
}

impl AuthorityKey {
    /// Wraps a stored key.
    #[must_use]
    pub fn from_pem(pem: String) -> Self {
        Self(pem)
    }

    /// The key in PEM, for encrypted storage only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorityKey(******)")
    }
}

impl CertificateAuthority {
    /// Creates a CA with a new key.
    ///
    /// # Errors
    /// If the system has no source of random numbers.
    pub fn create(now: SystemTime) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Issue)?;
        Self::with_key(key, now)
    }

    /// Opens a stored CA.
    ///
    /// # Errors
    /// If its key is malformed.
    pub fn open(record: AuthorityRecord) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(record.key.reveal()).map_err(AuthorityError::StoredKey)?;
        let params = authority_params(&key);
        Ok(Self { issuer: Issuer::new(params, key), record })
    }

    /// The CA to store.
    #[must_use]
    pub fn record(&self) -> &AuthorityRecord {
        &self.record
    }

    /// The CA certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.record.certificate
    }

    /// Whether the CA certificate should be issued again: in the last third of its life.
    #[must_use]
    pub fn is_renewal_due(&self, now: SystemTime) -> bool {
        now + AUTHORITY_LIFETIME / 3 >= self.record.expires_at
    }

    /// Issues the CA certificate again, with the same key and name.
    ///
    /// # Errors
    /// If the system has no source of random numbers.
    pub fn renew(&self, now: SystemTime) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(self.record.key.reveal()).map_err(AuthorityError::StoredKey)?;
        Self::with_key(key, now)
    }

    /// Issues a server certificate. It is due for renewal after two thirds of its life.
    pub(crate) fn issue(
        &self,
        names: &CertificateNames,
        now: SystemTime,
        provider: &CryptoProvider,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let (certificate, key, expires_at) = self.sign(names, now)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let certified_key =
            CertifiedKey::from_der(chain, key, provider).map_err(AuthorityError::Use)?;
        let lifetime = expires_at.duration_since(now).unwrap_or_default();
        Ok(IssuedCertificate {
            certified_key: Arc::new(certified_key),
            renew_at: now + lifetime * 2 / 3,
            expires_at,
        })
    }

    /// Issues a server certificate for another process, such as one that reads it from a Secret.
    ///
    /// # Errors
    /// If the system has no source of random numbers.
    pub fn issue_pem(
        &self,
        names: &CertificateNames,
        now: SystemTime,
    ) -> Result<ServerCertificatePem, AuthorityError> {
        let (certificate, key, expires_at) = self.sign(names, now)?;
        Ok(ServerCertificatePem {
            certificate: certificate.pem(),
            key: AuthorityKey(key.serialize_pem()),
            expires_at,
        })
    }

    fn sign(
        &self,
        names: &CertificateNames,
        now: SystemTime,
    ) -> Result<(rcgen::Certificate, KeyPair, SystemTime), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Issue)?;
        // No certificate outlives its CA.
        let expires_at = (now + CERTIFICATE_LIFETIME).min(self.record.expires_at);
        let mut params = CertificateParams::default();
        params.not_before = (now - CLOCK_TOLERANCE).into();
        params.not_after = expires_at.into();
        params.serial_number = Some(random_serial()?);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Ferrite server");
        params.subject_alt_names = names.alternative_names();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // OpenSSL requires it in strict mode, which is Python's default since 3.13.
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Issue)?;
        Ok((certificate, key, expires_at))
    }

    fn with_key(key: KeyPair, now: SystemTime) -> Result<Self, AuthorityError> {
        let expires_at = now + AUTHORITY_LIFETIME;
        let mut params = authority_params(&key);
        params.not_before = (now - CLOCK_TOLERANCE).into();
        params.not_after = expires_at.into();
        params.serial_number = Some(random_serial()?);
        let certificate = params.self_signed(&key).map_err(AuthorityError::Issue)?.pem();
        let record =
            AuthorityRecord { certificate, key: AuthorityKey(key.serialize_pem()), expires_at };
        Ok(Self { issuer: Issuer::new(params, key), record })
    }
}

/// The parameters of the CA certificate except its period and serial number. They depend only on the
/// key, so that a stored CA issues certificates with exactly the name of its certificate. The name
/// contains a part of the key's hash: clients distinguish CAs of several installations by name.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let key_id: String =
        params.key_identifier(key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Ferrite CA {key_id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A random serial number: certificates of one issuer must not share one.
fn random_serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| AuthorityError::NoEntropy)?;
    // A positive number without leading zeros.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
