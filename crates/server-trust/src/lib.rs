// SPDX-License-Identifier: Apache-2.0
//! TLS client configurations: which server certificates are accepted from BMCs, image servers and
//! APIs.

#[cfg(test)]
mod tests;
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

use verify::{
    AnyCertVerifier, AnyNameVerifier, PIN_MISMATCH, PinnedCertVerifier, TrustedCertVerifier,
};

/// None of the given certificates can be used.
#[derive(Debug, thiserror::Error)]
#[error("no usable certificate in PEM format")]
pub struct NoCertificates;

/// Returns a configuration, with ring and all TLS versions of rustls, that accepts certificates
/// signed by one of `certificates` and these certificates themselves. Unusable certificates are
/// ignored.
///
/// # Errors
/// If no certificate is usable.
pub fn client_config(
    certificates: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, NoCertificates> {
    client_config_with_versions(rustls::ALL_VERSIONS, certificates)
}

/// Like [`client_config`], for these TLS versions.
///
/// # Errors
/// If no certificate is usable.
pub fn client_config_with_versions(
    versions: &[&'static SupportedProtocolVersion],
    certificates: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, NoCertificates> {
    Ok(config_with_verifier(versions, Arc::new(trusted_verifier(certificates)?)))
}

/// Like [`client_config`], but the names of a certificate are not checked: the server may have any
/// certificate of these CAs.
///
/// # Errors
/// If no certificate is usable.
pub fn client_config_without_names(
    certificates: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, NoCertificates> {
    let trusted = trusted_verifier(certificates)?;
    Ok(config_with_verifier(rustls::ALL_VERSIONS, Arc::new(AnyNameVerifier { trusted })))
}

/// Returns a configuration that accepts only the first certificate in `pem`. Its names and
/// validity period are not checked.
///
/// # Errors
/// If `pem` contains no certificate.
pub fn pinned_client_config(pem: &str) -> Result<ClientConfig, NoCertificates> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| NoCertificates)?;
    let verifier = PinnedCertVerifier { certificate, provider: provider() };
    Ok(config_with_verifier(rustls::ALL_VERSIONS, Arc::new(verifier)))
}

/// Returns true if a request failed because the server presented another certificate than the
/// pinned one.
#[must_use]
pub fn is_pin_mismatch(error: &(dyn StdError + 'static)) -> bool {
    find_certificate_error(error) == Some(&PIN_MISMATCH)
}

/// Returns a configuration that accepts every certificate.
#[must_use]
pub fn unverified_client_config() -> ClientConfig {
    unverified_client_config_with_versions(rustls::ALL_VERSIONS)
}

/// Like [`unverified_client_config`], for these TLS versions.
#[must_use]
pub fn unverified_client_config_with_versions(
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    config_with_verifier(versions, Arc::new(AnyCertVerifier { provider: provider() }))
}

/// Returns a configuration that accepts no certificate, for clients that only use plain HTTP.
#[must_use]
pub fn client_config_without_roots() -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has cipher suites for every TLS version")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// Returns a configuration with the CA certificates of the operating system. Accepts no
/// certificate if there are none.
#[must_use]
pub fn system_client_config() -> ClientConfig {
    let certificates = system_certificates().unwrap_or_default();
    client_config(certificates).unwrap_or_else(|_| client_config_without_roots())
}

/// Returns a configuration with the CA certificates of a PEM file or directory, and no others; without one,
/// with those of the operating system.
///
/// # Errors
/// If the certificates cannot be read or none is usable; the text has the path.
pub fn client_config_for_ca_file(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let Some(path) = ca_file else { return Ok(system_client_config()) };
    let in_path = |error: &dyn StdError| format!("{}: {error}", path.display());
    let certificates = load_certificates(path).map_err(|error| in_path(&error))?;
    client_config(certificates).map_err(|error| in_path(&error))
}

/// Returns the CA certificates of the operating system.
///
/// # Errors
/// If there are none, with the reason.
pub fn system_certificates() -> Result<Vec<CertificateDer<'static>>, String> {
    let loaded = rustls_native_certs::load_native_certs();
    if !loaded.certs.is_empty() {
        return Ok(loaded.certs);
    }
    Err(loaded.errors.first().map_or_else(
        || "this machine has no CA certificates (is ca-certificates installed?)".to_owned(),
        ToString::to_string,
    ))
}

/// Reads the certificates of a PEM file, or of all PEM files in a directory. Unreadable files of a
/// directory and malformed certificates are skipped.
///
/// # Errors
/// If the path cannot be read.
pub fn load_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
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

/// Returns the certificate error that caused a request to fail, if there is one.
#[must_use]
pub fn find_certificate_error<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a rustls::CertificateError> {
    let rustls::Error::InvalidCertificate(error) = find_tls_error(error)? else { return None };
    Some(error)
}

/// Returns the TLS error that caused a request to fail, if there is one.
#[must_use]
pub fn find_tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    // `io::Error::source` skips the wrapped error and returns its source.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| wrapped.and_then(|wrapped| find_tls_error(wrapped)))
        .or_else(|| error.source().and_then(find_tls_error))
}

fn trusted_verifier(
    certificates: Vec<CertificateDer<'static>>,
) -> Result<TrustedCertVerifier, NoCertificates> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    // Fails only if there are no roots.
    let webpki = builder.build().map_err(|_| NoCertificates)?;
    Ok(TrustedCertVerifier { webpki, certificates })
}

fn config_with_verifier(
    versions: &[&'static SupportedProtocolVersion],
    verifier: Arc<dyn ServerCertVerifier>,
) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("ring has cipher suites for every TLS version")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
