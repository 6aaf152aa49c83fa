// SPDX-License-Identifier: Apache-2.0
//! TLS that requests a certificate from clients, issued by one of the CAs in a file.
//!
//! A client without a certificate can connect; a certificate of another CA ends the handshake. Which requests
//! need one is decided by the server. When the file changes, new connections use the new CAs, and sessions
//! that were verified with the previous ones cannot be resumed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::certificate_info::{MalformedCertificate, earliest_expiry};
use crate::files::{CertificateFileError, FileStamp};
use crate::pem_text::{PemFileError, read_certificates};
use crate::server_tls::{ServerTls, ServerTlsError};

/// A server configuration that requests client certificates.
pub struct ClientCertificateTls {
    server: Arc<ServerTls>,
    ca_file: PathBuf,
    state: Mutex<LoadedAuthorities>,
}

struct LoadedAuthorities {
    config: Arc<ServerConfig>,
    stamp: FileStamp,
    expires_at: Option<SystemTime>,
}

/// The file with the CA certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthorityError {
    /// The file cannot be examined.
    #[error(transparent)]
    File(#[from] CertificateFileError),
    /// The file has no certificates.
    #[error(transparent)]
    Pem(#[from] PemFileError),
    /// A certificate is malformed.
    #[error("a certificate in {} cannot be used", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: MalformedCertificate,
    },
    /// A certificate is not that of a CA.
    #[error("a certificate in {} cannot be used as a CA", path.display())]
    NotAuthority {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// Clients cannot be verified with these certificates.
    #[error("clients cannot be verified with the certificates in {}", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: VerifierBuilderError,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Setup(#[from] ServerTlsError),
}

impl ClientCertificateTls {
    /// Uses the certificate of `server`, and the CA certificates in a PEM file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn new(server: Arc<ServerTls>, ca_file: PathBuf) -> Result<Self, ClientAuthorityError> {
        let state = load(&server, &ca_file)?;
        Ok(Self { server, ca_file, state: Mutex::new(state) })
    }

    /// The configuration for a new connection.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().config)
    }

    /// When the first CA certificate expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.state().expires_at
    }

    /// Reads the file again if it changed, and returns whether it did. Blocks on file IO.
    ///
    /// # Errors
    /// If the new file cannot be used. The previous certificates stay in use.
    pub fn refresh(&self) -> Result<bool, ClientAuthorityError> {
        if FileStamp::of(&self.ca_file)? == self.state().stamp {
            return Ok(false);
        }
        let loaded = load(&self.server, &self.ca_file)?;
        *self.state() = loaded;
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, LoadedAuthorities> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(server: &ServerTls, ca_file: &Path) -> Result<LoadedAuthorities, ClientAuthorityError> {
    // Before the file is read, so that a later change is found.
    let stamp = FileStamp::of(ca_file)?;
    let certificates = read_certificates(ca_file)?;
    let expires_at = earliest_expiry(&certificates)
        .map_err(|source| ClientAuthorityError::Malformed { path: ca_file.to_owned(), source })?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|source| ClientAuthorityError::NotAuthority {
            path: ca_file.to_owned(),
            source,
        })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), server.provider())
        .allow_unauthenticated()
        .build()
        .map_err(|source| ClientAuthorityError::Verifier { path: ca_file.to_owned(), source })?;
    let config = server.config_with_client_verifier(Some(verifier))?;
    Ok(LoadedAuthorities { config: Arc::new(config), stamp, expires_at })
}

impl fmt::Debug for ClientCertificateTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificateTls")
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}
