// SPDX-License-Identifier: Apache-2.0
//! How long jobs usually take, from those that ended last.
//!
//! A job begins when a node leaves a state of rest and is over when it rests again; it is known by
//! the state it begins with, such as `deploying`. Jobs that failed say nothing about how long one
//! takes that does not.

use std::collections::{BTreeMap, HashMap};

use node_model::{NodeId, Timestamp};
use serde_json::{Value, json};
use store::Entry;

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// How many times of entering a state are looked at, and how many jobs of a kind count. A job has
/// about eight, so that this is the last six thousand jobs.
const LOOKED_AT: u32 = 50_000;
const MOST_OF_A_KIND: usize = 200;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/durations",
    "Say how long jobs and their phases took lately",
    handler!(durations),
)
.since(UNVERSIONED)];

/// A job that goes on.
struct Running {
    begins: String,
    began: Timestamp,
    state: String,
    since: Timestamp,
    /// How long it was in each state, in the order in which it came to them.
    phases: Vec<(String, u64)>,
}

/// What jobs of a kind took, in milliseconds.
#[derive(Default)]
struct Kind {
    whole: Vec<u64>,
    /// In the order of the job that was looked at last.
    order: Vec<String>,
    phases: BTreeMap<String, Vec<u64>>,
}

async fn durations(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let entries = call.app.store.scan(|reader| reader.entries_into_states(LOOKED_AT)).await?;
    let since = entries.first().map(|first| first.at.to_string());
    let jobs: Vec<Value> = measured(entries).iter().map(shown).collect();
    Ok(Reply::ok(json!({"jobs": jobs, "since": since}).to_string().into_bytes()))
}

fn measured(entries: Vec<Entry>) -> BTreeMap<(String, String), Kind> {
    let mut kinds: BTreeMap<(String, String), Kind> = BTreeMap::new();
    let mut running: HashMap<NodeId, Running> = HashMap::new();
    for Entry { node, at, from, to } in entries {
        if rests(&from) && !rests(&to) {
            let (begins, state) = (to.clone(), to);
            running
                .insert(node, Running { begins, began: at, state, since: at, phases: Vec::new() });
            continue;
        }
        // Its beginning is too long ago for one that is not there.
        let Some(job) = running.get_mut(&node) else { continue };
        job.leave(at);
        if !rests(&to) {
            job.state = to;
            job.since = at;
            continue;
        }
        let Some(job) = running.remove(&node) else { continue };
        if is_good(&to) {
            let took = millis(at, job.began);
            kinds.entry((job.begins, to)).or_default().add(took, job.phases);
        }
    }
    kinds
}

impl Running {
    fn leave(&mut self, at: Timestamp) {
        let took = millis(at, self.since);
        match self.phases.iter_mut().find(|(state, _)| *state == self.state) {
            Some((_, sum)) => *sum += took,
            None => self.phases.push((self.state.clone(), took)),
        }
    }
}

impl Kind {
    fn add(&mut self, took: u64, phases: Vec<(String, u64)>) {
        self.whole.push(took);
        self.order = phases.iter().map(|(state, _)| state.clone()).collect();
        for (state, took) in phases {
            self.phases.entry(state).or_default().push(took);
        }
    }
}

fn shown(((begins, ends_in), kind): (&(String, String), &Kind)) -> Value {
    let phases: Vec<Value> = kind
        .order
        .iter()
        .filter_map(|state| Some((state, kind.phases.get(state)?)))
        .map(|(state, took)| json!({"state": state, "median_ms": share(took, 50)}))
        .collect();
    json!({
        "begins": begins,
        "ends_in": ends_in,
        "count": kind.whole.len(),
        "median_ms": share(&kind.whole, 50),
        "slow_ms": share(&kind.whole, 90),
        "phases": phases,
    })
}

/// What so many per cent of the latest did not exceed.
fn share(all: &[u64], percent: usize) -> u64 {
    let mut latest = all[all.len().saturating_sub(MOST_OF_A_KIND)..].to_vec();
    latest.sort_unstable();
    latest.get(latest.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

/// Whether nothing goes on in this state. A hold is a part of its job.
fn rests(state: &str) -> bool {
    matches!(state, "enroll" | "manageable" | "available" | "active" | "rescue" | "error")
        || state.ends_with("failed")
}

/// Whether a job ended well that ended here.
fn is_good(state: &str) -> bool {
    !state.ends_with("failed") && state != "error"
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(node: u128, second: i64, from: &str, to: &str) -> Entry {
        let node = NodeId(uuid::Uuid::from_u128(node));
        Entry { node, at: Timestamp::from_secs(second), from: from.into(), to: to.into() }
    }

    #[test]
    fn jobs_side_by_side_are_told_apart_and_failures_do_not_count() {
        let entries = vec![
            // Its beginning is not told any more.
            entered(9, 0, "wait call-back", "deploying"),
            entered(1, 1, "available", "deploying"),
            entered(2, 2, "available", "deploying"),
            entered(9, 3, "deploying", "active"),
            entered(1, 5, "deploying", "wait call-back"),
            entered(2, 6, "deploying", "deploy failed"),
            entered(1, 11, "wait call-back", "deploying"),
            entered(1, 12, "deploying", "active"),
            entered(2, 20, "deploy failed", "deploying"),
            entered(2, 40, "deploying", "active"),
        ];
        let kinds = measured(entries);
        let jobs: Vec<Value> = kinds.iter().map(shown).collect();
        assert_eq!(
            Value::from(jobs),
            json!([{
                "begins": "deploying", "ends_in": "active", "count": 2,
                "median_ms": 11_000, "slow_ms": 11_000,
                "phases": [{"state": "deploying", "median_ms": 5_000}],
            }])
        );
    }

    #[test]
    fn the_median_is_of_the_latest() {
        let all: Vec<u64> = (0..1_000).collect();
        assert_eq!((share(&all, 50), share(&all, 90)), (899, 979));
        assert_eq!(share(&[], 50), 0);
        assert_eq!(share(&[7], 90), 7);
    }
}
