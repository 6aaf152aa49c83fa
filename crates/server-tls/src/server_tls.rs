// SPDX-License-Identifier: Apache-2.0
//! The current certificate of our servers, and its replacement while they run.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::authority::{AuthorityError, CertificateAuthority, IssuedCertificate};
use crate::certificate_info::CertificateInfo;
use crate::files::{CertificateFileError, CertificateFiles, CertificateStamps};
use crate::names::CertificateNames;

/// TLS of our servers: the current certificate and where it comes from.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    current: Arc<CurrentCertificate>,
    provider: Arc<CryptoProvider>,
    source: Mutex<CertificateSource>,
}

/// TLS cannot be set up, or the certificate cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] CertificateFileError),
    /// The own CA cannot issue a certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The TLS library cannot be set up.
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
}

/// What [`ServerTls::refresh`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateChange {
    /// The certificate is still the right one.
    Unchanged,
    /// The files changed and were read again.
    Reloaded,
    /// The own CA issued a new certificate.
    Issued {
        /// When it expires.
        expires_at: SystemTime,
    },
}

enum CertificateSource {
    Files {
        files: CertificateFiles,
        loaded: CertificateStamps,
    },
    Authority {
        authority: Box<CertificateAuthority>,
        names: CertificateNames,
        renew_at: SystemTime,
    },
}

/// Hands out the current certificate for every handshake.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl ServerTls {
    /// Uses a certificate from files.
    ///
    /// # Errors
    /// If the files cannot be read or do not match.
    pub fn from_files(files: CertificateFiles) -> Result<Self, ServerTlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Before the files are read, so that a later change is found.
        let loaded = files.stamps()?;
        let first = files.load(&provider)?;
        Self::new(provider, first, CertificateSource::Files { files, loaded })
    }

    /// Uses a certificate of an own CA.
    ///
    /// # Errors
    /// If the CA cannot issue a certificate.
    pub fn from_authority(
        authority: CertificateAuthority,
        names: CertificateNames,
        now: SystemTime,
    ) -> Result<Self, ServerTlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let IssuedCertificate { certified_key, renew_at, .. } =
            authority.issue(&names, now, &provider)?;
        let authority = Box::new(authority);
        let source = CertificateSource::Authority { authority, names, renew_at };
        Self::new(provider, certified_key, source)
    }

    fn new(
        provider: Arc<CryptoProvider>,
        first: Arc<CertifiedKey>,
        source: CertificateSource,
    ) -> Result<Self, ServerTlsError> {
        let current = Arc::new(CurrentCertificate(RwLock::new(first)));
        let config = server_config(&provider, &current, None)?;
        Ok(Self { config: Arc::new(config), current, provider, source: Mutex::new(source) })
    }

    /// A configuration with the same certificate that requests client certificates.
    pub(crate) fn config_with_client_verifier(
        &self,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, ServerTlsError> {
        server_config(&self.provider, &self.current, verifier)
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// When the current certificate expires; `None` if it cannot be parsed.
    #[must_use]
    pub fn certificate_expiry(&self) -> Option<SystemTime> {
        let current = Arc::clone(&self.current.0.read().unwrap_or_else(PoisonError::into_inner));
        Some(CertificateInfo::parse(current.cert.first()?).ok()?.expires_at)
    }

    /// Whether the operator replaces the certificate, and not the own CA.
    #[must_use]
    pub fn is_from_files(&self) -> bool {
        matches!(&*self.source(), CertificateSource::Files { .. })
    }

    /// When the certificate of the own CA expires; `None` if the certificate comes from files.
    #[must_use]
    pub fn authority_expiry(&self) -> Option<SystemTime> {
        match &*self.source() {
            CertificateSource::Files { .. } => None,
            CertificateSource::Authority { authority, .. } => Some(authority.record().expires_at),
        }
    }

    /// The configuration for listeners. It stays valid when the certificate is replaced.
    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// The certificate of the own CA in PEM; `None` if the certificate comes from files.
    #[must_use]
    pub fn authority_certificate(&self) -> Option<String> {
        match &*self.source() {
            CertificateSource::Files { .. } => None,
            CertificateSource::Authority { authority, .. } => {
                Some(authority.certificate().to_owned())
            }
        }
    }

    /// Replaces the certificate if necessary: if its files changed, it is due for renewal, or it lacks
    /// one of `names`. Blocks on file IO.
    ///
    /// # Errors
    /// If the new files cannot be used, or the CA cannot issue a certificate. The previous certificate
    /// stays in use, and the next call tries again.
    pub fn refresh(
        &self,
        names: &CertificateNames,
        now: SystemTime,
    ) -> Result<CertificateChange, ServerTlsError> {
        match &mut *self.source() {
            CertificateSource::Files { files, loaded } => {
                let found = files.stamps()?;
                if found == *loaded {
                    return Ok(CertificateChange::Unchanged);
                }
                self.replace(files.load(&self.provider)?);
                *loaded = found;
                Ok(CertificateChange::Reloaded)
            }
            CertificateSource::Authority { authority, names: current, renew_at } => {
                let is_due = now >= *renew_at;
                if !is_due && current.contains_all(names) {
                    return Ok(CertificateChange::Unchanged);
                }
                // Names that are gone are dropped only at the renewal: an address that comes and goes
                // must not cause a new certificate each time.
                let mut wanted = names.clone();
                if !is_due {
                    wanted.extend(current);
                }
                let issued = authority.issue(&wanted, now, &self.provider)?;
                self.replace(issued.certified_key);
                *current = wanted;
                *renew_at = issued.renew_at;
                Ok(CertificateChange::Issued { expires_at: issued.expires_at })
            }
        }
    }

    /// Uses a certificate of another CA, or of the same CA with a renewed certificate, from now on.
    ///
    /// # Errors
    /// If the CA cannot issue a certificate. The previous certificate stays in use.
    pub fn replace_authority(
        &self,
        authority: CertificateAuthority,
        names: CertificateNames,
        now: SystemTime,
    ) -> Result<(), ServerTlsError> {
        let issued = authority.issue(&names, now, &self.provider)?;
        let mut source = self.source();
        self.replace(issued.certified_key);
        let (authority, renew_at) = (Box::new(authority), issued.renew_at);
        *source = CertificateSource::Authority { authority, names, renew_at };
        Ok(())
    }

    fn replace(&self, certified_key: Arc<CertifiedKey>) {
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = certified_key;
    }

    fn source(&self) -> MutexGuard<'_, CertificateSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    current: &Arc<CurrentCertificate>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, ServerTlsError> {
    let resolver: Arc<dyn ResolvesServerCert> = Arc::<CurrentCertificate>::clone(current);
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let mut config = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Agents and command-line clients connect often; a ticket saves them the signature.
    config.ticketer = rustls::crypto::ring::Ticketer::new()?;
    Ok(config)
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &*self.source() {
            CertificateSource::Files { files, .. } => format!("{files:?}"),
            CertificateSource::Authority { names, .. } => format!("own CA, {names:?}"),
        };
        f.debug_struct("ServerTls").field("source", &source).finish_non_exhaustive()
    }
}
