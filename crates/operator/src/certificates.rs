// SPDX-License-Identifier: Apache-2.0
//! Certificates of the webhooks: an own CA in a Secret, or files that cert-manager maintains.
//!
//! The Secret has only the CA. Every replica issues its serving certificate itself and keeps it in
//! memory, so that all of them satisfy the same `caBundle` and no serving key is stored.

mod authority_secret;
mod bundle;
mod self_managed;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use error_chain::error_chain;
use server_tls::{CertificateChange, CertificateFiles, CertificateNames, ServerTls};
use tracing::{info, warn};

pub use self_managed::{CertificateObjects, WebhookCertificateError};

use self_managed::SelfManagedCertificates;

/// How often files are examined.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after a failure before the certificate exists.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Where the certificate of the webhooks comes from.
#[derive(Clone, Debug)]
pub enum WebhookCertificateSource {
    /// A folder with `tls.crt` and `tls.key`, such as a mounted Secret of cert-manager.
    Folder(PathBuf),
    /// An own CA.
    SelfManaged(CertificateObjects),
}

/// The certificate of the webhooks while the process runs.
pub(crate) enum WebhookCertificates {
    Folder(Arc<ServerTls>),
    SelfManaged(Box<SelfManagedCertificates>),
}

impl WebhookCertificates {
    /// Waits until there is a certificate.
    pub(crate) async fn obtain(source: WebhookCertificateSource, client: kube::Client) -> Self {
        match source {
            WebhookCertificateSource::Folder(folder) => loop {
                match load(&folder).await {
                    Ok(tls) => return Self::Folder(Arc::new(tls)),
                    Err(error) => {
                        warn!(%error, retry_in = ?RETRY_DELAY, "webhook certificate cannot be read");
                    }
                }
                tokio::time::sleep(RETRY_DELAY).await;
            },
            WebhookCertificateSource::SelfManaged(objects) => loop {
                match SelfManagedCertificates::obtain(&objects, &client, SystemTime::now()).await {
                    Ok(certificates) => return Self::SelfManaged(Box::new(certificates)),
                    Err(error) => {
                        let error = error_chain(&error);
                        warn!(%error, retry_in = ?RETRY_DELAY, "webhook certificate cannot be set up");
                    }
                }
                tokio::time::sleep(RETRY_DELAY).await;
            },
        }
    }

    /// The configuration of the listener.
    pub(crate) fn server_config(&self) -> Arc<rustls::ServerConfig> {
        match self {
            Self::Folder(tls) => tls.server_config(),
            Self::SelfManaged(certificates) => certificates.server_config(),
        }
    }

    /// Renews or reloads the certificate for ever.
    pub(crate) async fn maintain(self) {
        match self {
            Self::Folder(tls) => reload(tls).await,
            Self::SelfManaged(certificates) => certificates.maintain().await,
        }
    }
}

/// Reads the certificate in a folder.
async fn load(folder: &Path) -> Result<ServerTls, String> {
    let files =
        CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    let loaded = tokio::task::spawn_blocking(move || ServerTls::from_files(files)).await;
    loaded.map_err(|error| error.to_string())?.map_err(|error| error_chain(&error))
}

/// Reads the files again when they change. A faulty file leaves the previous certificate in use.
async fn reload(tls: Arc<ServerTls>) {
    let mut last_error = None;
    loop {
        tokio::time::sleep(FILE_CHECK_INTERVAL).await;
        let examined = Arc::clone(&tls);
        let refresh = move || examined.refresh(&CertificateNames::default(), SystemTime::now());
        let error = match tokio::task::spawn_blocking(refresh).await {
            Ok(Ok(CertificateChange::Unchanged)) => None,
            Ok(Ok(CertificateChange::Reloaded | CertificateChange::Issued { .. })) => {
                info!("webhook certificate reloaded");
                None
            }
            Ok(Err(error)) => Some(error_chain(&error)),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error.as_ref().filter(|error| last_error.as_ref() != Some(*error)) {
            warn!(%error, "webhook certificate cannot be reloaded, using the previous one");
        }
        last_error = error;
    }
}
