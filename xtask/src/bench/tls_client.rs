// SPDX-License-Identifier: Apache-2.0
//! TLS for the load: connections that are verified with the CA of the measured server.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use http_probe::{ProbeTls, ProbeTlsStream};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Starts TLS with the defaults of rustls.
#[derive(Debug)]
pub(crate) struct BenchTls(Arc<ClientConfig>);

impl BenchTls {
    /// Trusts the certificates in `ca_file`.
    pub(crate) fn trusting(ca_file: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca_file)
            .with_context(|| format!("cannot read {}", ca_file.display()))?
        {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

impl ProbeTls for BenchTls {
    fn start(&self, stream: TcpStream) -> io::Result<Box<dyn ProbeTlsStream>> {
        let name = ServerName::from(stream.peer_addr()?.ip());
        let session = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }
}
