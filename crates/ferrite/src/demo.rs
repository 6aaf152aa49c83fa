// SPDX-License-Identifier: Apache-2.0
//! `ferrite demo`: starts the server with a temporary data directory and runs the demonstration on it.

use std::time::Instant;

use anyhow::Context as _;
use demo::{Demo, DemoArguments, ServerAccess, ServerSettings};
use node_model::BootProof;

use crate::config::{AuthMode, Config, LogSection, TlsMode};
use crate::process::{StopSignal, raise_open_file_limit};
use crate::ramdisk::default_folder;
use crate::service::{FerriteService, prepare_data_dir};
use crate::telemetry;

/// Runs until Ctrl-C, or with `--once` until all machines are deployed.
pub(crate) fn demo(arguments: &DemoArguments) -> anyhow::Result<()> {
    telemetry::start(&LogSection { level: "error".to_owned(), json: false })?;
    raise_open_file_limit();
    let demo = Demo::prepare(arguments, default_folder)?;
    let config = server_config(demo.server_settings());
    let _data_dir_lock = prepare_data_dir(&config.data_dir()?, "--data-dir")?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(run(&demo, config))
}

async fn run(demo: &Demo, config: Config) -> anyhow::Result<()> {
    let started_at = Instant::now();
    let inspection = config.inspection()?;
    let mut service = FerriteService::start(&config, inspection, &config.data_dir()?).await?;
    let access = server_access(&service)?;
    let mut stop = StopSignal::listen()?;
    let outcome = tokio::select! {
        outcome = demo.run(&access, started_at) => outcome,
        () = stop.received() => Ok(()),
        error = service.failure() => Err(error),
    };
    service.stop().await;
    outcome
}

fn server_config(settings: ServerSettings) -> Config {
    let mut config = Config { data_dir: Some(settings.data_dir), ..Config::default() };
    config.api.listen = settings.api_listen;
    config.api.auth = AuthMode::Basic.into();
    // A demonstration ends with the program; no machine and no browser has its CA.
    config.api.tls.mode = TlsMode::Off;
    config.boot.listen = vec![settings.boot_listen];
    config.boot.http_url = settings.boot_http_url;
    config.boot.api_url = settings.boot_api_url;
    config.boot.deploy_kernel = Some(settings.deploy_kernel);
    config.boot.deploy_ramdisk = Some(settings.deploy_ramdisk);
    if let Some(parameters) = settings.inspection_kernel_params {
        config.boot.inspection_kernel_params = parameters;
    }
    config.images.file_url_allowed_paths = settings.file_url_allowed_paths;
    config.inspection.hooks = settings.inspection_hooks.to_owned();
    config.lifecycle.fast_track = settings.fast_track;
    // The machines get no addresses from DHCP, and QEMU translates theirs. The demonstration listens on
    // loopback.
    config.conductor.agent_boot_proof = BootProof::None;
    config.conductor.check_agent_address = false;
    if let Some(priority) = settings.erase_devices_priority {
        config.drivers.agent.erase_devices_priority = Some(priority);
    }
    config
}

/// Reads the password that the server created for its first user.
fn server_access(service: &FerriteService) -> anyhow::Result<ServerAccess> {
    let first = service.first_password.as_ref().context("a new user file has a first user")?;
    let password = std::fs::read_to_string(&first.path)
        .with_context(|| format!("cannot read {}", first.path.display()))?;
    Ok(ServerAccess {
        url: service.url(),
        user: first.user.to_owned(),
        password: password.trim().to_owned(),
    })
}
