// SPDX-License-Identifier: Apache-2.0
//! `ferrite database migrate`: applies the schema migrations of this version and exits.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use command_line::CliExitCode;
use store::{MigrationPlan, SchemaUpgrade, Store, StoreOpenError};

use crate::database_options::{DatabaseOptions, finish};
use crate::service::prepare_data_dir;
use crate::telemetry;

/// Commands of `ferrite database`.
#[derive(Subcommand, Debug)]
pub(crate) enum DatabaseCommand {
    /// Apply the migrations of this version, and exit. Does nothing if there are none. Exit codes: 4 if the version is
    /// too old for the database or for the processes that use it, 6 if the database is not reachable or another process
    /// migrates it for too long, 2 for other errors.
    Migrate(MigrateArguments),
}

/// Options of `ferrite database migrate`.
#[derive(Args, Debug)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    database: DatabaseOptions,
    /// Print the outstanding migrations, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs a command.
pub(crate) fn run(command: &DatabaseCommand) -> ExitCode {
    let DatabaseCommand::Migrate(arguments) = command;
    let lines = match arguments.dry_run {
        true => arguments.plan().map(|plan| plan_lines(&plan)),
        false => arguments.migrate().map(|upgrade| vec![summary(upgrade)]),
    };
    finish(lines, exit_code)
}

impl MigrateArguments {
    fn plan(&self) -> anyhow::Result<MigrationPlan> {
        let (config, data_dir) = self.database.load()?;
        telemetry::start(&config.log)?;
        Ok(Store::migration_plan(&config.store_with_keys(&data_dir)?)?)
    }

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

fn plan_lines(plan: &MigrationPlan) -> Vec<String> {
    let MigrationPlan { schema, outstanding } = plan;
    if outstanding.is_empty() {
        return vec![format!("the database has schema {schema}; no migration is outstanding")];
    }
    let mut lines = vec![format!("the database has schema {schema}; outstanding migrations:")];
    lines.extend(outstanding.iter().map(|migration| {
        let changes =
            if migration.changes_rows { " (reads and changes existing rows)" } else { "" };
        format!("{}: {}{changes}", migration.number, migration.name)
    }));
    lines
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
        Some(StoreOpenError::NewerSchema { .. } | StoreOpenError::VersionSkew { .. }) => {
            CliExitCode::Rejected
        }
        Some(StoreOpenError::Connect { .. } | StoreOpenError::Busy { .. }) => {
            CliExitCode::Unreachable
        }
        _ => CliExitCode::Usage,
    }
}

#[cfg(test)]
mod tests {
    use store::PlannedMigration;

    use super::*;

    #[test]
    fn the_plan_lists_outstanding_migrations() {
        let migration =
            |number, name, changes_rows| PlannedMigration { number, name, changes_rows };
        let outstanding = vec![migration(17, "job queues", false), migration(18, "names", true)];
        assert_eq!(
            plan_lines(&MigrationPlan { schema: 16, outstanding }),
            [
                "the database has schema 16; outstanding migrations:",
                "17: job queues",
                "18: names (reads and changes existing rows)",
            ]
        );
        assert_eq!(
            plan_lines(&MigrationPlan { schema: 18, outstanding: Vec::new() }),
            ["the database has schema 18; no migration is outstanding"]
        );
    }
}
