// SPDX-License-Identifier: Apache-2.0
//! The whole service in one process: wires store, conductor, API and boot servers together, and takes
//! them down in order.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use api_server::{
    App, AppParts, Authenticator, FirstPassword, Metrics, PAGE_ROUTES, Server, ServerHandle,
};
use bmc_drivers::{BootDesk, DriverSettings, NoBootServices, Registry};
use conductor::{Conductor, PxeFilter, Running};
use node_model::Timestamp;
use store::{Clock, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::boot::{self, BootServers, Serving};
use crate::config::Config;
use crate::ports::Port;
use crate::telemetry;

/// How long work in flight may go on when the program is asked to stop. What is not finished by
/// then goes on at the next start.
const PATIENCE: Duration = Duration::from_secs(5);

/// The service, up.
pub(crate) struct Service {
    server: ServerHandle,
    /// Where machines boot from, if they do so here.
    pub(crate) files: Option<String>,
    /// The password that was made for the first user, if one was.
    pub(crate) first_password: Option<FirstPassword>,
    machines: Option<Serving>,
    filter: Option<JoinHandle<()>>,
    filtering: watch::Sender<bool>,
    running: Running,
    conductor: Conductor,
    store: Store,
}

impl Service {
    /// Starts everything, in a data directory that was [prepared](prepare_data_dir).
    pub(crate) async fn start(
        config: &Config,
        inspection: inspection::Settings,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        let filter = PxeFilter::new(&config.pxe_filter)
            .context("pxe_filter.dhcp_hostsdir cannot be used; make the directory first")?;
        let clock: Clock = Arc::new(now);
        let store = Store::open(&config.store(data_dir), clock.clone())
            .context("cannot open the database")?;
        let hostname = config.conductor.host.clone().unwrap_or_else(machine_name);
        let boot = boot::open(config, &store, data_dir, hostname.clone(), clock.clone()).await?;
        let desk: Arc<dyn BootDesk> = match &boot {
            Some(services) => Arc::new(services.clone()),
            None => Arc::new(NoBootServices),
        };
        let fast_track = config.lifecycle.fast_track;
        let agent_is_fresh = config.conductor.ramdisk_heartbeat_timeout;
        let drivers = DriverSettings { fast_track, agent_is_fresh, ..config.drivers.clone() };
        let registry = Registry::new(&drivers, desk).context("the configuration of drivers")?;
        let conductor = Conductor::new(
            store.clone(),
            registry,
            hostname,
            config.conductor.clone(),
            config.lifecycle.clone(),
            inspection,
            clock.clone(),
        );
        let api = config.api(data_dir);
        let (authenticator, first_password) =
            Authenticator::new(&api.auth).context("cannot prepare the user file")?;
        let metrics = Metrics::new();
        let counts = Box::new(telemetry::ConductorCounts(conductor.clone()));
        metrics.register(|registry| registry.register_collector(counts));
        let listen = api.listen;
        let app = App::new(AppParts {
            config: api,
            store: store.clone(),
            conductor: conductor.clone(),
            clock,
            authenticator,
            metrics,
            boot: boot.clone(),
            more_routes: PAGE_ROUTES.to_vec(),
        })?;
        let server =
            Server::bind(app).map_err(|error| anyhow!("{}", Port::Api.refused(listen, &error)))?;
        let boot = match &boot {
            Some(services) => Some(BootServers::bind(config, services, data_dir, now)?),
            None => None,
        };
        let files = boot.as_ref().map(|servers| servers.url().to_owned());
        let api = server.address().context("cannot tell where the API is")?;
        // Machines that are in the middle of booting are answered before anything else goes on.
        let machines = boot.map(|servers| servers.spawn(config, api));
        let running = conductor.start().await.context("cannot start the conductor")?;
        let (filtering, stopping) = watch::channel(false);
        let filter = filter.map(|filter| tokio::spawn(filter.run(conductor.clone(), stopping)));
        let server = server.spawn()?;
        Ok(Self {
            server,
            files,
            first_password,
            machines,
            filter,
            filtering,
            running,
            conductor,
            store,
        })
    }

    /// Where the API is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Waits until a part ends that should not, which is why nothing works any more.
    pub(crate) async fn broken(&mut self) -> anyhow::Error {
        match &mut self.machines {
            Some(serving) => serving.one_ended().await,
            None => std::future::pending().await,
        }
        anyhow!("a server that machines boot from ended unexpectedly; see the log")
    }

    /// Ends everything, from the outside to the inside.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
        drop(self.filtering);
        if let Some(filter) = self.filter {
            // It only ends early by a panic, which it has logged.
            let _ = filter.await;
        }
        if let Some(machines) = self.machines {
            machines.stop(PATIENCE).await;
        }
        self.running.stop(PATIENCE).await;
        self.conductor.registry().close().await;
        self.store.close();
    }
}

/// Makes the data directory, for our eyes only, and marks it as in use for as long as the returned
/// file lives: two processes on one SQLite file would each take the other's work for leftovers.
pub(crate) fn prepare_data_dir(path: &Path) -> anyhow::Result<File> {
    use std::os::unix::fs::DirBuilderExt as _;
    // What is kept here is nobody else's business, even in a directory that was there before.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let shown = path.display();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| {
        format!("cannot make the data directory {shown}; give another with --data-dir")
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

pub(crate) fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "ferrite".to_owned() } else { name.to_owned() }
}
