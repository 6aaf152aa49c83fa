// SPDX-License-Identifier: Apache-2.0
//! Digesting and writing of what arrives, on a thread of its own: the asynchronous threads have
//! sockets to look after, and neither SHA-256 nor a disk waits well.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::sink::{Sink, SinkError, Taken};

/// How many pieces may be on their way: enough for the network not to wait for the disk each time,
/// few enough to be a few MiB, as a piece from a fast network has up to 400 KiB.
const ON_THE_WAY: usize = 8;

/// Writes what is sent to it.
pub(crate) struct Writer {
    pieces: mpsc::Sender<Piece>,
    task: JoinHandle<Result<Sink, SinkError>>,
}

/// What is sent to a [`Writer`].
pub(crate) enum Piece {
    /// There will be this many bytes in all.
    Length(u64),
    /// The next ones.
    Bytes(Bytes),
    /// Everything so far was for nothing.
    Restart,
}

/// The writer takes no more; [`Writer::finish`] tells why.
#[derive(Debug)]
pub(crate) struct Closed;

impl Writer {
    /// Begins to write into `sink`. A writer that is dropped stops; what it wrote is somebody
    /// else's to remove.
    pub(crate) fn spawn(mut sink: Sink) -> Self {
        let (pieces, mut arriving) = mpsc::channel(ON_THE_WAY);
        let task = spawn_blocking(move || {
            while let Some(piece) = arriving.blocking_recv() {
                match piece {
                    Piece::Length(length) => sink.expect(length)?,
                    Piece::Bytes(bytes) => sink.write(&bytes)?,
                    Piece::Restart => sink.restart()?,
                }
            }
            Ok(sink)
        });
        Self { pieces, task }
    }

    /// Gives it something to write.
    pub(crate) async fn send(&self, piece: Piece) -> Result<(), Closed> {
        self.pieces.send(piece).await.map_err(|_| Closed)
    }

    /// Waits until it takes no more.
    pub(crate) async fn closed(&self) -> Closed {
        self.pieces.closed().await;
        Closed
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(self) -> Result<Taken, SinkError> {
        drop(self.pieces);
        // What is not begun when the process stops is cancelled.
        let stopped = |error| SinkError::Write(std::io::Error::other(error));
        self.task.await.map_err(stopped)??.finish()
    }
}
