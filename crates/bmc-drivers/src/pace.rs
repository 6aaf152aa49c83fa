// SPDX-License-Identifier: Apache-2.0
//! The pauses between looks at something that changes by itself, within one call.

use std::time::Duration;

use tokio::time::Instant;

/// The pause before the second look; a machine that is quick is not kept waiting.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The pause that later ones grow to; a BMC that is slow is not kept busy.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long something is looked at, and how far that has come.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    end: Instant,
    pause: Duration,
}

impl Pace {
    /// Looks for at most `limit`.
    pub(crate) fn within(limit: Duration) -> Self {
        let began = Instant::now();
        // A limit beyond what a clock can tell is no limit; a day is one for this.
        let end = began.checked_add(limit).unwrap_or(began + Duration::from_secs(86_400));
        Self { began, end, pause: FIRST_PAUSE }
    }

    /// Waits until the next look; false if there is no time left for one.
    pub(crate) async fn pause(&mut self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
        true
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// How much time has passed.
    pub(crate) fn spent(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn looks_are_quick_first_and_end_in_time() {
        let mut pace = Pace::within(Duration::from_secs(60));
        let mut moments = Vec::new();
        while pace.pause().await {
            moments.push(pace.spent().as_millis());
        }
        assert_eq!(&moments[..3], &[200, 500, 950]);
        assert_eq!(moments.last(), Some(&60_000));
        assert!(moments.len() < 30, "{}", moments.len());
        assert!(pace.left().is_zero());
    }
}
