// SPDX-License-Identifier: Apache-2.0
//! The TLS configuration of the server, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BootTlsError {
    /// The certificates cannot be read.
    #[error("cannot read PEM certificates from {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The private key cannot be read.
    #[error("cannot read a PEM private key from {}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The key does not match the certificate.
    #[error("the private key in {} does not match the certificate", path.display())]
    Mismatch {
        /// The file with the key.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

/// Returns a configuration for TLS 1.2 and 1.3. One PEM file has the certificate and its chain; the private
/// key is in another or the same file. The files are read once, so changes need a new server.
///
/// # Errors
/// If the files cannot be read or do not match.
pub fn tls_from_files(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, BootTlsError> {
    let unreadable = |source| BootTlsError::Certificates { path: certificates.to_owned(), source };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect)
        .map_err(unreadable)?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|source| BootTlsError::Key { path: key.to_owned(), source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for every version")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|source| BootTlsError::Mismatch { path: key.to_owned(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
