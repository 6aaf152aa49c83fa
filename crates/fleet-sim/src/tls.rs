// SPDX-License-Identifier: Apache-2.0
//! TLS certificates for the fleet, generated at start.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// A TLS acceptor with the certificate that verifies it.
pub(crate) struct TlsIdentity {
    pub(crate) acceptor: TlsAcceptor,
    /// The CA certificate, for clients that verify.
    pub(crate) ca_pem: String,
}

/// A certificate could not be generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot generate a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the generated certificate")]
    Use(#[from] rustls::Error),
}

/// Generates a CA, and a certificate for `listen` and localhost issued by it.
pub(crate) fn issue_from_new_ca(listen: IpAddr) -> Result<TlsIdentity, TlsError> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "Ferrite simulated fleet");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority_key = KeyPair::generate()?;
    let ca_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !listen.is_unspecified() && !names.contains(&listen.to_string()) {
        names.push(listen.to_string());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "simulated BMC");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(TlsIdentity { acceptor: acceptor(&certificate, &key)?, ca_pem })
}

/// Generates a self-signed certificate for `listen`, as agents do.
pub(crate) fn issue_self_signed(listen: IpAddr) -> Result<TlsIdentity, TlsError> {
    let mut params = CertificateParams::new(vec![listen.to_string()])?;
    params.distinguished_name.push(DnType::CommonName, "simulated agent");
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(TlsIdentity { acceptor: acceptor(&certificate, &key)?, ca_pem: certificate.pem() })
}

fn acceptor(certificate: &Certificate, key: &KeyPair) -> Result<TlsAcceptor, TlsError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
