// SPDX-License-Identifier: Apache-2.0
//! A certificate for the fleet, made at start, from an authority that nobody knows.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// The fleet's side of TLS.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// The authority's certificate, for those who want to verify.
    pub(crate) ca_pem: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificate")]
    Use(#[from] rustls::Error),
}

/// Makes an authority and a certificate for `listen` and this machine.
pub(crate) fn make(listen: IpAddr) -> Result<Tls, TlsError> {
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
    Ok(Tls { acceptor: acceptor(&certificate, &key)?, ca_pem })
}

/// Makes a certificate that vouches for itself, as agents do.
pub(crate) fn make_self_signed(listen: IpAddr) -> Result<Tls, TlsError> {
    let mut params = CertificateParams::new(vec![listen.to_string()])?;
    params.distinguished_name.push(DnType::CommonName, "simulated agent");
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Tls { acceptor: acceptor(&certificate, &key)?, ca_pem: certificate.pem() })
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
