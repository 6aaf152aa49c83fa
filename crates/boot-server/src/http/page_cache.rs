// SPDX-License-Identifier: Apache-2.0
//! Files whose bytes may not be in memory yet.
//!
//! Tasks share a few threads: one that waits for a disk would hold up every other connection. So the
//! kernel is asked whether the bytes are in its page cache, and only if not a thread that may wait reads
//! them into it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

/// How much of a file is looked after at a time.
const WINDOW: u64 = 2 << 20;
/// The piece in which a window is read.
const PIECE: usize = 128 << 10;

/// Sees to it that the bytes from `at` on are in memory, as many as one goes on with at a time, and says
/// where they end.
pub(super) async fn bring(file: &Arc<File>, at: u64, end: u64) -> io::Result<u64> {
    let until = end.min(at.saturating_add(WINDOW));
    if is_there(file, at) && is_there(file, until - 1) {
        return Ok(until);
    }
    let file = Arc::clone(file);
    waiting(move || {
        // The disk goes on with the next window while this one is sent; it is only advice.
        let _ = rustix::fs::fadvise(&*file, at, NonZeroU64::new(2 * WINDOW), Advice::WillNeed);
        let mut piece = vec![0; PIECE];
        let mut position = at;
        while position < until {
            match file.read_at(&mut piece, position)? {
                // The file was cut short, which whoever sends it will notice.
                0 => break,
                count => position += count as u64,
            }
        }
        Ok(until)
    })
    .await
}

/// Reads from `at` on into the buffer, which is not longer than what there is, and gives it back filled.
pub(super) async fn read(file: &Arc<File>, at: u64, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    if try_read(file, at, &mut buffer) == Ok(buffer.len()) {
        return Ok(buffer);
    }
    let file = Arc::clone(file);
    waiting(move || {
        file.read_exact_at(&mut buffer, at)?;
        Ok(buffer)
    })
    .await
}

/// A file system that cannot say is taken at its best.
fn is_there(file: &File, at: u64) -> bool {
    try_read(file, at, &mut [0]) != Err(Errno::AGAIN)
}

fn try_read(file: &File, at: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT)
}

async fn waiting<T: Send + 'static>(
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
    async fn what_is_brought_is_there() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let end = 2 * WINDOW + 77;
        file.write_all_at(&vec![7; end as usize], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&*file, 0, None, Advice::DontNeed).unwrap();
        let mut at = 0;
        for expected in [WINDOW, 2 * WINDOW, end] {
            let until = bring(&file, at, end).await.unwrap();
            assert_eq!(until, expected);
            assert!((at..until).step_by(4096).all(|at| is_there(&file, at)));
            at = until;
        }
    }

    #[tokio::test]
    async fn reading_gives_what_is_there_or_fails() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(read(&file, 3, vec![0; 4]).await.unwrap(), b"3456");
        let error = read(&file, 3, vec![0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
