// SPDX-License-Identifier: Apache-2.0
//! What all requests share.

use std::fmt;
use std::sync::Arc;

use boot_plans::BootServices;
use conductor::Conductor;
use node_model::Timestamp;
use store::{Clock, Store};
use tokio::sync::watch;

use crate::auth::Authenticator;
use crate::config::ApiConfig;
use crate::metrics::{Metrics, RequestMetrics};
use crate::nodes::caretakers::CaretakerCache;
use crate::routes::{self, Route, RouteTableError, Router};
use crate::session::Sessions;

/// The parts an [`App`] is made of.
pub struct AppParts {
    /// The settings.
    pub config: ApiConfig,
    /// The memory.
    pub store: Store,
    /// What carries out what nodes are asked for.
    pub conductor: Conductor,
    /// The clock.
    pub clock: Clock,
    /// Who may call.
    pub authenticator: Authenticator,
    /// Where measurements go.
    pub metrics: Metrics,
    /// What machines boot, unless the boot services are switched off.
    pub boot: Option<BootServices>,
    /// Routes of other crates (the web page, boot services), added to the API's own.
    pub more_routes: Vec<&'static [Route]>,
}

/// What all requests share.
pub struct App {
    /// The settings.
    pub config: ApiConfig,
    /// The memory.
    pub store: Store,
    /// What carries out what nodes are asked for.
    pub conductor: Conductor,
    /// Who may call.
    pub authenticator: Authenticator,
    /// Where measurements go.
    pub metrics: Metrics,
    /// What machines boot, unless the boot services are switched off.
    pub boot: Option<BootServices>,
    clock: Clock,
    stopping: watch::Sender<bool>,
    pub(crate) caretakers: CaretakerCache,
    pub(crate) sessions: Sessions,
    pub(crate) request_metrics: RequestMetrics,
    pub(crate) router: Router,
}

impl App {
    /// Puts the parts together and builds the router.
    ///
    /// # Errors
    /// When two routes want the same path and method.
    pub fn new(parts: AppParts) -> Result<Arc<Self>, RouteTableError> {
        let AppParts { config, store, conductor, clock, authenticator, metrics, boot, more_routes } =
            parts;
        let tables = routes::TABLES.iter().copied().chain(more_routes);
        let router = Router::build(tables.flatten())?;
        let request_metrics = RequestMetrics::register(&metrics, router.len());
        let (stopping, _) = watch::channel(false);
        let caretakers = CaretakerCache::new(config.conductor_timeout);
        Ok(Arc::new(Self {
            config,
            store,
            conductor,
            authenticator,
            metrics,
            boot,
            clock,
            stopping,
            caretakers,
            sessions: Sessions::default(),
            request_metrics,
            router,
        }))
    }

    /// The moment, by the program's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Turns true when the server stops: streams without end have to end then.
    #[must_use]
    pub fn watch_stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub(crate) fn stopping(&self) {
        self.stopping.send_replace(true);
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}
