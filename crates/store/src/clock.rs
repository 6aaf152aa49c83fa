// SPDX-License-Identifier: Apache-2.0
//! The time of the store: the clock of the database server, or with SQLite the clock of this host.
//!
//! All processes that share a database server use its clock, so their leases and due times are
//! comparable whatever the clocks of their hosts show. Between two observations time advances with
//! the monotonic clock. A difference from the observed clock is corrected gradually: time never goes
//! back, and a clock that jumps neither ends nor extends the timeouts of waiting machines by more
//! than a tenth.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use node_model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::engine::DatabaseSession;
use crate::error::{StoreError, StoreOpenError};
use crate::reader::decode_field;

/// Source of the current time; tests pass a manual clock.
pub type StoreClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that is never set, and that also counts the time while the host is suspended.
pub type MonotonicClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The clocks of a host. A simulation passes its own.
#[derive(Clone)]
pub struct HostClocks {
    /// A clock that is never set.
    pub monotonic: MonotonicClock,
    /// The clock of the host, which may be set at any time.
    pub wall: StoreClock,
}

impl HostClocks {
    /// The clocks of this host.
    pub(crate) fn real() -> Self {
        Self { monotonic: Arc::new(time_since_boot), wall: Arc::new(host_now) }
    }

    fn monotonic_micros(&self) -> i64 {
        micros((self.monotonic)())
    }
}

impl std::fmt::Debug for HostClocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostClocks").finish_non_exhaustive()
    }
}

/// How often the clock is observed.
pub(crate) const OBSERVATION_INTERVAL: Duration = Duration::from_secs(10);
/// At most this part of the elapsed time is added or left out to correct a difference.
const CORRECTION_PART: i64 = 10;
/// An observation that took longer is too inexact.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);
/// How often the first observation is repeated if it took too long.
const MAX_FIRST_OBSERVATIONS: u32 = 10;
/// A smaller change of a clock between two observations is not logged.
const JUMP: i64 = 1_000_000;

/// How the clock of this host compares to the time of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockStatus {
    /// How far the clock of this host is ahead of the database server, in microseconds; 0 with SQLite.
    pub ahead_micros: i64,
    /// What is still to be added to the time of the store because the followed clock was set, in
    /// microseconds.
    pub correction_micros: i64,
    /// Whether one of them is greater than the tolerance.
    pub beyond_tolerance: bool,
}

/// Follows a clock with the monotonic clock of this host.
pub(crate) struct FollowedClock {
    clocks: HostClocks,
    tolerance: Duration,
    state: Mutex<ClockState>,
    ahead_micros: AtomicI64,
    beyond_tolerance: AtomicBool,
}

/// What was known at the last observation. All values are microseconds.
#[derive(Clone, Copy, Debug)]
struct ClockState {
    /// The monotonic clock.
    monotonic: i64,
    /// The time of the store.
    time: i64,
    /// What has to be added to the time of the store since then.
    correction: i64,
    /// The clock of this host.
    host: i64,
}

/// The clocks at the same time, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockObservation {
    monotonic: i64,
    /// The clock that is followed.
    reference: i64,
    host: i64,
}

/// Observes the clock of this host until it is dropped.
pub(crate) struct HostClockThread {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

// === impl FollowedClock ===

impl FollowedClock {
    /// Follows the clock of this host.
    pub(crate) fn of_host(tolerance: Duration) -> Self {
        Self::new(ClockObservation::of_host(), tolerance, HostClocks::real())
    }

    /// Follows the clock of a server. Fails if the clock of this host differs by more than `tolerance`.
    pub(crate) fn of_server(
        session: &mut dyn DatabaseSession,
        tolerance: Duration,
        clocks: HostClocks,
    ) -> Result<Self, StoreOpenError> {
        let observed = first_observation(|| ClockObservation::of_server(session, &clocks))
            .map_err(StoreOpenError::Prepare)?;
        if observed.is_beyond(tolerance) {
            return Err(StoreOpenError::ClockDiffers {
                ahead_seconds: observed.ahead_micros() / 1_000_000,
                tolerance_seconds: tolerance.as_secs(),
            });
        }
        Ok(Self::new(observed, tolerance, clocks))
    }

    fn new(observed: ClockObservation, tolerance: Duration, clocks: HostClocks) -> Self {
        let ClockObservation { monotonic, reference, host } = observed;
        Self {
            clocks,
            tolerance,
            state: Mutex::new(ClockState { monotonic, time: reference, correction: 0, host }),
            ahead_micros: AtomicI64::new(observed.ahead_micros()),
            beyond_tolerance: AtomicBool::new(observed.is_beyond(tolerance)),
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Timestamp(state.time_at(self.clocks.monotonic_micros()))
    }

    /// How the clock of this host compared to the time of the store at the last observation.
    pub(crate) fn status(&self) -> ClockStatus {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let correction_micros = state.correction_at(self.clocks.monotonic_micros());
        let is_correction_beyond = correction_micros.saturating_abs() > micros(self.tolerance);
        ClockStatus {
            ahead_micros: self.ahead_micros.load(Ordering::Relaxed),
            correction_micros,
            beyond_tolerance: is_correction_beyond || self.beyond_tolerance.load(Ordering::Relaxed),
        }
    }

    /// Corrects the time by an observation, and logs jumps and differences.
    pub(crate) fn observe(&self, observed: ClockObservation) {
        self.observe_at(observed, self.clocks.monotonic_micros());
    }

    /// Reads the clock of a server.
    pub(crate) fn read_server(
        &self,
        session: &mut dyn DatabaseSession,
    ) -> Result<ServerObservation, StoreError> {
        ClockObservation::of_server(session, &self.clocks)
    }

    fn observe_at(&self, observed: ClockObservation, now: i64) {
        let (before, after) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let before = *state;
            *state = state.observed(observed, now);
            (before, *state)
        };
        let elapsed = after.monotonic.saturating_sub(before.monotonic);
        let host_jump = after.host.saturating_sub(before.host).saturating_sub(elapsed);
        if host_jump.saturating_abs() > JUMP {
            tracing::warn!(
                jump_ms = host_jump / 1000,
                "clock of this host jumped; timeouts of running work are not affected"
            );
        }
        let tolerance = micros(self.tolerance);
        let newly_differs = before.correction.saturating_abs() <= tolerance;
        if after.correction.saturating_abs() > tolerance && newly_differs {
            tracing::warn!(
                difference_ms = after.correction / 1000,
                "followed clock jumped; the time of the database is corrected gradually"
            );
        }
        self.ahead_micros.store(observed.ahead_micros(), Ordering::Relaxed);
        let is_beyond = observed.is_beyond(self.tolerance);
        let was_beyond = self.beyond_tolerance.swap(is_beyond, Ordering::Relaxed);
        let ahead_ms = observed.ahead_micros() / 1000;
        if is_beyond && !was_beyond {
            tracing::error!(
                ahead_ms,
                "clock of this host differs from the database server; correct it with NTP"
            );
        } else if was_beyond && !is_beyond {
            tracing::info!(ahead_ms, "clock of this host agrees with the database server again");
        }
    }
}

// === impl ClockState ===

impl ClockState {
    fn time_at(&self, monotonic: i64) -> i64 {
        let elapsed = monotonic.saturating_sub(self.monotonic).max(0);
        let limit = elapsed / CORRECTION_PART;
        self.time.saturating_add(elapsed).saturating_add(self.correction.clamp(-limit, limit))
    }

    /// What is still to be corrected.
    fn correction_at(&self, monotonic: i64) -> i64 {
        let limit = monotonic.saturating_sub(self.monotonic).max(0) / CORRECTION_PART;
        self.correction.saturating_sub(self.correction.clamp(-limit, limit))
    }

    /// The state at the time `now` of the monotonic clock. The observation was made before: from then on
    /// the old correction was in use, so the new one begins now and time does not go back.
    fn observed(&self, observed: ClockObservation, now: i64) -> Self {
        let since = now.saturating_sub(observed.monotonic).max(0);
        let time = self.time_at(now);
        let reference = observed.reference.saturating_add(since);
        let correction = reference.saturating_sub(time);
        Self { monotonic: now, time, correction, host: observed.host.saturating_add(since) }
    }
}

// === impl ClockObservation ===

/// An observation and the time it took.
pub(crate) struct ServerObservation {
    observation: ClockObservation,
    round_trip: Duration,
}

impl ServerObservation {
    /// The observation, unless it took too long to be exact.
    pub(crate) fn if_exact(self) -> Option<ClockObservation> {
        (self.round_trip <= MAX_ROUND_TRIP).then_some(self.observation)
    }
}

/// The first exact observation, or the most exact of several.
fn first_observation(
    mut observe: impl FnMut() -> Result<ServerObservation, StoreError>,
) -> Result<ClockObservation, StoreError> {
    let mut best = observe()?;
    for _ in 1..MAX_FIRST_OBSERVATIONS {
        if best.round_trip <= MAX_ROUND_TRIP {
            break;
        }
        let next = observe()?;
        if next.round_trip < best.round_trip {
            best = next;
        }
    }
    Ok(best.observation)
}

impl ClockObservation {
    pub(crate) fn of_host() -> Self {
        let host = host_micros();
        Self { monotonic: monotonic_micros(), reference: host, host }
    }

    fn of_server(
        session: &mut dyn DatabaseSession,
        clocks: &HostClocks,
    ) -> Result<ServerObservation, StoreError> {
        let (began, host_began) = (clocks.monotonic_micros(), (clocks.wall)().0);
        let reference = server_micros(session)?;
        let round_trip = clocks.monotonic_micros().saturating_sub(began).max(0);
        Ok(ServerObservation {
            observation: Self {
                monotonic: began + round_trip / 2,
                reference,
                host: host_began + round_trip / 2,
            },
            round_trip: Duration::from_micros(round_trip.unsigned_abs()),
        })
    }

    fn ahead_micros(&self) -> i64 {
        self.host.saturating_sub(self.reference)
    }

    fn is_beyond(&self, tolerance: Duration) -> bool {
        self.ahead_micros().saturating_abs() > micros(tolerance)
    }
}

// === impl HostClockThread ===

impl HostClockThread {
    pub(crate) fn start(clock: Arc<FollowedClock>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let observe = move || {
            while stopped.recv_timeout(OBSERVATION_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                clock.observe(ClockObservation::of_host());
            }
        };
        let thread = std::thread::Builder::new()
            .name("store-clock".to_owned())
            .spawn(observe)
            .expect("the process may start one thread");
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for HostClockThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The clock of the server in microseconds since 1970.
pub(crate) fn server_micros(session: &mut dyn DatabaseSession) -> Result<i64, StoreError> {
    if let Some(known) = session.known_clock() {
        return Ok(known);
    }
    let no_clock = StoreError::Corrupt { table: "(none)", column: "clock" };
    let Some(sql) = session.dialect().clock_query() else { return Err(no_clock) };
    let mut now = None;
    session.query(sql, &[], &mut |row| {
        now = Some(decode_field(row, 0, "(none)", "clock")?);
        Ok(())
    })?;
    now.ok_or(no_clock)
}

/// A clock that is never set, and that also counts the time while the host is suspended.
fn monotonic_micros() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// The time since this host was started, including the time while it was suspended. It is never set.
pub(crate) fn time_since_boot() -> Duration {
    Duration::from_micros(monotonic_micros().unsigned_abs())
}

/// The clock of this host.
pub(crate) fn host_now() -> Timestamp {
    Timestamp(host_micros())
}

/// The clock of this host in microseconds since 1970.
fn host_micros() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, micros)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;

    fn observation(monotonic: i64, reference: i64) -> ClockObservation {
        ClockObservation { monotonic, reference, host: reference }
    }

    fn followed(observed: ClockObservation) -> FollowedClock {
        FollowedClock::new(observed, Duration::from_secs(10), HostClocks::real())
    }

    fn started() -> ClockState {
        ClockState { monotonic: 0, time: 1000 * SECOND, correction: 0, host: 1000 * SECOND }
    }

    #[test]
    fn time_advances_with_the_monotonic_clock() {
        assert_eq!(started().time_at(5 * SECOND), 1005 * SECOND);
    }

    #[test]
    fn a_small_difference_is_corrected_within_the_next_seconds() {
        let state =
            started().observed(observation(10 * SECOND, 1010 * SECOND + 200_000), 10 * SECOND);
        assert_eq!(state.time_at(10 * SECOND), 1010 * SECOND);
        assert_eq!(state.time_at(11 * SECOND), 1011 * SECOND + 100_000);
        assert_eq!(state.time_at(13 * SECOND), 1013 * SECOND + 200_000);
    }

    #[test]
    fn a_jump_changes_durations_by_a_tenth_at_most_and_time_never_goes_back() {
        for jump in [HOUR, -HOUR] {
            let mut state = started();
            let mut last = state.time;
            for tick in 1..=1000 {
                let monotonic = tick * SECOND;
                if tick % 10 == 0 {
                    let reference = 1000 * SECOND + monotonic + jump;
                    state = state.observed(observation(monotonic, reference), monotonic);
                }
                let time = state.time_at(monotonic);
                let step = time - last;
                assert!((SECOND * 9 / 10..=SECOND * 11 / 10).contains(&step), "{tick}: {step}");
                last = time;
            }
            // After 990 seconds with a correction of a tenth.
            let expected = 2000 * SECOND + jump.signum() * 99 * SECOND;
            assert_eq!(last, expected);
        }
    }

    #[test]
    fn time_does_not_go_back_when_an_observation_took_long() {
        let first = started().observed(observation(0, 1000 * SECOND + HOUR), 0);
        // The clock was set back meanwhile. The observation is from second 10, but took until 20.
        let before = first.time_at(20 * SECOND);
        let after = first.observed(observation(10 * SECOND, 1010 * SECOND), 20 * SECOND);
        assert_eq!(after.time_at(20 * SECOND), before);
        assert!(after.time_at(21 * SECOND) > before);
        assert_eq!(after.correction, 1020 * SECOND - before);
    }

    #[test]
    fn the_first_observation_is_repeated_until_it_is_exact() {
        let observe = |round_trips: &'static [u64]| {
            let mut round_trips = round_trips.iter().enumerate();
            let observation = first_observation(|| {
                let (number, seconds) = round_trips.next().unwrap();
                Ok(ServerObservation {
                    observation: observation(i64::try_from(number).unwrap(), 0),
                    round_trip: Duration::from_secs(*seconds),
                })
            });
            observation.unwrap().monotonic
        };
        assert_eq!(observe(&[1]), 0);
        assert_eq!(observe(&[5, 3, 0]), 2);
        assert_eq!(observe(&[9, 3, 2, 8, 9, 9, 9, 9, 9, 9]), 2);
    }

    #[test]
    fn the_difference_of_the_host_is_reported_beyond_the_tolerance() {
        let now = monotonic_micros();
        let clock = followed(observation(now, 1000 * SECOND));
        assert_eq!(clock.status(), ClockStatus::default());
        let reference = 1010 * SECOND;
        let host = reference - 11 * SECOND;
        let monotonic = now + 10 * SECOND;
        clock.observe_at(ClockObservation { monotonic, reference, host }, monotonic);
        let status = clock.status();
        assert_eq!((status.ahead_micros, status.beyond_tolerance), (-11 * SECOND, true));
        clock.observe_at(observation(now + 20 * SECOND, 1020 * SECOND), now + 20 * SECOND);
        assert_eq!(clock.status(), ClockStatus::default());
    }

    #[test]
    fn a_pending_correction_is_reported() {
        let now = monotonic_micros();
        let clock = followed(observation(now, 1000 * SECOND));
        // In the future, so that no correction has been made when the status is read.
        let later = now + HOUR;
        clock.observe_at(observation(later, 1000 * SECOND + 2 * HOUR), later);
        let status = clock.status();
        assert_eq!((status.correction_micros, status.ahead_micros), (HOUR, 0));
        assert!(status.beyond_tolerance);
        let state = *clock.state.lock().unwrap();
        assert_eq!(state.correction_at(later + HOUR), HOUR * 9 / 10);
        assert_eq!(state.correction_at(later + 10 * HOUR), 0);
    }
}
