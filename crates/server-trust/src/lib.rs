// SPDX-License-Identifier: Apache-2.0
//! Which certificates the servers we ask may show: those somebody vouches for, those an operator has
//! put among the trusted ones, or any at all.

mod verify;

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use verify::{AcceptAny, AcceptTrusted};

/// Trusted certificates of which none can be used.
#[derive(Debug, thiserror::Error)]
#[error("there is no certificate in PEM form in it")]
pub struct NoCertificates;

/// TLS with ring, in any version that is safe, with servers that these certificates vouch for, or that
/// show one of these. Certificates that cannot be used are passed over as long as one can.
///
/// # Errors
/// If none can be used.
pub fn trusting(given: Vec<CertificateDer<'static>>) -> Result<ClientConfig, NoCertificates> {
    trusting_since(rustls::ALL_VERSIONS, given)
}

/// The same, in these versions of TLS.
///
/// # Errors
/// If no certificate can be used.
pub fn trusting_since(
    versions: &[&'static SupportedProtocolVersion],
    given: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, NoCertificates> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(given.iter().cloned());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    // It only refuses to have no roots at all.
    let signed = signed.build().map_err(|_| NoCertificates)?;
    Ok(with_verifier(versions, Arc::new(AcceptTrusted { signed, given })))
}

/// TLS with ring and whoever answers.
#[must_use]
pub fn trusting_anybody() -> ClientConfig {
    trusting_anybody_since(rustls::ALL_VERSIONS)
}

/// The same, in these versions of TLS.
#[must_use]
pub fn trusting_anybody_since(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    with_verifier(versions, Arc::new(AcceptAny { provider: provider() }))
}

/// TLS with ring and nobody, for clients that speak plain HTTP.
#[must_use]
pub fn trusting_nobody() -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has suites for every version there is")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// TLS with ring and whom this machine trusts; with nobody, if it has no certificates.
#[must_use]
pub fn trusting_as_usual() -> ClientConfig {
    let given = of_this_machine().unwrap_or_default();
    trusting(given).unwrap_or_else(|_| trusting_nobody())
}

/// The certificates that this machine trusts.
///
/// # Errors
/// If it has none; says why.
pub fn of_this_machine() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    Err(found.errors.first().map_or_else(
        || "this machine has no CA certificates (is ca-certificates installed?)".to_owned(),
        ToString::to_string,
    ))
}

/// The certificates in a PEM file, or in the PEM files of a folder.
///
/// # Errors
/// If it cannot be read.
pub fn in_file_or_folder(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut pems = Vec::new();
    if std::fs::metadata(path)?.is_dir() {
        let files = std::fs::read_dir(path)?.filter_map(|entry| Some(entry.ok()?.path()));
        pems.extend(files.filter_map(|file| std::fs::read(file).ok()));
    } else {
        pems.push(std::fs::read(path)?);
    }
    let certificates = pems.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem));
    Ok(certificates.filter_map(Result::ok).collect())
}

/// What a failed request complains about in its certificate, if that is why it failed.
#[must_use]
pub fn complaint_in<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a rustls::CertificateError> {
    let rustls::Error::InvalidCertificate(complaint) = tls_error_in(error)? else { return None };
    Some(complaint)
}

/// What went wrong in TLS, if that is why a request failed.
#[must_use]
pub fn tls_error_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    // What an I/O error carries does not count as its source.
    let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| carried.and_then(|carried| tls_error_in(carried)))
        .or_else(|| error.source().and_then(tls_error_in))
}

fn with_verifier(
    versions: &[&'static SupportedProtocolVersion],
    verifier: Arc<dyn ServerCertVerifier>,
) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("ring has suites for every version there is")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
