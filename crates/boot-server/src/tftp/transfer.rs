// SPDX-License-Identifier: Apache-2.0
//! One file on its way to one client: which blocks to send when an acknowledgement comes, or does not.
//!
//! No sockets: messages and the time go in, messages come out. Blocks are counted in 64 bits, and only
//! their lower sixteen are on the wire, so files of any size work with clients whose numbers roll over.

use std::io;
use std::time::{Duration, Instant};

use boot_media::Content;

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
    /// Opening the file or reading it failed or took too long.
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
    content: ReadAhead,
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

/// A content that is read in larger pieces than a block: a call to the system for each block would be
/// a third of all calls.
struct ReadAhead {
    content: Content,
    /// What was read last, and where it is in the content.
    piece: Vec<u8>,
    start: u64,
}

/// The size of a piece. Thousands of transfers at once must fit into memory.
const PIECE: usize = 16 * 1024;

/// When to send again: four times what an answer has taken, doubled for every silence.
///
/// A client that asks for a time gets that as the longest. It is not waited for from the first loss
/// on: curl asks for six seconds, and one block in ten lost would make a kernel take an hour.
struct Timer {
    longest: Duration,
    wait: Duration,
    smoothed: Option<Duration>,
    /// When the window that is waited for was sent, unless it was sent twice and an answer says nothing.
    sent: Option<Instant>,
    deadline: Instant,
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(10);

impl Transfer {
    /// Begins to send `content`; the first messages are put into `out`.
    pub fn start(
        request: &Request,
        content: Content,
        limits: &Limits,
        now: Instant,
        out: &mut Outbox,
    ) -> (Self, Progress) {
        let asked = &request.options;
        let size = content.length();
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
            content: ReadAhead { content, piece: Vec::new(), start: 0 },
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

    fn put_block(&mut self, block: u64, out: &mut Outbox) -> io::Result<()> {
        let offset = (block - 1) * self.block_size;
        let length = self.block_size.min(self.size - offset) as usize;
        out.push_data(block as u16, self.content.read(offset, length)?);
        Ok(())
    }
}

impl ReadAhead {
    /// So many bytes from there on.
    fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let is_here = |skip: u64, piece: &[u8]| skip + length as u64 <= piece.len() as u64;
        let skip = offset.checked_sub(self.start).filter(|skip| is_here(*skip, &self.piece));
        let skip = match skip {
            Some(skip) => skip as usize,
            None => {
                self.piece.resize(PIECE.max(length), 0);
                self.start = offset;
                let filled = self.content.read_at(offset, &mut self.piece);
                // What could not be read is not there for the next try either.
                self.piece.truncate(*filled.as_ref().unwrap_or(&0));
                filled?;
                0
            }
        };
        self.piece.get(skip..skip + length).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
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
    fn new(asked: Option<Duration>, now: Instant) -> Self {
        let longest = asked.map_or(LONGEST_WAIT, |asked| asked.min(LONGEST_ASKED_WAIT));
        let wait = FIRST_WAIT.min(longest);
        Self { longest, wait, smoothed: None, sent: None, deadline: now }
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
        let adapted = self.smoothed.map(|took| (took * 4).clamp(SHORTEST_WAIT, self.longest));
        self.wait = adapted.unwrap_or(FIRST_WAIT.min(self.longest));
    }

    fn double(&mut self) {
        self.wait = (self.wait * 2).min(self.longest);
    }
}

impl Outbox {
    /// The messages, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
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

    fn push_data(&mut self, block: u16, data: &[u8]) {
        self.bytes.extend(DATA.to_be_bytes());
        self.bytes.extend(block.to_be_bytes());
        self.push(data);
    }
}
