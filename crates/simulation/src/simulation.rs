// SPDX-License-Identifier: Apache-2.0
//! A run of the simulation.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lifecycle::TRANSITIONS;
use node_model::{JournalEvent, NodeId, ProvisionState};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::clients::Client;
use crate::faults::{FaultPlan, ProcessFault};
use crate::history::{History, is_at_rest};
use crate::machine::Machine;
use crate::process::{ProcessOptions, SimulatedProcess};
use crate::random::SimulationRandom;
use crate::world::{REPLICAS, World};

/// The simulated time between two rounds. Within one, each process runs alone.
const ROUND: Duration = Duration::from_millis(10);
/// When the first fault may happen.
const FIRST_FAULT: Duration = Duration::from_secs(15);
/// How long all work may take after the last fault.
const END_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// How long nothing may happen before the end, so that power polls are done.
const QUIET_TIME: Duration = Duration::from_secs(45);
/// How long the host clock of a process remains wrong.
const CLOCK_REPAIR_INTERVAL: Duration = Duration::from_secs(40);

/// The result of a run.
#[derive(Debug)]
pub struct SimulationReport {
    /// The seed.
    pub seed: u64,
    /// All events in order.
    pub events: Vec<String>,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// How much time was simulated.
    pub simulated: Duration,
}

/// A defect that the checks must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulationDefect {
    /// The monotonic clock of a process is too slow, so it acts after others have ended its session.
    SlowClock,
    /// The database confirms commits that it does not execute.
    ForgottenCommits,
}

/// Runs the simulation that `seed` determines, until all work has ended or a rule is violated.
///
/// # Errors
/// Fails if the simulation itself cannot run, for example without space for its files.
pub fn simulate(seed: u64) -> Result<SimulationReport> {
    run(seed, None)
}

/// Runs a simulation whose environment does not keep its promises, to test the checks.
///
/// # Errors
/// Fails if the simulation itself cannot run.
pub fn simulate_with_defect(seed: u64, defect: SimulationDefect) -> Result<SimulationReport> {
    run(seed, Some(defect))
}

fn run(seed: u64, defect: Option<SimulationDefect>) -> Result<SimulationReport> {
    let files = TempDir::new().context("cannot create the files of the simulation")?;
    let mut simulation = Simulation::new(seed, &files, defect)?;
    let now = simulation.run()?;
    if simulation.world.lock().trace.violations.is_empty() {
        simulation.check_end(now)?;
    }
    drop(simulation.processes);
    let mut state = simulation.world.lock();
    Ok(SimulationReport {
        seed,
        events: std::mem::take(&mut state.trace.lines),
        violations: std::mem::take(&mut state.trace.violations),
        simulated: now,
    })
}

struct Simulation {
    world: Arc<World>,
    data_dir: PathBuf,
    database: PathBuf,
    processes: [Option<SimulatedProcess>; REPLICAS],
    plans: [ProcessPlan; REPLICAS],
    clients: Vec<Client>,
    faults: FaultPlan,
    faults_until: Duration,
    max_concurrent_jobs: u64,
    defect: Option<SimulationDefect>,
}

/// What happens to a process next.
#[derive(Clone, Copy, Default)]
struct ProcessPlan {
    start_at: Duration,
    paused_until: Option<Duration>,
    previous_run: Option<Uuid>,
    clock_repaired_at: Duration,
}

impl Simulation {
    fn new(seed: u64, files: &TempDir, defect: Option<SimulationDefect>) -> Result<Self> {
        let database = files.path().join("shared.sqlite");
        // Created by the first process; the observer needs the file now.
        Connection::open(&database)?.pragma_update(None, "journal_mode", "WAL")?;
        let mut random = SimulationRandom::new(seed);
        let faults = FaultPlan::new(&mut random, FIRST_FAULT);
        let faults_until = FIRST_FAULT + random.millis(40_000, 120_000);
        let nodes = 3 + random.below(8);
        let max_concurrent_jobs = 1 + random.below(10);
        let world = Arc::new(World::new(random, History::open(&database)?));
        let mut clients = Vec::new();
        {
            let mut state = world.lock();
            for number in 1..=nodes {
                let node = NodeId(Uuid::from_u64_pair(0x1111_2222_3333_4444, number));
                let number = usize::try_from(number).unwrap_or_default();
                state.machines.machines.insert(node, Machine::new(number));
                clients.extend(Client::pair(node, number));
            }
            let text = format!("seed {seed}, {nodes} nodes, {}", faults.describe());
            state.record(&text);
        }
        let mut plans = [ProcessPlan::default(); REPLICAS];
        for (index, plan) in plans.iter_mut().enumerate() {
            plan.start_at = Duration::from_millis(300 * index as u64);
        }
        Ok(Self {
            world,
            data_dir: files.path().to_owned(),
            database,
            processes: [const { None }; REPLICAS],
            plans,
            clients,
            faults,
            faults_until,
            max_concurrent_jobs,
            defect,
        })
    }

    /// Runs until all work has ended. Returns the simulated time.
    fn run(&mut self) -> Result<Duration> {
        let mut now = Duration::ZERO;
        let mut quiet_since = None;
        loop {
            now += ROUND;
            let is_ending = now >= self.faults_until;
            {
                let mut state = self.world.at(now);
                state.loses_messages = !is_ending && now >= FIRST_FAULT;
                state.database.forgets_commits =
                    self.defect == Some(SimulationDefect::ForgottenCommits) && state.loses_messages;
                if is_ending {
                    state.heal();
                }
                state.run_machines();
            }
            if is_ending {
                let paused = self.plans.iter_mut().filter_map(|plan| plan.paused_until.as_mut());
                paused.for_each(|until| *until = now);
            } else {
                self.begin_faults(now);
            }
            self.start_processes(now)?;
            for client in &mut self.clients {
                client.run(&self.world, &self.processes, now, is_ending);
            }
            self.run_processes(now);
            if !self.world.lock().trace.violations.is_empty() {
                return Ok(now);
            }
            if is_ending {
                let is_quiet = self.is_quiet();
                let since = *quiet_since.get_or_insert(now);
                if !is_quiet {
                    quiet_since = None;
                } else if now >= since + QUIET_TIME {
                    return Ok(now);
                }
                if now > self.faults_until + END_TIMEOUT {
                    self.report_unfinished();
                    return Ok(now);
                }
            }
        }
    }

    fn begin_faults(&mut self, now: Duration) {
        let fault = self.faults.run(&mut self.world.at(now));
        match fault {
            Some(ProcessFault::Crash { replica, restart_at }) => {
                self.end_process(replica, restart_at);
            }
            Some(ProcessFault::Pause { replica, until }) => {
                self.plans[replica].paused_until = Some(until);
            }
            None => {}
        }
        for (replica, plan) in self.plans.iter_mut().enumerate() {
            if now >= plan.clock_repaired_at {
                plan.clock_repaired_at = now + CLOCK_REPAIR_INTERVAL;
                let mut state = self.world.at(now);
                state.replicas[replica].clock_offset = state.database.clock_offset;
            }
        }
    }

    /// Ends a process between two of its instructions.
    fn end_process(&mut self, replica: usize, restart_at: Duration) {
        let Some(process) = self.processes[replica].take() else { return };
        let plan = &mut self.plans[replica];
        // A new process with the same data directory knows that the earlier one has ended.
        let is_same_directory = self.world.lock().random.happens(500);
        plan.previous_run = process.run_id().filter(|_| is_same_directory);
        plan.paused_until = None;
        plan.start_at = restart_at;
        drop(process);
    }

    fn start_processes(&mut self, now: Duration) -> Result<()> {
        for replica in 0..REPLICAS {
            let failed = self.processes[replica].as_ref().and_then(SimulatedProcess::start_error);
            if let Some(error) = failed {
                self.world.at(now).record(&format!("replica {replica} did not start: {error}"));
                let pause = self.world.lock().random.millis(1000, 5000);
                self.end_process(replica, now + pause);
            }
            let is_ending = now >= self.faults_until;
            let plan = self.plans[replica];
            if self.processes[replica].is_some() || (now < plan.start_at && !is_ending) {
                continue;
            }
            {
                let mut state = self.world.at(now);
                // A process that cannot reach the database does not start.
                let is_lost =
                    state.replicas[replica].database_lost.is_some_and(|(until, _)| now < until);
                if is_lost {
                    continue;
                }
                state.record(&format!("replica {replica} starts"));
            }
            let options = ProcessOptions {
                replica,
                data_dir: self.data_dir.clone(),
                database: self.database.clone(),
                previous_run: plan.previous_run,
                max_concurrent_jobs: self.max_concurrent_jobs,
                has_slow_clock: replica == 0 && self.defect == Some(SimulationDefect::SlowClock),
            };
            self.processes[replica] = Some(SimulatedProcess::start(&self.world, options, now)?);
        }
        Ok(())
    }

    /// Runs the processes until `now`, in an order that the seed determines.
    fn run_processes(&mut self, now: Duration) {
        let mut order: Vec<usize> = (0..REPLICAS).collect();
        let mut state = self.world.lock();
        for index in (1..order.len()).rev() {
            order.swap(index, state.random.index(index + 1));
        }
        drop(state);
        for replica in order {
            let plan = &mut self.plans[replica];
            let was_paused = plan.paused_until.take_if(|until| now >= *until).is_some();
            if plan.paused_until.is_some() {
                continue;
            }
            if let Some(process) = &mut self.processes[replica] {
                process.run_until(now, was_paused);
            }
        }
    }

    /// Whether no job runs and no client waits.
    fn is_quiet(&self) -> bool {
        let state = self.world.lock();
        let is_idle = self.clients.iter().all(Client::is_idle);
        is_idle
            && state.history.nodes.values().all(|versions| {
                versions.last().is_some_and(|version| {
                    is_at_rest(version.state) && version.lease.reservation.is_none()
                })
            })
    }

    fn report_unfinished(&self) {
        let mut state = self.world.lock();
        let machines = &state.machines.machines;
        let unfinished: Vec<String> = state
            .history
            .nodes
            .iter()
            .filter_map(|(node, versions)| {
                let version = versions.last()?;
                let number = machines.get(node).map_or(0, |machine| machine.number);
                let text = format!("node {number} did not finish: {version:?}");
                (!is_at_rest(version.state) || version.lease.reservation.is_some()).then_some(text)
            })
            .collect();
        if unfinished.is_empty() {
            state.violation("the simulation did not become quiet".to_owned());
        }
        state.violations(unfinished);
        if !self.clients.iter().all(Client::is_idle) {
            state.violation("a client waits for a response".to_owned());
        }
    }

    /// Checks what must be true when all work has ended.
    fn check_end(&self, now: Duration) -> Result<()> {
        let mut state = self.world.at(now);
        for client in &self.clients {
            client.check_end(&mut state);
        }
        let mut problems = Vec::new();
        let database = Connection::open(&self.database)?;
        for (node, machine) in &state.machines.machines {
            let Some(version) = state.history.current(*node) else {
                problems.push(format!("node {} was not created", machine.number));
                continue;
            };
            let power = if machine.is_on { "power on" } else { "power off" };
            let is_known = version.state != ProvisionState::Enroll;
            if is_known && version.power.as_deref() != Some(power) {
                problems.push(format!(
                    "the power of machine {} is recorded as {:?}, and is '{power}'",
                    machine.number, version.power
                ));
            }
            problems.extend(journal_problems(&database, *node, machine.number, version.state)?);
        }
        state.violations(problems);
        Ok(())
    }
}

/// What is wrong with the journal of a node: it must be a chain of transitions that ends in its state.
fn journal_problems(
    database: &Connection,
    node: NodeId,
    number: usize,
    last: ProvisionState,
) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut statement =
        database.prepare("SELECT event FROM journal WHERE node_uuid = ? ORDER BY seq")?;
    let events = statement.query_map([node.to_string()], |row| row.get::<_, String>(0))?;
    let mut state = ProvisionState::Enroll;
    for event in events {
        let event: Value = serde_json::from_str(&event?)?;
        let Some((from, to)) = transition_of(&event) else { continue };
        let is_legal =
            TRANSITIONS.iter().any(|(_, before, after)| before.contains(&from) && *after == to);
        if from != state || !is_legal {
            problems.push(format!(
                "the journal of node {number} has '{from}' to '{to}' after '{state}'"
            ));
        }
        state = to;
    }
    if state != last {
        problems
            .push(format!("the journal of node {number} ends in '{state}', the node in '{last}'"));
    }
    Ok(problems)
}

/// The states of a journal event that records a transition.
fn transition_of(event: &Value) -> Option<(ProvisionState, ProvisionState)> {
    let event = serde_json::from_value(event.clone()).ok()?;
    if let JournalEvent::StateChanged { from, to, .. } = event {
        return Some((from.parse().ok()?, to.parse().ok()?));
    }
    None
}
