// SPDX-License-Identifier: Apache-2.0
//! The process of the operator: probes, metrics and webhooks on every replica, controllers on the
//! leader.
//!
//! Controllers that share a Lease form a group. A group starts when its Lease is acquired and runs
//! until the process ends. Losing a Lease ends the process: controllers cannot continue where they
//! stopped, and the next start is clean.

mod controller_group;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use kube_resources::ironic::validation::IronicRules;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info};

use crate::certificates::{WebhookCertificateSource, WebhookCertificates};
use crate::context::{ControllerContext, WatchScope};
use crate::health::{MetricsHandler, OperatorReadiness, ProbeHandler};
use crate::http_server::{bind, serve};
use crate::leader::{LeadershipFence, LeadershipLoss, LeaseTiming, fenced_client};
use crate::metrics::OperatorMetrics;
use crate::webhooks::WebhookHandler;
use controller_group::{GroupEnvironment, run_group};

/// Time for the servers to end after the controllers.
const SERVER_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);

/// Settings of the process.
#[derive(Clone)]
pub struct ManagerSettings {
    /// Access to the API server.
    pub kube: kube::Config,
    /// Namespaces whose objects are controlled.
    pub scope: WatchScope,
    /// Leader election; `None` if there is only one replica.
    pub election: Option<ElectionSettings>,
    /// Address of `/healthz` and `/readyz`.
    pub health_listen: Option<SocketAddr>,
    /// Address of `/metrics`.
    pub metrics_listen: Option<SocketAddr>,
    /// Admission webhooks.
    pub webhooks: Option<WebhookSettings>,
}

/// Settings of leader election.
#[derive(Clone, Debug)]
pub struct ElectionSettings {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Namespaces of single Leases, by name.
    pub lease_namespaces: Vec<(String, String)>,
    /// Name of this process in the Leases; unique.
    pub identity: String,
    /// Times.
    pub timing: LeaseTiming,
}

/// Settings of the webhooks.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Address of the HTTPS server.
    pub listen: SocketAddr,
    /// Where its certificate comes from.
    pub certificates: WebhookCertificateSource,
    /// Rules for `Ironic` objects.
    pub ironic_rules: IronicRules,
}

/// Why a controller ended.
pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// Starts a controller. The fence is for requests that do not go through the client.
pub type ControllerStart = Box<
    dyn FnOnce(
            ControllerContext,
            LeadershipFence,
        ) -> BoxFuture<'static, Result<(), ControllerError>>
        + Send,
>;

/// A controller that the manager runs.
pub struct ManagedController {
    /// Name in logs and errors.
    pub name: &'static str,
    /// Starts it.
    pub start: ControllerStart,
}

/// Controllers that share a Lease.
pub struct ControllerGroup {
    /// Name of the Lease.
    pub lease: &'static str,
    /// The controllers.
    pub controllers: Vec<ManagedController>,
}

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// An address is in use or does not exist.
    #[error("cannot listen on {address} for {purpose}")]
    Listen {
        /// What the address is for.
        purpose: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The access to the API server is not configured correctly.
    #[error("cannot create a client of the API server")]
    Client(#[source] Box<kube::Error>),
    /// Another process may be the leader now.
    #[error("stopped because lease {lease} was lost")]
    LeadershipLost {
        /// The Lease.
        lease: &'static str,
        /// The cause.
        #[source]
        loss: LeadershipLoss,
    },
    /// A controller failed.
    #[error("controller {controller} failed")]
    Controller {
        /// Its name.
        controller: &'static str,
        /// The cause.
        #[source]
        source: ControllerError,
    },
    /// A controller ended although the process did not.
    #[error("controller {controller} ended unexpectedly")]
    ControllerEnded {
        /// Its name.
        controller: &'static str,
    },
    /// A controller did not end when the process was stopped. Its Lease expires instead of being
    /// released.
    #[error("a controller did not end in {limit:?}")]
    StillRunning {
        /// The time limit.
        limit: Duration,
    },
    /// A task of the manager panicked.
    #[error("a task of the operator failed")]
    Task(#[source] tokio::task::JoinError),
}

/// The addresses that a running manager listens on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerAddresses {
    /// Of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
    /// Of `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Of the webhooks.
    pub webhooks: Option<SocketAddr>,
}

/// A manager whose listeners are bound.
pub struct OperatorManager {
    settings: ManagerSettings,
    addresses: ManagerAddresses,
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
    webhooks: Option<TcpListener>,
    readiness: OperatorReadiness,
}

impl OperatorManager {
    /// Binds the listeners. Fails if an address cannot be used.
    pub async fn bind(settings: ManagerSettings) -> Result<Self, ManagerError> {
        let health = listen("probes", settings.health_listen).await?;
        let metrics = listen("metrics", settings.metrics_listen).await?;
        let webhook_address = settings.webhooks.as_ref().map(|webhooks| webhooks.listen);
        let webhooks = listen("webhooks", webhook_address).await?;
        let address =
            |listener: &Option<TcpListener>| listener.as_ref().and_then(|it| it.local_addr().ok());
        let addresses = ManagerAddresses {
            health: address(&health),
            metrics: address(&metrics),
            webhooks: address(&webhooks),
        };
        let readiness = OperatorReadiness::default();
        Ok(Self { settings, addresses, health, metrics, webhooks, readiness })
    }

    /// Makes the process ready only while nothing is waited for here either, such as another part of
    /// the process.
    #[must_use]
    pub fn with_readiness(self, readiness: OperatorReadiness) -> Self {
        Self { readiness, ..self }
    }

    /// The bound addresses.
    #[must_use]
    pub fn addresses(&self) -> ManagerAddresses {
        self.addresses
    }

    /// Runs until `stop` completes, a Lease is lost or a controller fails. Releases the Leases if
    /// the controllers have ended.
    pub async fn run(
        self,
        groups: Vec<ControllerGroup>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ManagerError> {
        let (metrics, readiness) = (OperatorMetrics::new(), self.readiness.clone());
        let (stop_servers, servers_stopped) = watch::channel(false);
        let (stop_controllers, controllers_stopped) = watch::channel(false);
        let environment = GroupEnvironment {
            kube: self.settings.kube.clone(),
            scope: self.settings.scope.clone(),
            election: self.settings.election.clone(),
            shutdown: controllers_stopped,
            metrics: metrics.clone(),
            readiness: readiness.clone(),
        };
        let mut servers = self.start_servers(&metrics, &readiness, &servers_stopped)?;
        let mut running = JoinSet::new();
        for group in groups {
            running.spawn(run_group(group, environment.clone()));
        }
        let mut stop = std::pin::pin!(stop.fuse());
        let mut first_failure = None;
        let mut is_stopping = false;
        while !running.is_empty() {
            let ended = tokio::select! {
                () = &mut stop, if !is_stopping => {
                    info!("stopping");
                    is_stopping = true;
                    let _ = stop_controllers.send(true);
                    continue;
                }
                ended = running.join_next() => ended,
            };
            let failure = match ended {
                Some(Ok(Ok(()))) | None => continue,
                Some(Ok(Err(failure))) => failure,
                Some(Err(failure)) => ManagerError::Task(failure),
            };
            error!(error = %error_chain::error_chain(&failure), "stopping after a failure");
            first_failure.get_or_insert(failure);
            is_stopping = true;
            let _ = stop_controllers.send(true);
        }
        let _ = stop_servers.send(true);
        let all_ended = async { while servers.join_next().await.is_some() {} };
        // What does not end in time is aborted when the set is dropped.
        let _ = timeout(SERVER_SHUTDOWN_TIMEOUT, all_ended).await;
        first_failure.map_or(Ok(()), Err)
    }

    /// Starts the servers of all replicas.
    fn start_servers(
        self,
        metrics: &OperatorMetrics,
        readiness: &OperatorReadiness,
        stopped: &watch::Receiver<bool>,
    ) -> Result<JoinSet<()>, ManagerError> {
        let mut servers = JoinSet::new();
        if let Some(listener) = self.metrics {
            let handler = Arc::new(MetricsHandler(metrics.clone()));
            servers.spawn(serve(listener, None, handler, stopped.clone()));
        }
        if let (Some(listener), Some(webhooks)) = (self.webhooks, self.settings.webhooks) {
            let gate = readiness.gate("webhooks");
            // Every replica writes certificates, so no fence applies.
            let client = fenced_client(self.settings.kube, &LeadershipFence::unlimited())
                .map_err(|error| ManagerError::Client(Box::new(error)))?;
            let handler = Arc::new(WebhookHandler::new(webhooks.ironic_rules, metrics.clone()));
            let mut stopped = stopped.clone();
            servers.spawn(async move {
                let certificates = tokio::select! {
                    obtained = WebhookCertificates::obtain(webhooks.certificates, client) => obtained,
                    _ = stopped.wait_for(|is_stopping| *is_stopping) => return,
                };
                let tls = Some(certificates.server_config());
                let serving = serve(listener, tls, handler, stopped);
                gate.open();
                info!("webhooks are ready");
                tokio::select! {
                    () = serving => {}
                    () = certificates.maintain() => {}
                }
            });
        }
        // Last, so that a process which is not ready yet is never reported as ready.
        if let Some(listener) = self.health {
            let handler = Arc::new(ProbeHandler(readiness.clone()));
            servers.spawn(serve(listener, None, handler, stopped.clone()));
        }
        Ok(servers)
    }
}

async fn listen(
    purpose: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, ManagerError> {
    let Some(address) = address else { return Ok(None) };
    let listener = bind(address).await;
    listener.map(Some).map_err(|source| ManagerError::Listen { purpose, address, source })
}
