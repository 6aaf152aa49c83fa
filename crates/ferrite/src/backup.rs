// SPDX-License-Identifier: Apache-2.0
//! `ferrite backup` and `ferrite restore`: the database in one file, for any engine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use command_line::CliExitCode;
use store::{
    BackupError, BackupSummary, RestoreOptions, RestoreReport, StoreError, StoreOpenError,
    StoreSettings, back_up,
};

use crate::database_options::{DatabaseOptions, finish};
use crate::service::prepare_data_dir;
use crate::telemetry;

/// Options of `ferrite backup`.
#[derive(Args, Debug)]
pub(crate) struct BackupArguments {
    /// The file to write. It must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    database: DatabaseOptions,
}

/// Options of `ferrite restore`.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    /// The backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    database: DatabaseOptions,
    /// Check the backup, the sealing keys and that the database can be replaced, without writing to it.
    #[arg(long)]
    dry_run: bool,
    /// Continue the unfinished work of the backup when the server starts. By default, nodes with
    /// unfinished work are put into maintenance: since the backup, their machines may have been given to
    /// other users.
    #[arg(long)]
    continue_work: bool,
}

/// Runs `ferrite backup`.
pub(crate) fn run_backup(arguments: &BackupArguments) -> ExitCode {
    let lines = arguments.run().map(|summary| {
        let BackupSummary { nodes, rows, schema, engine, .. } = &summary;
        let file = arguments.file.display();
        let mut lines = vec![format!(
            "wrote {file}: {nodes} nodes, {rows} rows, schema {schema}, from {engine}"
        )];
        let keys = summary.sealing_key_ids.join(" and ");
        if !keys.is_empty() {
            lines.push(format!(
                "its secrets need the sealing key {keys}, which is not in it; back the key up separately"
            ));
        }
        lines
    });
    finish(lines, exit_code)
}

/// Runs `ferrite restore`.
pub(crate) fn run_restore(arguments: &RestoreArguments) -> ExitCode {
    finish(arguments.run().map(|report| arguments.describe(&report)), exit_code)
}

impl BackupArguments {
    fn run(&self) -> anyhow::Result<BackupSummary> {
        let (config, data_dir) = self.database.load()?;
        telemetry::start(&config.log)?;
        Ok(back_up(&config.store(&data_dir), &self.file)?)
    }
}

impl RestoreArguments {
    fn run(&self) -> anyhow::Result<RestoreReport> {
        let (config, data_dir) = self.database.load()?;
        telemetry::start(&config.log)?;
        let settings: StoreSettings = config.store_with_keys(&data_dir)?;
        let _data_dir_lock = match settings.uses_server()? {
            true => None,
            false => Some(prepare_data_dir(&data_dir, "--data-dir")?),
        };
        let options = RestoreOptions { dry_run: self.dry_run, continue_work: self.continue_work };
        Ok(store::restore(&settings, &self.file, options)?)
    }

    fn describe(&self, report: &RestoreReport) -> Vec<String> {
        let BackupSummary { nodes, rows, schema, created_at, ferrite_version, .. } = &report.backup;
        let what = format!(
            "{nodes} nodes, {rows} rows, schema {schema}, of {created_at} by Ferrite {ferrite_version}"
        );
        let unfinished = report.backup.unfinished_nodes;
        let mut lines = Vec::new();
        if self.dry_run {
            lines.push(format!("the backup can be restored: {what}; nothing was changed"));
        } else {
            lines.push(format!("restored {what}"));
        }
        if let Some(previous) = &report.previous_database {
            lines.push(format!("the previous database is kept as {}", previous.display()));
        }
        if unfinished > 0 {
            let outcome = match (self.dry_run, self.continue_work) {
                (_, true) => "will continue when the server starts",
                (true, false) => "would be put into maintenance",
                (false, false) => "are in maintenance; check their machines, then end maintenance",
            };
            lines.push(format!("{unfinished} nodes with unfinished work {outcome}"));
        }
        lines
    }
}

fn exit_code(error: &anyhow::Error) -> CliExitCode {
    match error.downcast_ref::<BackupError>() {
        Some(
            BackupError::Invalid { .. }
            | BackupError::NewerVersion { .. }
            | BackupError::KeyMissing { .. }
            | BackupError::NotEmpty { .. }
            | BackupError::NewerSchema { .. }
            | BackupError::Open(StoreOpenError::NewerSchema { .. }),
        ) => CliExitCode::Rejected,
        Some(
            BackupError::Open(
                StoreOpenError::Connect { .. }
                | StoreOpenError::Busy { .. }
                | StoreOpenError::Prepare(StoreError::Unavailable(_)),
            )
            | BackupError::Read { source: StoreError::Unavailable(_), .. }
            | BackupError::Write { source: StoreError::Unavailable(_), .. }
            | BackupError::Prepare(StoreError::Unavailable(_)),
        ) => CliExitCode::Unreachable,
        _ => CliExitCode::Usage,
    }
}
