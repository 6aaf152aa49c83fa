// SPDX-License-Identifier: Apache-2.0
//! Reads and writes certificates in PEM.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};

/// A PEM file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot read PEM certificates from {}", path.display())]
pub struct PemFileError {
    path: PathBuf,
    #[source]
    source: pem::Error,
}

/// Reads the certificates of a PEM file, at least one.
///
/// # Errors
/// If the file cannot be read, is malformed, or has no certificate.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let unreadable = |source| PemFileError { path: path.to_owned(), source };
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(unreadable)?;
    if certificates.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

/// Returns the certificates as PEM text.
#[must_use]
pub fn pem_bundle(certificates: &[CertificateDer<'_>]) -> String {
    const LINE: usize = 64;
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut encoded = STANDARD.encode(certificate);
        while encoded.len() > LINE {
            let rest = encoded.split_off(LINE);
            text.push_str(&encoded);
            text.push('\n');
            encoded = rest;
        }
        text.push_str(&encoded);
        text.push_str("\n-----END CERTIFICATE-----\n");
    }
    text
}
