// SPDX-License-Identifier: Apache-2.0
//! Wires store, conductor, API and boot servers together, and stops them in order.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use api_server::{
    ApiServer, ApiServerHandle, App, AppParts, Metrics, MetricsServer, MetricsServerHandle,
    WEB_UI_ROUTES,
};
use authentication::{Authenticator, FirstPassword};
use conductor::{Conductor, ConductorParts, PxeFilter, RunningConductor};
use driver_set::{DriverSettings, build_registry};
use drivers::{BootService, ExternalBootService};
use node_model::Timestamp;
use store::{StorageMonitor, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::boot::{self, BootServers, RunningBootServers};
use crate::config::Config;
use crate::ports::ListenPurpose;
use crate::telemetry;
use crate::tls;

/// Time for running actions to finish at shutdown. Unfinished actions continue at the next start.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// File with the id of the current or last run in the data directory.
const RUN_ID_FILE: &str = "run-id";
/// File name of the default Unix socket in the data directory.
const UNIX_SOCKET: &str = "ferrite.sock";
/// Maximum length of the path of a Unix socket.
const MAX_SOCKET_PATH: usize = 107;

/// The running server.
pub(crate) struct FerriteService {
    /// Handles requests of this process.
    pub(crate) app: Arc<App>,
    server: ApiServerHandle,
    metrics_server: Option<MetricsServerHandle>,
    /// Whether the API uses TLS.
    has_tls: bool,
    /// The file with the certificate of the own CA, if it has issued the certificate of the server.
    pub(crate) ca_file: Option<PathBuf>,
    /// Replaces the certificate of the server.
    certificate_task: Option<JoinHandle<()>>,
    storage_task: JoinHandle<()>,
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
        let store =
            Store::open(&config.store_with_keys(data_dir)?).context("cannot open the database")?;
        let clock = store.clock();
        let hostname = config.conductor.host.clone().unwrap_or_else(host_name);
        let tls_service = tls::open(config, &store, data_dir, now).await?.map(Arc::new);
        let client_trust = tls::client_trust(config, tls_service.as_deref())?;
        let boot = boot::open(config, &store, data_dir, hostname.clone(), clock.clone()).await?;
        let boot_service: Arc<dyn BootService> = match &boot {
            Some(services) => Arc::new(services.clone()),
            None => Arc::new(ExternalBootService),
        };
        if let (Some(services), Some(trust)) = (&boot, &client_trust) {
            services.set_agent_trust(trust);
        }
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
        let mut api = config.api(data_dir);
        api.ca_certificates = client_trust.map(|trust| trust.certificates.into());
        let (authenticator, first_password) =
            Authenticator::open(&api.auth, store.clone(), clock.clone())
                .await
                .context("cannot prepare authentication")?;
        let authenticator = authenticator.with_token_clock(Arc::new(now));
        let policy = config.access_policy(data_dir)?;
        let metrics = Metrics::new();
        let collector = Box::new(telemetry::ConductorMetrics(conductor.clone()));
        metrics.register(|registry| registry.register_collector(collector));
        let collector = Box::new(telemetry::ClockMetrics(store.clone()));
        metrics.register(|registry| registry.register_collector(collector));
        let storage = StorageMonitor::new(store.clone(), data_dir.to_owned());
        let collector = Box::new(telemetry::StorageMetrics(Arc::clone(&storage)));
        metrics.register(|registry| registry.register_collector(collector));
        let listen = api.listen;
        let app = App::new(AppParts {
            config: api,
            store: store.clone(),
            storage: Arc::clone(&storage),
            conductor: conductor.clone(),
            clock,
            authenticator,
            policy,
            metrics: metrics.clone(),
            boot: boot.clone(),
            more_routes: WEB_UI_ROUTES.to_vec(),
        })?;
        if let Some(service) = &tls_service {
            service.expiries.register(&metrics);
            let expiries = service.expiries.clone();
            app.set_certificate_expiries(Arc::new(move || expiries.current()));
        }
        let server = ApiServer::bind(Arc::clone(&app))
            .map_err(|error| anyhow!("{}", ListenPurpose::Api.bind_error(listen, &error)))?;
        let server = with_unix_socket(server, config, data_dir)?;
        let has_tls = config.has_api_tls();
        let server = match tls_service.as_ref().filter(|_| has_tls) {
            Some(service) => Arc::clone(service).secure(server),
            None => server,
        };
        let metrics_server = bind_metrics(config, &metrics)?;
        let boot = match &boot {
            Some(services) => {
                let tls = tls_service.as_deref();
                let bound = BootServers::bind(config, services, &store, data_dir, tls, &metrics);
                Some(bound.await?)
            }
            None => None,
        };
        let boot_url = boot.as_ref().map(|servers| servers.url().to_owned());
        let api = server.address().context("cannot determine the address of the API")?;
        // Boot servers start first: machines may be booting.
        let boot_servers = boot.map(|servers| servers.spawn(config, api)).transpose()?;
        let previous_run = replace_run_id(data_dir, conductor.run_id())?;
        let running =
            conductor.start_after(previous_run).await.context("cannot start the conductor")?;
        let (pxe_filter_stop, stopping) = watch::channel(false);
        let pxe_filter =
            pxe_filter.map(|filter| tokio::spawn(filter.run(conductor.clone(), stopping)));
        let metrics_server = metrics_server.map(MetricsServer::spawn).transpose()?;
        let server = server.spawn()?;
        let certificate_task = tls_service.as_ref().map(|service| {
            tokio::spawn(Arc::clone(service).maintain(config.clone(), store.clone(), now))
        });
        let storage_task = tokio::spawn(storage.run());
        Ok(Self {
            app,
            server,
            storage_task,
            metrics_server,
            has_tls,
            ca_file: tls_service.and_then(|service| service.ca_file.clone()),
            certificate_task,
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

    /// The URL of the metrics, if they have a port of their own.
    pub(crate) fn metrics_url(&self) -> Option<String> {
        self.metrics_server.as_ref().map(|server| format!("http://{}/metrics", server.address()))
    }

    /// The URL of the API.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
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
        // First, so that other processes get new work at once.
        self.running.begin_stop();
        self.server.stop().await;
        self.storage_task.abort();
        if let Some(task) = self.certificate_task {
            task.abort();
        }
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

/// Stores the id of this run of the process, and returns that of the previous one in the data directory. It
/// has ended, because the directory is locked.
fn replace_run_id(data_dir: &Path, run: Uuid) -> anyhow::Result<Option<Uuid>> {
    let path = data_dir.join(RUN_ID_FILE);
    let previous = std::fs::read_to_string(&path).ok();
    std::fs::write(&path, run.to_string())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(previous.and_then(|text| text.trim().parse().ok()))
}

/// Binds the port of the metrics, if one is configured.
fn bind_metrics(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<MetricsServer>> {
    let Some(listen) = config.metrics.listen else { return Ok(None) };
    let bound = MetricsServer::bind(listen, metrics.clone());
    bound
        .map(Some)
        .map_err(|error| anyhow!("{}", ListenPurpose::Metrics.bind_error(listen, &error)))
}

/// Binds the Unix socket: the configured one, or the default one if its path can be used.
fn with_unix_socket(
    server: ApiServer,
    config: &Config,
    data_dir: &Path,
) -> anyhow::Result<ApiServer> {
    match &config.api.unix_socket {
        Some(path) if path.as_os_str().is_empty() => Ok(server),
        Some(path) => server
            .with_unix_socket(path)
            .with_context(|| format!("cannot listen on {} (api.unix_socket)", path.display())),
        None => {
            let path = match unix_socket_path(data_dir) {
                Ok(path) => path,
                Err(error) => {
                    tracing::warn!(%error, "no Unix socket; set api.unix_socket");
                    return Ok(server);
                }
            };
            server.with_unix_socket(&path).with_context(|| {
                format!("cannot listen on {}; set api.unix_socket", path.display())
            })
        }
    }
}

/// The path of the default Unix socket. Fails if it is too long for a socket.
pub(crate) fn unix_socket_path(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let path = data_dir.join(UNIX_SOCKET);
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        bail!("{} is longer than {MAX_SOCKET_PATH} bytes", path.display());
    }
    Ok(path)
}

/// Creates the data directory, accessible only by this user, and locks it until the returned file is
/// dropped: two processes on one SQLite file would each treat the other's leases as stale. Errors name the
/// option that selects the directory.
pub(crate) fn prepare_data_dir(path: &Path, option: &str) -> anyhow::Result<File> {
    create_data_dir(path, option)?;
    let shown = path.display();
    let lock = File::create(path.join("lock")).with_context(|| {
        format!("cannot write in the data directory {shown}; give another with {option}")
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another ferrite uses the data directory {shown}; stop it, or give another with {option}"
            )
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock the data directory {shown}"))
        }
    }
}

/// Creates the data directory, accessible only by this user. The error names the option that selects it.
pub(crate) fn create_data_dir(path: &Path, option: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    // New files are private even if the directory existed with other permissions.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.with_context(|| {
        format!("cannot create the data directory {}; give another with {option}", path.display())
    })
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "ferrite".to_owned() } else { name.to_owned() }
}
