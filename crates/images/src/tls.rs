// SPDX-License-Identifier: Apache-2.0
//! Whom to trust when images come over TLS.

use std::io;
use std::path::PathBuf;

use rustls::ClientConfig;

/// Who may vouch for a server of images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// The CAs this machine trusts.
    #[default]
    System,
    /// The certificates in this PEM file or folder, and no other.
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

/// TLS with the given trust. A machine without any CA certificates still serves plain HTTP and checks
/// nobody's TLS.
pub(crate) fn config(trust: &Trust) -> Result<ClientConfig, TrustError> {
    let mut config = match trust {
        Trust::System => server_trust::trusting_as_usual(),
        Trust::File(path) => {
            let given = server_trust::in_file_or_folder(path)
                .map_err(|source| TrustError::Read { path: path.clone(), source })?;
            server_trust::trusting(given).map_err(|_| TrustError::Empty { path: path.clone() })?
        }
    };
    // One image is one stream: HTTP/2 has nothing to share, and its windows slow it down.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
