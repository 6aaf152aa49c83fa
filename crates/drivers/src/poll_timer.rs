// SPDX-License-Identifier: Apache-2.0
//! Intervals between polls within one call.

use std::time::Duration;

use tokio::time::Instant;

/// The first interval; short, because many changes take less than a second.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// The upper limit of the growing interval, which limits the load on slow BMCs.
const MAX_INTERVAL: Duration = Duration::from_secs(3);

/// Polling with a timeout and a growing interval.
#[derive(Debug)]
pub struct PollTimer {
    started: Instant,
    end: Instant,
    interval: Duration,
}

impl PollTimer {
    /// Polls for at most `limit`.
    pub fn with_timeout(limit: Duration) -> Self {
        let started = Instant::now();
        // A limit beyond the clock's range becomes a day.
        let end = started.checked_add(limit).unwrap_or(started + Duration::from_secs(86_400));
        Self { started, end, interval: FIRST_INTERVAL }
    }

    /// Sleeps until the next poll. Returns false if the timeout is reached.
    pub async fn wait(&mut self) -> bool {
        let left = self.remaining();
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.interval.min(left)).await;
        self.interval = (self.interval * 3 / 2).min(MAX_INTERVAL);
        true
    }

    /// The time until the timeout.
    pub fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn intervals_grow_and_end_at_timeout() {
        let mut timer = PollTimer::with_timeout(Duration::from_secs(60));
        let mut times = Vec::new();
        while timer.wait().await {
            times.push(timer.elapsed().as_millis());
        }
        assert_eq!(&times[..3], &[200, 500, 950]);
        assert_eq!(times.last(), Some(&60_000));
        assert!(times.len() < 30, "{}", times.len());
        assert!(timer.remaining().is_zero());
    }
}
