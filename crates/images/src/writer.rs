// SPDX-License-Identifier: Apache-2.0
//! Writes and digests downloaded data on a blocking thread, so that neither SHA-256 nor the disk delays
//! the asynchronous threads.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::sink::{ImageSink, SinkError, SinkOutput};

/// How many pieces may be on their way: enough for the network not to wait for the disk each time,
/// few enough to be a few MiB, as a piece from a fast network has up to 400 KiB.
const QUEUE_LENGTH: usize = 8;

/// Writes what is sent to it.
pub(crate) struct SinkWriter {
    messages: mpsc::Sender<SinkMessage>,
    task: JoinHandle<Result<ImageSink, SinkError>>,
}

/// What is sent to a [`SinkWriter`].
pub(crate) enum SinkMessage {
    /// There will be this many bytes in all.
    Length(u64),
    /// The next ones.
    Bytes(Bytes),
    /// Restart: the bytes received so far are discarded.
    Restart,
}

/// The writer has closed; [`SinkWriter::finish`] returns the reason.
#[derive(Debug)]
pub(crate) struct WriterClosed;

impl SinkWriter {
    /// Starts to write into `sink`. A dropped writer stops; the caller removes its file.
    pub(crate) fn spawn(mut sink: ImageSink) -> Self {
        let (pieces, mut arriving) = mpsc::channel(QUEUE_LENGTH);
        let task = spawn_blocking(move || {
            while let Some(piece) = arriving.blocking_recv() {
                match piece {
                    SinkMessage::Length(length) => sink.reserve(length)?,
                    SinkMessage::Bytes(bytes) => sink.write(&bytes)?,
                    SinkMessage::Restart => sink.restart()?,
                }
            }
            Ok(sink)
        });
        Self { messages: pieces, task }
    }

    /// Gives it something to write.
    pub(crate) async fn send(&self, piece: SinkMessage) -> Result<(), WriterClosed> {
        self.messages.send(piece).await.map_err(|_| WriterClosed)
    }

    /// Waits until it takes no more.
    pub(crate) async fn closed(&self) -> WriterClosed {
        self.messages.closed().await;
        WriterClosed
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(self) -> Result<SinkOutput, SinkError> {
        drop(self.messages);
        // What is not begun when the process stops is cancelled.
        let stopped = |error| SinkError::Write(std::io::Error::other(error));
        self.task.await.map_err(stopped)??.finish()
    }
}
