// SPDX-License-Identifier: Apache-2.0
//! Starts, signals and ends the program of a server.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The user and group of the servers.
const UNPRIVILEGED_USER: u32 = 65534;
/// Usually seconds; longer on a loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Room that the data of the servers needs in memory, in bytes.
const ROOM: u64 = 4 << 30;
/// Below the range for client sockets, so that a free port stays free until its server binds it.
const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_768;

/// A running server.
pub(crate) struct DatabaseProcess {
    child: Child,
    log: PathBuf,
}

impl DatabaseProcess {
    /// Starts `command` with its output in the file `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Waits until `is_ready`. Fails with the end of the log if the server exits or after a timeout.
    pub(crate) fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(40).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                bail!("the server did not become ready ({ended:?}):\n{last}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.context("the process id is out of range")?, signal)?)
    }

    /// Ends the server with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends the server with `signal` and waits for its exit.
    pub(crate) fn stop(&mut self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for DatabaseProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command without the privileges of root, which is killed when the thread that starts it ends.
pub(crate) fn unprivileged(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        let id = UNPRIVILEGED_USER.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command.arg("--").arg(program);
    command.stdin(Stdio::null()).current_dir(folder).env("TMPDIR", folder);
    command
}

/// Runs a command to its end. Fails with its output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// A folder of the servers' user, in memory if there is enough.
pub(crate) fn data_folder() -> Result<TempDir> {
    let make = |place: &Path| tempfile::Builder::new().prefix("ferrite-test-").tempdir_in(place);
    let in_memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(in_memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) > ROOM);
    let folder = match make(in_memory) {
        Ok(folder) if has_room => folder,
        _ => make(&std::env::temp_dir())?,
    };
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
    give_to_server(folder.path())?;
    Ok(folder)
}

/// Changes the owner of a file or folder to the servers' user.
pub(crate) fn give_to_server(path: &Path) -> Result<()> {
    if is_root() {
        chown(path, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER))?;
    }
    Ok(())
}

/// A free port of the loopback interface. Never returns the same port twice.
pub(crate) fn free_port() -> Result<u16> {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    // Test programs that run at the same time start at different ports.
    let start = u16::try_from(std::process::id() % 10_000)?;
    let count = SERVER_PORTS.end - SERVER_PORTS.start;
    for offset in 0..count {
        let port = SERVER_PORTS.start + (start + offset) % count;
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && returned.insert(port) {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", SERVER_PORTS.start, SERVER_PORTS.end)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
