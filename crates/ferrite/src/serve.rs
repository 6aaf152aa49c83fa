// SPDX-License-Identifier: Apache-2.0
//! `ferrite serve`: runs the server until it is stopped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use driver_set::build_registry;
use drivers::ExternalBootService;

use crate::config::{AuthModes, Config, ConfigSource, TlsMode};
use crate::process::{StopSignal, print_line, raise_open_file_limit};
use crate::service::{FerriteService, prepare_data_dir};
use crate::{ports, provisioning, ramdisk, telemetry, tls};

/// Options of `ferrite serve`. They override the configuration.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the database, the key file and the user file.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address and port of the API.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Address and port of the boot file server; may be given several times. By default port 6180 of
    /// the API's address.
    #[arg(long, value_name = "ADDR:PORT")]
    boot_listen: Vec<SocketAddr>,
    /// Authentication of clients: none, basic (htpasswd file), local (users in the database), oidc
    /// (OpenID Connect), keystone, or several of them separated by commas.
    #[arg(long, value_name = "MODE")]
    auth: Option<AuthModes>,
    /// TLS of the API: by default on, unless it listens on a loopback address.
    #[arg(long, value_name = "MODE")]
    tls: Option<TlsMode>,
    /// The certificate of the server and its chain (PEM); by default one of an own CA.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The database, such as postgresql://user:password@host/ferrite.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl ServeArguments {
    /// Overrides settings.
    fn apply(&self, config: &mut Config) {
        if self.data_dir.is_some() {
            config.data_dir.clone_from(&self.data_dir);
        }
        if let Some(listen) = self.listen {
            config.api.listen = listen;
        }
        if !self.boot_listen.is_empty() {
            config.boot.listen.clone_from(&self.boot_listen);
        }
        if let Some(auth) = &self.auth {
            config.api.auth = auth.clone();
        }
        if let Some(mode) = self.tls {
            config.api.tls.mode = mode;
        }
        if self.tls_certificate.is_some() {
            config.api.tls.certificate.clone_from(&self.tls_certificate);
            config.api.tls.key.clone_from(&self.tls_key);
        }
        if self.database.is_some() {
            config.database.url.clone_from(&self.database);
        }
    }
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn serve(arguments: &ServeArguments) -> anyhow::Result<()> {
    let source = ConfigSource::read(arguments.config.as_deref(), std::env::vars())?;
    let mut config = source.config(None)?;
    arguments.apply(&mut config);
    config.check()?;
    telemetry::start(&config.log)?;
    config = provisioning::resolve(&source, config)?;
    arguments.apply(&mut config);
    raise_open_file_limit();
    let inspection = config.inspection()?;
    check(&config)?;
    warn_if_open(&config);
    let data_dir = config.data_dir()?;
    let _data_dir_lock = prepare_data_dir(&data_dir, "--data-dir")?;
    ramdisk::use_data_dir_ramdisk(&mut config, &data_dir);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(config, inspection, &data_dir))
}

/// Checks everything that can be checked before the data directory and the database are created.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    config.dhcp.server_config()?;
    let own = config.dhcp.dns_networks().iter().map(|(address, _)| *address).collect();
    config.dns.upstreams(own)?;
    config.key_source()?;
    tls::check(config)?;
    build_registry(&config.drivers, Arc::new(ExternalBootService))
        .context("the driver configuration")?;
    ports::check(config)
}

/// Warns if the API is reachable from other hosts without authentication or TLS.
pub(crate) fn warn_if_open(config: &Config) {
    if !config.has_api_tls() && !config.api.listen.ip().is_loopback() {
        tracing::warn!(
            listen = %config.api.listen,
            "API does not use TLS; passwords and config drives are readable on the network"
        );
    }
    let address = config.api.listen.ip();
    if !config.api.auth.is_required(address) && !address.is_loopback() {
        tracing::warn!(
            listen = %config.api.listen,
            "API is reachable from other hosts without authentication"
        );
    }
}

async fn run(
    config: Config,
    inspection: inspection::InspectionSettings,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let mut service = FerriteService::start(&config, inspection, data_dir).await?;
    let mut stop = StopSignal::listen()?;
    announce(&service, data_dir, print_line);
    let outcome = tokio::select! {
        () = stop.received() => Ok(()),
        error = service.failure() => Err(error),
        error = provisioning::wait_for_replacement(&config) => Err(error),
    };
    tracing::info!("stopping");
    service.stop().await;
    outcome
}

/// Writes the addresses of the server, for users and for programs that start this one.
pub(crate) fn announce(service: &FerriteService, data_dir: &Path, write: fn(&str)) {
    if let Some(first) = &service.first_password {
        write(&format!("user {}, password in {}", first.user, first.path.display()));
    }
    if let Some(url) = &service.boot_url {
        write(&format!("machines boot from {url}"));
    }
    if let Some(url) = service.metrics_url() {
        write(&format!("metrics are at {url}"));
    }
    if let Some(ca_file) = &service.ca_file {
        write(&format!("clients verify this server with {}", ca_file.display()));
    }
    let (url, data_dir) = (service.url(), data_dir.display());
    write(&format!("ferrite listening on {url} (data in {data_dir})"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before this check, the data directory and the database existed when the error was found.
    #[test]
    fn unknown_driver_is_rejected_before_anything_is_created() {
        let mut config = Config::default();
        config.api.listen.set_port(0);
        check(&config).unwrap();
        config.drivers.enabled_hardware_types.push("redfsh".to_owned());
        let error = format!("{:#}", check(&config).unwrap_err());
        assert!(error.contains("redfsh"), "{error}");
    }
}
