// SPDX-License-Identifier: Apache-2.0
//! `ferrite database migrate`: applies the schema migrations of this version and exits.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use command_line::CliExitCode;
use store::{SchemaUpgrade, Store, StoreOpenError};

use crate::database_options::{DatabaseOptions, finish};
use crate::service::prepare_data_dir;
use crate::telemetry;

/// Commands of `ferrite database`.
#[derive(Subcommand, Debug)]
pub(crate) enum DatabaseCommand {
    /// Apply the migrations of this version, and exit. Does nothing if there are none. Exit codes: 4 if a
    /// newer version has migrated the database, 6 if the database is not reachable or another process
    /// migrates it for too long, 2 for other errors.
    Migrate(MigrateArguments),
}

/// Options of `ferrite database migrate`.
#[derive(Args, Debug)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    database: DatabaseOptions,
}

/// Runs a command.
pub(crate) fn run(command: &DatabaseCommand) -> ExitCode {
    let DatabaseCommand::Migrate(arguments) = command;
    finish(arguments.migrate().map(|upgrade| vec![summary(upgrade)]), exit_code)
}

impl MigrateArguments {
    fn migrate(&self) -> anyhow::Result<SchemaUpgrade> {
        let (config, data_dir) = self.database.load()?;
        telemetry::start(&config.log)?;
        let settings = config.store_with_keys(&data_dir)?;
        // A SQLite file is not migrated while a server of another version uses it. Servers with a database
        // server continue.
        let _data_dir_lock = match settings.uses_server()? {
            true => None,
            false => Some(prepare_data_dir(&data_dir, "--data-dir")?),
        };
        Ok(Store::migrate(&settings)?)
    }
}

fn summary(SchemaUpgrade { before, after }: SchemaUpgrade) -> String {
    if before == after {
        format!("the database has schema {after}; no migration is outstanding")
    } else {
        format!("the database was migrated from schema {before} to {after}")
    }
}

fn exit_code(error: &anyhow::Error) -> CliExitCode {
    match error.downcast_ref::<StoreOpenError>() {
        Some(StoreOpenError::NewerSchema { .. }) => CliExitCode::Rejected,
        Some(StoreOpenError::Connect { .. } | StoreOpenError::Busy { .. }) => {
            CliExitCode::Unreachable
        }
        _ => CliExitCode::Usage,
    }
}
