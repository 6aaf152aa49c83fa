// SPDX-License-Identifier: Apache-2.0
//! One transfer without sockets: takes messages and the time, and returns messages to send.
//!
//! Blocks are counted in 64 bits, of which the lower 16 are sent, so files of any size work with clients
//! whose block numbers roll over.

use std::io;
use std::time::{Duration, Instant};

use boot_media::Content;

use super::packet::{DATA, OACK, TftpClientMessage, TftpErrorCode, TftpRequest, error_message};

/// The limits for options, and the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TftpLimits {
    /// The largest block size in bytes. 1468 fits an Ethernet frame; larger blocks are fragmented, which
    /// some firmware cannot reassemble.
    pub block_size: u16,
    /// The largest number of blocks without an acknowledgement.
    pub window: u16,
    /// How long a client may make no progress before the transfer fails.
    pub idle_timeout: Duration,
    /// How often the first message is sent again. The sender of a request may be forged; until the first
    /// acknowledgement every message may go to a host that did not request it.
    pub first_resends: u32,
}

impl Default for TftpLimits {
    fn default() -> Self {
        Self {
            block_size: 1468,
            window: 64,
            idle_timeout: Duration::from_secs(60),
            first_resends: 3,
        }
    }
}

/// Messages to send, concatenated in one reused buffer.
#[derive(Debug, Default)]
pub struct TftpOutbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The state of a transfer after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TftpProgress {
    /// It continues. If no message arrives until then, call [`TftpTransfer::on_timeout`].
    WaitUntil(Instant),
    /// It has ended.
    Finished(TftpOutcome),
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TftpOutcome {
    /// The client acknowledged the whole file.
    Completed {
        /// The file size.
        bytes: u64,
    },
    /// The client ended it, for example because it only requested the size.
    AbortedByClient,
    /// The client sent no acknowledgement in time.
    TimedOut,
    /// Opening or reading the file failed or timed out.
    Unreadable,
    /// There is no such file.
    NotFound,
    /// The name leads out of the directory, or the file may not be read.
    Forbidden,
    /// A transfer limit is reached.
    TooManyTransfers,
    /// The request was not a read request.
    Malformed,
}

/// A transfer.
pub struct TftpTransfer {
    content: ReadAheadBuffer,
    size: u64,
    block_size: u64,
    window: u64,
    idle_timeout: Duration,
    /// How often the first message may still be sent again; `None` after the first acknowledgement.
    first_resends: Option<u32>,
    /// The option acknowledgement (OACK), sent until the client acknowledges it as block 0.
    options: Option<Vec<u8>>,
    /// The first block that is not acknowledged. Blocks are numbered from 1.
    base: u64,
    /// The next block to send.
    next: u64,
    /// The last block. It is shorter than the others and may be empty.
    last: u64,
    timer: RetransmitTimer,
    /// When `base` last increased.
    last_progress: Instant,
    /// When the window was last sent again from its start.
    last_rewind: Option<Instant>,
}

/// Reads a content in larger pieces than a block. A read per block would be a third of all system calls.
struct ReadAheadBuffer {
    content: Content,
    /// The last piece, and its offset in the content.
    buffer: Vec<u8>,
    start: u64,
}

/// The size of a piece. Small, because there may be thousands of transfers.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// The retransmission timer: four times the round-trip time, doubled after every timeout.
///
/// A timeout that the client requests is only the upper bound. curl requests six seconds; if those were
/// waited for after every loss, a kernel would take an hour with 10 % loss.
struct RetransmitTimer {
    max_wait: Duration,
    wait: Duration,
    smoothed_round_trip: Option<Duration>,
    /// When the window was sent; `None` if it was sent twice, so that an acknowledgement gives no
    /// round-trip time.
    sent_at: Option<Instant>,
    deadline: Instant,
}

const INITIAL_WAIT: Duration = Duration::from_secs(1);
const MIN_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(10);

impl TftpTransfer {
    /// Starts a transfer and puts the first messages into `out`.
    pub fn start(
        request: &TftpRequest,
        content: Content,
        limits: &TftpLimits,
        now: Instant,
        out: &mut TftpOutbox,
    ) -> (Self, TftpProgress) {
        let requested = &request.options;
        let size = content.length();
        let block_size = requested.block_size.map_or(512, |size| size.min(limits.block_size));
        let window = requested.window.map_or(1, |window| window.min(limits.window).max(1));
        let mut options = Vec::new();
        let mut acknowledge = |name: &str, value: u64| {
            options.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        };
        if requested.block_size.is_some() {
            acknowledge("blksize", u64::from(block_size));
        }
        if requested.requests_size {
            acknowledge("tsize", size);
        }
        if let Some(timeout) = requested.timeout {
            acknowledge("timeout", timeout.as_secs());
        }
        if requested.window.is_some() {
            acknowledge("windowsize", u64::from(window));
        }
        let block_size = u64::from(block_size);
        let mut transfer = Self {
            content: ReadAheadBuffer { content, buffer: Vec::new(), start: 0 },
            size,
            block_size,
            window: u64::from(window),
            idle_timeout: limits.idle_timeout,
            first_resends: Some(limits.first_resends),
            options: (!options.is_empty()).then(|| [&OACK.to_be_bytes()[..], &options].concat()),
            base: 1,
            next: 1,
            last: size / block_size + 1,
            timer: RetransmitTimer::new(requested.timeout, now),
            last_progress: now,
            last_rewind: None,
        };
        let progress = transfer.send_window(now, out);
        (transfer, progress)
    }

    /// Handles a message from the client.
    pub fn on_message(
        &mut self,
        message: &[u8],
        now: Instant,
        out: &mut TftpOutbox,
    ) -> TftpProgress {
        let acknowledged = match TftpClientMessage::decode(message) {
            TftpClientMessage::Ack(block) => block,
            TftpClientMessage::Error => {
                return TftpProgress::Finished(TftpOutcome::AbortedByClient);
            }
            TftpClientMessage::Other => return TftpProgress::WaitUntil(self.timer.deadline),
        };
        if self.options.is_some() {
            if acknowledged != 0 {
                return TftpProgress::WaitUntil(self.timer.deadline);
            }
            self.options = None;
            self.first_resends = None;
            self.timer.acknowledged(now);
            self.last_progress = now;
            return self.send_window(now, out);
        }
        let in_flight = self.next - self.base;
        let newly_acknowledged = u64::from(acknowledged.wrapping_sub((self.base - 1) as u16));
        if newly_acknowledged > in_flight {
            // A delayed old acknowledgement, or a block that was not sent.
            return TftpProgress::WaitUntil(self.timer.deadline);
        }
        if newly_acknowledged == 0 && !self.may_rewind(now) {
            return TftpProgress::WaitUntil(self.timer.deadline);
        }
        if newly_acknowledged > 0 {
            self.first_resends = None;
            self.base += newly_acknowledged;
            self.last_progress = now;
            self.timer.acknowledged(now);
        }
        if self.base > self.last {
            return TftpProgress::Finished(TftpOutcome::Completed { bytes: self.size });
        }
        if newly_acknowledged < in_flight {
            // The client did not receive the block after this one.
            self.next = self.base;
            self.last_rewind = Some(now);
        }
        self.send_window(now, out)
    }

    /// Returns whether the client has acknowledged a message, so that it exists.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.first_resends.is_none()
    }

    /// Handles the timeout of [`TftpProgress::WaitUntil`].
    pub fn on_timeout(&mut self, now: Instant, out: &mut TftpOutbox) -> TftpProgress {
        if now < self.timer.deadline {
            return TftpProgress::WaitUntil(self.timer.deadline);
        }
        if now.duration_since(self.last_progress) >= self.idle_timeout {
            out.push(&error_message(
                TftpErrorCode::Undefined,
                "timed out waiting for an acknowledgement",
            ));
            return TftpProgress::Finished(TftpOutcome::TimedOut);
        }
        match &mut self.first_resends {
            // A client that exists repeats its request.
            Some(0) => return TftpProgress::Finished(TftpOutcome::TimedOut),
            Some(left) => *left -= 1,
            None => {}
        }
        self.next = self.base;
        self.timer.back_off();
        let progress = self.send_window(now, out);
        self.timer.sent_at = None;
        progress
    }

    /// Returns whether a duplicate acknowledgement makes the window be sent again.
    ///
    /// Without a window it never does, because otherwise every delayed block would be sent twice until the
    /// end of the file. With a window it means that the first block of the window was lost. The further
    /// duplicates that the rest of the window causes are ignored.
    fn may_rewind(&self, now: Instant) -> bool {
        let last_sent = self.last_rewind.unwrap_or(self.last_progress);
        self.window > 1 && now.duration_since(last_sent) >= self.timer.wait / 4
    }

    fn send_window(&mut self, now: Instant, out: &mut TftpOutbox) -> TftpProgress {
        if let Some(options) = &self.options {
            out.push(options);
            return TftpProgress::WaitUntil(self.timer.start(now));
        }
        let end = (self.base + self.window - 1).min(self.last);
        while self.next <= end {
            if self.push_block(self.next, out).is_err() {
                out.push(&error_message(
                    TftpErrorCode::Undefined,
                    "the file could not be read to its end",
                ));
                return TftpProgress::Finished(TftpOutcome::Unreadable);
            }
            self.next += 1;
        }
        TftpProgress::WaitUntil(self.timer.start(now))
    }

    fn push_block(&mut self, block: u64, out: &mut TftpOutbox) -> io::Result<()> {
        let offset = (block - 1) * self.block_size;
        let length = self.block_size.min(self.size - offset) as usize;
        out.push_data(block as u16, self.content.read(offset, length)?);
        Ok(())
    }
}

impl ReadAheadBuffer {
    /// Returns `length` bytes at `offset`.
    fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let is_buffered = |skip: u64, buffer: &[u8]| skip + length as u64 <= buffer.len() as u64;
        let skip = offset.checked_sub(self.start).filter(|skip| is_buffered(*skip, &self.buffer));
        let skip = match skip {
            Some(skip) => skip as usize,
            None => {
                self.buffer.resize(READ_AHEAD_BYTES.max(length), 0);
                self.start = offset;
                let filled = self.content.read_at(offset, &mut self.buffer);
                // Do not reuse bytes that could not be read.
                self.buffer.truncate(*filled.as_ref().unwrap_or(&0));
                filled?;
                0
            }
        };
        self.buffer.get(skip..skip + length).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl std::fmt::Debug for TftpTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer")
            .field("base", &self.base)
            .field("next", &self.next)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl RetransmitTimer {
    fn new(requested: Option<Duration>, now: Instant) -> Self {
        let longest = requested.map_or(MAX_WAIT, |wait| wait.min(MAX_REQUESTED_WAIT));
        let wait = INITIAL_WAIT.min(longest);
        Self { max_wait: longest, wait, smoothed_round_trip: None, sent_at: None, deadline: now }
    }

    fn start(&mut self, now: Instant) -> Instant {
        self.sent_at = Some(now);
        self.deadline = now + self.wait;
        self.deadline
    }

    fn acknowledged(&mut self, now: Instant) {
        if let Some(sent) = self.sent_at.take() {
            let round_trip = now.duration_since(sent);
            self.smoothed_round_trip = Some(
                self.smoothed_round_trip.map_or(round_trip, |known| (known * 7 + round_trip) / 8),
            );
        }
        let adapted = self
            .smoothed_round_trip
            .map(|round_trip| (round_trip * 4).clamp(MIN_WAIT, self.max_wait));
        self.wait = adapted.unwrap_or(INITIAL_WAIT.min(self.max_wait));
    }

    fn back_off(&mut self) {
        self.wait = (self.wait * 2).min(self.max_wait);
    }
}

impl TftpOutbox {
    /// Returns the messages in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// Returns whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all messages and keeps the allocation.
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
