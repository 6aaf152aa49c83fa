// SPDX-License-Identifier: Apache-2.0
//! How the agent reaches others over HTTP and HTTPS: whom it trusts, and how it finds them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

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
        source: rustls::pki_types::pem::Error,
    },
    /// The client could not be made.
    #[error("no HTTP client could be made")]
    Client(#[source] reqwest::Error),
    /// The ciphers could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[source] rustls::Error),
}

impl Reach {
    /// Reads the certificates and makes a client.
    ///
    /// # Errors
    /// If a file that was asked for cannot be read.
    pub fn new(settings: &Settings, network: &Network) -> Result<Self, ReachError> {
        let tls = if settings.insecure {
            trusting_anybody()
        } else {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let roots = trusted(settings.ca_file.as_deref().map(Path::new))?;
            ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(ReachError::Tls)?
                .with_root_certificates(roots)
                .with_no_client_auth()
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

/// TLS that takes any certificate.
#[must_use]
pub fn trusting_anybody() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has ciphers for every version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
        .with_no_client_auth()
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

/// The certificates of those who vouch for servers. None at all is no error: plain HTTP needs none.
fn trusted(asked: Option<&Path>) -> Result<RootCertStore, ReachError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = asked.or_else(|| BUNDLES.iter().map(Path::new).find(|path| path.exists()))
    else {
        return Ok(roots);
    };
    let bundle = |source| ReachError::Bundle { path: path.to_owned(), source };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(bundle)?
        .collect::<Result<_, _>>()
        .map_err(bundle)?;
    roots.add_parsable_certificates(certificates);
    Ok(roots)
}

/// Takes any certificate, as `ipa-insecure` demands.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
