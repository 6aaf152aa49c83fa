// SPDX-License-Identifier: Apache-2.0
//! Trying again when a machine does not answer: how long to pause, and when to give up.

use std::time::Duration;

use node_model::{NodeId, Retry, Silent, Timestamp};

/// The first pause; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Notes another try that got no answer. Answers what to wait for, or none when `patience` is
/// over.
pub(crate) fn again(
    before: Option<&Retry>,
    node: NodeId,
    (whom, why): (Silent, &str),
    patience: Duration,
    now: Timestamp,
) -> Option<Retry> {
    let since = before.map_or(now, |retry| retry.since);
    if now.since(since) >= patience {
        return None;
    }
    let tries = before.map_or(0, |retry| retry.tries).saturating_add(1);
    let end = since.plus(patience);
    let at = now.plus(pause(node, tries)).min(end);
    Some(Retry { since, tries, at, why: why.to_owned(), whom })
}

/// The pause after the given try: doubled each time and never quite the same for two machines, so
/// that a switch that comes back is not met by a whole rack at once.
#[must_use]
pub fn pause(node: NodeId, tries: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << (tries.saturating_sub(1)).min(16));
    let full = doubled.min(LONGEST_PAUSE);
    // Between half of it and all of it, by node and try: decisions draw no random numbers.
    let mixed = node
        .0
        .into_bytes()
        .into_iter()
        .chain(tries.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    full / 2 + full.mul_f64((mixed >> 40) as f64 / (1_u64 << 24) as f64) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_stay_bounded_and_differ_between_machines() {
        let node = NodeId::random();
        for tries in 1..40 {
            let pause = pause(node, tries);
            let full = Duration::from_secs(1 << (tries - 1).min(5)).min(LONGEST_PAUSE);
            assert!((full / 2..=full).contains(&pause), "{tries}: {pause:?}");
        }
        let pauses: std::collections::BTreeSet<Duration> =
            (0..100).map(|_| pause(NodeId::random(), 5)).collect();
        assert!(pauses.len() > 90, "{pauses:?}");
    }

    #[test]
    fn the_last_try_is_when_patience_ends() {
        let node = NodeId::random();
        let patience = Duration::from_secs(30);
        let mut now = Timestamp(0);
        let mut retry = None;
        let mut tries = 0;
        while let Some(next) = again(retry.as_ref(), node, (Silent::Bmc, "silent"), patience, now) {
            assert!(next.at > now && next.at <= Timestamp(0).plus(patience));
            now = next.at;
            retry = Some(next);
            tries += 1;
        }
        assert_eq!(now, Timestamp(0).plus(patience));
        assert!((5..12).contains(&tries), "{tries}");
    }
}
