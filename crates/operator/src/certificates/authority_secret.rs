// SPDX-License-Identifier: Apache-2.0
//! The own CA as content of a Secret. No IO.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use server_tls::{
    AuthorityError, AuthorityKey, AuthorityRecord, CertificateAuthority, CertificateInfo,
};

/// Key of the certificate in the Secret.
const CERTIFICATE: &str = "ca.crt";
/// Key of the private key in the Secret.
const KEY: &str = "ca.key";

/// What a Secret contains.
pub(super) enum WebhookAuthority {
    /// A CA to use.
    Current(CertificateAuthority),
    /// A CA whose certificate expires soon: the same key with a new certificate, to be stored.
    Renewed(CertificateAuthority),
    /// Nothing that can be used: a new CA, to be stored, and what is wrong with the stored one.
    Replaced(CertificateAuthority, &'static str),
}

/// Reads the CA in a Secret.
pub(super) fn read_authority(
    secret: &Secret,
    now: SystemTime,
) -> Result<WebhookAuthority, AuthorityError> {
    let problem = match stored_record(secret) {
        Ok(record) if record.expires_at <= now => "its certificate has expired",
        Ok(record) => {
            let authority = CertificateAuthority::open(record)?;
            return Ok(match authority.is_renewal_due(now) {
                true => WebhookAuthority::Renewed(authority.renew(now)?),
                false => WebhookAuthority::Current(authority),
            });
        }
        Err(problem) => problem,
    };
    Ok(WebhookAuthority::Replaced(CertificateAuthority::create(now)?, problem))
}

/// The content of the Secret for a CA.
pub(super) fn secret_data(authority: &CertificateAuthority) -> BTreeMap<String, ByteString> {
    let record = authority.record();
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    BTreeMap::from([
        (CERTIFICATE.to_owned(), bytes(&record.certificate)),
        (KEY.to_owned(), bytes(record.key.reveal())),
    ])
}

/// The CA in a Secret. Its key must belong to its certificate.
fn stored_record(secret: &Secret) -> Result<AuthorityRecord, &'static str> {
    let text = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    let certificate = text(CERTIFICATE).ok_or("it has no ca.crt")?;
    let key = text(KEY).ok_or("it has no ca.key")?;
    let parsed = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| "its certificate is malformed")?;
    let info = CertificateInfo::parse(&parsed).map_err(|_| "its certificate is malformed")?;
    let parsed_key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "its key is malformed")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(vec![parsed], parsed_key, &provider)
        .map_err(|_| "its key does not belong to its certificate")?;
    let key = AuthorityKey::from_pem(key);
    Ok(AuthorityRecord { certificate, key, expires_at: info.expires_at })
}
