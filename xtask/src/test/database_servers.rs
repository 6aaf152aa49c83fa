// SPDX-License-Identifier: Apache-2.0
//! Temporary PostgreSQL and MariaDB servers.
//!
//! They listen on a free loopback port, have one user with a random password, and do not flush writes
//! to disk. They run without root privileges (PostgreSQL refuses to run as root) and stop when xtask
//! exits.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::database_certificates::DatabaseCertificates;
use super::process::{Process, chown_to_unprivileged, free_port, unprivileged};
use crate::install::DatabasePrograms;
use crate::{print, random};

/// Both servers.
pub(crate) struct DatabaseServers {
    postgres: ThrowawayServer,
    mariadb: ThrowawayServer,
    certificates: DatabaseCertificates,
}

impl DatabaseServers {
    /// Starts both. They stop when the value is dropped, or when the calling thread ends.
    pub(crate) fn start(programs: &DatabasePrograms) -> Result<Self> {
        let started = Instant::now();
        let certificates = DatabaseCertificates::issue()?;
        let postgres = ThrowawayServer::start(&PostgresServer {
            folder: &programs.postgres_folder,
            certificates: &certificates,
        })?;
        let mariadb =
            ThrowawayServer::start(&MariadbServer { programs, certificates: &certificates })?;
        print::line(&format!(
            "PostgreSQL on port {} and MariaDB on port {}, started in {:.1} s",
            postgres.port,
            mariadb.port,
            started.elapsed().as_secs_f64()
        ));
        Ok(Self { postgres, mariadb, certificates })
    }

    /// The variables that point the tests at the servers.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 4] {
        [
            ("FERRITE_TEST_POSTGRES", &self.postgres.url),
            ("FERRITE_TEST_MARIADB", &self.mariadb.url),
            (
                "FERRITE_TEST_DATABASE_CERTIFICATES",
                self.certificates.folder().to_str().unwrap_or_default(),
            ),
            // Without a server, tests fail instead of being skipped.
            ("FERRITE_TEST_SERVERS", "required"),
        ]
    }
}

/// The differences between the two servers.
trait DatabaseServerKind {
    const NAME: &'static str;
    /// The signal for a fast clean stop.
    const STOP: &'static str;
    /// The command that creates the data folder.
    fn initialise(&self, place: &DatabaseServerFiles) -> Result<Command>;
    /// The command that runs the server.
    fn serve(&self, place: &DatabaseServerFiles) -> Result<Command>;
    /// Whether the server accepts connections.
    fn is_ready(place: &DatabaseServerFiles) -> bool;
    /// The URL for clients.
    fn url(place: &DatabaseServerFiles) -> String;
}

/// The folder, port and password of a server.
struct DatabaseServerFiles {
    folder: PathBuf,
    port: u16,
    password: String,
}

impl DatabaseServerFiles {
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Writes a file that only the server's user can read.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        chown_to_unprivileged(&path)?;
        Ok(path)
    }
}

/// The files of a server for TLS.
struct ServerCertificateFiles {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl ServerCertificateFiles {
    fn write(place: &DatabaseServerFiles, from: &DatabaseCertificates) -> Result<Self> {
        Ok(Self {
            ca: place.write("ca.pem", &from.ca)?,
            certificate: place.write("server.pem", &from.server)?,
            key: place.write("server.key", &from.server_key)?,
        })
    }
}

/// The largest size of a data folder, in bytes.
const ROOM: u64 = 4 << 30;

struct ThrowawayServer {
    /// Dropped before the folder.
    _process: Process,
    url: String,
    port: u16,
    _folder: TempDir,
}

impl ThrowawayServer {
    fn start<K: DatabaseServerKind>(kind: &K) -> Result<Self> {
        // A free port may be taken before the server binds it.
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::try_start(kind) {
                Err(error) if attempts > 0 => print::line(&format!("{error:#}; retrying")),
                outcome => return outcome.with_context(|| format!("cannot start {}", K::NAME)),
            }
        }
    }

    fn try_start<K: DatabaseServerKind>(kind: &K) -> Result<Self> {
        let folder = folder()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        chown_to_unprivileged(folder.path())?;
        let place = DatabaseServerFiles {
            folder: folder.path().to_owned(),
            port: free_port()?,
            password: random::password()?,
        };
        let output = kind.initialise(&place)?.output().context("cannot run its initialisation")?;
        if !output.status.success() {
            bail!(
                "{} could not create its data folder: {}{}",
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

/// A data folder, in memory if there is enough: each test creates a database of fifty tables, which
/// takes ten times as long on a disk.
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

struct PostgresServer<'a> {
    folder: &'a Path,
    certificates: &'a DatabaseCertificates,
}

impl DatabaseServerKind for PostgresServer<'_> {
    const NAME: &'static str = "PostgreSQL";
    // "Fast shutdown"; SIGTERM would wait for the clients to disconnect.
    const STOP: &'static str = "INT";

    fn initialise(&self, place: &DatabaseServerFiles) -> Result<Command> {
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

    fn serve(&self, place: &DatabaseServerFiles) -> Result<Command> {
        let files = ServerCertificateFiles::write(place, self.certificates)?;
        // The user of the client certificate needs it; the other one has a password, with or without TLS.
        let user = DatabaseCertificates::USER;
        let access = place.write(
            "pg_hba.conf",
            &format!(
                "hostssl all {user} 127.0.0.1/32 cert\n\
                 hostnossl all {user} 127.0.0.1/32 reject\n\
                 host all all 127.0.0.1/32 scram-sha-256\n"
            ),
        )?;
        let mut command = unprivileged(&self.folder.join("postgres"), Self::STOP, &place.folder);
        command.arg("-D").arg(place.data()).args(["-p", &place.port.to_string()]);
        for (setting, path) in [
            ("hba_file", access),
            ("ssl_ca_file", files.ca),
            ("ssl_cert_file", files.certificate),
            ("ssl_key_file", files.key),
        ] {
            command.args(["-c", &format!("{setting}={}", path.display())]);
        }
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "ssl=on",
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

    fn is_ready(place: &DatabaseServerFiles) -> bool {
        // The eighth line of this file is the status of the server.
        fs::read_to_string(place.data().join("postmaster.pid"))
            .is_ok_and(|text| text.lines().nth(7).is_some_and(|status| status.trim() == "ready"))
    }

    fn url(place: &DatabaseServerFiles) -> String {
        format!("postgresql://ferrite:{}@127.0.0.1:{}/postgres", place.password, place.port)
    }
}

struct MariadbServer<'a> {
    programs: &'a DatabasePrograms,
    certificates: &'a DatabaseCertificates,
}

impl DatabaseServerKind for MariadbServer<'_> {
    const NAME: &'static str = "MariaDB";
    const STOP: &'static str = "TERM";

    fn initialise(&self, place: &DatabaseServerFiles) -> Result<Command> {
        let mut command =
            unprivileged(&self.programs.mariadb_install_db, Self::STOP, &place.folder);
        command
            .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", place.data().display()));
        Ok(command)
    }

    fn serve(&self, place: &DatabaseServerFiles) -> Result<Command> {
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
        let files = ServerCertificateFiles::write(place, self.certificates)?;
        let mut command = unprivileged(&self.programs.mariadbd, Self::STOP, &place.folder);
        command
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .arg(format!("--ssl-ca={}", files.ca.display()))
            .arg(format!("--ssl-cert={}", files.certificate.display()))
            .arg(format!("--ssl-key={}", files.key.display()))
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

    fn is_ready(place: &DatabaseServerFiles) -> bool {
        // The server sends the first byte, after it has run its init file.
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, place.port)) else {
            return false;
        };
        let mut first = [0];
        connection.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
            && connection.read_exact(&mut first).is_ok()
    }

    fn url(place: &DatabaseServerFiles) -> String {
        format!("mysql://ferrite:{}@127.0.0.1:{}/ferrite", place.password, place.port)
    }
}
