// SPDX-License-Identifier: Apache-2.0
//! Log of the requests sent to a BMC during one action, for the node's timeline.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Limit of logged calls; a step that polls for an hour must not fill the journal.
const MAX_LOGGED_CALLS: usize = 64;

/// One request to a BMC and its result, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedBmcCall {
    /// The request: `GET /redfish/v1/Systems/1`, `IPMI chassis control`.
    pub request: String,
    /// The result: `200`, `no response within 60 s`.
    pub result: String,
    /// Total duration.
    pub duration: Duration,
    /// Number of consecutive identical calls with the same result.
    pub count: u32,
}

/// The calls of one action, in order.
#[derive(Debug, Default)]
pub struct BmcCallLog(Mutex<BmcCalls>);

#[derive(Debug, Default)]
struct BmcCalls {
    calls: Vec<LoggedBmcCall>,
    dropped: u64,
}

impl BmcCallLog {
    /// Adds a call. A call equal to the previous one, with the same result, only increases its count.
    pub fn add(&self, what: impl Into<String>, result: impl Into<String>, took: Duration) {
        let (what, result) = (what.into(), result.into());
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = log.calls.last_mut()
            && last.request == what
            && last.result == result
        {
            last.count = last.count.saturating_add(1);
            last.duration += took;
        } else if log.calls.len() < MAX_LOGGED_CALLS {
            log.calls.push(LoggedBmcCall { request: what, result, duration: took, count: 1 });
        } else {
            log.dropped += 1;
        }
    }

    /// Removes and returns all calls, and the number of calls above the limit.
    #[must_use]
    pub fn take(&self) -> (Vec<LoggedBmcCall>, u64) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut log.calls), std::mem::take(&mut log.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_calls_are_counted_and_log_is_bounded() {
        let log = BmcCallLog::default();
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            log.add("GET /redfish/v1/Systems/1", "200", second);
        }
        for number in 0..100 {
            log.add(format!("GET /{number}"), "404", second);
        }
        let (calls, left_out) = log.take();
        assert_eq!((calls[0].count, calls[0].duration), (1000, second * 1000));
        assert_eq!((calls.len(), left_out), (MAX_LOGGED_CALLS, 37));
        assert_eq!(log.take(), (Vec::new(), 0));
    }
}
