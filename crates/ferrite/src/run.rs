// SPDX-License-Identifier: Apache-2.0
//! `ferrite run`: performs one operation on one machine without a long-running service.
//!
//! The service runs in this process until the operation has ended, with its database in the state
//! directory. The command controls it over the Unix socket; machines reach the endpoints of agents.

mod controller;
mod decide;
mod host_file;
mod outcome;
mod progress;
mod record;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use command_line::{CliExitCode, parse_duration};
use ironic_client::{Api, ApiTarget};
use node_model::PowerTarget;
use serde_json::{Value, json};

use crate::config::{AuthMode, Config, ConfigSource, LogSection};
use crate::process::{StopSignal, raise_open_file_limit};
use crate::service::{FerriteService, create_data_dir, prepare_data_dir, unix_socket_path};
use crate::{provisioning, ramdisk, serve, telemetry};
use controller::RunController;
use decide::RunOperation;
use host_file::{HostFile, HostOperation};
use outcome::RunFailure;
use progress::{RunOutput, RunResult};
use record::{RunRecord, RunStart, RunStatus, StateDir};

/// The conductor's name. It is the same in each pod of a Job, so that a resumed run continues the work of the
/// killed one.
const CONDUCTOR_NAME: &str = "ferrite-run";

/// The operations of `ferrite run`.
#[derive(Subcommand, Debug)]
pub(crate) enum RunCommand {
    /// Write an image to the machine and start it.
    Deploy(RunOptions),
    /// Run clean steps, or automated cleaning.
    Clean(RunOptions),
    /// Collect the inventory of the machine.
    Inspect(InspectOptions),
    /// Change or show the power state.
    Power(PowerOptions),
}

/// Options of all operations.
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// The host file: the machine and the arguments of the operation (YAML or JSON).
    #[arg(long, value_name = "FILE")]
    host: PathBuf,
    /// Directory of the database. The same command with the same directory continues after a kill. By
    /// default a temporary directory, which is removed at the end.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The configuration file (TOML), as for `ferrite serve`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of the API, which agents call.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Address and port of the boot file server; may be given several times.
    #[arg(long, value_name = "ADDR:PORT")]
    boot_listen: Vec<SocketAddr>,
    /// Stop after this time, such as 90s, 30m or 2h; a number without a unit is in seconds.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// The format of progress and result.
    #[arg(long, short, value_enum, default_value_t)]
    output: RunOutput,
}

/// Options of `ferrite run inspect`.
#[derive(Args, Debug)]
pub(crate) struct InspectOptions {
    #[command(flatten)]
    options: RunOptions,
    /// Write the inventory to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
}

/// Options of `ferrite run power`.
#[derive(Args, Debug)]
pub(crate) struct PowerOptions {
    /// What to do.
    target: RunPowerTarget,
    #[command(flatten)]
    options: RunOptions,
}

/// The argument of `ferrite run power`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RunPowerTarget {
    On,
    Off,
    Reboot,
    Status,
}

/// One run.
struct SingleRun<'a> {
    options: &'a RunOptions,
    operation: RunOperation,
    host: HostFile,
    started_at: Instant,
}

impl RunCommand {
    fn options(&self) -> &RunOptions {
        match self {
            Self::Deploy(options) | Self::Clean(options) => options,
            Self::Inspect(arguments) => &arguments.options,
            Self::Power(arguments) => &arguments.options,
        }
    }

    fn host_operation(&self) -> HostOperation {
        match self {
            Self::Deploy(_) => HostOperation::Deploy,
            Self::Clean(_) => HostOperation::Clean,
            Self::Inspect(_) => HostOperation::Inspect,
            Self::Power(_) => HostOperation::Power,
        }
    }

    fn operation(&self, host: &HostFile) -> RunOperation {
        match self {
            Self::Deploy(_) => RunOperation::Deploy,
            Self::Clean(_) => RunOperation::Clean { has_steps: !host.clean_steps.is_empty() },
            Self::Inspect(_) => RunOperation::Inspect,
            Self::Power(arguments) => match arguments.target {
                RunPowerTarget::On => RunOperation::Power(PowerTarget::On),
                RunPowerTarget::Off => RunOperation::Power(PowerTarget::Off),
                RunPowerTarget::Reboot => RunOperation::Power(PowerTarget::Reboot),
                RunPowerTarget::Status => RunOperation::PowerStatus,
            },
        }
    }

    fn inventory_file(&self) -> Option<&PathBuf> {
        match self {
            Self::Inspect(arguments) => arguments.inventory.as_ref(),
            Self::Deploy(_) | Self::Clean(_) | Self::Power(_) => None,
        }
    }
}

/// Runs the operation to its end, and reports the outcome.
pub(crate) fn run(command: &RunCommand) -> ExitCode {
    let output = command.options().output;
    match perform(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failed(&failure);
            ExitCode::from(failure.code as u8)
        }
    }
}

fn perform(command: &RunCommand) -> Result<(), RunFailure> {
    let started_at = Instant::now();
    let options = command.options();
    let variable = |name: &str| std::env::var(name).ok();
    let host = HostFile::read(&options.host, command.host_operation(), &variable);
    let host = host.map_err(|error| {
        RunFailure::invalid_input(format!("the host file {}: {error}", options.host.display()))
    })?;
    if let Some(path) = command.inventory_file() {
        check_writable(path).map_err(|error| {
            RunFailure::invalid_input(format!(
                "--inventory: cannot write {}: {error}",
                path.display()
            ))
        })?;
    }
    let run = SingleRun { options, operation: command.operation(&host), host, started_at };
    let mut result = run.perform()?;
    if let Some(path) = command.inventory_file()
        && let Some(inventory) = result.inventory.take()
    {
        std::fs::write(path, format!("{inventory:#}\n")).map_err(|error| {
            let message = format!("cannot write {}: {error}", path.display());
            RunFailure::new(CliExitCode::Failed, message)
        })?;
    }
    let took = started_at.elapsed();
    options.output.done(run.operation.name(), run.host.name(), &result, took);
    Ok(())
}

impl SingleRun<'_> {
    fn perform(&self) -> Result<RunResult, RunFailure> {
        // The power state is read again by each run, so there is nothing to keep.
        let is_kept = self.operation != RunOperation::PowerStatus;
        if let Some(path) = self.options.state_dir.as_ref().filter(|_| !is_kept) {
            self.check_unused_state_dir(StateDir::new(path.clone()))?;
        }
        match self.options.state_dir.as_ref().filter(|_| is_kept) {
            Some(path) => self.perform_in(StateDir::new(path.clone())),
            None => {
                let folder = tempfile::Builder::new().prefix("ferrite-run-").tempdir();
                let folder = folder.context("cannot create a temporary directory");
                let folder = folder.map_err(|error| RunFailure::configuration(&error))?;
                self.perform_in(StateDir::new(folder.path().to_owned()))
            }
        }
    }

    /// Rejects a state directory that is not one of this machine. It may be in use, so it is not locked.
    fn check_unused_state_dir(&self, state: StateDir) -> Result<(), RunFailure> {
        create_data_dir(state.path(), "--state-dir")
            .map_err(|error| RunFailure::configuration(&error))?;
        match state.load()? {
            Some(record) => record.check_name(self.host.name(), state.path()),
            None => Ok(()),
        }
    }

    fn perform_in(&self, state: StateDir) -> Result<RunResult, RunFailure> {
        let configured = self.config(&state).and_then(|config| {
            config.check()?;
            telemetry::start(&config.log)?;
            raise_open_file_limit();
            Ok(config)
        });
        let config = configured.map_err(|error| RunFailure::configuration(&error))?;
        self.check_driver(&config)?;
        let _lock = prepare_data_dir(state.path(), "--state-dir")
            .map_err(|error| RunFailure::configuration(&error))?;
        let uuid = self.host.node.get("uuid").and_then(Value::as_str).map(str::to_owned);
        let requested = RunRecord {
            name: self.host.name().to_owned(),
            node_uuid: uuid.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            operation: self.operation.name().to_owned(),
            fingerprint: self.host.fingerprint.clone(),
            status: RunStatus::Preparing,
            after_seq: 0,
        };
        let stored = state.load()?;
        if stored.is_none() {
            // Before the service creates its files, so that the directory is known as that of a run.
            state.store(&requested)?;
        }
        let record = match RunRecord::start(stored, requested, state.path())? {
            // The power may have been changed since.
            RunStart::AlreadyDone(record) if matches!(self.operation, RunOperation::Power(_)) => {
                RunRecord { status: RunStatus::Preparing, ..record }
            }
            RunStart::AlreadyDone(_) => return self.recorded_result(&state),
            RunStart::Resume(record) | RunStart::New(record) => record,
        };
        if let Some(uuid) = uuid.filter(|uuid| *uuid != record.node_uuid) {
            return Err(RunFailure::invalid_input(format!(
                "the node in the state directory {} has the UUID {}, but the host file has {uuid}; use \
                 another --state-dir",
                state.path().display(),
                record.node_uuid
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime");
        runtime
            .map_err(|error| RunFailure::configuration(&error))?
            .block_on(self.perform_with_service(&config, &state, record))
    }

    /// Rejects a driver that does not exist or is not enabled.
    fn check_driver(&self, config: &Config) -> Result<(), RunFailure> {
        let driver = self.host.node.get("driver").and_then(Value::as_str).unwrap_or_default();
        let enabled = &config.drivers.enabled_hardware_types;
        if enabled.iter().any(|name| name == driver) {
            return Ok(());
        }
        Err(RunFailure::invalid_input(format!(
            "the host file {}: driver: {driver} is not enabled; use one of {}",
            self.options.host.display(),
            enabled.join(", ")
        )))
    }

    /// The result of an operation that an earlier run completed.
    fn recorded_result(&self, state: &StateDir) -> Result<RunResult, RunFailure> {
        self.options.output.already_done(self.operation.name(), self.host.name());
        let inventory = match self.operation {
            RunOperation::Inspect => Some(state.load_inventory()?),
            RunOperation::Deploy
            | RunOperation::Clean { .. }
            | RunOperation::Power(_)
            | RunOperation::PowerStatus => None,
        };
        Ok(RunResult { inventory, power_state: None })
    }

    async fn perform_with_service(
        &self,
        config: &Config,
        state: &StateDir,
        record: RunRecord,
    ) -> Result<RunResult, RunFailure> {
        let started = async {
            let stop = StopSignal::listen()?;
            serve::check(config)?;
            let inspection = config.inspection()?;
            let service = FerriteService::start(config, inspection, state.path()).await?;
            let socket = format!("unix:{}", unix_socket_path(state.path())?.display());
            let target = ApiTarget::at(&socket, None, None, "the state directory")?;
            anyhow::Ok((stop, service, Api::new(target)?))
        };
        let (mut stop, mut service, api) =
            started.await.map_err(|error| RunFailure::configuration(&error))?;
        let mut details = json!({"resumed": record.status == RunStatus::Running});
        if self.options.state_dir.is_some() {
            details["state_dir"] = json!(state.path());
        }
        if self.operation.boots_a_ramdisk() {
            details["api"] = json!(service.url());
            details["boot_files"] = json!(service.boot_url);
        }
        self.options.output.started(self.operation.name(), self.host.name(), &details);
        let controller = RunController {
            api,
            operation: self.operation,
            host: &self.host,
            host_path: &self.options.host,
            state,
            record,
            output: self.options.output,
        };
        let result = tokio::select! {
            result = controller.run() => result,
            () = stop.received() => Err(self.ended_early(CliExitCode::Interrupted, "was interrupted")),
            () = self.timeout() => {
                Err(self.ended_early(CliExitCode::TimedOut, "is not complete within --timeout"))
            }
            error = service.failure() => {
                Err(RunFailure::new(CliExitCode::Failed, format!("{error:#}")))
            }
        };
        service.stop().await;
        result
    }

    async fn timeout(&self) {
        match self.options.timeout.and_then(|timeout| self.started_at.checked_add(timeout)) {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }

    fn ended_early(&self, code: CliExitCode, what: &str) -> RunFailure {
        let how = match &self.options.state_dir {
            Some(_) if self.operation != RunOperation::PowerStatus => {
                "run the same command again to continue"
            }
            Some(_) | None => {
                "the machine is left as it is, and the next run starts from the beginning; with \
                 --state-dir it would continue"
            }
        };
        RunFailure::new(code, format!("{} {what}; {how}", self.operation.name()))
    }

    /// The configuration of the service.
    fn config(&self, state: &StateDir) -> anyhow::Result<Config> {
        let source = ConfigSource::read(self.options.config.as_deref(), std::env::vars())?;
        let mut config = source.config(None)?;
        if self.operation.boots_a_ramdisk() {
            config = provisioning::resolve(&source, config)?;
        }
        if let Ok(data_dir) = config.data_dir() {
            ramdisk::use_data_dir_ramdisk(&mut config, &data_dir);
        }
        if let Some(listen) = self.options.listen {
            config.api.listen = listen;
        }
        if !self.options.boot_listen.is_empty() {
            config.boot.listen.clone_from(&self.options.boot_listen);
        }
        restrict(&mut config, self.operation);
        config.data_dir = Some(state.path().to_owned());
        unix_socket_path(state.path()).context("give a shorter --state-dir")?;
        Ok(config)
    }
}

/// Fails if the file cannot be written. Its content is not changed, and it is not created.
fn check_writable(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => {
            std::fs::OpenOptions::new().append(true).open(path).map(drop)
        }
        // Opening a pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::File::create_new(path)?;
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// Replaces the settings that do not apply to a single operation. Clients of the API need the password in
/// the state directory, whatever is configured; agents need none.
fn restrict(config: &mut Config, operation: RunOperation) {
    config.api.auth = AuthMode::Basic.into();
    config.api.htpasswd_file = None;
    config.api.public_metrics = false;
    config.api.unix_socket = None;
    config.api.default_conductor_group = String::new();
    config.auto_discovery.enabled = false;
    config.database.url = None;
    config.conductor.host = Some(CONDUCTOR_NAME.to_owned());
    config.conductor.conductor_group = String::new();
    if config.log.level == LogSection::default().level {
        // Failed actions are reported as progress.
        config.log.level = "error".to_owned();
    }
    if !operation.boots_a_ramdisk() {
        config.boot.enabled = false;
        config.api.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also if the configuration disables authentication.
    #[test]
    fn network_clients_always_need_a_password() {
        for listen in ["127.0.0.1:6385", "0.0.0.0:6385"] {
            let text = format!(
                "api.listen = \"{listen}\"\napi.auth = \"none\"\napi.unix_socket = \"\"\n\
                 database.url = \"postgresql://h/d\"\nconductor.conductor_group = \"a\"\n"
            );
            let mut config: Config = toml::from_str(&text).unwrap();
            restrict(&mut config, RunOperation::Deploy);
            let api = config.api(Path::new("/s"));
            assert_eq!(api.auth.htpasswd.as_deref(), Some(Path::new("/s/htpasswd")));
            assert_eq!(api.listen.to_string(), listen);
            assert!(!api.public_metrics);
            assert_eq!(config.database.url, None);
            assert_eq!(config.api.unix_socket, None);
            assert!(config.boot.enabled);
        }
    }

    #[test]
    fn checks_whether_a_file_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let existing = folder.path().join("existing");
        std::fs::write(&existing, "old").unwrap();
        check_writable(&existing).unwrap();
        assert_eq!(std::fs::read_to_string(&existing).unwrap(), "old");
        let new = folder.path().join("new");
        check_writable(&new).unwrap();
        assert!(!new.exists());
        check_writable(Path::new("/dev/null")).unwrap();
        for path in [folder.path().to_owned(), existing.join("inside"), new.join("inside")] {
            check_writable(&path).unwrap_err();
        }
    }

    #[test]
    fn power_operations_need_no_boot_services() {
        let mut config: Config = toml::from_str("api.listen = \"0.0.0.0:6385\"").unwrap();
        restrict(&mut config, RunOperation::PowerStatus);
        assert!(!config.boot.enabled);
        assert_eq!(config.api.listen.to_string(), "127.0.0.1:0");
    }
}
