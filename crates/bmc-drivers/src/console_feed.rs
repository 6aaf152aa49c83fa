// SPDX-License-Identifier: Apache-2.0
//! A console as this process serves it: what the machine said last, what it says now, and where to
//! type.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipmi::SolInput;
use node_model::NodeId;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::console_memory::Ring;
use crate::console_text::{ConsoleText, QUIET_AFTER, TOLD_AT_LEAST_EVERY, TOLD_EVERY, Transcript};

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
    /// What the machine said last.
    pub(crate) memory: Ring,
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
    memory: Ring,
    notes: Option<Notes>,
    /// The way to those who watch, of whom there mostly are none.
    printed: Option<broadcast::Sender<Arc<[u8]>>>,
    is_over: bool,
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
            kept: Mutex::new(Kept { memory, notes, printed: None, is_over: false }),
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
        let mut kept = self.kept();
        let mut is_let_in = false;
        self.0.watchers.send_if_modified(|count| {
            is_let_in = *count < MOST_WATCHERS;
            *count += usize::from(is_let_in);
            is_let_in
        });
        is_let_in.then(|| ConsoleWatch {
            so_far: kept.memory.so_far(),
            printed: kept.subscribe(),
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
        kept.is_over = true;
        kept.printed = None;
        if let Some(notes) = &mut kept.notes {
            notes.pass_on(Transcript::finish);
        }
    }

    /// Passes on what is to be written down, for ever.
    pub(crate) async fn take_notes(&self) {
        let mut pause = TOLD_EVERY;
        let mut told_at = Instant::now();
        loop {
            self.0.has_text.notified().await;
            if told_at.elapsed() >= QUIET_AFTER {
                pause = TOLD_EVERY;
            }
            while self.is_anything_waiting() {
                sleep(pause).await;
                let now = Instant::now();
                let is_told = match &mut self.kept().notes {
                    Some(notes) => notes.pass_on(|transcript| transcript.tell(now)),
                    None => false,
                };
                if is_told {
                    told_at = now;
                    pause = (2 * pause).min(TOLD_AT_LEAST_EVERY);
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
        self.memory.remember(bytes);
        // It fails if nobody watches any more.
        self.printed.take_if(|printed| printed.send(Arc::from(bytes)).is_err());
    }

    fn subscribe(&mut self) -> broadcast::Receiver<Arc<[u8]>> {
        if self.is_over {
            return broadcast::channel(1).1;
        }
        self.printed.get_or_insert_with(|| broadcast::channel(PIECES_KEPT).0).subscribe()
    }
}

impl Notes {
    /// Passes text on, if there is any and it can be taken; otherwise it waits.
    fn pass_on(&mut self, text: impl FnOnce(&mut Transcript) -> Option<String>) -> bool {
        let Ok(place) = self.to.try_reserve() else { return false };
        let Some(text) = text(&mut self.transcript) else { return false };
        place.send(ConsoleText { node: self.node, address: self.address.clone(), text });
        true
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
    use crate::console_memory::ConsoleMemory;

    fn feed(memory: usize) -> (ConsoleFeed, mpsc::Receiver<SolInput>) {
        ConsoleFeed::new(Keeping { memory: ConsoleMemory::new(1024).ring(memory), notes: None })
    }

    fn noted() -> (ConsoleFeed, mpsc::Receiver<ConsoleText>, NodeId) {
        let (to, texts) = mpsc::channel(8);
        let node = NodeId::random();
        let notes =
            Notes { node, address: "bmc".to_owned(), transcript: Transcript::new(1 << 20), to };
        let memory = ConsoleMemory::new(1024).ring(64);
        (ConsoleFeed::new(Keeping { memory, notes: Some(notes) }).0, texts, node)
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
    fn a_console_that_nobody_watches_has_no_way_to_watchers() {
        let (feed, _input) = feed(16);
        let has_way = || feed.kept().printed.is_some();
        assert!(!has_way());
        let watching = feed.watch();
        feed.print(b"x");
        assert!(has_way());
        drop(watching);
        feed.print(b"x");
        assert!(!has_way());
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
        let (feed, mut texts, node) = noted();
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

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_goes_on_is_told_of_less_and_less_often() {
        let (feed, mut texts, _) = noted();
        let noting = tokio::spawn({
            let feed = feed.clone();
            async move { feed.take_notes().await }
        });
        let talking = tokio::spawn({
            let feed = feed.clone();
            async move {
                loop {
                    feed.print(b"x\r\n");
                    sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        });
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        for _ in 0..8 {
            texts.recv().await.unwrap();
            pauses.push(last.elapsed().as_secs());
            last = Instant::now();
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        talking.abort();
        // What was said last, and then nothing for long enough.
        texts.recv().await.unwrap();
        sleep(QUIET_AFTER).await;
        let began = Instant::now();
        feed.print(b"y\r\n");
        texts.recv().await.unwrap();
        assert_eq!(began.elapsed(), TOLD_EVERY);
        noting.abort();
    }
}
