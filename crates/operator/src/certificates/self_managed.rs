// SPDX-License-Identifier: Apache-2.0
//! Keeps the own CA in a Secret, and its certificate in the configuration of the webhooks.
//!
//! Several replicas do this at once. The Secret is created or replaced under a precondition, and who
//! loses reads what the winner wrote.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use error_chain::error_chain;
use futures_util::stream::select;
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use server_tls::{
    AuthorityError, CertificateAuthority, CertificateNames, ServerTls, ServerTlsError,
};
use tracing::{info, warn};

use super::RETRY_DELAY;
use super::authority_secret::{WebhookAuthority, read_authority, secret_data};
use super::bundle::{bundle_patch, called_names};

/// Time after which the certificate is examined without an event.
const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Attempts to store the CA while others do the same.
const MAX_CONFLICTS: usize = 10;

/// The objects of the own CA.
#[derive(Clone, Debug)]
pub struct CertificateObjects {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the ValidatingWebhookConfiguration.
    pub configuration: String,
}

/// The certificate cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum WebhookCertificateError {
    /// There is no configuration to serve for.
    #[error(
        "there is no ValidatingWebhookConfiguration {0}; apply the manifests of the operator, or start \
         it with --webhook-listen off"
    )]
    NoConfiguration(String),
    /// The configuration calls no host.
    #[error("the ValidatingWebhookConfiguration {0} has no webhook")]
    NoWebhook(String),
    /// A request failed.
    #[error("cannot {operation} {object}")]
    Request {
        /// What was attempted.
        operation: &'static str,
        /// The object.
        object: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Others changed the Secret again and again.
    #[error("the Secret {0} is changed by others all the time")]
    Contention(String),
    /// The CA cannot issue a certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
}

/// The certificate of the own CA.
pub(crate) struct SelfManagedCertificates {
    store: CertificateStore,
    tls: ServerTls,
}

/// Access to the objects.
struct CertificateStore {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    objects: CertificateObjects,
}

impl SelfManagedCertificates {
    pub(super) async fn obtain(
        objects: &CertificateObjects,
        client: &Client,
        now: SystemTime,
    ) -> Result<Self, WebhookCertificateError> {
        let store = CertificateStore {
            secrets: Api::namespaced(client.clone(), &objects.namespace),
            configurations: Api::all(client.clone()),
            objects: objects.clone(),
        };
        let configuration = store.configuration().await?;
        let names = store.names(&configuration)?;
        let authority = store.authority(now).await?;
        let bundle = authority.certificate().to_owned();
        let tls = ServerTls::from_authority(authority, names, now)?;
        store.publish(&configuration, &bundle).await?;
        Ok(Self { store, tls })
    }

    pub(super) fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.tls.server_config()
    }

    pub(super) async fn maintain(self) {
        let mut changes = Box::pin(self.store.changes());
        loop {
            let delay = match self.refresh(SystemTime::now()).await {
                Ok(()) => CHECK_INTERVAL,
                Err(error) => {
                    let error = error_chain(&error);
                    warn!(%error, retry_in = ?RETRY_DELAY, "webhook certificate check failed");
                    RETRY_DELAY
                }
            };
            tokio::select! {
                _ = changes.next() => {}
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Renews what is due, and uses what others have changed.
    async fn refresh(&self, now: SystemTime) -> Result<(), WebhookCertificateError> {
        let configuration = self.store.configuration().await?;
        let names = self.store.names(&configuration)?;
        let authority = self.store.authority(now).await?;
        let bundle = authority.certificate().to_owned();
        if self.tls.authority_certificate().as_deref() != Some(&bundle) {
            self.tls.replace_authority(authority, names, now)?;
            info!("webhook certificate issued by another CA certificate");
        } else if self.tls.refresh(&names, now)? != server_tls::CertificateChange::Unchanged {
            info!("webhook certificate renewed");
        }
        self.store.publish(&configuration, &bundle).await
    }
}

impl CertificateStore {
    async fn configuration(
        &self,
    ) -> Result<ValidatingWebhookConfiguration, WebhookCertificateError> {
        let name = &self.objects.configuration;
        let found = self.configurations.get_opt(name).await;
        let found = found.map_err(|error| self.configuration_error("read", error))?;
        found.ok_or_else(|| WebhookCertificateError::NoConfiguration(name.clone()))
    }

    fn names(
        &self,
        configuration: &ValidatingWebhookConfiguration,
    ) -> Result<CertificateNames, WebhookCertificateError> {
        let names = called_names(configuration);
        if names.is_empty() {
            return Err(WebhookCertificateError::NoWebhook(self.objects.configuration.clone()));
        }
        Ok(names)
    }

    /// The CA that all replicas use.
    async fn authority(
        &self,
        now: SystemTime,
    ) -> Result<CertificateAuthority, WebhookCertificateError> {
        for _ in 0..MAX_CONFLICTS {
            let found = self.secrets.get_opt(&self.objects.secret).await;
            let found = found.map_err(|error| self.secret_error("read", error))?;
            let (authority, written) = match found {
                None => {
                    let authority = CertificateAuthority::create(now)?;
                    let written = self.create(&authority).await;
                    (authority, written)
                }
                Some(secret) => match read_authority(&secret, now)? {
                    WebhookAuthority::Current(authority) => return Ok(authority),
                    WebhookAuthority::Renewed(authority) => {
                        info!(secret = %self.objects.secret, "renewing the CA of the webhooks");
                        let written = self.replace(&secret, &authority).await;
                        (authority, written)
                    }
                    WebhookAuthority::Replaced(authority, problem) => {
                        let secret_name = &self.objects.secret;
                        warn!(secret = %secret_name, problem, "replacing the CA of the webhooks");
                        let written = self.replace(&secret, &authority).await;
                        (authority, written)
                    }
                },
            };
            match written {
                Ok(()) => return Ok(authority),
                // Another replica was faster, or the Secret was deleted.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(self.secret_error("write", error)),
            }
        }
        Err(WebhookCertificateError::Contention(self.objects.secret.clone()))
    }

    async fn create(&self, authority: &CertificateAuthority) -> Result<(), kube::Error> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.objects.secret.clone()),
                ..ObjectMeta::default()
            },
            data: Some(secret_data(authority)),
            ..Secret::default()
        };
        self.secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    async fn replace(
        &self,
        secret: &Secret,
        authority: &CertificateAuthority,
    ) -> Result<(), kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": secret_data(authority),
        });
        let patch = Patch::Merge(patch);
        self.secrets.patch(&self.objects.secret, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Writes the certificate of the CA into the configuration, if it is not there.
    async fn publish(
        &self,
        configuration: &ValidatingWebhookConfiguration,
        bundle: &str,
    ) -> Result<(), WebhookCertificateError> {
        let Some(patch) = bundle_patch(configuration, bundle) else { return Ok(()) };
        let name = &self.objects.configuration;
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        match self.configurations.patch(name, &params, &patch).await {
            Ok(_) => {
                info!(configuration = %name, "webhook configuration updated");
                Ok(())
            }
            // Its event starts another check.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(self.configuration_error("change", error)),
        }
    }

    /// One item for each change of one of the objects.
    fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        let only = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let secrets = watcher(self.secrets.clone(), only(&self.objects.secret));
        let configurations =
            watcher(self.configurations.clone(), only(&self.objects.configuration));
        select(
            secrets.default_backoff().touched_objects().map(|_| ()),
            configurations.default_backoff().touched_objects().map(|_| ()),
        )
    }

    fn secret_error(&self, operation: &'static str, error: kube::Error) -> WebhookCertificateError {
        let object = format!("Secret {}/{}", self.objects.namespace, self.objects.secret);
        WebhookCertificateError::Request { operation, object, source: Box::new(error) }
    }

    fn configuration_error(
        &self,
        operation: &'static str,
        error: kube::Error,
    ) -> WebhookCertificateError {
        let object = format!("ValidatingWebhookConfiguration {}", self.objects.configuration);
        WebhookCertificateError::Request { operation, object, source: Box::new(error) }
    }
}
