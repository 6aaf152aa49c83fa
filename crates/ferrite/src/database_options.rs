// SPDX-License-Identifier: Apache-2.0
//! Options of the commands that use the database of a server without the server, and their end.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use command_line::CliExitCode;

use crate::config::Config;
use crate::print_error;
use crate::process::print_line;

/// Which database.
#[derive(Args, Debug)]
pub(crate) struct DatabaseOptions {
    /// The configuration file (TOML) of the server.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the server.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The database, such as postgresql://user:password@host/ferrite.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl DatabaseOptions {
    /// The configuration of the server with these options, and its data directory.
    pub(crate) fn load(&self) -> anyhow::Result<(Config, PathBuf)> {
        let mut config = Config::load(self.config.as_deref(), std::env::vars())?;
        if self.data_dir.is_some() {
            config.data_dir.clone_from(&self.data_dir);
        }
        if self.database.is_some() {
            config.database.url.clone_from(&self.database);
        }
        let data_dir = config.data_dir()?;
        Ok((config, data_dir))
    }
}

/// Prints the lines of a successful command, or the error, and returns the exit code.
pub(crate) fn finish(
    result: anyhow::Result<Vec<String>>,
    exit_code: impl Fn(&anyhow::Error) -> CliExitCode,
) -> ExitCode {
    match result {
        Ok(lines) => {
            lines.iter().for_each(|line| print_line(line));
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(&error);
            ExitCode::from(exit_code(&error) as u8)
        }
    }
}
