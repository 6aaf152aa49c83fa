// SPDX-License-Identifier: Apache-2.0
//! A PostgreSQL primary with a synchronous standby.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::server_process::{DatabaseProcess, data_folder, free_port, run, unprivileged};

/// A primary that commits when its standby has received the transaction.
pub struct PostgresPair {
    primary: DatabaseProcess,
    // Dropped before the folder.
    standby: DatabaseProcess,
    programs: PathBuf,
    ports: [u16; 2],
    folder: TempDir,
}

impl PostgresPair {
    /// Starts both servers and waits until the standby is synchronous.
    ///
    /// # Errors
    /// Fails if PostgreSQL is not installed or does not start.
    pub fn start() -> Result<Self> {
        let programs = programs()?;
        let folder = data_folder()?;
        let ports = [free_port()?, free_port()?];
        let data = |name: &str| folder.path().join(name);
        run(unprivileged(&programs.join("initdb"), folder.path())
            .args(["--username=ferrite", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "--pgdata"])
            .arg(data("primary")))?;
        let names = "synchronous_standby_names=standby";
        let mut primary = server(&programs, folder.path(), "primary", ports[0], names)?;
        primary.wait_until(|| is_ready(&data("primary")))?;
        run(unprivileged(&programs.join("pg_basebackup"), folder.path())
            .args(["--host=127.0.0.1", "--username=ferrite", "--checkpoint=fast", "--no-sync"])
            .args(["--wal-method=stream", &format!("--port={}", ports[0])])
            .arg("--pgdata")
            .arg(data("standby")))?;
        fs::write(data("standby").join("standby.signal"), "")?;
        let from = format!(
            "primary_conninfo=host=127.0.0.1 port={} user=ferrite application_name=standby",
            ports[0]
        );
        let mut standby = server(&programs, folder.path(), "standby", ports[1], &from)?;
        standby.wait_until(|| is_ready(&data("standby")))?;
        let query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        standby.wait_until(|| {
            let mut psql = Command::new(programs.join("psql"));
            psql.args(["-h", "127.0.0.1", "-U", "ferrite", "-d", "postgres", "-At", "-c", query]);
            run(psql.arg(format!("--port={}", ports[0]))).is_ok_and(|count| count.trim() == "1")
        })?;
        Ok(Self { primary, standby, programs, ports, folder })
    }

    /// The URL with both servers.
    #[must_use]
    pub fn url(&self) -> String {
        let [primary, standby] = self.ports;
        format!("postgresql://ferrite@127.0.0.1:{primary},127.0.0.1:{standby}/postgres")
    }

    /// Kills the primary.
    ///
    /// # Errors
    /// Fails if the signal cannot be sent.
    pub fn kill_primary(&mut self) -> Result<()> {
        self.primary.kill()
    }

    /// Makes the standby accept writes, and waits until it does.
    ///
    /// # Errors
    /// Fails if the standby cannot be promoted.
    pub fn promote_standby(&mut self) -> Result<()> {
        run(unprivileged(&self.programs.join("pg_ctl"), self.folder.path())
            .args(["promote", "--wait", "--timeout=180", "--pgdata"])
            .arg(self.folder.path().join("standby")))?;
        let data = self.folder.path().join("standby");
        self.standby.wait_until(|| status(&data).is_some_and(|status| status == "ready"))
    }
}

fn server(
    programs: &Path,
    folder: &Path,
    name: &str,
    port: u16,
    setting: &str,
) -> Result<DatabaseProcess> {
    let mut command = unprivileged(&programs.join("postgres"), folder);
    command.arg("-D").arg(folder.join(name)).args(["-p", &port.to_string(), "-c", setting]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "full_page_writes=off",
        "synchronous_commit=on",
        "shared_buffers=32MB",
        "wal_level=replica",
    ] {
        command.args(["-c", setting]);
    }
    DatabaseProcess::start(command, &folder.join(format!("{name}.log")))
}

fn is_ready(data: &Path) -> bool {
    status(data).is_some_and(|status| status == "ready" || status == "standby")
}

/// The eighth line of this file is the status of the server.
fn status(data: &Path) -> Option<String> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().nth(7).map(|status| status.trim().to_owned())
}

/// Debian has one folder per version, none of them on the path.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("pg_basebackup").exists().then_some((version, folder))
        })
        .max();
    newest.map(|(_, folder)| folder).context("PostgreSQL is missing; install postgresql")
}
