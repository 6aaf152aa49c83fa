// SPDX-License-Identifier: Apache-2.0
//! Reads files into the kernel's page cache without blocking the async threads.
//!
//! A task that waits for a disk would block every other connection on its thread. So the server checks
//! whether the bytes are in the page cache, and only if not reads them on a blocking thread.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

/// The number of bytes that are loaded at a time.
const WINDOW: u64 = 2 << 20;
/// The size of one read.
const READ_CHUNK: usize = 128 << 10;

/// Loads the next bytes from `at` on into the page cache, at most a window, and returns their end.
pub(super) async fn load(file: &Arc<File>, at: u64, end: u64) -> io::Result<u64> {
    let end_of_window = end.min(at.saturating_add(WINDOW));
    if is_cached(file, at) && is_cached(file, end_of_window - 1) {
        return Ok(end_of_window);
    }
    let file = Arc::clone(file);
    run_blocking(move || {
        // Advise the kernel to read the next window while this one is sent.
        let _ = rustix::fs::fadvise(&*file, at, NonZeroU64::new(2 * WINDOW), Advice::WillNeed);
        let mut chunk = vec![0; READ_CHUNK];
        let mut position = at;
        while position < end_of_window {
            match file.read_at(&mut chunk, position)? {
                // The file was truncated; sending it will fail.
                0 => break,
                count => position += count as u64,
            }
        }
        Ok(end_of_window)
    })
    .await
}

/// Fills the buffer from `at` on and returns it. Fails if the file ends before.
pub(super) async fn read(file: &Arc<File>, at: u64, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    if try_read(file, at, &mut buffer) == Ok(buffer.len()) {
        return Ok(buffer);
    }
    let file = Arc::clone(file);
    run_blocking(move || {
        file.read_exact_at(&mut buffer, at)?;
        Ok(buffer)
    })
    .await
}

/// Returns whether the byte is cached. Assumes so if the file system does not support the query.
fn is_cached(file: &File, at: u64) -> bool {
    try_read(file, at, &mut [0]) != Err(Errno::AGAIN)
}

fn try_read(file: &File, at: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT)
}

async fn run_blocking<T: Send + 'static>(
    action: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(action).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loaded_bytes_are_cached() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let end = 2 * WINDOW + 77;
        file.write_all_at(&vec![7; end as usize], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&*file, 0, None, Advice::DontNeed).unwrap();
        let mut at = 0;
        for expected in [WINDOW, 2 * WINDOW, end] {
            let end_of_window = load(&file, at, end).await.unwrap();
            assert_eq!(end_of_window, expected);
            assert!((at..end_of_window).step_by(4096).all(|at| is_cached(&file, at)));
            at = end_of_window;
        }
    }

    #[tokio::test]
    async fn read_fills_the_buffer_or_fails() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(read(&file, 3, vec![0; 4]).await.unwrap(), b"3456");
        let error = read(&file, 3, vec![0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
