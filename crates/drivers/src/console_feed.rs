// SPDX-License-Identifier: Apache-2.0
//! A console that this process serves: recent output, new output, and input.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use node_model::NodeId;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::console_buffer::ConsoleBuffer;
use crate::console_text::{
    ConsoleText, ConsoleTranscript, MAX_BATCH_INTERVAL, MIN_BATCH_INTERVAL, QUIET_AFTER,
};

/// An enabled console. Clones refer to the same console.
#[derive(Clone, Debug)]
pub struct ConsoleFeed(Arc<ConsoleFeedInner>);

/// A subscription to a console's output. The serial line stays connected while one exists.
#[derive(Debug)]
pub struct ConsoleSubscription {
    /// Output before the subscription, from the beginning of a line.
    recent_output: Vec<u8>,
    output: broadcast::Receiver<Arc<[u8]>>,
    _watcher: WatcherCount,
}

/// An item of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsoleOutput {
    /// Raw terminal output.
    Bytes(Arc<[u8]>),
    /// The subscriber was too slow and output was lost.
    Lagged,
}

/// Why input was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConsoleInputError {
    /// The serial line is not connected.
    #[error("the machine's serial console is not connected")]
    NotConnected,
    /// The input queue is full.
    #[error("the machine does not accept input fast enough")]
    Busy,
}

/// Where a console's output is stored.
#[derive(Debug)]
pub struct ConsoleRecording {
    /// Recent output for new subscribers.
    pub buffer: ConsoleBuffer,
    /// The recording for the timeline, if enabled.
    pub timeline: Option<TimelineRecording>,
}

/// A console's recording for the timeline.
#[derive(Debug)]
pub struct TimelineRecording {
    /// The node.
    pub node: NodeId,
    /// The BMC's address.
    pub address: String,
    /// The text that was not sent yet.
    pub transcript: ConsoleTranscript,
    /// Receives the text.
    pub sender: mpsc::Sender<ConsoleText>,
}

#[derive(Debug)]
struct ConsoleFeedInner {
    state: Mutex<ConsoleFeedState>,
    input: mpsc::Sender<Vec<u8>>,
    watchers: Arc<watch::Sender<usize>>,
    is_connected: AtomicBool,
    /// Notified when the transcript got new text.
    has_text: Notify,
}

#[derive(Debug)]
struct ConsoleFeedState {
    buffer: ConsoleBuffer,
    timeline: Option<TimelineRecording>,
    /// The channel to subscribers; exists only while there are some.
    output: Option<broadcast::Sender<Arc<[u8]>>>,
    is_closed: bool,
}

/// Counts a subscriber until dropped.
#[derive(Debug)]
struct WatcherCount(Arc<watch::Sender<usize>>);

/// Limit of concurrent subscribers.
const MAX_WATCHERS: usize = 16;
/// Chunks of output a slow subscriber may lag behind before it loses some.
const OUTPUT_CAPACITY: usize = 512;
/// Chunks of input that may be queued.
const INPUT_CAPACITY: usize = 64;

impl ConsoleFeed {
    /// Creates a console without subscribers, and the receiver of its input.
    pub fn new(recording: ConsoleRecording) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (input, receiver) = mpsc::channel(INPUT_CAPACITY);
        let ConsoleRecording { buffer, timeline } = recording;
        let feed = Self(Arc::new(ConsoleFeedInner {
            state: Mutex::new(ConsoleFeedState {
                buffer,
                timeline,
                output: None,
                is_closed: false,
            }),
            input,
            watchers: Arc::new(watch::Sender::new(0)),
            is_connected: AtomicBool::new(false),
            has_text: Notify::new(),
        }));
        (feed, receiver)
    }

    /// Subscribes to the output. Returns `None` if there are too many subscribers.
    #[must_use]
    pub fn subscribe(&self) -> Option<ConsoleSubscription> {
        // The lock ensures that no output falls between the recent output and the subscription.
        let mut state = self.state();
        let mut is_admitted = false;
        self.0.watchers.send_if_modified(|count| {
            is_admitted = *count < MAX_WATCHERS;
            *count += usize::from(is_admitted);
            is_admitted
        });
        is_admitted.then(|| ConsoleSubscription {
            recent_output: state.buffer.recent_output(),
            output: state.subscribe(),
            _watcher: WatcherCount(Arc::clone(&self.0.watchers)),
        })
    }

    /// Queues input for the machine.
    ///
    /// # Errors
    /// If the serial line is not connected or the input queue is full.
    pub fn try_send_input(&self, bytes: Vec<u8>) -> Result<(), ConsoleInputError> {
        if !self.0.is_connected.load(Ordering::Relaxed) {
            return Err(ConsoleInputError::NotConnected);
        }
        self.0.input.try_send(bytes).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ConsoleInputError::Busy,
            mpsc::error::TrySendError::Closed(_) => ConsoleInputError::NotConnected,
        })
    }

    /// The input queue, for callers that can wait.
    pub fn input_sender(&self) -> mpsc::Sender<Vec<u8>> {
        self.0.input.clone()
    }

    /// The number of subscribers.
    pub fn watcher_count(&self) -> watch::Receiver<usize> {
        self.0.watchers.subscribe()
    }

    /// Sets whether the serial line is connected.
    pub fn set_connected(&self, is_connected: bool) {
        self.0.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// Adds output of the machine.
    pub fn write_output(&self, bytes: &[u8]) {
        let mut state = self.state();
        if let Some(timeline) = &mut state.timeline {
            let now = Instant::now();
            timeline.transcript.append(bytes, now);
            if timeline.transcript.is_full() {
                timeline.send_pending(|transcript| transcript.take_due(now));
            }
            self.0.has_text.notify_one();
        }
        state.publish(bytes);
    }

    /// Sends a notice of Ferrite to the subscribers. It is not recorded in the timeline.
    pub fn write_notice(&self, text: &str) {
        self.state().publish(format!("\r\n[{text}]\r\n").as_bytes());
    }

    /// Closes the console: sends the remaining text to the timeline and ends all subscriptions.
    pub fn close(&self) {
        self.set_connected(false);
        let mut state = self.state();
        state.is_closed = true;
        state.output = None;
        if let Some(timeline) = &mut state.timeline {
            timeline.send_pending(ConsoleTranscript::finish);
        }
    }

    /// Sends the transcript to the timeline in batches. Never returns.
    pub async fn record_timeline(&self) {
        let mut delay = MIN_BATCH_INTERVAL;
        let mut sent_at = Instant::now();
        loop {
            self.0.has_text.notified().await;
            if sent_at.elapsed() >= QUIET_AFTER {
                delay = MIN_BATCH_INTERVAL;
            }
            while self.has_pending_text() {
                sleep(delay).await;
                let now = Instant::now();
                let is_sent = match &mut self.state().timeline {
                    Some(timeline) => timeline.send_pending(|transcript| transcript.take_due(now)),
                    None => false,
                };
                if is_sent {
                    sent_at = now;
                    delay = (2 * delay).min(MAX_BATCH_INTERVAL);
                }
            }
        }
    }

    fn has_pending_text(&self) -> bool {
        self.state().timeline.as_ref().is_some_and(|timeline| timeline.transcript.has_pending())
    }

    fn state(&self) -> MutexGuard<'_, ConsoleFeedState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleSubscription {
    /// Removes and returns the output before the subscription.
    pub fn take_recent_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.recent_output)
    }

    /// Returns the next output; `None` when the console is closed.
    pub async fn next(&mut self) -> Option<ConsoleOutput> {
        match self.output.recv().await {
            Ok(bytes) => Some(ConsoleOutput::Bytes(bytes)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(ConsoleOutput::Lagged),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl ConsoleFeedState {
    fn publish(&mut self, bytes: &[u8]) {
        self.buffer.append(bytes);
        // Sending fails if all subscribers are gone.
        self.output.take_if(|output| output.send(Arc::from(bytes)).is_err());
    }

    fn subscribe(&mut self) -> broadcast::Receiver<Arc<[u8]>> {
        if self.is_closed {
            return broadcast::channel(1).1;
        }
        self.output.get_or_insert_with(|| broadcast::channel(OUTPUT_CAPACITY).0).subscribe()
    }
}

impl TimelineRecording {
    /// Sends text if there is any and the channel has room; otherwise the text stays in the transcript.
    fn send_pending(
        &mut self,
        text: impl FnOnce(&mut ConsoleTranscript) -> Option<String>,
    ) -> bool {
        let Ok(permit) = self.sender.try_reserve() else { return false };
        let Some(text) = text(&mut self.transcript) else { return false };
        permit.send(ConsoleText { node: self.node, address: self.address.clone(), text });
        true
    }
}

impl Drop for WatcherCount {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console_buffer::ConsoleBufferPool;

    fn feed(buffer_size: usize) -> (ConsoleFeed, mpsc::Receiver<Vec<u8>>) {
        ConsoleFeed::new(ConsoleRecording {
            buffer: ConsoleBufferPool::new(1024).buffer(buffer_size),
            timeline: None,
        })
    }

    fn recorded_feed() -> (ConsoleFeed, mpsc::Receiver<ConsoleText>, NodeId) {
        let (sender, texts) = mpsc::channel(8);
        let node = NodeId::random();
        let timeline = TimelineRecording {
            node,
            address: "bmc".to_owned(),
            transcript: ConsoleTranscript::new(1 << 20),
            sender,
        };
        let buffer = ConsoleBufferPool::new(1024).buffer(64);
        (ConsoleFeed::new(ConsoleRecording { buffer, timeline: Some(timeline) }).0, texts, node)
    }

    #[tokio::test]
    async fn late_subscribers_get_earlier_output_exactly_once() {
        let (feed, _input) = feed(32);
        feed.write_output(b"hello ");
        let mut early = feed.subscribe().unwrap();
        feed.write_output(b"world\r\n");
        let mut late = feed.subscribe().unwrap();
        feed.write_notice("lost");
        assert_eq!(early.take_recent_output(), b"hello ");
        assert_eq!(late.take_recent_output(), b"hello world\r\n");
        assert_eq!(
            early.next().await,
            Some(ConsoleOutput::Bytes(Arc::from(b"world\r\n".as_slice())))
        );
        for watch in [&mut early, &mut late] {
            let lost = b"\r\n[lost]\r\n".as_slice();
            assert_eq!(watch.next().await, Some(ConsoleOutput::Bytes(Arc::from(lost))));
        }
        feed.close();
        assert_eq!(late.next().await, None, "the console is off");
        let mut after = feed.subscribe().unwrap();
        assert!(
            after.take_recent_output().ends_with(b"[lost]\r\n"),
            "recent output stays readable"
        );
        assert_eq!(after.next().await, None);
    }

    #[test]
    fn broadcast_channel_exists_only_with_subscribers() {
        let (feed, _input) = feed(16);
        let has_channel = || feed.state().output.is_some();
        assert!(!has_channel());
        let subscription = feed.subscribe();
        feed.write_output(b"x");
        assert!(has_channel());
        drop(subscription);
        feed.write_output(b"x");
        assert!(!has_channel());
    }

    #[test]
    fn limits_number_of_subscribers() {
        let (feed, _input) = feed(0);
        let count = feed.watcher_count();
        let subscriptions: Vec<_> = std::iter::from_fn(|| feed.subscribe()).collect();
        assert_eq!((subscriptions.len(), *count.borrow()), (MAX_WATCHERS, MAX_WATCHERS));
        drop(subscriptions);
        assert_eq!(*count.borrow(), 0);
        assert!(feed.subscribe().is_some());
    }

    #[test]
    fn rejects_input_while_disconnected_or_full() {
        let (feed, mut input) = feed(0);
        assert_eq!(feed.try_send_input(b"secret".to_vec()), Err(ConsoleInputError::NotConnected));
        feed.set_connected(true);
        for _ in 0..INPUT_CAPACITY {
            feed.try_send_input(b"a".to_vec()).unwrap();
        }
        assert_eq!(feed.try_send_input(b"a".to_vec()), Err(ConsoleInputError::Busy));
        assert_eq!(input.try_recv(), Ok(b"a".to_vec()));
        feed.set_connected(false);
        assert_eq!(feed.try_send_input(b"a".to_vec()), Err(ConsoleInputError::NotConnected));
    }

    #[tokio::test(start_paused = true)]
    async fn output_is_sent_to_timeline_in_batches() {
        let (feed, mut texts, node) = recorded_feed();
        let recorder = tokio::spawn({
            let feed = feed.clone();
            async move { feed.record_timeline().await }
        });
        let started = Instant::now();
        feed.write_notice("notices are not recorded");
        feed.write_output(b"one\r\n");
        feed.write_output(b"two\r\n$ ");
        let text = texts.recv().await.unwrap();
        assert_eq!((text.node, &*text.address, &*text.text), (node, "bmc", "one\ntwo"));
        assert_eq!(started.elapsed().as_secs(), MIN_BATCH_INTERVAL.as_secs());
        assert_eq!(texts.recv().await.unwrap().text, "$", "a prompt, after a delay");
        // A full batch is sent at once.
        feed.write_output("0123456789\r\n".repeat(400).as_bytes());
        assert!(texts.try_recv().is_ok());
        feed.write_output(b"the end");
        feed.close();
        assert_eq!(texts.recv().await.unwrap().text, "the end");
        recorder.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn batch_interval_doubles_during_continuous_output() {
        let (feed, mut texts, _) = recorded_feed();
        let recorder = tokio::spawn({
            let feed = feed.clone();
            async move { feed.record_timeline().await }
        });
        let writer = tokio::spawn({
            let feed = feed.clone();
            async move {
                loop {
                    feed.write_output(b"x\r\n");
                    sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        });
        let mut intervals = Vec::new();
        let mut last = Instant::now();
        for _ in 0..8 {
            texts.recv().await.unwrap();
            intervals.push(last.elapsed().as_secs());
            last = Instant::now();
        }
        assert_eq!(intervals, [2, 4, 8, 16, 32, 60, 60, 60]);
        writer.abort();
        // The last output, and then silence for long enough to reset the interval.
        texts.recv().await.unwrap();
        sleep(QUIET_AFTER).await;
        let started = Instant::now();
        feed.write_output(b"y\r\n");
        texts.recv().await.unwrap();
        assert_eq!(started.elapsed(), MIN_BATCH_INTERVAL);
        recorder.abort();
    }
}
