// SPDX-License-Identifier: Apache-2.0
//! Writes and digests downloaded data on a blocking thread, so that neither SHA-256 nor the disk delays
//! the asynchronous threads.

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::download::DownloadMessage;
use crate::sink::{ImageSink, SinkError, SinkOutput};

/// Length of the queue: enough that the network rarely waits for the disk, and at most a few MiB, since
/// a chunk from a fast network has up to 400 KiB.
const QUEUE_LENGTH: usize = 8;

/// Writes the received chunks.
pub(crate) struct SinkWriter {
    messages: mpsc::Sender<DownloadMessage>,
    task: JoinHandle<Result<ImageSink, SinkError>>,
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
                    DownloadMessage::Length(Some(length)) => sink.reserve(length)?,
                    DownloadMessage::Bytes(bytes) => sink.write(&bytes)?,
                    DownloadMessage::Restart => sink.restart()?,
                    DownloadMessage::Length(None) | DownloadMessage::End => {}
                }
            }
            Ok(sink)
        });
        Self { messages: pieces, task }
    }

    /// Returns the channel for the content of a download.
    pub(crate) fn messages(&self) -> &mpsc::Sender<DownloadMessage> {
        &self.messages
    }

    /// Waits until the writer has closed.
    pub(crate) async fn closed(&self) -> WriterClosed {
        self.messages.closed().await;
        WriterClosed
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(self) -> Result<SinkOutput, SinkError> {
        drop(self.messages);
        // Tasks that have not started are cancelled at shutdown.
        let stopped = |error| SinkError::Write(std::io::Error::other(error));
        self.task.await.map_err(stopped)??.finish()
    }
}
