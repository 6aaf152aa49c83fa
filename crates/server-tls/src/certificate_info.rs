// SPDX-License-Identifier: Apache-2.0
//! What a certificate states: the name of its subject, and when it expires.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;

/// The object identifier of the attribute "common name".
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// What a certificate states. It must have been verified elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The common name of the subject; `None` if there is none, or several.
    pub common_name: Option<String>,
    /// When the certificate expires.
    pub expires_at: SystemTime,
}

/// The certificate cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is malformed")]
pub struct MalformedCertificate(#[source] x509_cert::der::Error);

impl CertificateInfo {
    /// Parses a certificate.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(certificate: &CertificateDer<'_>) -> Result<Self, MalformedCertificate> {
        let parsed = Certificate::from_der(certificate).map_err(MalformedCertificate)?;
        let subject = &parsed.tbs_certificate.subject;
        let mut names = subject
            .0
            .iter()
            .flat_map(|relative_name| relative_name.0.iter())
            .filter(|attribute| attribute.oid == COMMON_NAME);
        let common_name = match (names.next(), names.next()) {
            (Some(name), None) => attribute_text(name),
            (None, _) | (Some(_), Some(_)) => None,
        };
        let expires_at = parsed.tbs_certificate.validity.not_after.to_system_time();
        Ok(Self { common_name, expires_at })
    }
}

/// The earliest expiry of these certificates.
///
/// # Errors
/// If one is malformed.
pub fn earliest_expiry(
    certificates: &[CertificateDer<'_>],
) -> Result<Option<SystemTime>, MalformedCertificate> {
    let mut earliest = None;
    for certificate in certificates {
        let expires_at = CertificateInfo::parse(certificate)?.expires_at;
        earliest = Some(earliest.map_or(expires_at, |other: SystemTime| other.min(expires_at)));
    }
    Ok(earliest)
}

/// The text of a name, in one of the types that certificates use for it.
fn attribute_text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let text = utf8
        .or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|it| it.as_str().to_owned()))
        .or_else(|_| value.decode_as::<Ia5StringRef<'_>>().map(|it| it.as_str().to_owned()))
        .or_else(|_| value.decode_as::<TeletexStringRef<'_>>().map(|it| it.as_str().to_owned()));
    text.ok()
}
