// SPDX-License-Identifier: Apache-2.0
//! Turns at a BMC: how many requests it gets at a time, from all of us together.
//!
//! BMCs are slow little computers, and some fall over when two requests come at once. So whoever
//! talks to one takes a turn first, whichever node, interface or protocol it is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Hands out the turns of all BMCs.
#[derive(Debug)]
pub(crate) struct Turns {
    at_a_time: usize,
    bmcs: Mutex<Known>,
}

/// The BMCs somebody talks to. What nobody holds any more is swept when the list has doubled.
#[derive(Debug, Default)]
struct Known {
    turns: HashMap<String, Weak<Semaphore>>,
    sweep_at: usize,
}

impl Turns {
    /// Turns for `at_a_time` requests per BMC.
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self { at_a_time: at_a_time.max(1), bmcs: Mutex::default() }
    }

    /// The turns of the BMC at `host`: the same for everybody who asks, whatever the protocol.
    /// BMCs behind ports of their own are BMCs of their own; `port` is none where the protocol's
    /// usual one is used.
    pub(crate) fn of(&self, host: &str, port: Option<u16>) -> Arc<Semaphore> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let address = match port {
            None => host,
            Some(port) => format!("{host} {port}"),
        };
        let mut known = self.bmcs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.turns.get(&address).and_then(Weak::upgrade) {
            return turns;
        }
        if known.turns.len() >= known.sweep_at {
            known.turns.retain(|_, turns| turns.strong_count() > 0);
            known.sweep_at = (known.turns.len() * 2).max(64);
        }
        let turns = Arc::new(Semaphore::new(self.at_a_time));
        known.turns.insert(address, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_waits_in_the_same_line_and_empty_lines_go() {
        let turns = Turns::new(1);
        let one = turns.of("10.0.0.1", None);
        assert!(Arc::ptr_eq(&one, &turns.of("10.0.0.1", None)));
        assert!(!Arc::ptr_eq(&one, &turns.of("10.0.0.1", Some(8443))));
        for number in 0..1000 {
            drop(turns.of(&format!("10.1.0.{number}"), None));
        }
        assert!(turns.bmcs.lock().unwrap().turns.len() <= 65);
        assert!(Arc::ptr_eq(&one, &turns.of("10.0.0.1", None)), "a line somebody stands in stays");
    }
}
