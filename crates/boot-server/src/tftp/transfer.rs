// SPDX-License-Identifier: Apache-2.0
//! One file on its way to one client: which blocks to send when an acknowledgement comes, or does not.
//!
//! No sockets: messages and the time go in, messages come out. Blocks are counted in 64 bits, and only
//! their lower sixteen are on the wire, so files of any size work with clients whose numbers roll over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::files::Content;
use super::packet::{DATA, ErrorCode, FromClient, OACK, Request, error};

/// What a server allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest block, in bytes. 1468 fits an Ethernet frame; larger blocks travel as fragments,
    /// which some firmware cannot put together.
    pub block_size: u16,
    /// The most blocks sent without an acknowledgement.
    pub window: u16,
    /// How long a client may make no progress before it is given up.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { block_size: 1468, window: 64, patience: Duration::from_secs(60) }
    }
}

/// Messages to send, one after the other in one buffer that is used again and again.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It goes on; nothing comes from the client before then, it must be reminded.
    Until(Instant),
    /// It is over.
    Over(Outcome),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The client has the whole file.
    Done {
        /// Its size.
        bytes: u64,
    },
    /// The client ended it; firmware does so when it only wanted to know the size.
    Ended,
    /// The client was silent for too long.
    Silent,
    /// The file could not be read to its end.
    Unreadable,
    /// There is no such file.
    NotFound,
    /// The name leaves the folder, or the file may not be read.
    Forbidden,
    /// The client has too many transfers, or the server has.
    TooMany,
    /// The request was not one to read a file.
    Malformed,
}

/// A transfer.
pub struct Transfer {
    content: Arc<dyn Content>,
    size: u64,
    block_size: u64,
    window: u64,
    patience: Duration,
    /// The reply to the client's options, sent until it is acknowledged as block 0.
    options: Option<Vec<u8>>,
    /// The first block that is not acknowledged; blocks count from 1.
    base: u64,
    /// The next block to send for the first time since the last going back.
    next: u64,
    /// The last block, which is shorter than the others and may be empty.
    last: u64,
    timer: Timer,
    /// When `base` last moved.
    moved: Instant,
    /// When the window was last sent from its beginning again.
    went_back: Option<Instant>,
}

/// When to send again: four times what an answer has taken, doubled for every silence.
struct Timer {
    fixed: Option<Duration>,
    wait: Duration,
    smoothed: Option<Duration>,
    /// When the window that is waited for was sent, unless it was sent twice and an answer says nothing.
    sent: Option<Instant>,
    deadline: Instant,
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Transfer {
    /// Begins to send `content`; the first messages are put into `out`.
    pub fn start(
        request: &Request,
        content: Arc<dyn Content>,
        limits: &Limits,
        now: Instant,
        out: &mut Outbox,
    ) -> (Self, Progress) {
        let asked = &request.options;
        let size = content.size();
        let block_size = asked.block_size.map_or(512, |asked| asked.min(limits.block_size));
        let window = asked.window.map_or(1, |asked| asked.min(limits.window).max(1));
        let mut options = Vec::new();
        let mut agree = |name: &str, value: u64| {
            options.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        };
        if asked.block_size.is_some() {
            agree("blksize", u64::from(block_size));
        }
        if asked.size {
            agree("tsize", size);
        }
        if let Some(timeout) = asked.timeout {
            agree("timeout", timeout.as_secs());
        }
        if asked.window.is_some() {
            agree("windowsize", u64::from(window));
        }
        let block_size = u64::from(block_size);
        let mut transfer = Self {
            content,
            size,
            block_size,
            window: u64::from(window),
            patience: limits.patience,
            options: (!options.is_empty()).then(|| [&OACK.to_be_bytes()[..], &options].concat()),
            base: 1,
            next: 1,
            last: size / block_size + 1,
            timer: Timer::new(asked.timeout, now),
            moved: now,
            went_back: None,
        };
        let progress = transfer.send_window(now, out);
        (transfer, progress)
    }

    /// A message came from the client.
    pub fn receive(&mut self, message: &[u8], now: Instant, out: &mut Outbox) -> Progress {
        let acknowledged = match FromClient::decode(message) {
            FromClient::Ack(block) => block,
            FromClient::Error => return Progress::Over(Outcome::Ended),
            FromClient::Other => return Progress::Until(self.timer.deadline),
        };
        if self.options.is_some() {
            if acknowledged != 0 {
                return Progress::Until(self.timer.deadline);
            }
            self.options = None;
            self.timer.answered(now);
            self.moved = now;
            return self.send_window(now, out);
        }
        let in_flight = self.next - self.base;
        let gained = u64::from(acknowledged.wrapping_sub((self.base - 1) as u16));
        if gained > in_flight {
            // An old acknowledgement that was late, or no block of ours.
            return Progress::Until(self.timer.deadline);
        }
        if gained == 0 && !self.may_go_back(now) {
            return Progress::Until(self.timer.deadline);
        }
        if gained > 0 {
            self.base += gained;
            self.moved = now;
            self.timer.answered(now);
        }
        if self.base > self.last {
            return Progress::Over(Outcome::Done { bytes: self.size });
        }
        if gained < in_flight {
            // The client says that the block after this one did not arrive.
            self.next = self.base;
            self.went_back = Some(now);
        }
        self.send_window(now, out)
    }

    /// The time of [`Progress::Until`] has come.
    pub fn remind(&mut self, now: Instant, out: &mut Outbox) -> Progress {
        if now < self.timer.deadline {
            return Progress::Until(self.timer.deadline);
        }
        if now.duration_since(self.moved) >= self.patience {
            out.push(&error(ErrorCode::Undefined, "no acknowledgement came for too long"));
            return Progress::Over(Outcome::Silent);
        }
        self.next = self.base;
        self.timer.double();
        let progress = self.send_window(now, out);
        self.timer.sent = None;
        progress
    }

    /// With one block per acknowledgement a repeated one is never answered, or every late block would
    /// be sent twice to the end of the file. With a window it means that the window's first block was
    /// lost; one is answered, and not the others that the rest of the window causes.
    fn may_go_back(&self, now: Instant) -> bool {
        let recently = self.went_back.unwrap_or(self.moved);
        self.window > 1 && now.duration_since(recently) >= self.timer.wait / 4
    }

    fn send_window(&mut self, now: Instant, out: &mut Outbox) -> Progress {
        if let Some(options) = &self.options {
            out.push(options);
            return Progress::Until(self.timer.start(now));
        }
        let end = (self.base + self.window - 1).min(self.last);
        while self.next <= end {
            if self.put_block(self.next, out).is_err() {
                out.push(&error(ErrorCode::Undefined, "the file could not be read to its end"));
                return Progress::Over(Outcome::Unreadable);
            }
            self.next += 1;
        }
        Progress::Until(self.timer.start(now))
    }

    fn put_block(&self, block: u64, out: &mut Outbox) -> std::io::Result<()> {
        let offset = (block - 1) * self.block_size;
        let length = self.block_size.min(self.size - offset) as usize;
        out.push_data(block as u16, length, |buffer| self.content.read_at(offset, buffer))
    }
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer")
            .field("base", &self.base)
            .field("next", &self.next)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl Timer {
    fn new(fixed: Option<Duration>, now: Instant) -> Self {
        Self { fixed, wait: fixed.unwrap_or(FIRST_WAIT), smoothed: None, sent: None, deadline: now }
    }

    fn start(&mut self, now: Instant) -> Instant {
        self.sent = Some(now);
        self.deadline = now + self.wait;
        self.deadline
    }

    fn answered(&mut self, now: Instant) {
        if let Some(sent) = self.sent.take() {
            let took = now.duration_since(sent);
            self.smoothed = Some(self.smoothed.map_or(took, |known| (known * 7 + took) / 8));
        }
        let adapted = self.smoothed.map(|took| (took * 4).clamp(SHORTEST_WAIT, LONGEST_WAIT));
        self.wait = self.fixed.or(adapted).unwrap_or(FIRST_WAIT);
    }

    fn double(&mut self) {
        self.wait =
            if self.fixed.is_some() { self.wait } else { (self.wait * 2).min(LONGEST_WAIT) };
    }
}

impl Outbox {
    /// The messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// Forgets the messages and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    fn push_data(
        &mut self,
        block: u16,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let start = self.bytes.len();
        self.bytes.extend(DATA.to_be_bytes());
        self.bytes.extend(block.to_be_bytes());
        let data = self.bytes.len();
        self.bytes.resize(data + length, 0);
        let outcome = read(&mut self.bytes[data..]);
        match outcome {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(_) => self.bytes.truncate(start),
        }
        outcome
    }
}
