// SPDX-License-Identifier: Apache-2.0
//! Runs a server next to the tests: started with a log file, stopped when dropped.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{install, random, shell};

/// The user and group of servers that must not run as root. 65534 is unprivileged in every release of
/// Debian.
pub(crate) const UNPRIVILEGED_USER: u32 = 65534;
/// Usually seconds; longer on a loaded CI machine.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// After this, a server is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Below the range for client sockets, so that a free port stays free until its server binds it.
const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_768;

/// A running server.
pub(crate) struct Process {
    child: Child,
    name: &'static str,
    stop: &'static str,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output in the file `log`; `stop` is the signal for a clean stop.
    pub(crate) fn start(
        name: &'static str,
        stop: &'static str,
        mut command: Command,
        log: PathBuf,
    ) -> Result<Self> {
        let output = fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let child = command
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        Ok(Self { child, name, stop, log })
    }

    /// The process id. Commands of [`with_death_signal`] keep theirs.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the signal for a clean stop and waits for the exit. Fails after the timeout.
    pub(crate) fn stop(mut self, timeout: Duration) -> Result<()> {
        http_probe::send_signal(self.child.id(), self.stop)?;
        if !shell::exits_within(&mut self.child, timeout)? {
            bail!("{} did not stop within {timeout:?}", self.name);
        }
        Ok(())
    }

    /// Waits until `is_ready`. Fails with the end of the log if the server exits or after a timeout.
    pub(crate) fn wait_until(&mut self, is_ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(15).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                match ended {
                    Some(status) => bail!("{} exited with {status}:\n{last}", self.name),
                    None => bail!("{} did not become ready:\n{last}", self.name),
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Some servers exit when their standard input closes.
        drop(self.child.stdin.take());
        let signalled = http_probe::send_signal(self.child.id(), self.stop).is_ok();
        let stopped =
            signalled && shell::exits_within(&mut self.child, STOP_TIMEOUT).unwrap_or(false);
        if !stopped {
            // The process may have exited already.
            let _already_gone = self.child.kill();
            let _already_waited_for = self.child.wait();
        }
    }
}

/// A command that gets the signal `stop` from the kernel when xtask exits.
///
/// It must be started from a thread that outlives the server: the kernel sends the signal when the
/// starting thread ends.
pub(crate) fn with_death_signal(program: &Path, stop: &str, folder: &Path) -> Command {
    setpriv(&["--pdeathsig", stop], program, folder)
}

/// Like [`with_death_signal`], and without the privileges of root.
pub(crate) fn unprivileged(program: &Path, stop: &str, folder: &Path) -> Command {
    let id = UNPRIVILEGED_USER.to_string();
    let mut options = vec!["--pdeathsig", stop];
    if install::is_root() {
        options.extend(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    setpriv(&options, program, folder)
}

/// Changes the owner of a file or folder to the user of [`unprivileged`] servers.
pub(crate) fn chown_to_unprivileged(path: &Path) -> Result<()> {
    if install::is_root() {
        chown(path, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER))
            .with_context(|| format!("cannot change the owner of {}", path.display()))?;
    }
    Ok(())
}

/// A port of the loopback interface that is free for both TCP and UDP. Never returns the same port
/// twice: a server may not have bound its port yet when the next one is chosen.
pub(crate) fn free_port() -> Result<u16> {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..100 {
        let [high, low] = random::bytes()?;
        let port = SERVER_PORTS.start + u16::from_be_bytes([high, low]) % SERVER_PORTS.len() as u16;
        let address = (Ipv4Addr::LOCALHOST, port);
        let is_free = TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
        if is_free && returned.insert(port) {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", SERVER_PORTS.start, SERVER_PORTS.end)
}

fn setpriv(options: &[&str], program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options).arg("--").arg(program);
    command.stdin(std::process::Stdio::null()).current_dir(folder).env("TMPDIR", folder);
    command
}
