// SPDX-License-Identifier: Apache-2.0
//! What agents say while they work: the last lines of each, as they come.
//!
//! They are kept in memory only, and not for ever: they answer what a machine does right now, or what
//! it did before it fell silent. What is kept of a job that failed is fetched from the agent, and is
//! another thing (`agent_logs`). Each process knows what was said to it; agents are told the URL of
//! the process that booted them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{MASK, NodeId, Secret, Timestamp, mask_urls};

use crate::agent::same;
use crate::{Conductor, Error};

/// Bytes kept of one agent: a long deployment says a tenth of that.
const MOST_OF_ONE: usize = 128 << 10;
/// Bytes kept of all agents together.
const MOST_OF_ALL: usize = 32 << 20;
/// Bytes of a line; the rest is cut off.
const LONGEST_LINE: usize = 4 << 10;
/// What a line costs beside its bytes.
const PER_LINE: usize = 48;
/// Messages an agent may send at once; after that, one every [`PER_MESSAGE`].
const MESSAGES_AT_ONCE: u32 = 10;
const PER_MESSAGE: Duration = Duration::from_secs(1);

/// Lines that an agent sends.
#[derive(Clone, Debug)]
pub struct AgentLines {
    /// What proves that it is the agent of this machine.
    pub token: Secret<String>,
    /// A name for this life of the agent: numbers start again with the next.
    pub run: String,
    /// The number of the first line here, counted from the agent's start.
    pub first: u64,
    /// The lines.
    pub lines: Vec<String>,
}

/// What is kept of an agent's lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaidByAgent {
    /// When it last said something.
    pub heard_at: Timestamp,
    /// The number to ask from next time.
    pub next: u64,
    /// The lines.
    pub lines: Vec<String>,
}

/// Why lines were not taken.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// It sends too often.
    #[error("this agent sends its log too often; it may go on in a moment")]
    TooOften,
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

impl Conductor {
    /// Takes lines from the agent of a node.
    ///
    /// # Errors
    /// If there is no such node, if it is not its agent, or if it sends too often.
    pub async fn hear_lines(&self, id: NodeId, said: AgentLines) -> Result<(), LinesError> {
        let read = self.store.read(move |reader| {
            let Some(node) = reader.get(id)? else {
                return Err(Error::NoSuchNode(id.to_string()));
            };
            Ok(reader.reveal(&node)?.agent_token)
        });
        let known = read.await?;
        let given = said.token.reveal();
        if !known.is_some_and(|known| same(known.reveal().as_bytes(), given.as_bytes())) {
            return Err(Error::Agent("Invalid or missing agent token received.".to_owned()).into());
        }
        if self.said.lock().hear(id, &said, (self.clock)()) {
            Ok(())
        } else {
            Err(LinesError::TooOften)
        }
    }

    /// What is kept of the lines of a node's agent, from a number on; none if it never said anything
    /// to this process.
    #[must_use]
    pub fn lines_of_agent(&self, id: NodeId, after: u64) -> Option<SaidByAgent> {
        let said = self.said.lock();
        let tail = said.tails.get(&id)?;
        let oldest = tail.next - tail.lines.len() as u64;
        let skipped = usize::try_from(after.saturating_sub(oldest)).unwrap_or(usize::MAX);
        let lines = tail.lines.iter().skip(skipped).cloned().collect();
        Some(SaidByAgent { heard_at: tail.heard_at, next: tail.next, lines })
    }
}

/// The lines of all agents.
#[derive(Default)]
pub(crate) struct Said(Mutex<Tails>);

impl Said {
    fn lock(&self) -> MutexGuard<'_, Tails> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Tails {
    tails: HashMap<NodeId, Tail>,
    bytes: usize,
}

/// The last lines of one agent.
struct Tail {
    run: String,
    /// The number the agent's next line should have.
    expected: u64,
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of our next line: it goes on from one life of the agent to the next.
    next: u64,
    heard_at: Timestamp,
    /// Messages it may send at once, as of `heard_at`, in microseconds' worth.
    allowance: Duration,
}

impl Tails {
    /// Takes lines; false if they come too often.
    fn hear(&mut self, id: NodeId, said: &AgentLines, now: Timestamp) -> bool {
        let tail = self.tails.entry(id).or_insert_with(|| Tail {
            run: said.run.clone(),
            expected: 0,
            lines: VecDeque::new(),
            bytes: 0,
            next: 0,
            heard_at: now,
            allowance: PER_MESSAGE * MESSAGES_AT_ONCE,
        });
        let gained = tail.allowance + now.since(tail.heard_at);
        let Some(rest) = gained.min(PER_MESSAGE * MESSAGES_AT_ONCE).checked_sub(PER_MESSAGE) else {
            return false;
        };
        tail.allowance = rest;
        tail.heard_at = now;
        let before = tail.bytes;
        tail.take(said);
        self.bytes = self.bytes - before + tail.bytes;
        while self.bytes > MOST_OF_ALL
            && let Some(quietest) = self.quietest_beside(id)
            && let Some(forgotten) = self.tails.remove(&quietest)
        {
            self.bytes -= forgotten.bytes;
        }
        true
    }

    /// The agent that said nothing for the longest time.
    fn quietest_beside(&self, id: NodeId) -> Option<NodeId> {
        let others = self.tails.iter().filter(|(other, _)| **other != id);
        others.min_by_key(|(_, tail)| tail.heard_at).map(|(other, _)| *other)
    }
}

impl Tail {
    fn take(&mut self, said: &AgentLines) {
        if self.run != said.run {
            self.run.clone_from(&said.run);
            self.expected = 0;
            self.keep("--- the agent started again ---".to_owned());
        }
        let missed = said.first.saturating_sub(self.expected);
        if missed > 0 {
            self.keep(format!("--- {missed} lines did not get here ---"));
        }
        // What came before, and whose answer got lost, comes again.
        let known = self.expected.saturating_sub(said.first);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        for line in said.lines.iter().skip(known) {
            self.keep(clean(line, said.token.reveal()));
        }
        self.expected = self.expected.max(said.first.saturating_add(said.lines.len() as u64));
    }

    fn keep(&mut self, line: String) {
        self.bytes += line.len() + PER_LINE;
        self.next += 1;
        self.lines.push_back(line);
        while self.bytes > MOST_OF_ONE
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len() + PER_LINE;
        }
    }
}

/// A line as it may be shown: of bounded length, without the token and passwords of URLs, and without
/// what would steer a terminal.
fn clean(line: &str, token: &str) -> String {
    let mut end = line.len().min(LONGEST_LINE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    // Before it is cut: half a token is still too much.
    let line = if line.contains(token) { &line.replace(token, MASK) } else { &line[..end] };
    mask_urls(line)
        .chars()
        .take(LONGEST_LINE)
        .map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";

    fn lines(run: &str, first: u64, lines: &[&str]) -> AgentLines {
        AgentLines {
            token: Secret::new(TOKEN.to_owned()),
            run: run.to_owned(),
            first,
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    fn tail_of(said: &Tails, id: NodeId) -> Vec<&str> {
        said.tails[&id].lines.iter().map(String::as_str).collect()
    }

    #[test]
    fn lines_that_come_twice_or_not_at_all_are_noticed() {
        let (mut said, id) = (Tails::default(), NodeId::random());
        let now = Timestamp::from_secs(1);
        for (run, first, sent) in [
            ("x", 0, ["a", "b"].as_slice()),
            ("x", 1, &["b", "c"]),
            ("x", 0, &["a"]),
            ("x", 5, &["f"]),
            ("y", 0, &["again \u{1b}[2J", &format!("token {TOKEN}!")]),
        ] {
            assert!(said.hear(id, &lines(run, first, sent), now));
        }
        assert_eq!(
            tail_of(&said, id),
            [
                "a",
                "b",
                "c",
                "--- 2 lines did not get here ---",
                "f",
                "--- the agent started again ---",
                "again \u{fffd}[2J",
                "token ******!",
            ]
        );
    }

    #[test]
    fn nobody_can_send_without_end() {
        let (mut said, id) = (Tails::default(), NodeId::random());
        let mut now = Timestamp::from_secs(1);
        for number in 0..u64::from(MESSAGES_AT_ONCE) {
            assert!(said.hear(id, &lines("x", number, &["a"]), now));
        }
        assert!(!said.hear(id, &lines("x", 99, &["a"]), now));
        now = now.plus(PER_MESSAGE);
        assert!(said.hear(id, &lines("x", 10, &["a"]), now));
        assert!(!said.hear(id, &lines("x", 99, &["a"]), now));
        assert_eq!(said.tails[&id].next, 11, "what was refused is not there");
    }

    #[test]
    fn memory_is_bounded() {
        let mut said = Tails::default();
        let long = "é".repeat(LONGEST_LINE);
        let many: Vec<&str> = vec![&long; 40];
        let ids: Vec<_> = (0..300).map(|_| NodeId::random()).collect();
        for (second, id) in ids.iter().enumerate() {
            let now = Timestamp::from_secs(i64::try_from(second).unwrap());
            assert!(said.hear(*id, &lines("x", 0, &many), now));
            assert!(said.tails[id].bytes <= MOST_OF_ONE);
        }
        let real: usize = said.tails.values().map(|tail| tail.bytes).sum();
        assert_eq!(real, said.bytes);
        assert!(said.bytes <= MOST_OF_ALL);
        assert!(!said.tails.contains_key(&ids[0]), "the quietest goes first");
        assert!(said.tails.contains_key(&ids[299]));
    }
}
