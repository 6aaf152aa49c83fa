// SPDX-License-Identifier: Apache-2.0
//! The most recent log lines of each agent, as the agents send them.
//!
//! They are kept in memory, with a size limit, to show what a machine does now or did before its
//! agent stopped responding. The logs of failed jobs are collected separately (`agent_logs`). Each
//! process has only the lines it received; agents use the URL of the process that booted them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{MASK, NodeId, Secret, Timestamp, mask_urls};

use crate::agent::is_equal;
use crate::{Conductor, ConductorError};

/// The size limit per agent in bytes: ten times the log of a long deployment.
const AGENT_LIMIT: usize = 128 << 10;
/// The size limit of all agents together in bytes.
const TOTAL_LIMIT: usize = 32 << 20;
/// The maximum length of a line in bytes; longer lines are truncated.
const MAX_LINE: usize = 4 << 10;
/// The memory overhead of a line in bytes.
const LINE_OVERHEAD: usize = 48;
/// The number of requests that an agent may send at once; after that, one per [`REQUEST_INTERVAL`].
const BURST: u32 = 10;
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Log lines from an agent.
#[derive(Clone, Debug)]
pub struct AgentLogLines {
    /// The agent token.
    pub token: Secret<String>,
    /// The id of this run of the agent: the line numbers of each run start at 0.
    pub run: String,
    /// The number of the first line.
    pub first: u64,
    /// The lines.
    pub lines: Vec<String>,
}

/// The stored log lines of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentLogTail {
    /// When the last lines arrived.
    pub received_at: Timestamp,
    /// The number of the next line, for the next request.
    pub next: u64,
    /// The lines.
    pub lines: Vec<String>,
}

/// Why log lines were rejected.
#[derive(Debug, thiserror::Error)]
pub enum AgentLogError {
    /// The rate limit is exceeded.
    #[error("the agent sends its log too often; retry later")]
    RateLimited,
    /// Any other error.
    #[error(transparent)]
    Other(#[from] ConductorError),
}

impl Conductor {
    /// Stores log lines of the agent of a node.
    ///
    /// # Errors
    /// If the node does not exist, the token is wrong, or the rate limit is exceeded.
    pub async fn append_agent_log(
        &self,
        id: NodeId,
        log: AgentLogLines,
    ) -> Result<(), AgentLogError> {
        let read = self.store.read(move |reader| {
            let Some(node) = reader.get(id)? else {
                return Err(ConductorError::NoSuchNode(id.to_string()));
            };
            Ok(reader.reveal(&node)?.agent_token)
        });
        let known = read.await?;
        let token = log.token.reveal();
        if !known.is_some_and(|known| is_equal(known.reveal().as_bytes(), token.as_bytes())) {
            return Err(ConductorError::Agent(
                "Invalid or missing agent token received.".to_owned(),
            )
            .into());
        }
        if self.agent_log_tails.lock().append(id, &log, self.now()) {
            Ok(())
        } else {
            Err(AgentLogError::RateLimited)
        }
    }

    /// The stored log lines of a node's agent, starting at number `after`. Returns `None` if this
    /// process received none.
    #[must_use]
    pub fn agent_log_tail(&self, id: NodeId, after: u64) -> Option<AgentLogTail> {
        let tails = self.agent_log_tails.lock();
        let tail = tails.tails.get(&id)?;
        let oldest = tail.next - tail.lines.len() as u64;
        let skipped = usize::try_from(after.saturating_sub(oldest)).unwrap_or(usize::MAX);
        let lines = tail.lines.iter().skip(skipped).cloned().collect();
        Some(AgentLogTail { received_at: tail.received_at, next: tail.next, lines })
    }
}

/// The log lines of all agents.
#[derive(Default)]
pub(crate) struct AgentLogTails(Mutex<LogTails>);

impl AgentLogTails {
    fn lock(&self) -> MutexGuard<'_, LogTails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct LogTails {
    tails: HashMap<NodeId, LogTail>,
    bytes: usize,
}

/// The log lines of one agent.
struct LogTail {
    run: String,
    /// The number of the agent's next line.
    expected: u64,
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of our next line: it continues over runs of the agent.
    next: u64,
    received_at: Timestamp,
    /// The token bucket of the rate limit, as of `received_at`.
    budget: Duration,
}

impl LogTails {
    /// Appends lines; returns false if the rate limit is exceeded.
    fn append(&mut self, id: NodeId, log: &AgentLogLines, now: Timestamp) -> bool {
        let tail = self.tails.entry(id).or_insert_with(|| LogTail {
            run: log.run.clone(),
            expected: 0,
            lines: VecDeque::new(),
            bytes: 0,
            next: 0,
            received_at: now,
            budget: REQUEST_INTERVAL * BURST,
        });
        let refilled = tail.budget + now.since(tail.received_at);
        let Some(rest) = refilled.min(REQUEST_INTERVAL * BURST).checked_sub(REQUEST_INTERVAL)
        else {
            return false;
        };
        tail.budget = rest;
        tail.received_at = now;
        let before = tail.bytes;
        tail.append(log);
        self.bytes = self.bytes - before + tail.bytes;
        while self.bytes > TOTAL_LIMIT
            && let Some(oldest) = self.oldest_except(id)
            && let Some(removed) = self.tails.remove(&oldest)
        {
            self.bytes -= removed.bytes;
        }
        true
    }

    /// The agent other than `id` whose last lines are the oldest.
    fn oldest_except(&self, id: NodeId) -> Option<NodeId> {
        let others = self.tails.iter().filter(|(other, _)| **other != id);
        others.min_by_key(|(_, tail)| tail.received_at).map(|(other, _)| *other)
    }
}

impl LogTail {
    fn append(&mut self, log: &AgentLogLines) {
        if self.run != log.run {
            self.run.clone_from(&log.run);
            self.expected = 0;
            self.push("--- agent restarted ---".to_owned());
        }
        let missing = log.first.saturating_sub(self.expected);
        if missing > 0 {
            self.push(format!("--- {missing} lines are missing ---"));
        }
        // An agent that got no response repeats its lines.
        let known = self.expected.saturating_sub(log.first);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        for line in log.lines.iter().skip(known) {
            self.push(sanitize(line, log.token.reveal()));
        }
        self.expected = self.expected.max(log.first.saturating_add(log.lines.len() as u64));
    }

    fn push(&mut self, line: String) {
        self.bytes += line.len() + LINE_OVERHEAD;
        self.next += 1;
        self.lines.push_back(line);
        while self.bytes > AGENT_LIMIT
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len() + LINE_OVERHEAD;
        }
    }
}

/// Truncates a line, masks the token and passwords of URLs, and replaces control characters.
fn sanitize(line: &str, token: &str) -> String {
    let mut end = line.len().min(MAX_LINE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    // Mask before truncating, so that no part of the token remains.
    let line = if line.contains(token) { &line.replace(token, MASK) } else { &line[..end] };
    mask_urls(line)
        .chars()
        .take(MAX_LINE)
        .map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";

    fn lines(run: &str, first: u64, lines: &[&str]) -> AgentLogLines {
        AgentLogLines {
            token: Secret::new(TOKEN.to_owned()),
            run: run.to_owned(),
            first,
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    fn lines_of(tails: &LogTails, id: NodeId) -> Vec<&str> {
        tails.tails[&id].lines.iter().map(String::as_str).collect()
    }

    #[test]
    fn skips_repeated_lines_and_marks_missing_ones() {
        let (mut tails, id) = (LogTails::default(), NodeId::random());
        let now = Timestamp::from_secs(1);
        for (run, first, sent) in [
            ("x", 0, ["a", "b"].as_slice()),
            ("x", 1, &["b", "c"]),
            ("x", 0, &["a"]),
            ("x", 5, &["f"]),
            ("y", 0, &["again \u{1b}[2J", &format!("token {TOKEN}!")]),
        ] {
            assert!(tails.append(id, &lines(run, first, sent), now));
        }
        assert_eq!(
            lines_of(&tails, id),
            [
                "a",
                "b",
                "c",
                "--- 2 lines are missing ---",
                "f",
                "--- agent restarted ---",
                "again \u{fffd}[2J",
                "token ******!",
            ]
        );
    }

    #[test]
    fn limits_the_rate_of_requests() {
        let (mut tails, id) = (LogTails::default(), NodeId::random());
        let mut now = Timestamp::from_secs(1);
        for number in 0..u64::from(BURST) {
            assert!(tails.append(id, &lines("x", number, &["a"]), now));
        }
        assert!(!tails.append(id, &lines("x", 99, &["a"]), now));
        now = now.plus(REQUEST_INTERVAL);
        assert!(tails.append(id, &lines("x", 10, &["a"]), now));
        assert!(!tails.append(id, &lines("x", 99, &["a"]), now));
        assert_eq!(tails.tails[&id].next, 11, "rejected lines are not stored");
    }

    #[test]
    fn limits_memory() {
        let mut tails = LogTails::default();
        let long = "é".repeat(MAX_LINE);
        let many: Vec<&str> = vec![&long; 40];
        let ids: Vec<_> = (0..300).map(|_| NodeId::random()).collect();
        for (second, id) in ids.iter().enumerate() {
            let now = Timestamp::from_secs(i64::try_from(second).unwrap());
            assert!(tails.append(*id, &lines("x", 0, &many), now));
            assert!(tails.tails[id].bytes <= AGENT_LIMIT);
        }
        let real: usize = tails.tails.values().map(|tail| tail.bytes).sum();
        assert_eq!(real, tails.bytes);
        assert!(tails.bytes <= TOTAL_LIMIT);
        assert!(!tails.tails.contains_key(&ids[0]), "the oldest is removed first");
        assert!(tails.tails.contains_key(&ids[299]));
    }
}
