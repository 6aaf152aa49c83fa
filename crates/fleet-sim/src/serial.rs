// SPDX-License-Identifier: Apache-2.0
//! A serial line of something that is not simulated, behind a simulated BMC.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc};

/// The end of a machine's serial line where a real machine is. What is printed here is what the BMC's
/// console shows, instead of what a simulated machine would say.
#[derive(Debug)]
pub struct SerialLine {
    serial: Arc<Serial>,
    typed: mpsc::Receiver<Vec<u8>>,
}

/// The BMC's end.
#[derive(Debug)]
pub(crate) struct Serial {
    /// What nobody has read yet.
    waiting: Mutex<VecDeque<u8>>,
    printed: Notify,
    typed: mpsc::Sender<Vec<u8>>,
}

/// Bytes that are kept for somebody who opens the console later.
const MOST_WAITING: usize = 64 << 10;
/// Pieces that may be typed ahead.
const TYPED_AHEAD: usize = 64;

impl SerialLine {
    pub(crate) fn new() -> (Self, Arc<Serial>) {
        let (sender, typed) = mpsc::channel(TYPED_AHEAD);
        let serial =
            Arc::new(Serial { waiting: Mutex::default(), printed: Notify::new(), typed: sender });
        (Self { serial: Arc::clone(&serial), typed }, serial)
    }

    /// The machine says something.
    pub fn print(&self, bytes: &[u8]) {
        let mut waiting = self.serial.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(bytes);
        let surplus = waiting.len().saturating_sub(MOST_WAITING);
        waiting.drain(..surplus);
        drop(waiting);
        self.serial.printed.notify_one();
    }

    /// What users type; none when the BMC is gone.
    pub async fn typed(&mut self) -> Option<Vec<u8>> {
        self.typed.recv().await
    }
}

impl Serial {
    /// Waits until the machine says something.
    pub(crate) async fn printed(&self) {
        self.printed.notified().await;
    }

    /// At most so many bytes of what the machine said.
    pub(crate) fn take(&self, most: usize) -> Vec<u8> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = most.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// The user types. A machine that does not listen misses it.
    pub(crate) fn type_in(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let _ = self.typed.try_send(bytes.to_vec());
        }
    }
}
