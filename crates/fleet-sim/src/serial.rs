// SPDX-License-Identifier: Apache-2.0
//! Connects the serial console of a simulated BMC to a real machine, such as a QEMU process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc};

/// The machine's end of a serial line. Its output replaces the simulated console output.
#[derive(Debug)]
pub struct SerialLine {
    serial: Arc<SerialPort>,
    input: mpsc::Receiver<Vec<u8>>,
}

/// The BMC's end of a serial line.
#[derive(Debug)]
pub(crate) struct SerialPort {
    /// Output that no console has read yet.
    output: Mutex<VecDeque<u8>>,
    output_ready: Notify,
    input: mpsc::Sender<Vec<u8>>,
}

/// Bytes of output that are buffered while no console is open; older ones are dropped.
const MAX_BUFFERED_OUTPUT: usize = 64 << 10;
/// Number of input packets that the machine may leave unread; further ones are dropped.
const MAX_PENDING_INPUTS: usize = 64;

impl SerialLine {
    pub(crate) fn new() -> (Self, Arc<SerialPort>) {
        let (sender, typed) = mpsc::channel(MAX_PENDING_INPUTS);
        let serial = Arc::new(SerialPort {
            output: Mutex::default(),
            output_ready: Notify::new(),
            input: sender,
        });
        (Self { serial: Arc::clone(&serial), input: typed }, serial)
    }

    /// Writes output of the machine.
    pub fn write_output(&self, bytes: &[u8]) {
        let mut output = self.serial.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.extend(bytes);
        let surplus = output.len().saturating_sub(MAX_BUFFERED_OUTPUT);
        output.drain(..surplus);
        drop(output);
        self.serial.output_ready.notify_one();
    }

    /// Waits for console input. Returns `None` once the BMC is stopped.
    pub async fn read_input(&mut self) -> Option<Vec<u8>> {
        self.input.recv().await
    }
}

impl SerialPort {
    /// Waits until the machine writes output.
    pub(crate) async fn wait_for_output(&self) {
        self.output_ready.notified().await;
    }

    /// Removes and returns at most `max` bytes of output.
    pub(crate) fn take_output(&self, max: usize) -> Vec<u8> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let count = max.min(output.len());
        output.drain(..count).collect()
    }

    /// Sends console input to the machine. It is dropped if the machine does not read.
    pub(crate) fn send_input(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let _ = self.input.try_send(bytes.to_vec());
        }
    }
}
