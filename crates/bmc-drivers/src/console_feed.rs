// SPDX-License-Identifier: Apache-2.0
//! A console as this process serves it: what the machine said last, what it says now, and where to
//! type.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipmi::SolInput;
use node_model::NodeId;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::console_text::{ConsoleText, TOLD_EVERY, Transcript};

/// A console that is on. Clones are the same console.
#[derive(Clone, Debug)]
pub struct ConsoleFeed(Arc<Inner>);

/// Somebody who watches a console. The machine's line is held for as long as this lives.
#[derive(Debug)]
pub struct ConsoleWatch {
    /// What the machine said last, from the beginning of a line.
    so_far: Vec<u8>,
    printed: broadcast::Receiver<Arc<[u8]>>,
    _watcher: Watcher,
}

/// What a watcher hears of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Printed {
    /// Bytes for a terminal.
    Bytes(Arc<[u8]>),
    /// The watcher was too slow, and some are gone.
    Missed,
}

/// Why nothing can be typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypingError {
    /// There is no connection to the machine's serial line at the moment.
    #[error("the machine's serial line is not connected at the moment")]
    NotConnected,
    /// The machine does not take what was typed before.
    #[error("the machine has not taken yet what was typed before")]
    Busy,
}

/// What is kept of a console.
#[derive(Debug)]
pub(crate) struct Keeping {
    /// Bytes of what the machine said last.
    pub(crate) memory: usize,
    /// What goes to the timeline, and the way there.
    pub(crate) notes: Option<Notes>,
}

/// The notes that are taken of a console.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    pub(crate) transcript: Transcript,
    pub(crate) to: mpsc::Sender<ConsoleText>,
}

#[derive(Debug)]
struct Inner {
    kept: Mutex<Kept>,
    typed: mpsc::Sender<SolInput>,
    watchers: Arc<watch::Sender<usize>>,
    is_connected: AtomicBool,
    /// Told when there is something to write down.
    has_text: Notify,
}

#[derive(Debug)]
struct Kept {
    ring: VecDeque<u8>,
    memory: usize,
    is_cut: bool,
    notes: Option<Notes>,
    /// None once the console is over.
    printed: Option<broadcast::Sender<Arc<[u8]>>>,
}

/// Counts as one for as long as it lives.
#[derive(Debug)]
struct Watcher(Arc<watch::Sender<usize>>);

/// How many may watch a console at a time.
const MOST_WATCHERS: usize = 16;
/// How many pieces of output a slow watcher may be behind before it misses some.
const PIECES_KEPT: usize = 512;
/// How many pieces may be typed ahead.
const TYPED_AHEAD: usize = 64;

impl ConsoleFeed {
    /// A console that nobody watches yet, and what is typed at it.
    pub(crate) fn new(keeping: Keeping) -> (Self, mpsc::Receiver<SolInput>) {
        let (typed, input) = mpsc::channel(TYPED_AHEAD);
        let Keeping { memory, notes } = keeping;
        let feed = Self(Arc::new(Inner {
            kept: Mutex::new(Kept {
                ring: VecDeque::new(),
                memory,
                is_cut: false,
                notes,
                printed: Some(broadcast::channel(PIECES_KEPT).0),
            }),
            typed,
            watchers: Arc::new(watch::Sender::new(0)),
            is_connected: AtomicBool::new(false),
            has_text: Notify::new(),
        }));
        (feed, input)
    }

    /// Begins to watch; none if too many do.
    #[must_use]
    pub fn watch(&self) -> Option<ConsoleWatch> {
        // Nothing may be said between what was and what comes.
        let kept = self.kept();
        let mut is_let_in = false;
        self.0.watchers.send_if_modified(|count| {
            is_let_in = *count < MOST_WATCHERS;
            *count += usize::from(is_let_in);
            is_let_in
        });
        is_let_in.then(|| ConsoleWatch {
            so_far: kept.so_far(),
            printed: match &kept.printed {
                Some(printed) => printed.subscribe(),
                None => broadcast::channel(1).1,
            },
            _watcher: Watcher(Arc::clone(&self.0.watchers)),
        })
    }

    /// Types, if somebody is there who hears it.
    ///
    /// # Errors
    /// If nobody is, or if they do not keep up.
    pub fn type_in(&self, bytes: Vec<u8>) -> Result<(), TypingError> {
        if !self.0.is_connected.load(Ordering::Relaxed) {
            return Err(TypingError::NotConnected);
        }
        self.0.typed.try_send(SolInput::Bytes(bytes)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => TypingError::Busy,
            mpsc::error::TrySendError::Closed(_) => TypingError::NotConnected,
        })
    }

    /// Where watchers type who may wait.
    pub(crate) fn keyboard(&self) -> mpsc::Sender<SolInput> {
        self.0.typed.clone()
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> watch::Receiver<usize> {
        self.0.watchers.subscribe()
    }

    pub(crate) fn set_connected(&self, is_connected: bool) {
        self.0.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// The machine says something.
    pub(crate) fn print(&self, bytes: &[u8]) {
        let mut kept = self.kept();
        if let Some(notes) = &mut kept.notes {
            let now = Instant::now();
            notes.transcript.hear(bytes, now);
            if notes.transcript.is_full() {
                notes.pass_on(|transcript| transcript.tell(now));
            }
            self.0.has_text.notify_one();
        }
        kept.show(bytes);
    }

    /// We say something to those who watch.
    pub(crate) fn remark(&self, text: &str) {
        self.kept().show(format!("\r\n[{text}]\r\n").as_bytes());
    }

    /// The console is over: what is left is written down, and those who watch are sent away.
    pub(crate) fn end(&self) {
        self.set_connected(false);
        let mut kept = self.kept();
        kept.printed = None;
        if let Some(notes) = &mut kept.notes {
            notes.pass_on(Transcript::finish);
        }
    }

    /// Passes on what is to be written down, for ever.
    pub(crate) async fn take_notes(&self) {
        loop {
            self.0.has_text.notified().await;
            while self.is_anything_waiting() {
                sleep(TOLD_EVERY).await;
                let now = Instant::now();
                if let Some(notes) = &mut self.kept().notes {
                    notes.pass_on(|transcript| transcript.tell(now));
                }
            }
        }
    }

    fn is_anything_waiting(&self) -> bool {
        self.kept().notes.as_ref().is_some_and(|notes| notes.transcript.is_waiting())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleWatch {
    /// What the machine said last, once.
    pub fn take_so_far(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.so_far)
    }

    /// What comes next; none when the console is switched off.
    pub async fn next(&mut self) -> Option<Printed> {
        match self.printed.recv().await {
            Ok(bytes) => Some(Printed::Bytes(bytes)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Printed::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Kept {
    fn show(&mut self, bytes: &[u8]) {
        self.remember(bytes);
        if let Some(printed) = &self.printed {
            // An error only means that nobody watches.
            let _ = printed.send(Arc::from(bytes));
        }
    }

    fn remember(&mut self, bytes: &[u8]) {
        let new = &bytes[bytes.len().saturating_sub(self.memory)..];
        let surplus = (self.ring.len() + new.len()).saturating_sub(self.memory);
        self.is_cut |= surplus > 0 || new.len() < bytes.len();
        self.ring.drain(..surplus);
        self.ring.extend(new);
    }

    fn so_far(&self) -> Vec<u8> {
        // What is cut may begin in the middle of a letter, or of something that steers terminals.
        let line = self.is_cut.then(|| self.ring.iter().position(|byte| *byte == b'\n')).flatten();
        self.ring.iter().skip(line.map_or(0, |end| end + 1)).copied().collect()
    }
}

impl Notes {
    /// Passes text on, if it can be taken; otherwise it waits.
    fn pass_on(&mut self, text: impl FnOnce(&mut Transcript) -> Option<String>) {
        let Ok(place) = self.to.try_reserve() else { return };
        if let Some(text) = text(&mut self.transcript) {
            place.send(ConsoleText { node: self.node, address: self.address.clone(), text });
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(memory: usize) -> (ConsoleFeed, mpsc::Receiver<SolInput>) {
        ConsoleFeed::new(Keeping { memory, notes: None })
    }

    #[tokio::test]
    async fn who_comes_later_sees_what_was_said_and_nothing_twice() {
        let (feed, _input) = feed(32);
        feed.print(b"hello ");
        let mut early = feed.watch().unwrap();
        feed.print(b"world\r\n");
        let mut late = feed.watch().unwrap();
        feed.remark("lost");
        assert_eq!(early.take_so_far(), b"hello ");
        assert_eq!(late.take_so_far(), b"hello world\r\n");
        assert_eq!(early.next().await, Some(Printed::Bytes(Arc::from(b"world\r\n".as_slice()))));
        for watch in [&mut early, &mut late] {
            let lost = b"\r\n[lost]\r\n".as_slice();
            assert_eq!(watch.next().await, Some(Printed::Bytes(Arc::from(lost))));
        }
        feed.end();
        assert_eq!(late.next().await, None, "the console is off");
        let mut after = feed.watch().unwrap();
        assert!(after.take_so_far().ends_with(b"[lost]\r\n"), "the last words can still be read");
        assert_eq!(after.next().await, None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_begins_with_a_line() {
        let (feed, _input) = feed(16);
        for count in 0..100 {
            feed.print(format!("line {count}\r\n").as_bytes());
            assert!(feed.kept().ring.len() <= 16);
        }
        assert_eq!(feed.watch().unwrap().take_so_far(), b"line 99\r\n");
        feed.print(&[b'x'; 100]);
        assert_eq!(feed.watch().unwrap().take_so_far(), [b'x'; 16]);
    }

    #[test]
    fn only_so_many_may_watch() {
        let (feed, _input) = feed(0);
        let count = feed.watchers();
        let watching: Vec<_> = std::iter::from_fn(|| feed.watch()).collect();
        assert_eq!((watching.len(), *count.borrow()), (MOST_WATCHERS, MOST_WATCHERS));
        drop(watching);
        assert_eq!(*count.borrow(), 0);
        assert!(feed.watch().is_some());
    }

    #[test]
    fn nothing_is_typed_into_the_void() {
        let (feed, mut input) = feed(0);
        assert_eq!(feed.type_in(b"secret".to_vec()), Err(TypingError::NotConnected));
        feed.set_connected(true);
        for _ in 0..TYPED_AHEAD {
            feed.type_in(b"a".to_vec()).unwrap();
        }
        assert_eq!(feed.type_in(b"a".to_vec()), Err(TypingError::Busy));
        assert_eq!(input.try_recv(), Ok(SolInput::Bytes(b"a".to_vec())));
        feed.set_connected(false);
        assert_eq!(feed.type_in(b"a".to_vec()), Err(TypingError::NotConnected));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_says_is_passed_on_in_pieces() {
        let (to, mut texts) = mpsc::channel(8);
        let node = NodeId::random();
        let notes =
            Notes { node, address: "bmc".to_owned(), transcript: Transcript::new(1 << 20), to };
        let (feed, _input) = ConsoleFeed::new(Keeping { memory: 64, notes: Some(notes) });
        let noting = tokio::spawn({
            let feed = feed.clone();
            async move { feed.take_notes().await }
        });
        let began = Instant::now();
        feed.remark("we say this, and the machine does not");
        feed.print(b"one\r\n");
        feed.print(b"two\r\n$ ");
        let text = texts.recv().await.unwrap();
        assert_eq!((text.node, &*text.address, &*text.text), (node, "bmc", "one\ntwo"));
        assert_eq!(began.elapsed().as_secs(), TOLD_EVERY.as_secs());
        assert_eq!(texts.recv().await.unwrap().text, "$", "a prompt, after a while");
        // Much at once does not wait.
        feed.print("0123456789\r\n".repeat(400).as_bytes());
        assert!(texts.try_recv().is_ok());
        feed.print(b"the end");
        feed.end();
        assert_eq!(texts.recv().await.unwrap().text, "the end");
        noting.abort();
    }
}
