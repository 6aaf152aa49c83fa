// SPDX-License-Identifier: Apache-2.0
//! Throw-away PostgreSQL and MariaDB servers: started in a temporary folder, gone with us.
//!
//! They listen on a free port of the loopback, know one user with a random password, and do not
//! wait for the disk. `setpriv` takes root from them (PostgreSQL refuses to run as root) and asks
//! the kernel to stop them should we die without having done so.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::process::{Process, free_port, give_away, unprivileged};
use crate::install::Programs;
use crate::{random, say};

/// Both servers, running.
pub(crate) struct Servers {
    postgres: Server,
    mariadb: Server,
}

impl Servers {
    /// Starts both. They stop when the value is dropped.
    ///
    /// Must be called from a thread that lives as long as the servers shall: the kernel takes the
    /// end of the starting thread for the end of the parent.
    pub(crate) fn start(programs: &Programs) -> Result<Self> {
        let started = Instant::now();
        let postgres = Server::start(&Postgres { folder: &programs.postgres_folder })?;
        let mariadb = Server::start(&Mariadb { programs })?;
        say::line(&format!(
            "PostgreSQL on port {} and MariaDB on port {}, started in {:.1} s",
            postgres.port,
            mariadb.port,
            started.elapsed().as_secs_f64()
        ));
        Ok(Self { postgres, mariadb })
    }

    /// The variables that point the tests at the servers.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 3] {
        [
            ("FERRITE_TEST_POSTGRES", &self.postgres.url),
            ("FERRITE_TEST_MARIADB", &self.mariadb.url),
            // Makes a test that finds no server fail instead of passing by.
            ("FERRITE_TEST_SERVERS", "required"),
        ]
    }
}

/// What differs between the two.
trait Kind {
    const NAME: &'static str;
    /// The signal that makes it stop at once but in order.
    const STOP: &'static str;
    /// The command that makes the data folder.
    fn initialise(&self, place: &Place) -> Result<Command>;
    /// The command that serves.
    fn serve(&self, place: &Place) -> Result<Command>;
    /// Whether it takes connections.
    fn is_ready(place: &Place) -> bool;
    /// Where clients find it.
    fn url(place: &Place) -> String;
}

/// What a server is given.
struct Place {
    folder: PathBuf,
    port: u16,
    password: String,
}

impl Place {
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Writes a file that the server's user can read and nobody else.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        give_away(&path)?;
        Ok(path)
    }
}

/// What the data of a server takes at most, in bytes.
const ROOM: u64 = 4 << 30;

struct Server {
    /// Before the folder: it is stopped before that is removed.
    _process: Process,
    url: String,
    port: u16,
    _folder: TempDir,
}

impl Server {
    fn start<K: Kind>(kind: &K) -> Result<Self> {
        // A port that was free a moment ago may be taken by the time the server binds it.
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::try_start(kind) {
                Err(error) if attempts > 0 => say::line(&format!("{error:#}; trying again")),
                outcome => return outcome.with_context(|| format!("cannot start {}", K::NAME)),
            }
        }
    }

    fn try_start<K: Kind>(kind: &K) -> Result<Self> {
        let folder = folder()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        give_away(folder.path())?;
        let place = Place {
            folder: folder.path().to_owned(),
            port: free_port()?,
            password: random::password()?,
        };
        let output = kind.initialise(&place)?.output().context("cannot run its initialisation")?;
        if !output.status.success() {
            bail!(
                "{} could not make its data folder: {}{}",
                K::NAME,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let log = place.write("log", "")?;
        let mut process = Process::start(K::NAME, K::STOP, kind.serve(&place)?, log)?;
        process.wait_until(|| K::is_ready(&place))?;
        Ok(Self { _process: process, url: K::url(&place), port: place.port, _folder: folder })
    }
}

/// A folder for a server's data, in memory if there is room: every test makes a database of fifty
/// tables, and on a disk that takes ten times as long.
fn folder() -> Result<TempDir> {
    let make = |place: &Path| tempfile::Builder::new().prefix("ferrite-test-").tempdir_in(place);
    let in_memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(in_memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) > ROOM);
    if has_room && let Ok(folder) = make(in_memory) {
        return Ok(folder);
    }
    Ok(make(&std::env::temp_dir())?)
}

struct Postgres<'a> {
    folder: &'a Path,
}

impl Kind for Postgres<'_> {
    const NAME: &'static str = "PostgreSQL";
    // "Fast shutdown"; SIGTERM would wait for the clients to leave.
    const STOP: &'static str = "INT";

    fn initialise(&self, place: &Place) -> Result<Command> {
        let password = place.write("password", &place.password)?;
        let mut command = unprivileged(&self.folder.join("initdb"), Self::STOP, &place.folder);
        command
            .args([
                "--username=ferrite",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .arg(format!("--pwfile={}", password.display()))
            .arg(format!("--pgdata={}", place.data().display()));
        Ok(command)
    }

    fn serve(&self, place: &Place) -> Result<Command> {
        let mut command = unprivileged(&self.folder.join("postgres"), Self::STOP, &place.folder);
        command.arg("-D").arg(place.data()).args(["-p", &place.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            // Every test has its own pool of connections.
            "max_connections=400",
        ] {
            command.args(["-c", setting]);
        }
        Ok(command)
    }

    fn is_ready(place: &Place) -> bool {
        // The eighth line of the server's own note says how far it is.
        fs::read_to_string(place.data().join("postmaster.pid"))
            .is_ok_and(|note| note.lines().nth(7).is_some_and(|status| status.trim() == "ready"))
    }

    fn url(place: &Place) -> String {
        format!("postgresql://ferrite:{}@127.0.0.1:{}/postgres", place.password, place.port)
    }
}

struct Mariadb<'a> {
    programs: &'a Programs,
}

impl Kind for Mariadb<'_> {
    const NAME: &'static str = "MariaDB";
    const STOP: &'static str = "TERM";

    fn initialise(&self, place: &Place) -> Result<Command> {
        let mut command =
            unprivileged(&self.programs.mariadb_install_db, Self::STOP, &place.folder);
        command
            .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", place.data().display()));
        Ok(command)
    }

    fn serve(&self, place: &Place) -> Result<Command> {
        let start = place.write(
            "start.sql",
            &format!(
                "CREATE USER ferrite@'127.0.0.1' IDENTIFIED BY '{}';\n\
                 GRANT ALL PRIVILEGES ON *.* TO ferrite@'127.0.0.1' WITH GRANT OPTION;\n\
                 CREATE DATABASE ferrite;\n\
                 DROP USER IF EXISTS root@'127.0.0.1', root@'::1';\n",
                place.password
            ),
        )?;
        let mut command = unprivileged(&self.programs.mariadbd, Self::STOP, &place.folder);
        command
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-doublewrite=0",
                "--skip-log-bin",
            ])
            .args(["--innodb-buffer-pool-size=64M", "--max-connections=400"])
            .arg(format!("--port={}", place.port))
            .arg(format!("--datadir={}", place.data().display()))
            .arg(format!("--socket={}", place.folder.join("socket").display()))
            .arg(format!("--pid-file={}", place.folder.join("pid").display()))
            .arg(format!("--init-file={}", start.display()));
        Ok(command)
    }

    fn is_ready(place: &Place) -> bool {
        // The server speaks first, and only once its start-up file has been run.
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, place.port)) else {
            return false;
        };
        let mut first = [0];
        connection.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
            && connection.read_exact(&mut first).is_ok()
    }

    fn url(place: &Place) -> String {
        format!("mysql://ferrite:{}@127.0.0.1:{}/ferrite", place.password, place.port)
    }
}
