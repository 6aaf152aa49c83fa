// SPDX-License-Identifier: Apache-2.0
//! Which faults happen, and when.

use std::time::Duration;

use crate::random::SimulationRandom;
use crate::world::{REPLICAS, WorldState};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultKind {
    Crash,
    Pause,
    DatabaseLost,
    MachinesLost,
    DatabaseDown,
    SlowDatabase,
    HostClock,
    DatabaseClock,
}

impl FaultKind {
    const ALL: [Self; 8] = [
        Self::Crash,
        Self::Pause,
        Self::DatabaseLost,
        Self::MachinesLost,
        Self::DatabaseDown,
        Self::SlowDatabase,
        Self::HostClock,
        Self::DatabaseClock,
    ];
}

/// What the simulation itself has to do for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProcessFault {
    /// End the process, and start it again later.
    Crash { replica: usize, restart_at: Duration },
    /// Do not run the process.
    Pause { replica: usize, until: Duration },
}

/// The faults of one run: some kinds only, so that rare combinations are tried.
pub(crate) struct FaultPlan {
    kinds: Vec<FaultKind>,
    /// The mean time between two faults, in milliseconds.
    interval: u64,
    next_at: Duration,
}

impl FaultPlan {
    pub(crate) fn new(random: &mut SimulationRandom, first_at: Duration) -> Self {
        let mut kinds: Vec<_> =
            FaultKind::ALL.into_iter().filter(|_| random.happens(500)).collect();
        if kinds.is_empty() {
            kinds.push(FaultKind::Crash);
        }
        let interval = 3000 + random.below(15_000);
        Self { kinds, interval, next_at: first_at }
    }

    pub(crate) fn describe(&self) -> String {
        format!("faults {:?} about every {} ms", self.kinds, self.interval)
    }

    /// Begins the next fault if its time has come.
    pub(crate) fn run(&mut self, state: &mut WorldState) -> Option<ProcessFault> {
        let now = state.now;
        if now < self.next_at {
            return None;
        }
        self.next_at = now + state.random.millis(self.interval / 4, self.interval * 7 / 4);
        let kind = self.kinds[state.random.index(self.kinds.len())];
        let replica = state.random.index(REPLICAS);
        // Shorter and longer than a session.
        let is_long = state.random.happens(600);
        let time = if is_long {
            state.random.millis(8000, 25_000)
        } else {
            state.random.millis(200, 8000)
        };
        let is_silent = state.random.happens(500);
        let is_forward = state.random.happens(500);
        let jump = i64::try_from(state.random.below(3_600_000_000)).unwrap_or(0);
        let jump = if is_forward { jump } else { -jump };
        state.record(&format!("fault {kind:?}: replica {replica}, {} ms", time.as_millis()));
        match kind {
            FaultKind::Crash => {
                return Some(ProcessFault::Crash { replica, restart_at: now + time });
            }
            FaultKind::Pause => {
                state.replicas[replica].disturbed_at = now + time;
                return Some(ProcessFault::Pause { replica, until: now + time });
            }
            FaultKind::DatabaseLost => state.lose_database(replica, now + time, is_silent),
            FaultKind::DatabaseDown => {
                (0..REPLICAS).for_each(|each| state.lose_database(each, now + time, is_silent));
            }
            FaultKind::MachinesLost => state.replicas[replica].machines_lost_until = now + time,
            FaultKind::SlowDatabase => {
                state.database.slow_until = now + time;
                for replica in &mut state.replicas {
                    replica.disturbed_at = now + time;
                }
            }
            FaultKind::HostClock => state.replicas[replica].clock_offset = jump,
            FaultKind::DatabaseClock => state.database.clock_offset += jump / 60,
        }
        None
    }
}

impl WorldState {
    fn lose_database(&mut self, replica: usize, until: Duration, is_silent: bool) {
        self.replicas[replica].database_lost = Some((until, is_silent));
        self.replicas[replica].disturbed_at = until;
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        for replica in &mut self.replicas {
            replica.database_lost = None;
            replica.machines_lost_until = Duration::ZERO;
            replica.clock_offset = self.database.clock_offset;
        }
        self.database.slow_until = Duration::ZERO;
        self.loses_messages = false;
    }
}
