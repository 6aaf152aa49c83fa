// SPDX-License-Identifier: Apache-2.0
//! `ferrite serve`: the service, as it is configured, until somebody stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use crate::config::{Auth, Config};
use crate::process::{StopRequest, allow_many_connections};
use crate::service::{Service, prepare_data_dir};
use crate::{ports, ramdisk, telemetry};

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
    /// Address and port where machines fetch what they boot; may be given more than once. By default
    /// port 6180 of the API's address.
    #[arg(long, value_name = "ADDR:PORT")]
    boot_listen: Vec<SocketAddr>,
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
    if !arguments.boot_listen.is_empty() {
        config.boot.listen.clone_from(&arguments.boot_listen);
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
    ports::check(&config)?;
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

async fn run(
    config: Config,
    inspection: inspection::Settings,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let mut service = Service::start(&config, inspection, data_dir).await?;
    let mut stop = StopRequest::listen()?;
    announce(&service, data_dir);
    let outcome = tokio::select! {
        () = stop.come() => Ok(()),
        broken = service.broken() => Err(broken),
    };
    tracing::info!("stopping");
    service.stop().await;
    outcome
}

/// The one line that says where we are, for people and for programs that start us.
#[expect(clippy::print_stdout, reason = "this is where the program speaks to its user")]
fn announce(service: &Service, data_dir: &Path) {
    if let Some(made) = &service.first_password {
        println!("user {}, password in {}", made.user, made.path.display());
    }
    if let Some(files) = &service.files {
        println!("machines boot from {files}");
    }
    println!("ferrite listening on http://{} (data in {})", service.address(), data_dir.display());
}
