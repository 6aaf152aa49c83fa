// SPDX-License-Identifier: Apache-2.0
//! What machines said last on their consoles, for those who come later: so much of each, and so much
//! of all together. If it is too much, those are forgotten that have said nothing for the longest
//! time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory of all consoles. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct ConsoleMemory(Arc<Mutex<Rings>>);

/// The part of the memory that one console has; it is free when this goes.
#[derive(Debug)]
pub(crate) struct Ring {
    number: u64,
    most: usize,
    memory: ConsoleMemory,
}

#[derive(Debug, Default)]
struct Rings {
    most: usize,
    bytes: usize,
    kept: HashMap<u64, Kept>,
    /// The number of the next ring.
    next: u64,
    /// Counts what is said: the order in which consoles spoke.
    spoken: u64,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    is_cut: bool,
    spoken: u64,
}

impl ConsoleMemory {
    /// One that holds so many bytes of all consoles.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Rings { most, ..Rings::default() })))
    }

    /// A part of it, of at most so many bytes.
    pub(crate) fn ring(&self, most: usize) -> Ring {
        let mut rings = self.rings();
        rings.next += 1;
        Ring { number: rings.next, most, memory: self.clone() }
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    pub(crate) fn remember(&self, said: &[u8]) {
        if self.most > 0 {
            self.memory.rings().remember(self.number, self.most, said);
        }
    }

    /// What was said last, from the beginning of a line.
    pub(crate) fn so_far(&self) -> Vec<u8> {
        let rings = self.memory.rings();
        let Some(Kept { bytes, is_cut, .. }) = rings.kept.get(&self.number) else {
            return Vec::new();
        };
        // What is cut may begin in the middle of a letter, or of something that steers terminals.
        let line = is_cut.then(|| bytes.iter().position(|byte| *byte == b'\n')).flatten();
        bytes.iter().skip(line.map_or(0, |end| end + 1)).copied().collect()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.memory.rings().forget(self.number);
    }
}

impl Rings {
    fn remember(&mut self, number: u64, most: usize, said: &[u8]) {
        self.spoken += 1;
        let kept = self.kept.entry(number).or_default();
        kept.spoken = self.spoken;
        let before = kept.bytes.len();
        let new = &said[said.len().saturating_sub(most)..];
        let surplus = (before + new.len()).saturating_sub(most);
        kept.is_cut |= surplus > 0 || new.len() < said.len();
        kept.bytes.drain(..surplus);
        kept.bytes.extend(new);
        self.bytes = self.bytes - before + kept.bytes.len();
        while self.bytes > self.most {
            let others = self.kept.iter().filter(|(other, _)| **other != number);
            let Some((quietest, _)) = others.min_by_key(|(_, kept)| kept.spoken) else { break };
            let quietest = *quietest;
            self.forget(quietest);
        }
    }

    fn forget(&mut self, number: u64) {
        self.bytes -= self.kept.remove(&number).map_or(0, |kept| kept.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_begins_with_a_line() {
        let ring = ConsoleMemory::new(1024).ring(16);
        for count in 0..100 {
            ring.remember(format!("line {count}\r\n").as_bytes());
            assert!(ring.memory.rings().bytes <= 16);
        }
        assert_eq!(ring.so_far(), b"line 99\r\n");
        ring.remember(&[b'x'; 100]);
        assert_eq!(ring.so_far(), [b'x'; 16]);
    }

    #[test]
    fn of_too_many_the_quietest_is_forgotten() {
        let memory = ConsoleMemory::new(100);
        let rings: Vec<_> = (0..10).map(|_| memory.ring(20)).collect();
        for ring in &rings[..5] {
            ring.remember(&[b'a'; 20]);
        }
        rings[0].remember(b"b");
        for ring in &rings[5..7] {
            ring.remember(&[b'c'; 20]);
            assert_eq!(memory.rings().bytes, 100);
        }
        let sizes: Vec<_> = rings.iter().map(|ring| ring.so_far().len()).collect();
        assert_eq!(sizes, [20, 0, 0, 20, 20, 20, 20, 0, 0, 0]);
        drop(rings);
        assert_eq!(memory.rings().bytes, 0);
        assert!(memory.rings().kept.is_empty());
    }
}
