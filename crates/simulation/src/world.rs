// SPDX-License-Identifier: Apache-2.0
//! What all processes of a simulation share: time, faults, machines, and the record of events.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::history::History;
use crate::machine::MachineNetwork;
use crate::random::SimulationRandom;

/// The number of processes.
pub(crate) const REPLICAS: usize = 3;

/// The clock of the database at the begin of a simulation, in microseconds since 1970.
const EPOCH_MICROS: i64 = 1_800_000_000_000_000;

/// The shared state. Never locked while simulated time passes.
pub(crate) struct World(Mutex<WorldState>);

pub(crate) struct WorldState {
    pub(crate) random: SimulationRandom,
    /// The latest time that any part of the simulation has reached.
    pub(crate) now: Duration,
    pub(crate) trace: Trace,
    pub(crate) replicas: [ReplicaFaults; REPLICAS],
    pub(crate) database: DatabaseFaults,
    pub(crate) machines: MachineNetwork,
    pub(crate) history: History,
    /// Whether requests get lost at random.
    pub(crate) loses_messages: bool,
}

/// The faults of one process and its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaFaults {
    /// Until when the process cannot reach the database, and whether packets are lost silently.
    pub(crate) database_lost: Option<(Duration, bool)>,
    /// Until when the process cannot reach the BMCs.
    pub(crate) machines_lost_until: Duration,
    /// How far the clock of the host is ahead, in microseconds.
    pub(crate) clock_offset: i64,
    /// When the process was last disturbed for so long that its session may have ended.
    pub(crate) disturbed_at: Duration,
}

/// The faults of the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatabaseFaults {
    pub(crate) slow_until: Duration,
    /// How far its clock is ahead, in microseconds.
    pub(crate) clock_offset: i64,
    /// Whether a confirmed commit is forgotten: a test of the checks.
    pub(crate) forgets_commits: bool,
}

/// The events of a simulation in order, and the violations of its rules.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) lines: Vec<String>,
    pub(crate) violations: Vec<String>,
}

impl World {
    pub(crate) fn new(random: SimulationRandom, history: History) -> Self {
        Self(Mutex::new(WorldState {
            random,
            now: Duration::ZERO,
            trace: Trace::default(),
            replicas: Default::default(),
            database: DatabaseFaults::default(),
            machines: MachineNetwork::default(),
            history,
            loses_messages: false,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state at a time of one process.
    pub(crate) fn at(&self, now: Duration) -> MutexGuard<'_, WorldState> {
        let mut state = self.lock();
        state.now = state.now.max(now);
        state
    }
}

impl WorldState {
    /// The clock of the database in microseconds since 1970.
    pub(crate) fn database_clock(&self) -> i64 {
        EPOCH_MICROS + micros(self.now) + self.database.clock_offset
    }

    /// The clock of the host of a process.
    pub(crate) fn host_clock(&self, replica: usize, monotonic: Duration) -> i64 {
        EPOCH_MICROS + micros(monotonic) + self.replicas[replica].clock_offset
    }

    pub(crate) fn record(&mut self, event: &str) {
        let mut line = String::new();
        // Writing to a text cannot fail.
        let _ = write!(line, "{:9.3} {event}", self.now.as_secs_f64());
        self.trace.lines.push(line);
    }

    /// Records that a rule was violated.
    pub(crate) fn violation(&mut self, text: String) {
        self.record(&format!("VIOLATION: {text}"));
        self.trace.violations.push(text);
    }

    pub(crate) fn violations(&mut self, texts: Vec<String>) {
        for text in texts {
            self.violation(text);
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
