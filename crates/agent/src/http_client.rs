// SPDX-License-Identifier: Apache-2.0
//! How the agent reaches others over HTTP and HTTPS: whom it trusts, and how it finds them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::ClientConfig;

use crate::network::{Network, dns};
use crate::parameters::Settings;

/// Where a ramdisk or a live system keeps the certificates of those it trusts; the first that is
/// there counts.
const BUNDLES: &[&str] = &[
    "/etc/ferrite/ca.pem",
    "/etc/ironic-python-agent/ca.pem",
    "/etc/ironic-python-agent.d/ca.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// What is needed to reach somebody.
#[derive(Clone)]
pub struct Reach {
    /// Whom to trust.
    pub tls: ClientConfig,
    /// How to find addresses.
    pub resolver: Arc<Resolver>,
    /// A client with both.
    pub client: reqwest::Client,
}

/// Why there is no way to reach anybody.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The certificates that were asked for are not there.
    #[error("the certificates in {path} cannot be read; check ipa-cafile")]
    Bundle {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The client could not be made.
    #[error("no HTTP client could be made")]
    Client(#[source] reqwest::Error),
}

impl Reach {
    /// Reads the certificates and makes a client.
    ///
    /// # Errors
    /// If a file that was asked for cannot be read.
    pub fn new(settings: &Settings, network: &Network) -> Result<Self, ReachError> {
        let tls = if settings.insecure {
            server_trust::trusting_anybody()
        } else {
            trusting(settings.ca_file.as_deref().map(Path::new))?
        };
        let resolver = Arc::new(Resolver(network.clone()));
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .dns_resolver(Arc::clone(&resolver))
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .timeout(settings.request_timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(Duration::from_secs(20))
            .build()
            .map_err(ReachError::Client)?;
        Ok(Self { tls, resolver, client })
    }
}

/// Finds addresses with our own questions.
pub struct Resolver(Network);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let network = self.0.clone();
        Box::pin(async move {
            let found = dns::resolve(&network, name.as_str()).await?;
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

/// Trust in the certificates that were asked for, or in those of the ramdisk. None at all is no error:
/// plain HTTP needs none.
fn trusting(asked: Option<&Path>) -> Result<ClientConfig, ReachError> {
    let Some(path) = asked.or_else(|| BUNDLES.iter().map(Path::new).find(|path| path.exists()))
    else {
        return Ok(server_trust::trusting_nobody());
    };
    let given = server_trust::in_file_or_folder(path)
        .map_err(|source| ReachError::Bundle { path: path.to_owned(), source })?;
    Ok(server_trust::trusting(given).unwrap_or_else(|_| server_trust::trusting_nobody()))
}
