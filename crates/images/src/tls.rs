// SPDX-License-Identifier: Apache-2.0
//! TLS trust for image servers.

use std::io;
use std::path::PathBuf;

use rustls::ClientConfig;

/// The CA certificates that image servers are verified with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ImageServerTrust {
    /// The CAs of this host.
    #[default]
    System,
    /// The certificates in this PEM file or directory, and no others.
    File(PathBuf),
}

/// Why CA certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsTrustError {
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

/// Returns the TLS configuration. Without any CA certificate on this host, plain HTTP still works and
/// every TLS server is rejected.
pub(crate) fn client_config(trust: &ImageServerTrust) -> Result<ClientConfig, TlsTrustError> {
    let mut config = match trust {
        ImageServerTrust::System => server_trust::system_client_config(),
        ImageServerTrust::File(path) => {
            let given = server_trust::load_certificates(path)
                .map_err(|source| TlsTrustError::Read { path: path.clone(), source })?;
            server_trust::client_config(given)
                .map_err(|_| TlsTrustError::Empty { path: path.clone() })?
        }
    };
    // One image is one stream: HTTP/2 has nothing to share, and its windows slow it down.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
