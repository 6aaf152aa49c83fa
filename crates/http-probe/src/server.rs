// SPDX-License-Identifier: Apache-2.0
//! A server under test as a child process: start it, find its address, stop or kill it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::ProbeClient;

/// Time limit for a server to print its address.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a stopping process is polled.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The text that precedes the URL on standard output.
const LISTENING_PREFIX: &str = "listening on ";

/// A running server process. Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    process: Child,
    address: SocketAddr,
    scheme: UrlScheme,
    log: PathBuf,
}

/// The scheme of a server's URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UrlScheme {
    Http,
    Https,
}

/// The reason why a server did not start.
#[derive(Debug)]
pub enum ServerStartError {
    /// The program could not be run, or its log file could not be opened.
    CannotRun(io::Error),
    /// The process exited before it printed its address.
    Exited {
        /// The exit status.
        status: ExitStatus,
        /// Its standard error.
        log: String,
    },
    /// The process runs, but printed no address within the time limit.
    NoAddress {
        /// Its standard error.
        log: String,
    },
}

/// Result of stopping a server with SIGTERM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerExit {
    /// The exit status.
    pub status: ExitStatus,
    /// Time from the signal to the exit.
    pub took: Duration,
}

impl ServerProcess {
    /// Starts a command that prints its address on standard output. Its standard error is appended
    /// to the file `log`.
    ///
    /// # Errors
    /// When it does not print its address in time.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, ServerStartError> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(ServerStartError::CannotRun)?;
        let log_start = file.metadata().map_err(ServerStartError::CannotRun)?.len();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(ServerStartError::CannotRun)?;
        let address = match process.stdout.take() {
            Some(output) => wait_for_address(output),
            None => None,
        };
        match address {
            Some((scheme, address)) => Ok(Self { process, address, scheme, log: log.to_owned() }),
            None => Err(start_failure(process, log, log_start)),
        }
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Creates a client for it.
    #[must_use]
    pub fn client(&self) -> ProbeClient {
        ProbeClient::new(self.address)
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        match self.scheme {
            UrlScheme::Http => format!("http://{}", self.address),
            UrlScheme::Https => format!("https://{}", self.address),
        }
    }

    /// Returns everything in its log file so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(&self.log, 0)
    }

    /// Kills it with SIGKILL, to simulate a crash or a power cut.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits for the exit. Kills the process after `timeout`.
    ///
    /// # Errors
    /// When the signal cannot be sent or the process does not exit in time.
    pub fn stop(mut self, timeout: Duration) -> io::Result<ServerExit> {
        let signalled_at = Instant::now();
        send_signal(self.process.id(), "TERM")?;
        while signalled_at.elapsed() < timeout {
            if let Some(status) = self.process.try_wait()? {
                return Ok(ServerExit { status, took: signalled_at.elapsed() });
            }
            thread::sleep(EXIT_POLL_INTERVAL);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("still running {timeout:?} after SIGTERM"),
        ))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have exited already; errors cannot be reported from drop.
        let _already_gone = self.process.kill();
        let _already_waited_for = self.process.wait();
    }
}

impl fmt::Display for ServerStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotRun(_) => f.write_str("cannot run the server"),
            Self::Exited { status, log } => write!(f, "the server exited with {status}: {log}"),
            Self::NoAddress { log } => {
                write!(f, "the server printed no address within {START_TIMEOUT:?}: {log}")
            }
        }
    }
}

impl std::error::Error for ServerStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::CannotRun(source) => Some(source),
            Self::Exited { .. } | Self::NoAddress { .. } => None,
        }
    }
}

/// Sends a signal (`TERM`, `INT`, …) to a process.
///
/// Runs the shell's `kill`, because std can only send SIGKILL and the lints forbid the unsafe
/// libc call.
///
/// # Errors
/// When the process does not exist.
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

/// Reads standard output until it contains an address. A thread keeps reading after that, so that
/// the server never blocks on a full pipe.
fn wait_for_address(output: ChildStdout) -> Option<(UrlScheme, SocketAddr)> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(address) = parse_listen_address(&line) {
                // The receiver is dropped after the first address.
                let _receiver_gone = sender.send(address);
            }
        }
    });
    receiver.recv_timeout(START_TIMEOUT).ok()
}

fn parse_listen_address(line: &str) -> Option<(UrlScheme, SocketAddr)> {
    let (_, url) = line.split_once(LISTENING_PREFIX)?;
    let (scheme, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (UrlScheme::Http, rest),
        (None, Some(rest)) => (UrlScheme::Https, rest),
        (None, None) => return None,
    };
    let address = rest.split(|end: char| end.is_whitespace() || end == '/' || end == ',').next()?;
    Some((scheme, address.parse().ok()?))
}

fn start_failure(mut process: Child, log: &Path, log_start: u64) -> ServerStartError {
    // If standard output was closed, the process is exiting: wait briefly for its exit status.
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match process.try_wait() {
            Err(error) => return ServerStartError::CannotRun(error),
            Ok(Some(status)) => {
                return ServerStartError::Exited { status, log: read_log(log, log_start) };
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(EXIT_POLL_INTERVAL),
            Ok(None) => {
                let _already_gone = process.kill();
                let _already_waited_for = process.wait();
                return ServerStartError::NoAddress { log: read_log(log, log_start) };
            }
        }
    }
}

fn read_log(log: &Path, log_start: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        io::Seek::seek(&mut file, io::SeekFrom::Start(log_start))?;
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
    fn parses_the_listen_address() {
        for (line, expected) in [
            ("ferrite 0.1.0 listening on http://127.0.0.1:6385", Some("127.0.0.1:6385")),
            ("listening on http://[::1]:80/, data in /var", Some("[::1]:80")),
            ("listening on http://127.0.0.1:7, metrics there too", Some("127.0.0.1:7")),
            ("listening on https://10.0.0.1:6385 (data in /var)", Some("10.0.0.1:6385")),
            ("listening on ftp://127.0.0.1:7", None),
            ("starting", None),
            ("listening on http://somewhere", None),
        ] {
            assert_eq!(
                parse_listen_address(line).map(|(_, address)| address),
                expected.map(|address| address.parse().unwrap()),
                "{line}"
            );
        }
    }

    #[test]
    fn start_fails_if_the_program_exits() {
        let directory = std::env::temp_dir();
        let log = directory.join(format!("http-probe-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo starting; echo no such key >&2; exit 2"]);
        let error = ServerProcess::start(&mut command, &log).unwrap_err();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(error.to_string(), "the server exited with exit status: 2: no such key\n");
    }
}
