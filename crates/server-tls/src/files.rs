// SPDX-License-Identifier: Apache-2.0
//! A certificate and its key in PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::sign::CertifiedKey;

use crate::pem_text::{PemFileError, read_certificates};

/// PEM files with a certificate chain and its private key. Both may be the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the server, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// A file cannot be examined.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificates cannot be read.
    #[error(transparent)]
    Certificates(#[from] PemFileError),
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
    #[error("the private key in {} cannot be used with the certificate", path.display())]
    Mismatch {
        /// The file with the key.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

/// What identifies the content of both files without reading them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateStamps([FileStamp; 2]);

/// What identifies the content of a file without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    inode: u64,
    length: u64,
}

impl CertificateFiles {
    /// The current stamps of the files.
    pub(crate) fn stamps(&self) -> Result<CertificateStamps, CertificateFileError> {
        Ok(CertificateStamps([FileStamp::of(&self.certificate)?, FileStamp::of(&self.key)?]))
    }

    /// Reads both files and checks that they match.
    pub(crate) fn load(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, CertificateFileError> {
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| CertificateFileError::Key { path: self.key.clone(), source })?;
        CertifiedKey::from_der(chain, key, provider)
            .map(Arc::new)
            .map_err(|source| CertificateFileError::Mismatch { path: self.key.clone(), source })
    }
}

impl FileStamp {
    /// The current stamp of a file.
    pub(crate) fn of(path: &Path) -> Result<Self, CertificateFileError> {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(path)
            .map_err(|source| CertificateFileError::Unreadable { path: path.to_owned(), source })?;
        Ok(Self { modified: found.modified().ok(), inode: found.ino(), length: found.len() })
    }
}
