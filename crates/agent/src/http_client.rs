// SPDX-License-Identifier: Apache-2.0
//! The HTTP client of the agent: trusted certificates and name resolution.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::ClientConfig;

use crate::network::{AgentNetwork, dns};
use crate::parameters::AgentOptions;

/// CA bundles of the ramdisk or of an installed system. The first that exists is used.
const CA_BUNDLES: &[&str] = &[
    "/etc/ferrite/ca.pem",
    "/etc/ironic-python-agent/ca.pem",
    "/etc/ironic-python-agent.d/ca.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// The HTTP client and its parts, for clients with other options.
#[derive(Clone)]
pub struct HttpContext {
    /// The TLS configuration with the trusted certificates.
    pub tls: ClientConfig,
    /// The DNS resolver.
    pub resolver: Arc<NetworkResolver>,
    /// A client with both.
    pub client: reqwest::Client,
}

/// The HTTP client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// The CA file cannot be read.
    #[error("cannot read the certificates in {path}; check ipa-cafile")]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The library rejected the configuration.
    #[error("cannot create the HTTP client")]
    Client(#[source] reqwest::Error),
}

impl HttpContext {
    /// Reads the certificates and creates a client.
    ///
    /// # Errors
    /// If `ipa-cafile` cannot be read.
    pub fn new(options: &AgentOptions, network: &AgentNetwork) -> Result<Self, HttpClientError> {
        let tls = if options.insecure {
            server_trust::unverified_client_config()
        } else {
            tls_config(options.ca_file.as_deref().map(Path::new))?
        };
        let resolver = Arc::new(NetworkResolver(network.clone()));
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .dns_resolver(Arc::clone(&resolver))
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .timeout(options.request_timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(20))
            .build()
            .map_err(HttpClientError::Client)?;
        Ok(Self { tls, resolver, client })
    }
}

/// Resolves names with the DNS servers of the agent's network.
pub struct NetworkResolver(AgentNetwork);

impl Resolve for NetworkResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let network = self.0.clone();
        Box::pin(async move {
            let resolved = dns::resolve(&network, name.as_str()).await?;
            let addresses: Addrs = Box::new(resolved.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

/// Returns a TLS configuration that trusts the configured certificates, or those of the ramdisk.
/// Without any, HTTPS connections fail, but plain HTTP works.
fn tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, HttpClientError> {
    let Some(path) =
        ca_file.or_else(|| CA_BUNDLES.iter().map(Path::new).find(|path| path.exists()))
    else {
        return Ok(server_trust::client_config_without_roots());
    };
    let given = server_trust::load_certificates(path)
        .map_err(|source| HttpClientError::Bundle { path: path.to_owned(), source })?;
    Ok(server_trust::client_config(given)
        .unwrap_or_else(|_| server_trust::client_config_without_roots()))
}
