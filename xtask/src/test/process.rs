// SPDX-License-Identifier: Apache-2.0
//! A program of somebody else that runs beside the tests: started with a log, waited for, stopped
//! when dropped.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{install, random, shell};

/// User and group such a program runs as when we are root and it shall not be. Debian has had these
/// numbers for nobody and nogroup in every release.
pub(crate) const NOBODY: u32 = 65534;
/// How long a program may take to answer. Seconds on a good day; CI machines have bad ones.
const START_PATIENCE: Duration = Duration::from_secs(90);
/// How long a program may take to stop before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How often a starting program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Below what Linux gives to clients, so that a port found free stays so until its server binds it.
const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_768;

/// A running program.
pub(crate) struct Process {
    child: Child,
    name: &'static str,
    stop: &'static str,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output going to the file `log`; `stop` is the signal that ends it in
    /// order.
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

    /// Waits until it is ready; an error with the end of its log if it ends or never is.
    pub(crate) fn wait_until(&mut self, is_ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while !is_ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
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

impl Drop for Process {
    fn drop(&mut self) {
        // Some end when their standard input does.
        drop(self.child.stdin.take());
        let asked = http_probe::send_signal(self.child.id(), self.stop).is_ok();
        let stopped = asked && shell::ends_within(&mut self.child, STOP_PATIENCE).unwrap_or(false);
        if !stopped {
            // Nothing more can be done if even this fails, and the process may be gone already.
            let _already_gone = self.child.kill();
            let _already_waited_for = self.child.wait();
        }
    }
}

/// A command that the kernel stops should we die without having done so.
///
/// Must be started from a thread that lives as long as the program shall: the kernel takes the end
/// of the starting thread for the end of the parent.
pub(crate) fn tied_to_us(program: &Path, stop: &str, folder: &Path) -> Command {
    setpriv(&["--pdeathsig", stop], program, folder)
}

/// The same, without root's rights.
pub(crate) fn unprivileged(program: &Path, stop: &str, folder: &Path) -> Command {
    let id = NOBODY.to_string();
    let mut options = vec!["--pdeathsig", stop];
    if install::is_root() {
        options.extend(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    setpriv(&options, program, folder)
}

/// Gives a file or folder to the user that [`unprivileged`] programs run as.
pub(crate) fn give_away(path: &Path) -> Result<()> {
    if install::is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))
            .with_context(|| format!("cannot give {} to the server's user", path.display()))?;
    }
    Ok(())
}

/// A port of the loopback that nobody has, neither for TCP nor for UDP.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let [high, low] = random::bytes()?;
        let port = SERVER_PORTS.start + u16::from_be_bytes([high, low]) % SERVER_PORTS.len() as u16;
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
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
