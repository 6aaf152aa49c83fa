// SPDX-License-Identifier: Apache-2.0
//! Serves one machine's console: TCP clients on one side, one serial-over-LAN session on the other.
//!
//! With recording, the session stays open while the console is enabled, so that no output is lost;
//! otherwise it is open while there are watchers. All watchers get the same output, and all may send
//! input. A lost session is reopened, with a notice in the output; watchers stay connected.
//!
//! After the BMC rejected the credentials it gets no more requests until the console is started again:
//! many BMCs lock a user after repeated wrong passwords. Watchers get the reason and are disconnected.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drivers::{ConsoleFeed, ConsoleOutput, ConsoleRecording, ConsoleSubscription};
use ipmi::{IpmiEndpoint, IpmiTimeouts, SolConsole};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A running console server; stops when dropped.
pub(super) struct ConsoleServer {
    port: u16,
    endpoint: IpmiEndpoint,
    is_rejected: Arc<AtomicBool>,
    feed: ConsoleFeed,
    task: JoinHandle<()>,
}

/// How to open a machine's serial-over-LAN session.
#[derive(Clone)]
pub(super) struct SolSettings {
    pub(super) endpoint: IpmiEndpoint,
    pub(super) timeouts: IpmiTimeouts,
    pub(super) semaphore: Arc<Semaphore>,
    /// Time without data after which a watcher is disconnected.
    pub(super) idle_timeout: Option<Duration>,
    /// Whether the session stays open without watchers.
    pub(super) stays_open: bool,
    /// Shared by all consoles: limits concurrent session open_permits for consoles without watchers.
    pub(super) open_permits: Arc<Semaphore>,
}

/// Delays before a lost session is reopened.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5 * 60);
/// Timeout for sending the rejection to a client.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Age of a session after which its loss resets the delay.
const STABLE_AFTER: Duration = Duration::from_secs(30);

impl ConsoleServer {
    /// Starts the server.
    pub(super) fn serve(
        listener: TcpListener,
        sol: SolSettings,
        recording: ConsoleRecording,
    ) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let endpoint = sol.endpoint.clone();
        let is_rejected = Arc::new(AtomicBool::new(false));
        let (feed, input) = ConsoleFeed::new(recording);
        let task = tokio::spawn(run(listener, sol, feed.clone(), input, Arc::clone(&is_rejected)));
        Ok(Self { port, endpoint, is_rejected, feed, task })
    }

    /// The console's input and output.
    pub(super) fn feed(&self) -> ConsoleFeed {
        self.feed.clone()
    }

    /// The TCP port.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it runs and uses the same endpoint.
    pub(super) fn serves(&self, sol: &SolSettings) -> bool {
        let is_on = !self.task.is_finished() && !self.is_rejected.load(Ordering::Relaxed);
        is_on && self.endpoint == sol.endpoint
    }

    /// Stops the server and waits until its port is free.
    pub(super) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for ConsoleServer {
    fn drop(&mut self) {
        self.task.abort();
        self.feed.close();
    }
}

async fn run(
    listener: TcpListener,
    sol: SolSettings,
    feed: ConsoleFeed,
    mut input: mpsc::Receiver<Vec<u8>>,
    is_rejected: Arc<AtomicBool>,
) {
    let mut watchers = JoinSet::new();
    let why = tokio::select! {
        why = serve(&listener, &sol, &feed, &mut input, &mut watchers) => why,
        () = feed.record_timeline() => return,
    };
    is_rejected.store(true, Ordering::Relaxed);
    // Watchers got the reason; their connections end after it is written.
    feed.close();
    let drain_watchers = async { while watchers.join_next().await.is_some() {} };
    let reject_clients = async {
        loop {
            if let Some(mut stream) = accept(&listener).await {
                let _ = timeout(REJECTION_TIMEOUT, stream.write_all(why.as_bytes())).await;
            }
        }
    };
    tokio::join!(drain_watchers, reject_clients);
}

/// Serves watchers until the BMC rejects the credentials. Returns the notice that they got.
async fn serve(
    listener: &TcpListener,
    sol: &SolSettings,
    feed: &ConsoleFeed,
    input: &mut mpsc::Receiver<Vec<u8>>,
    watchers: &mut JoinSet<()>,
) -> String {
    let mut count = feed.watcher_count();
    loop {
        // Without watchers the serial sol is free for other users.
        while !sol.stays_open && *count.borrow_and_update() == 0 {
            tokio::select! {
                stream = accept(listener) => add_watcher(stream, sol, feed, watchers),
                Some(_) = watchers.join_next() => {}
                // Cannot fail: the feed holds the sender.
                _ = count.changed() => {}
            }
        }
        let mut session = Box::pin(run_sessions(sol, input, feed));
        while sol.stays_open || *count.borrow_and_update() > 0 {
            tokio::select! {
                stream = accept(listener) => add_watcher(stream, sol, feed, watchers),
                Some(_) = watchers.join_next() => {}
                _ = count.changed() => {}
                error = &mut session => {
                    let why = format!(
                        "the BMC rejected the console session: {error}; correct driver_info and \
                         start the console again"
                    );
                    feed.write_notice(&why);
                    return format!("\r\n[{why}]\r\n");
                }
            }
        }
        // Dropping the session also ends it on the BMC.
        drop(session);
        feed.set_connected(false);
    }
}

/// Adds a watcher, if the limit allows it.
fn add_watcher(
    stream: Option<TcpStream>,
    sol: &SolSettings,
    feed: &ConsoleFeed,
    watchers: &mut JoinSet<()>,
) {
    if let Some(stream) = stream
        && let Some(subscription) = feed.subscribe()
    {
        watchers.spawn(serve_watcher(stream, feed.input_sender(), subscription, sol.idle_timeout));
    }
}

/// Returns `None` if the connection was lost before it was accepted.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            // Most likely out of file descriptors.
            tracing::warn!(%error, retry_in = ?FIRST_RETRY_DELAY, "console connection could not be accepted");
            sleep(FIRST_RETRY_DELAY).await;
            None
        }
    }
}

/// Runs sessions between the watchers and the BMC until the BMC rejects the credentials.
async fn run_sessions(
    sol: &SolSettings,
    input: &mut mpsc::Receiver<Vec<u8>>,
    feed: &ConsoleFeed,
) -> ipmi::IpmiError {
    let mut delay = FIRST_RETRY_DELAY;
    let mut watchers = feed.watcher_count();
    loop {
        // After startup thousands may be waiting; consoles with watchers do not wait.
        let permit = tokio::select! {
            permit = sol.open_permits.acquire() => permit.ok(),
            _ = watchers.wait_for(|count| *count > 0) => None,
        };
        let opened = Instant::now();
        let endpoint = sol.endpoint.clone();
        let console = SolConsole::open(endpoint, sol.timeouts, &sol.semaphore).await;
        drop(permit);
        let ended = match console {
            Err(error) if is_permanent(&error) => return error,
            Err(error) => format!("the console connection was lost: {error}"),
            Ok(console) => {
                // Discards input from before the session, which must not reach a login prompt.
                while input.try_recv().is_ok() {}
                feed.set_connected(true);
                let ended = console.run(input, &mut |bytes| feed.write_output(bytes)).await;
                feed.set_connected(false);
                match ended {
                    Ok(()) => "the console session ended".to_owned(),
                    Err(error) => format!("the console connection was lost: {error}"),
                }
            }
        };
        if opened.elapsed() > STABLE_AFTER {
            delay = FIRST_RETRY_DELAY;
        }
        feed.write_notice(&format!("{ended}; retrying in {} s", delay.as_secs()));
        sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_DELAY);
    }
}

/// Whether the error persists until the configuration changes.
const fn is_permanent(error: &ipmi::IpmiError) -> bool {
    match error {
        ipmi::IpmiError::WrongUser
        | ipmi::IpmiError::SilentToUser
        | ipmi::IpmiError::WrongPassword
        | ipmi::IpmiError::WrongKg
        | ipmi::IpmiError::PrivilegeTooLow { .. } => true,
        ipmi::IpmiError::Unreachable { .. }
        | ipmi::IpmiError::CipherSuite { .. }
        | ipmi::IpmiError::NoFreeSession
        | ipmi::IpmiError::Refused { .. }
        | ipmi::IpmiError::Completion { .. }
        | ipmi::IpmiError::Uncertain { .. }
        | ipmi::IpmiError::Garbled { .. } => false,
    }
}

/// Serves one watcher until it disconnects or the idle timeout is reached.
async fn serve_watcher(
    mut stream: TcpStream,
    input: mpsc::Sender<Vec<u8>>,
    mut subscription: ConsoleSubscription,
    idle_timeout: Option<Duration>,
) {
    let (mut from, mut to) = stream.split();
    if to.write_all(&subscription.take_recent_output()).await.is_err() {
        return;
    }
    let mut buffer = [0; 1024];
    let mut last_activity = Instant::now();
    // No timeout: one year.
    let idle_timeout = idle_timeout.unwrap_or(Duration::from_secs(365 * 86_400));
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    last_activity = Instant::now();
                    if input.send(buffer[..length].to_vec()).await.is_err() {
                        return;
                    }
                }
            },
            output = subscription.next() => {
                last_activity = Instant::now();
                let written = match output {
                    Some(ConsoleOutput::Bytes(output)) => to.write_all(&output).await,
                    Some(ConsoleOutput::Lagged) => {
                        to.write_all(b"\r\n[some output was lost]\r\n").await
                    }
                    None => return,
                };
                if written.is_err() {
                    return;
                }
            }
            () = sleep_until(last_activity + idle_timeout) => {
                let _ = to.write_all(b"\r\n[disconnected: idle timeout]\r\n").await;
                return;
            }
        }
    }
}
