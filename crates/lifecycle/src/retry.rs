// SPDX-License-Identifier: Apache-2.0
//! Retries of actions whose peer did not respond: delays and the timeout.

use std::time::Duration;

use node_model::{NodeId, Retry, Timestamp, UnreachablePeer};

/// The first delay; each following one is twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The retry after another failed attempt; `None` if `timeout` has passed since the first one.
pub(crate) fn next_attempt(
    before: Option<&Retry>,
    node: NodeId,
    (peer, error): (UnreachablePeer, &str),
    timeout: Duration,
    now: Timestamp,
) -> Option<Retry> {
    let since = before.map_or(now, |retry| retry.since);
    if now.since(since) >= timeout {
        return None;
    }
    let attempts = before.map_or(0, |retry| retry.attempts).saturating_add(1);
    let end = since.plus(timeout);
    let at = now.plus(retry_delay(node, attempts)).min(end);
    Some(Retry { since, attempts, at, error: error.to_owned(), peer })
}

/// The delay after the given attempt: exponential, and different for each node, so that a whole rack
/// does not retry at once when a switch comes back.
#[must_use]
pub fn retry_delay(node: NodeId, attempt: u32) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(1 << (attempt.saturating_sub(1)).min(16));
    let full = doubled.min(MAX_DELAY);
    // Between 50 % and 100 %, by a hash of node and attempt: decisions are deterministic.
    let hash = node
        .0
        .into_bytes()
        .into_iter()
        .chain(attempt.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    full / 2 + full.mul_f64((hash >> 40) as f64 / (1_u64 << 24) as f64) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_are_bounded_and_differ_between_nodes() {
        let node = NodeId::random();
        for attempt in 1..40 {
            let delay = retry_delay(node, attempt);
            let full = Duration::from_secs(1 << (attempt - 1).min(5)).min(MAX_DELAY);
            assert!((full / 2..=full).contains(&delay), "{attempt}: {delay:?}");
        }
        let delays: std::collections::BTreeSet<Duration> =
            (0..100).map(|_| retry_delay(NodeId::random(), 5)).collect();
        assert!(delays.len() > 90, "{delays:?}");
    }

    #[test]
    fn last_attempt_is_at_the_end_of_the_timeout() {
        let node = NodeId::random();
        let timeout = Duration::from_secs(30);
        let error = (UnreachablePeer::Bmc, "no response");
        let mut now = Timestamp(0);
        let mut retry = None;
        let mut attempts = 0;
        while let Some(next) = next_attempt(retry.as_ref(), node, error, timeout, now) {
            assert!(next.at > now && next.at <= Timestamp(0).plus(timeout));
            now = next.at;
            retry = Some(next);
            attempts += 1;
        }
        assert_eq!(now, Timestamp(0).plus(timeout));
        assert!((5..12).contains(&attempts), "{attempts}");
    }
}
