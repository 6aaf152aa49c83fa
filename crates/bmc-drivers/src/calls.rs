// SPDX-License-Identifier: Apache-2.0
//! What was said to a BMC and what it answered, for the machine's timeline.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Calls kept in full; a step that polls for an hour must not fill the journal.
const MOST: usize = 64;

/// One request to a BMC and its answer, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// What was asked: `GET /redfish/v1/Systems/1`, `IPMI chassis control`.
    pub what: String,
    /// What came back: `200`, `no answer within 60 s`.
    pub result: String,
    /// How long it took.
    pub took: Duration,
    /// How many times in a row the same was asked with the same result.
    pub times: u32,
}

/// The calls of one action, in order.
#[derive(Debug, Default)]
pub struct CallLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    calls: Vec<Call>,
    left_out: u64,
}

impl CallLog {
    /// Adds a call. The same call with the same result as the one before is only counted.
    pub fn add(&self, what: impl Into<String>, result: impl Into<String>, took: Duration) {
        let (what, result) = (what.into(), result.into());
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = log.calls.last_mut()
            && last.what == what
            && last.result == result
        {
            last.times = last.times.saturating_add(1);
            last.took += took;
        } else if log.calls.len() < MOST {
            log.calls.push(Call { what, result, took, times: 1 });
        } else {
            log.left_out += 1;
        }
    }

    /// All calls so far, and how many more there were; the log is empty afterwards.
    #[must_use]
    pub fn take(&self) -> (Vec<Call>, u64) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut log.calls), std::mem::take(&mut log.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_counted_and_the_log_is_bounded() {
        let log = CallLog::default();
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            log.add("GET /redfish/v1/Systems/1", "200", second);
        }
        for number in 0..100 {
            log.add(format!("GET /{number}"), "404", second);
        }
        let (calls, left_out) = log.take();
        assert_eq!((calls[0].times, calls[0].took), (1000, second * 1000));
        assert_eq!((calls.len(), left_out), (MOST, 37));
        assert_eq!(log.take(), (Vec::new(), 0));
    }
}
