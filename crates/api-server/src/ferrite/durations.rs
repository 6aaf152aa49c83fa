// SPDX-License-Identifier: Apache-2.0
//! Durations of recent jobs.
//!
//! A job starts when a node leaves a stable state and ends when it enters one; it is identified by its
//! first state, such as `deploying`, and its last. Failed jobs are ignored.

use std::collections::{BTreeMap, HashMap};

use node_model::{NodeId, Timestamp};
use serde_json::{Value, json};
use store::StateEntry;

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

/// Maximum number of state changes read. A job has about eight, so these are the last 6,000 jobs.
const MAX_CHANGES: u32 = 50_000;
/// Maximum number of jobs of a type that are evaluated.
const MAX_JOBS: usize = 200;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/durations",
    "Show the durations of recent jobs and their phases",
    handler!(durations),
)
.rule("ferrite:durations:get")
.since(UNVERSIONED)];

/// A job that has not ended yet.
struct UnfinishedJob {
    first_state: String,
    started_at: Timestamp,
    state: String,
    since: Timestamp,
    /// Time spent in each state in milliseconds, in the order in which they were entered.
    phases: Vec<(String, u64)>,
}

/// Durations of all jobs of a type, in milliseconds.
#[derive(Default)]
struct JobDurations {
    total: Vec<u64>,
    /// The order of states in the latest job.
    order: Vec<String>,
    phases: BTreeMap<String, Vec<u64>>,
}

async fn durations(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let entries = request.app.store.scan(|reader| reader.state_entries(MAX_CHANGES)).await?;
    let since = entries.first().map(|first| first.at.to_string());
    let jobs: Vec<Value> = job_durations(entries).iter().map(job_json).collect();
    Ok(ApiResponse::ok_value(&json!({"jobs": jobs, "since": since})))
}

fn job_durations(entries: Vec<StateEntry>) -> BTreeMap<(String, String), JobDurations> {
    let mut job_types: BTreeMap<(String, String), JobDurations> = BTreeMap::new();
    let mut unfinished: HashMap<NodeId, UnfinishedJob> = HashMap::new();
    for StateEntry { node, at, from, to } in entries {
        if is_stable(&from) && !is_stable(&to) {
            let (first_state, state) = (to.clone(), to);
            unfinished.insert(
                node,
                UnfinishedJob { first_state, started_at: at, state, since: at, phases: Vec::new() },
            );
            continue;
        }
        // A job that is not here started before the first change read.
        let Some(job) = unfinished.get_mut(&node) else { continue };
        job.leave_state(at);
        if !is_stable(&to) {
            job.state = to;
            job.since = at;
            continue;
        }
        let Some(job) = unfinished.remove(&node) else { continue };
        if is_success(&to) {
            let duration = millis(at, job.started_at);
            job_types.entry((job.first_state, to)).or_default().add(duration, job.phases);
        }
    }
    job_types
}

impl UnfinishedJob {
    fn leave_state(&mut self, at: Timestamp) {
        let duration = millis(at, self.since);
        match self.phases.iter_mut().find(|(state, _)| *state == self.state) {
            Some((_, sum)) => *sum += duration,
            None => self.phases.push((self.state.clone(), duration)),
        }
    }
}

impl JobDurations {
    fn add(&mut self, duration: u64, phases: Vec<(String, u64)>) {
        self.total.push(duration);
        self.order = phases.iter().map(|(state, _)| state.clone()).collect();
        for (state, duration) in phases {
            self.phases.entry(state).or_default().push(duration);
        }
    }
}

fn job_json(((first_state, last_state), durations): (&(String, String), &JobDurations)) -> Value {
    let phases: Vec<Value> = durations
        .order
        .iter()
        .filter_map(|state| Some((state, durations.phases.get(state)?)))
        .map(|(state, values)| json!({"state": state, "median_ms": percentile(values, 50)}))
        .collect();
    json!({
        "starts_in": first_state,
        "ends_in": last_state,
        "count": durations.total.len(),
        "median_ms": percentile(&durations.total, 50),
        "p90_ms": percentile(&durations.total, 90),
        "phases": phases,
    })
}

/// The percentile of the latest [`MAX_JOBS`] values; 0 if there are none.
fn percentile(all: &[u64], percent: usize) -> u64 {
    let mut latest = all[all.len().saturating_sub(MAX_JOBS)..].to_vec();
    latest.sort_unstable();
    latest.get(latest.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

/// Whether no job runs in this state. A hold is part of its job.
fn is_stable(state: &str) -> bool {
    matches!(state, "enroll" | "manageable" | "available" | "active" | "rescue" | "error")
        || state.ends_with("failed")
}

/// Whether a job that ends in this state succeeded.
fn is_success(state: &str) -> bool {
    !state.ends_with("failed") && state != "error"
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_change(node: u128, second: i64, from: &str, to: &str) -> StateEntry {
        let node = NodeId(uuid::Uuid::from_u128(node));
        StateEntry { node, at: Timestamp::from_secs(second), from: from.into(), to: to.into() }
    }

    #[test]
    fn separates_concurrent_jobs_and_ignores_failures() {
        let entries = vec![
            // The start of this job was not read.
            state_change(9, 0, "wait call-back", "deploying"),
            state_change(1, 1, "available", "deploying"),
            state_change(2, 2, "available", "deploying"),
            state_change(9, 3, "deploying", "active"),
            state_change(1, 5, "deploying", "wait call-back"),
            state_change(2, 6, "deploying", "deploy failed"),
            state_change(1, 11, "wait call-back", "deploying"),
            state_change(1, 12, "deploying", "active"),
            state_change(2, 20, "deploy failed", "deploying"),
            state_change(2, 40, "deploying", "active"),
        ];
        let job_types = job_durations(entries);
        let jobs: Vec<Value> = job_types.iter().map(job_json).collect();
        assert_eq!(
            Value::from(jobs),
            json!([{
                "starts_in": "deploying", "ends_in": "active", "count": 2,
                "median_ms": 11_000, "p90_ms": 11_000,
                "phases": [{"state": "deploying", "median_ms": 5_000}],
            }])
        );
    }

    #[test]
    fn percentiles_use_the_latest_jobs() {
        let all: Vec<u64> = (0..1_000).collect();
        assert_eq!((percentile(&all, 50), percentile(&all, 90)), (899, 979));
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!(percentile(&[7], 90), 7);
    }
}
