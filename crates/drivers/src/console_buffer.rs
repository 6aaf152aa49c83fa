// SPDX-License-Identifier: Apache-2.0
//! Recent console output of all machines, for clients that connect later. Limited per console and in
//! total; above the total limit, the buffers with the oldest last write are removed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The buffers of all consoles. Clones share them.
#[derive(Clone, Debug)]
pub struct ConsoleBufferPool(Arc<Mutex<BufferTable>>);

/// The buffer of one console; freed on drop.
#[derive(Debug)]
pub struct ConsoleBuffer {
    id: u64,
    limit: usize,
    pool: ConsoleBufferPool,
}

#[derive(Debug, Default)]
struct BufferTable {
    limit: usize,
    bytes: usize,
    outputs: HashMap<u64, BufferedOutput>,
    /// The ID of the newest buffer.
    last_id: u64,
    /// Number of writes so far; orders the buffers by their last write.
    writes: u64,
}

#[derive(Debug, Default)]
struct BufferedOutput {
    bytes: VecDeque<u8>,
    is_truncated: bool,
    last_write: u64,
}

impl ConsoleBufferPool {
    /// A pool of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(BufferTable { limit, ..BufferTable::default() })))
    }

    /// Creates a buffer of at most `limit` bytes.
    pub fn buffer(&self, limit: usize) -> ConsoleBuffer {
        let mut table = self.table();
        table.last_id += 1;
        ConsoleBuffer { id: table.last_id, limit, pool: self.clone() }
    }

    fn table(&self) -> MutexGuard<'_, BufferTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleBuffer {
    /// Appends output of the machine.
    pub fn append(&self, output: &[u8]) {
        if self.limit > 0 {
            self.pool.table().append(self.id, self.limit, output);
        }
    }

    /// The most recent output. Truncated output starts at the beginning of a line.
    pub fn recent_output(&self) -> Vec<u8> {
        let table = self.pool.table();
        let Some(BufferedOutput { bytes, is_truncated: is_cut, .. }) = table.outputs.get(&self.id)
        else {
            return Vec::new();
        };
        // Truncated output may start inside a UTF-8 character or an escape sequence.
        let line = is_cut.then(|| bytes.iter().position(|byte| *byte == b'\n')).flatten();
        bytes.iter().skip(line.map_or(0, |end| end + 1)).copied().collect()
    }
}

impl Drop for ConsoleBuffer {
    fn drop(&mut self) {
        self.pool.table().remove(self.id);
    }
}

impl BufferTable {
    fn append(&mut self, id: u64, limit: usize, output: &[u8]) {
        self.writes += 1;
        let buffered = self.outputs.entry(id).or_default();
        buffered.last_write = self.writes;
        let before = buffered.bytes.len();
        let new = &output[output.len().saturating_sub(limit)..];
        let surplus = (before + new.len()).saturating_sub(limit);
        buffered.is_truncated |= surplus > 0 || new.len() < output.len();
        buffered.bytes.drain(..surplus);
        buffered.bytes.extend(new);
        self.bytes = self.bytes - before + buffered.bytes.len();
        while self.bytes > self.limit {
            let others = self.outputs.iter().filter(|(other, _)| **other != id);
            let Some((oldest, _)) = others.min_by_key(|(_, buffered)| buffered.last_write) else {
                break;
            };
            let oldest = *oldest;
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: u64) {
        self.bytes -= self.outputs.remove(&id).map_or(0, |buffered| buffered.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_bounded_and_starts_at_a_line() {
        let buffer = ConsoleBufferPool::new(1024).buffer(16);
        for count in 0..100 {
            buffer.append(format!("line {count}\r\n").as_bytes());
            assert!(buffer.pool.table().bytes <= 16);
        }
        assert_eq!(buffer.recent_output(), b"line 99\r\n");
        buffer.append(&[b'x'; 100]);
        assert_eq!(buffer.recent_output(), [b'x'; 16]);
    }

    #[test]
    fn least_recently_written_buffers_are_evicted() {
        let pool = ConsoleBufferPool::new(100);
        let buffers: Vec<_> = (0..10).map(|_| pool.buffer(20)).collect();
        for buffer in &buffers[..5] {
            buffer.append(&[b'a'; 20]);
        }
        buffers[0].append(b"b");
        for buffer in &buffers[5..7] {
            buffer.append(&[b'c'; 20]);
            assert_eq!(pool.table().bytes, 100);
        }
        let sizes: Vec<_> = buffers.iter().map(|buffer| buffer.recent_output().len()).collect();
        assert_eq!(sizes, [20, 0, 0, 20, 20, 20, 20, 0, 0, 0]);
        drop(buffers);
        assert_eq!(pool.table().bytes, 0);
        assert!(pool.table().outputs.is_empty());
    }
}
