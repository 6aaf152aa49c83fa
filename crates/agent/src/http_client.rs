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

/// The CA certificates of the server that booted this ramdisk. They are trusted in addition to the bundle.
const SERVER_CA: &str = "/etc/ferrite/server-ca.pem";

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
            let bundle = options.ca_file.as_deref().map(Path::new);
            tls_config(
                bundle.or_else(|| CA_BUNDLES.iter().map(Path::new).find(|path| path.exists())),
                Path::new(SERVER_CA),
            )?
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

/// Returns a TLS configuration that trusts the certificates of a bundle and those of the server that
/// booted this ramdisk. Without any, HTTPS connections fail, but plain HTTP works.
fn tls_config(bundle: Option<&Path>, server_ca: &Path) -> Result<ClientConfig, HttpClientError> {
    let server_ca = Some(server_ca).filter(|path| path.exists());
    let mut trusted = Vec::new();
    for path in bundle.into_iter().chain(server_ca) {
        let found = server_trust::load_certificates(path)
            .map_err(|source| HttpClientError::Bundle { path: path.to_owned(), source })?;
        trusted.extend(found);
    }
    Ok(server_trust::client_config(trusted)
        .unwrap_or_else(|_| server_trust::client_config_without_roots()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Starts a TLS server for one connection and returns its URL.
    fn serve(made: rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.unwrap())
        .unwrap();
        std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = rustls::Stream::new(&mut connection, &mut tcp);
            let mut request = [0; 1024];
            if stream.read(&mut request).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        });
        url
    }

    /// The CA of the server is trusted in addition to the bundle of the ramdisk.
    #[tokio::test]
    async fn trusts_the_server_and_the_bundle_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let make = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (server, other, unknown) = (make(), make(), make());
        std::fs::write(path("server-ca.pem"), server.cert.pem()).unwrap();
        std::fs::write(path("bundle.pem"), other.cert.pem()).unwrap();
        for (made, is_trusted) in [(server, true), (other, true), (unknown, false)] {
            let tls = tls_config(Some(&path("bundle.pem")), &path("server-ca.pem")).unwrap();
            let client =
                reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build();
            let response = client.unwrap().get(serve(made)).send().await;
            assert_eq!(response.is_ok(), is_trusted, "{response:?}");
        }
        tls_config(Some(&path("missing.pem")), &path("server-ca.pem")).unwrap_err();
        tls_config(None, &path("missing.pem")).unwrap();
    }
}
