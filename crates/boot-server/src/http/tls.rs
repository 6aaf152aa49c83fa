// SPDX-License-Identifier: Apache-2.0
//! The server's side of TLS, from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates cannot be read.
    #[error("{} has no certificates in PEM form that can be read", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The key cannot be read.
    #[error("{} has no private key in PEM form that can be read", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// They do not go together.
    #[error("the private key in {} does not go with the certificate", path.display())]
    Mismatch {
        /// The file with the key.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// TLS 1.2 and 1.3 with the certificate and its chain in one PEM file and the private key in another (or
/// in the same). The files are read once: new ones need a new server.
///
/// # Errors
/// If they cannot be read or do not go together.
pub fn tls_from_files(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unread = |source| TlsError::Certificates { path: certificates.to_owned(), source };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect).map_err(unread)?;
    if chain.is_empty() {
        return Err(unread(pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|source| TlsError::Key { path: key.to_owned(), source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for every version")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|source| TlsError::Mismatch { path: key.to_owned(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
