// SPDX-License-Identifier: Apache-2.0
//! `ferrite serve`: wires store, conductor and API together, and takes them down in order.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use api_server::{App, AppParts, Authenticator, Metrics, Server};
use bmc_drivers::{BootDesk, DriverSettings, NoBootServices, Registry};
use clap::Args;
use conductor::{Conductor, PxeFilter};
use node_model::Timestamp;
use store::{Clock, Store};
use tokio::sync::watch;

use crate::boot::{self, BootServers, Serving};
use crate::config::{Auth, Config};
use crate::process::{allow_many_connections, wait_for_signal};
use crate::{ramdisk, telemetry};

/// How long work in flight may go on when the program is asked to stop. What is not finished by
/// then goes on at the next start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `ferrite serve`. They win over the configuration.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the database, the key file and the user file are.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address and port of the API.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// How callers prove who they are.
    #[arg(long)]
    auth: Option<Auth>,
    /// The database, such as postgresql://user:password@host/ferrite.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn serve(arguments: &ServeArguments) -> anyhow::Result<()> {
    let mut config = Config::load(arguments.config.as_deref(), std::env::vars())?;
    if arguments.data_dir.is_some() {
        config.data_dir.clone_from(&arguments.data_dir);
    }
    if let Some(listen) = arguments.listen {
        config.api.listen = listen;
    }
    if let Some(auth) = arguments.auth {
        config.api.auth = auth;
    }
    if arguments.database.is_some() {
        config.database.url.clone_from(&arguments.database);
    }
    telemetry::start(&config.log)?;
    allow_many_connections();
    let inspection = config.inspection()?;
    config.dhcp.servers()?;
    warn_if_open(&config);
    let data_dir = config.data_dir()?;
    let _in_use = prepare_data_dir(&data_dir)?;
    ramdisk::adopt(&mut config, &data_dir);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(config, inspection, &data_dir))
}

/// An API that needs no password is for this machine only; anything else should be meant.
fn warn_if_open(config: &Config) {
    if config.api.auth == Auth::None && !config.api.listen.ip().is_loopback() {
        tracing::warn!(
            listen = %config.api.listen,
            "everybody who can reach the API may do everything: authentication is off"
        );
    }
}

/// Makes the data directory, for our eyes only, and marks it as in use for as long as the returned
/// file lives: two processes on one SQLite file would each take the other's work for leftovers.
fn prepare_data_dir(path: &Path) -> anyhow::Result<File> {
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

async fn run(
    config: Config,
    inspection: inspection::Settings,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let filter = PxeFilter::new(&config.pxe_filter)
        .context("pxe_filter.dhcp_hostsdir cannot be used; make the directory first")?;
    let clock: Clock = Arc::new(now);
    let store =
        Store::open(&config.store(data_dir), clock.clone()).context("cannot open the database")?;
    let hostname = config.conductor.host.clone().unwrap_or_else(machine_name);
    let boot = boot::open(&config, &store, data_dir, hostname.clone(), clock.clone()).await?;
    let desk: Arc<dyn BootDesk> = match &boot {
        Some(services) => Arc::new(services.clone()),
        None => Arc::new(NoBootServices),
    };
    let fast_track = config.lifecycle.fast_track;
    let drivers = DriverSettings { fast_track, ..config.drivers.clone() };
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
        more_routes: Vec::new(),
    })?;
    let server = Server::bind(app)
        .with_context(|| format!("cannot listen on {listen}; give another with --listen"))?;
    let boot = match &boot {
        Some(services) => Some(BootServers::bind(&config, services, data_dir, now)?),
        None => None,
    };
    let files = boot.as_ref().map(|servers| servers.url().to_owned());
    let api = server.address().context("cannot tell where the API is")?;
    // Machines that are in the middle of booting are answered before anything else goes on.
    let mut machines = boot.map(|servers| servers.spawn(&config, api));
    let running = conductor.start().await.context("cannot start the conductor")?;
    let (filtering, stopping) = watch::channel(false);
    let filter = filter.map(|filter| tokio::spawn(filter.run(conductor.clone(), stopping)));
    let server = server.spawn()?;
    announce(server.address(), files.as_deref(), data_dir, first_password.as_ref());

    let outcome = tokio::select! {
        stopped = wait_for_signal() => stopped,
        () = one_ended(&mut machines) => {
            Err(anyhow!("a server that machines boot from ended unexpectedly; see the log"))
        }
    };
    tracing::info!("stopping");
    server.stop().await;
    drop(filtering);
    if let Some(filter) = filter {
        // It only ends early by a panic, which it has logged.
        let _ = filter.await;
    }
    if let Some(machines) = machines {
        machines.stop(PATIENCE).await;
    }
    running.stop(PATIENCE).await;
    conductor.registry().close().await;
    store.close();
    outcome
}

/// Ends when a server ends that machines boot from; never if there is none.
async fn one_ended(machines: &mut Option<Serving>) {
    match machines {
        Some(serving) => serving.one_ended().await,
        None => std::future::pending().await,
    }
}

/// The one line that says where we are, for people and for programs that start us.
#[expect(clippy::print_stdout, reason = "this is where the program speaks to its user")]
fn announce(
    address: SocketAddr,
    files: Option<&str>,
    data_dir: &Path,
    first_password: Option<&api_server::FirstPassword>,
) {
    if let Some(made) = first_password {
        println!("user {}, password in {}", made.user, made.path.display());
    }
    if let Some(files) = files {
        println!("machines boot from {files}");
    }
    println!("ferrite listening on http://{address} (data in {})", data_dir.display());
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "ferrite".to_owned() } else { name.to_owned() }
}
