// SPDX-License-Identifier: Apache-2.0
//! Whom to trust when images come over TLS.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Who may vouch for a server of images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// The CAs this machine trusts.
    #[default]
    System,
    /// The CAs in this PEM file, and no other.
    File(PathBuf),
}

/// Why nobody can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read.
    #[error("the CA certificates in {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no usable certificate.
    #[error("there is no CA certificate in PEM form in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// TLS with ring and the given trust. A machine without any CA certificates still serves plain
/// HTTP and checks nobody's TLS.
pub(crate) fn config(trust: &Trust) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::System => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                tracing::warn!("this machine has no CA certificates: no image comes over https");
            }
        }
        Trust::File(path) => {
            let pem = std::fs::read(path)
                .map_err(|source| TrustError::Read { path: path.clone(), source })?;
            let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
            roots.add_parsable_certificates(certificates);
            if roots.is_empty() {
                return Err(TrustError::Empty { path: path.clone() });
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for every version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // One image is one stream: HTTP/2 has nothing to share, and its windows slow it down.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
