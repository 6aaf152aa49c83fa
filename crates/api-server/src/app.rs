// SPDX-License-Identifier: Apache-2.0
//! State shared by all requests.

use std::fmt;
use std::sync::Arc;

use boot_plans::BootServices;
use conductor::Conductor;
use node_model::Timestamp;
use store::{Store, StoreClock};
use tokio::sync::watch;

use crate::config::ApiConfig;
use crate::ironic::conductor_cache::ConductorCache;
use crate::server::auth::Authenticator;
use crate::server::metrics::{Metrics, RequestMetrics};
use crate::server::routes::{self, ApiRoute, RouteTableError, Router};
use crate::server::session::Sessions;

/// The parts of an [`App`].
pub struct AppParts {
    /// Settings of the API server.
    pub config: ApiConfig,
    /// The database.
    pub store: Store,
    /// Carries out provision requests and driver calls.
    pub conductor: Conductor,
    /// The clock.
    pub clock: StoreClock,
    /// Checks credentials.
    pub authenticator: Authenticator,
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
    /// Carries out provision requests and driver calls.
    pub conductor: Conductor,
    /// Checks credentials.
    pub authenticator: Authenticator,
    /// The Prometheus registry.
    pub metrics: Metrics,
    /// Boot plans and DHCP state; `None` if the boot services are disabled.
    pub boot: Option<BootServices>,
    clock: StoreClock,
    stopping: watch::Sender<bool>,
    pub(crate) conductor_cache: ConductorCache,
    pub(crate) sessions: Sessions,
    pub(crate) request_metrics: RequestMetrics,
    pub(crate) router: Router,
}

impl App {
    /// Builds the router and the shared state.
    ///
    /// # Errors
    /// Fails if two routes have the same path and method, or a path is malformed.
    pub fn new(parts: AppParts) -> Result<Arc<Self>, RouteTableError> {
        let AppParts { config, store, conductor, clock, authenticator, metrics, boot, more_routes } =
            parts;
        let router = Router::build(routes::api_routes().chain(more_routes.into_iter().flatten()))?;
        let request_metrics = RequestMetrics::register(&metrics, router.len());
        let (stopping, _) = watch::channel(false);
        let conductor_cache = ConductorCache::new(config.conductor_timeout);
        Ok(Arc::new(Self {
            config,
            store,
            conductor,
            authenticator,
            metrics,
            boot,
            clock,
            stopping,
            conductor_cache,
            sessions: Sessions::default(),
            request_metrics,
            router,
        }))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
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
