// SPDX-License-Identifier: Apache-2.0
//! What decisions and driver calls exchange: the progress of an action, and hints about the job.

use crate::Timestamp;

/// How far a driver call brought an action. Drivers return it, `lifecycle::record` evaluates it.
///
/// All variants but [`Done`](Self::Done) and [`AgentReady`](Self::AgentReady) request the same call
/// again, with the driver state that came with the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionProgress {
    /// The action is done.
    Done,
    /// The action is done and the agent runs. It may offer steps of its own, which must be listed.
    AgentReady,
    /// The machine boots the agent, or the agent runs a command. Repeat the call after the next
    /// heartbeat.
    WaitForAgent,
    /// The machine boots an installer. Repeat the call after the installer's next status report.
    WaitForInstaller,
    /// The agent runs a command. Repeat the call after the next heartbeat, or at this time.
    PollAgentAt(Timestamp),
    /// The machine or its BMC works without an agent. Repeat the call at this time.
    PollAt(Timestamp),
    /// Store the driver state, then repeat the call at once.
    Checkpoint,
}

impl ActionProgress {
    /// Whether the same call has to be made again.
    #[must_use]
    pub const fn is_unfinished(self) -> bool {
        !matches!(self, Self::Done | Self::AgentReady)
    }
}

/// What a driver call needs to know about the job. Decided by `lifecycle::job_hints`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobHints {
    /// Whether all steps succeeded, so that a running agent may be kept for the next job.
    pub may_keep_agent: bool,
    /// Whether a later step needs the agent, so that a reboot must boot it again.
    pub needs_agent_later: bool,
    /// Since when the agent does not respond to retries.
    pub agent_unreachable_since: Option<Timestamp>,
}

impl JobHints {
    /// The hints of a node without a job.
    pub const NONE: Self =
        Self { may_keep_agent: false, needs_agent_later: false, agent_unreachable_since: None };
}
