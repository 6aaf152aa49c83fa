// SPDX-License-Identifier: Apache-2.0
//! One machine's console: users at a TCP port on one side, one serial-over-LAN session on the
//! other.
//!
//! Where consoles are recorded the session is held for as long as the console is on, so that nothing
//! the machine says is missed; otherwise it lives while somebody watches. All watchers see the same,
//! and all may type. If the session is lost it is opened again, with a line that says so; nobody has
//! to connect again.
//!
//! A BMC that refuses our credentials is left alone until the console is started anew: many lock a
//! user out who tries a wrong password again and again. Until then watchers are told why, and sent
//! away.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipmi::{Endpoint, SolConsole, SolInput, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::console_feed::{ConsoleFeed, ConsoleWatch, Keeping, Printed};

/// A console that is on; it ends when dropped.
pub(super) struct Terminal {
    port: u16,
    endpoint: Endpoint,
    is_refused: Arc<AtomicBool>,
    feed: ConsoleFeed,
    task: JoinHandle<()>,
}

/// The way to a machine's serial line.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) endpoint: Endpoint,
    pub(super) timeouts: Timeouts,
    pub(super) turns: Arc<Semaphore>,
    /// After how long without a byte a watcher is disconnected.
    pub(super) quiet_after: Option<Duration>,
    /// Whether the line is ours while nobody watches, too.
    pub(super) is_held: bool,
    /// Shared by all lines: how many sessions are opened at a time for nobody who watches.
    pub(super) openings: Arc<Semaphore>,
}

/// The pauses between attempts to get a lost session back.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// How long a watcher who is sent away may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a session must have lived for its loss to be a new one, with pauses from the first on.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

impl Terminal {
    /// Begins to serve.
    pub(super) fn serve(listener: TcpListener, line: Line, keeping: Keeping) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let endpoint = line.endpoint.clone();
        let is_refused = Arc::new(AtomicBool::new(false));
        let (feed, input) = ConsoleFeed::new(keeping);
        let task = tokio::spawn(run(listener, line, feed.clone(), input, Arc::clone(&is_refused)));
        Ok(Self { port, endpoint, is_refused, feed, task })
    }

    /// What it says and takes.
    pub(super) fn feed(&self) -> ConsoleFeed {
        self.feed.clone()
    }

    /// Where it is.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is on and leads to the same machine in the same way.
    pub(super) fn serves(&self, line: &Line) -> bool {
        let is_on = !self.task.is_finished() && !self.is_refused.load(Ordering::Relaxed);
        is_on && self.endpoint == line.endpoint
    }

    /// Ends it and waits until its port is free.
    pub(super) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.task.abort();
        self.feed.end();
    }
}

async fn run(
    listener: TcpListener,
    line: Line,
    feed: ConsoleFeed,
    mut input: mpsc::Receiver<SolInput>,
    is_refused: Arc<AtomicBool>,
) {
    let mut watchers = JoinSet::new();
    let why = tokio::select! {
        why = serve(&listener, &line, &feed, &mut input, &mut watchers) => why,
        () = feed.take_notes() => return,
    };
    is_refused.store(true, Ordering::Relaxed);
    // Those who watch have been told, and go when they have read it.
    feed.end();
    let see_off = async { while watchers.join_next().await.is_some() {} };
    let turn_away = async {
        loop {
            if let Some(mut stream) = accept(&listener).await {
                let _ = timeout(FAREWELL, stream.write_all(why.as_bytes())).await;
            }
        }
    };
    tokio::join!(see_off, turn_away);
}

/// Serves watchers until the BMC refuses our credentials. They are told, in the words returned.
async fn serve(
    listener: &TcpListener,
    line: &Line,
    feed: &ConsoleFeed,
    input: &mut mpsc::Receiver<SolInput>,
    watchers: &mut JoinSet<()>,
) -> String {
    let mut count = feed.watchers();
    loop {
        // Nobody watches: the machine's line is left to others.
        while !line.is_held && *count.borrow_and_update() == 0 {
            tokio::select! {
                stream = accept(listener) => admit(stream, line, feed, watchers),
                Some(_) = watchers.join_next() => {}
                // It cannot fail: the feed is here.
                _ = count.changed() => {}
            }
        }
        let mut carried = Box::pin(carry(line, input, feed));
        while line.is_held || *count.borrow_and_update() > 0 {
            tokio::select! {
                stream = accept(listener) => admit(stream, line, feed, watchers),
                Some(_) = watchers.join_next() => {}
                _ = count.changed() => {}
                refusal = &mut carried => {
                    let why = format!(
                        "the BMC refuses the console: {refusal}; correct driver_info and start the \
                         console again"
                    );
                    feed.remark(&why);
                    return format!("\r\n[{why}]\r\n");
                }
            }
        }
        // Dropping the session here ends it on the BMC too.
        drop(carried);
        feed.set_connected(false);
    }
}

/// Lets somebody watch, if there is room.
fn admit(stream: Option<TcpStream>, line: &Line, feed: &ConsoleFeed, watchers: &mut JoinSet<()>) {
    if let Some(stream) = stream
        && let Some(watching) = feed.watch()
    {
        watchers.spawn(watch(stream, feed.keyboard(), watching, line.quiet_after));
    }
}

/// None if the connection was lost before it was there.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            // Out of file descriptors, most likely: a moment may help.
            tracing::warn!(%error, "a console connection could not be accepted");
            sleep(FIRST_PAUSE).await;
            None
        }
    }
}

/// Carries the line between the watchers and the BMC, again and again, until the BMC refuses our
/// credentials.
async fn carry(
    line: &Line,
    input: &mut mpsc::Receiver<SolInput>,
    feed: &ConsoleFeed,
) -> ipmi::Error {
    let mut pause = FIRST_PAUSE;
    let mut watchers = feed.watchers();
    loop {
        // After a start there may be thousands to open, but whoever watches does not wait for them.
        let place = tokio::select! {
            place = line.openings.acquire() => place.ok(),
            _ = watchers.wait_for(|count| *count > 0) => None,
        };
        let opened = Instant::now();
        let endpoint = line.endpoint.clone();
        let console = SolConsole::open(endpoint, line.timeouts, &line.turns).await;
        drop(place);
        let ended = match console {
            Err(error) if is_refusal(&error) => return error,
            Err(error) => format!("the console is lost: {error}"),
            Ok(console) => {
                // What was typed before somebody could hear it is not typed into a login now.
                while input.try_recv().is_ok() {}
                feed.set_connected(true);
                let ended = console.run(input, &mut |bytes| feed.print(bytes)).await;
                feed.set_connected(false);
                match ended {
                    Ok(()) => "the console has ended".to_owned(),
                    Err(error) => format!("the console is lost: {error}"),
                }
            }
        };
        if opened.elapsed() > SETTLED_AFTER {
            pause = FIRST_PAUSE;
        }
        feed.remark(&format!("{ended}; trying again in {} s", pause.as_secs()));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether the BMC will say the same until somebody changes something.
const fn is_refusal(error: &ipmi::Error) -> bool {
    match error {
        ipmi::Error::WrongUser
        | ipmi::Error::SilentToUser
        | ipmi::Error::WrongPassword
        | ipmi::Error::WrongKg
        | ipmi::Error::PrivilegeTooLow { .. } => true,
        ipmi::Error::Unreachable { .. }
        | ipmi::Error::CipherSuite { .. }
        | ipmi::Error::NoFreeSession
        | ipmi::Error::Refused { .. }
        | ipmi::Error::Completion { .. }
        | ipmi::Error::Uncertain { .. }
        | ipmi::Error::Garbled { .. } => false,
    }
}

/// Serves one watcher until it leaves, or nothing happens for too long.
async fn watch(
    mut stream: TcpStream,
    typed: mpsc::Sender<SolInput>,
    mut watching: ConsoleWatch,
    quiet_after: Option<Duration>,
) {
    let (mut from, mut to) = stream.split();
    if to.write_all(&watching.take_so_far()).await.is_err() {
        return;
    }
    let mut buffer = [0; 1024];
    let mut active = Instant::now();
    // A year stands for never.
    let quiet_after = quiet_after.unwrap_or(Duration::from_secs(365 * 86_400));
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    active = Instant::now();
                    if typed.send(SolInput::Bytes(buffer[..length].to_vec())).await.is_err() {
                        return;
                    }
                }
            },
            piece = watching.next() => {
                active = Instant::now();
                let written = match piece {
                    Some(Printed::Bytes(piece)) => to.write_all(&piece).await,
                    Some(Printed::Missed) => {
                        to.write_all(b"\r\n[some output was left out]\r\n").await
                    }
                    None => return,
                };
                if written.is_err() {
                    return;
                }
            }
            () = sleep_until(active + quiet_after) => {
                let _ = to.write_all(b"\r\n[disconnected: nothing happened for a while]\r\n").await;
                return;
            }
        }
    }
}
