// SPDX-License-Identifier: Apache-2.0
//! A server process of our own: started, asked where it listens, stopped or killed.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Client;

/// How long a server may take until it says where it listens.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How often a process that shall end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the line that says so looks like.
const READY: &str = "listening on http://";

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    address: SocketAddr,
    log: PathBuf,
}

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// The program cannot be run, or its log not be written.
    CannotRun(io::Error),
    /// It ended instead.
    Ended {
        /// How.
        status: ExitStatus,
        /// What it wrote to standard error.
        log: String,
    },
    /// It runs, but does not say where it listens.
    Silent {
        /// What it wrote to standard error.
        log: String,
    },
}

/// How a server went down when asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// Its exit status.
    pub status: ExitStatus,
    /// How long it took.
    pub took: Duration,
}

impl Server {
    /// Starts a command that prints where it listens. Its standard error is added to the file `log`.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, StartError> {
        let file =
            File::options().create(true).append(true).open(log).map_err(StartError::CannotRun)?;
        let began_at = file.metadata().map_err(StartError::CannotRun)?.len();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(StartError::CannotRun)?;
        let address = match process.stdout.take() {
            Some(output) => first_address(output),
            None => None,
        };
        match address {
            Some(address) => Ok(Self { process, address, log: log.to_owned() }),
            None => Err(give_up(process, log, began_at)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        log_from(&self.log, 0)
    }

    /// Kills it on the spot, as a power cut would.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Asks it to stop with SIGTERM and waits until it has, or kills it when it takes too long.
    ///
    /// # Errors
    /// When it cannot be asked or did not stop in time.
    pub fn stop(mut self, patience: Duration) -> io::Result<Stopped> {
        let asked = Instant::now();
        send_signal(self.process.id(), "TERM")?;
        while asked.elapsed() < patience {
            if let Some(status) = self.process.try_wait()? {
                return Ok(Stopped { status, took: asked.elapsed() });
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("still running {patience:?} after SIGTERM"),
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, and there is nobody to tell otherwise.
        let _already_gone = self.process.kill();
        let _already_waited_for = self.process.wait();
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotRun(_) => f.write_str("the server cannot be run"),
            Self::Ended { status, log } => write!(f, "the server ended with {status}: {log}"),
            Self::Silent { log } => {
                write!(
                    f,
                    "the server did not say within {START_PATIENCE:?} where it listens: {log}"
                )
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::CannotRun(source) => Some(source),
            Self::Ended { .. } | Self::Silent { .. } => None,
        }
    }
}

/// Sends a signal (`TERM`, `INT`, …) to a process.
///
/// The shell's own `kill` does it: std has no call for signals other than SIGKILL, and our lints
/// forbid the unsafe one.
///
/// # Errors
/// When there is no such process.
pub fn send_signal(pid: u32, name: &str) -> io::Result<()> {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no process {pid} to send SIG{name} to"),
        ))
    }
}

/// Reads the output until it names an address. A thread goes on reading, so that the server never
/// blocks on a full pipe.
fn first_address(output: ChildStdout) -> Option<SocketAddr> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(address) = address_in(&line) {
                // Nobody listens any more once the first address was found.
                let _only_the_first = sender.send(address);
            }
        }
    });
    receiver.recv_timeout(START_PATIENCE).ok()
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(READY)?;
    rest.split(|end: char| end.is_whitespace() || end == '/' || end == ',').next()?.parse().ok()
}

fn give_up(mut process: Child, log: &Path, began_at: u64) -> StartError {
    // Its output ended or it is silent; in the first case it is about to end itself.
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match process.try_wait() {
            Err(error) => return StartError::CannotRun(error),
            Ok(Some(status)) => return StartError::Ended { status, log: log_from(log, began_at) },
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                let _already_gone = process.kill();
                let _already_waited_for = process.wait();
                return StartError::Silent { log: log_from(log, began_at) };
            }
        }
    }
}

fn log_from(log: &Path, began_at: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        io::Seek::seek(&mut file, io::SeekFrom::Start(began_at))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(no log: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_line() {
        for (line, expected) in [
            ("ferrite 0.1.0 listening on http://127.0.0.1:6385", Some("127.0.0.1:6385")),
            ("listening on http://[::1]:80/, data in /var", Some("[::1]:80")),
            ("listening on http://127.0.0.1:7, metrics there too", Some("127.0.0.1:7")),
            ("starting", None),
            ("listening on http://somewhere", None),
        ] {
            assert_eq!(
                address_in(line),
                expected.map(|address| address.parse().unwrap()),
                "{line}"
            );
        }
    }

    #[test]
    fn a_program_that_ends_is_no_server() {
        let folder = std::env::temp_dir();
        let log = folder.join(format!("http-probe-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo starting; echo no such key >&2; exit 2"]);
        let error = Server::start(&mut command, &log).unwrap_err();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(error.to_string(), "the server ended with exit status: 2: no such key\n");
    }
}
