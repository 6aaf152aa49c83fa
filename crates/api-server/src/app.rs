// SPDX-License-Identifier: Apache-2.0
//! State shared by all requests.

use std::fmt;
use std::sync::{Arc, OnceLock};

use access_policy::{Caller, Policy};
use authentication::Authenticator;
use boot_plans::BootServices;
use bytes::Bytes;
use conductor::Conductor;
use node_model::Timestamp;
use store::{StorageMonitor, Store, StoreClock};
use tokio::sync::watch;

use crate::config::ApiConfig;
use crate::ironic::conductor_cache::ConductorCache;
use crate::server::ResponseBody;
use crate::server::audit_log::AuditLog;
use crate::server::certificate_expiry::CertificateExpirySource;
use crate::server::client_limits::ClientLimits;
use crate::server::dispatch::dispatch_in_process;
use crate::server::metrics::{Metrics, RequestMetrics};
use crate::server::request_origin::HostPolicy;
use crate::server::routes::{self, ApiRoute, RouteTableError, Router};

/// The parts of an [`App`].
pub struct AppParts {
    /// Settings of the API server.
    pub config: ApiConfig,
    /// The database.
    pub store: Store,
    /// Tests whether data can be stored.
    pub storage: Arc<StorageMonitor>,
    /// Carries out provision requests and driver calls.
    pub conductor: Conductor,
    /// The clock.
    pub clock: StoreClock,
    /// Checks credentials.
    pub authenticator: Authenticator,
    /// Decides what callers may do.
    pub policy: Policy,
    /// The Prometheus registry.
    pub metrics: Metrics,
    /// Boot plans and DHCP state; `None` if the boot services are disabled.
    pub boot: Option<BootServices>,
    /// Routes of other crates, added to the API's own: web UI, boot services.
    pub more_routes: Vec<&'static [ApiRoute]>,
}

/// State shared by all requests.
pub struct App {
    /// Settings of the API server.
    pub config: ApiConfig,
    /// The database.
    pub store: Store,
    /// Tests whether data can be stored.
    pub storage: Arc<StorageMonitor>,
    /// Carries out provision requests and driver calls.
    pub conductor: Conductor,
    /// Checks credentials.
    pub authenticator: Authenticator,
    /// Decides what callers may do.
    pub policy: Arc<Policy>,
    /// The Prometheus registry.
    pub metrics: Metrics,
    /// Boot plans and DHCP state; `None` if the boot services are disabled.
    pub boot: Option<BootServices>,
    clock: StoreClock,
    certificates: OnceLock<CertificateExpirySource>,
    stopping: watch::Sender<bool>,
    pub(crate) conductor_cache: ConductorCache,
    pub(crate) request_metrics: RequestMetrics,
    pub(crate) limits: ClientLimits,
    pub(crate) audit: AuditLog,
    pub(crate) hosts: HostPolicy,
    pub(crate) router: Router,
}

impl App {
    /// Builds the router and the shared state.
    ///
    /// # Errors
    /// Fails if two routes have the same path and method, or a path is malformed.
    pub fn new(parts: AppParts) -> Result<Arc<Self>, RouteTableError> {
        let AppParts {
            config,
            store,
            storage,
            conductor,
            clock,
            authenticator,
            policy,
            metrics,
            boot,
            more_routes,
        } = parts;
        let router = Router::build(routes::api_routes().chain(more_routes.into_iter().flatten()))?;
        let request_metrics = RequestMetrics::register(&metrics, router.len());
        metrics.register(|registry| authenticator.register_metrics(registry));
        let limits = ClientLimits::new(&config, &metrics);
        let audit = AuditLog::new(&metrics);
        let hosts = HostPolicy::new(&config);
        let (stopping, _) = watch::channel(false);
        let conductor_cache = ConductorCache::new(config.conductor_timeout);
        Ok(Arc::new(Self {
            config,
            store,
            storage,
            conductor,
            authenticator,
            policy: Arc::new(policy),
            metrics,
            boot,
            clock,
            certificates: OnceLock::new(),
            stopping,
            conductor_cache,
            request_metrics,
            limits,
            audit,
            hosts,
            router,
        }))
    }

    /// Handles a request without a connection, for a caller that this process has authenticated.
    pub async fn serve(
        self: &Arc<Self>,
        caller: Caller,
        request: http::Request<Bytes>,
    ) -> http::Response<ResponseBody> {
        dispatch_in_process(self, caller, request).await
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Sets the source of certificate expiries for health checks. Only the first call has an effect.
    pub fn set_certificate_expiries(&self, source: CertificateExpirySource) {
        let _ = self.certificates.set(source);
    }

    /// The problems of this process that an operator should know about, and that do not prevent its work.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let now = self.now();
        let certificates = self.certificates.get().map(|source| source()).unwrap_or_default();
        certificates.iter().filter_map(|certificate| certificate.warning(now)).collect()
    }

    /// Becomes true when the server stops. Open-ended streams must end then.
    #[must_use]
    pub fn watch_stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(crate) fn start_stopping(&self) {
        self.stopping.send_replace(true);
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}
