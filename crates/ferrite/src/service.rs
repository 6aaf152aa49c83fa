// SPDX-License-Identifier: Apache-2.0
//! Wires store, conductor, API and boot servers together, and stops them in order.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use api_server::{
    ApiServer, ApiServerHandle, App, AppParts, Authenticator, FirstPassword, Metrics, WEB_UI_ROUTES,
};
use conductor::{Conductor, ConductorParts, PxeFilter, RunningConductor};
use driver_set::{DriverSettings, build_registry};
use drivers::{BootService, ExternalBootService};
use node_model::Timestamp;
use store::{Store, StoreClock};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::boot::{self, BootServers, RunningBootServers};
use crate::config::Config;
use crate::ports::ListenPurpose;
use crate::telemetry;

/// Time for running actions to finish at shutdown. Unfinished actions continue at the next start.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The running server.
pub(crate) struct FerriteService {
    server: ApiServerHandle,
    /// URL of the boot file server, if it is enabled.
    pub(crate) boot_url: Option<String>,
    /// The generated password of the first user, if the user file was new.
    pub(crate) first_password: Option<FirstPassword>,
    boot_servers: Option<RunningBootServers>,
    pxe_filter: Option<JoinHandle<()>>,
    pxe_filter_stop: watch::Sender<bool>,
    running: RunningConductor,
    conductor: Conductor,
    store: Store,
}

impl FerriteService {
    /// Starts all parts in a data directory that was [prepared](prepare_data_dir).
    pub(crate) async fn start(
        config: &Config,
        inspection: inspection::InspectionSettings,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        let pxe_filter = PxeFilter::new(&config.pxe_filter)
            .context("cannot use pxe_filter.dhcp_hostsdir; create the directory first")?;
        let clock: StoreClock = Arc::new(now);
        let store = Store::open(&config.store(data_dir), clock.clone())
            .context("cannot open the database")?;
        let hostname = config.conductor.host.clone().unwrap_or_else(host_name);
        let boot = boot::open(config, &store, data_dir, hostname.clone(), clock.clone()).await?;
        let boot_service: Arc<dyn BootService> = match &boot {
            Some(services) => Arc::new(services.clone()),
            None => Arc::new(ExternalBootService),
        };
        let fast_track = config.lifecycle.fast_track;
        let heartbeat_validity = config.conductor.ramdisk_heartbeat_timeout;
        let drivers = DriverSettings { fast_track, heartbeat_validity, ..config.drivers.clone() };
        let registry =
            build_registry(&drivers, boot_service).context("the driver configuration")?;
        let conductor = Conductor::new(ConductorParts {
            store: store.clone(),
            registry,
            hostname,
            settings: config.conductor.clone(),
            rules: config.lifecycle.clone(),
            inspection,
            clock: clock.clone(),
        });
        let api = config.api(data_dir);
        let (authenticator, first_password) =
            Authenticator::new(&api.auth).context("cannot prepare the user file")?;
        let metrics = Metrics::new();
        let collector = Box::new(telemetry::ConductorMetrics(conductor.clone()));
        metrics.register(|registry| registry.register_collector(collector));
        let listen = api.listen;
        let app = App::new(AppParts {
            config: api,
            store: store.clone(),
            conductor: conductor.clone(),
            clock,
            authenticator,
            metrics,
            boot: boot.clone(),
            more_routes: WEB_UI_ROUTES.to_vec(),
        })?;
        let server = ApiServer::bind(app)
            .map_err(|error| anyhow!("{}", ListenPurpose::Api.bind_error(listen, &error)))?;
        let boot = match &boot {
            Some(services) => Some(BootServers::bind(config, services, data_dir, now)?),
            None => None,
        };
        let boot_url = boot.as_ref().map(|servers| servers.url().to_owned());
        let api = server.address().context("cannot determine the address of the API")?;
        // Boot servers start first: machines may be booting.
        let boot_servers = boot.map(|servers| servers.spawn(config, api));
        let running = conductor.start().await.context("cannot start the conductor")?;
        let (pxe_filter_stop, stopping) = watch::channel(false);
        let pxe_filter =
            pxe_filter.map(|filter| tokio::spawn(filter.run(conductor.clone(), stopping)));
        let server = server.spawn()?;
        Ok(Self {
            server,
            boot_url,
            first_password,
            boot_servers,
            pxe_filter,
            pxe_filter_stop,
            running,
            conductor,
            store,
        })
    }

    /// The address of the API.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Waits until a part of the server ends unexpectedly.
    pub(crate) async fn failure(&mut self) -> anyhow::Error {
        match &mut self.boot_servers {
            Some(servers) => servers.wait_for_exit().await,
            None => std::future::pending().await,
        }
        anyhow!("a boot server ended unexpectedly; see the log")
    }

    /// Stops all parts: servers first, the store last.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
        drop(self.pxe_filter_stop);
        if let Some(filter) = self.pxe_filter {
            // Fails only after a panic, which was logged.
            let _ = filter.await;
        }
        if let Some(servers) = self.boot_servers {
            servers.stop(SHUTDOWN_TIMEOUT).await;
        }
        self.running.stop(SHUTDOWN_TIMEOUT).await;
        self.conductor.close_bmc_sessions().await;
        self.store.close();
    }
}

/// Creates the data directory, accessible only by this user, and locks it until the returned file is
/// dropped: two processes on one SQLite file would each treat the other's leases as stale.
pub(crate) fn prepare_data_dir(path: &Path) -> anyhow::Result<File> {
    use std::os::unix::fs::DirBuilderExt as _;
    // New files are private even if the directory existed with other permissions.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let shown = path.display();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| {
        format!("cannot create the data directory {shown}; give another with --data-dir")
    })?;
    let lock = File::create(path.join("lock")).with_context(|| {
        format!("cannot write in the data directory {shown}; give another with --data-dir")
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another ferrite uses the data directory {shown}; stop it, or give another with --data-dir"
            )
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock the data directory {shown}"))
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "ferrite".to_owned() } else { name.to_owned() }
}
