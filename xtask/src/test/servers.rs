// SPDX-License-Identifier: Apache-2.0
//! Throw-away PostgreSQL and MariaDB servers: started in a temporary folder, gone with us.
//!
//! They listen on a free port of the loopback, know one user with a random password, and do not
//! wait for the disk. `setpriv` takes root from them (PostgreSQL refuses to run as root) and asks
//! the kernel to stop them should we die without having done so.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::install::{self, Programs};
use crate::{say, shell};

/// User and group the servers run as when we are root. Debian has had these numbers for nobody and
/// nogroup in every release.
const NOBODY: u32 = 65534;
/// How long a server may take to answer. Seconds on a good day; CI machines have bad ones.
const START_PATIENCE: Duration = Duration::from_secs(90);
/// How long a server may take to stop before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How often a starting server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

struct Server {
    process: Child,
    name: &'static str,
    stop: &'static str,
    url: String,
    port: u16,
    /// Removed when the server is dropped.
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
        let folder = tempfile::Builder::new().prefix("ferrite-test-").tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        give_away(folder.path())?;
        let place = Place {
            folder: folder.path().to_owned(),
            port: free_port()?,
            password: random_password()?,
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
        let log_path = place.write("log", "")?;
        let log = fs::OpenOptions::new().append(true).open(&log_path)?;
        let process = kind
            .serve(&place)?
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot run the server")?;
        let mut server = Self {
            process,
            name: K::NAME,
            stop: K::STOP,
            url: K::url(&place),
            port: place.port,
            _folder: folder,
        };
        server.wait_until(|| K::is_ready(&place), &log_path)?;
        Ok(server)
    }

    fn wait_until(&mut self, is_ready: impl Fn() -> bool, log: &Path) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while !is_ready() {
            let ended = self.process.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(15).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                match ended {
                    Some(status) => bail!("{} ended with {status}:\n{last}", self.name),
                    None => bail!("{} does not answer:\n{last}", self.name),
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = http_probe::send_signal(self.process.id(), self.stop).is_ok();
        let stopped =
            asked && shell::ends_within(&mut self.process, STOP_PATIENCE).unwrap_or(false);
        if !stopped {
            // Nothing more can be done if even this fails, and the process may be gone already.
            let _already_gone = self.process.kill();
            let _already_waited_for = self.process.wait();
        }
    }
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

/// A command without root's rights that is stopped by the kernel if we die.
fn unprivileged(program: &Path, stop: &str, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", stop]);
    if install::is_root() {
        let id = NOBODY.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command.arg("--").arg(program).current_dir(folder).env("TMPDIR", folder);
    command
}

fn give_away(path: &Path) -> Result<()> {
    if install::is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))
            .with_context(|| format!("cannot give {} to the server's user", path.display()))?;
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn random_password() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
