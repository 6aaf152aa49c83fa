// SPDX-License-Identifier: Apache-2.0
//! Waits: why a node waits, when it acts next, and when the wait fails.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ProvisionState, Timestamp, WaitReason};

/// When a wait fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Deadline {
    /// The wait fails at this time.
    At(Timestamp),
    /// The wait has no timeout.
    Never,
}

impl Deadline {
    /// `timeout` after `start`; a zero timeout means no deadline.
    #[must_use]
    pub fn after(start: Timestamp, timeout: Duration) -> Self {
        if timeout.is_zero() { Self::Never } else { Self::At(start.plus(timeout)) }
    }

    /// The time of the deadline, if there is one.
    #[must_use]
    pub const fn timestamp(self) -> Option<Timestamp> {
        match self {
            Self::At(timestamp) => Some(timestamp),
            Self::Never => None,
        }
    }
}

/// Why a node waits, when it acts next, and when the wait fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "StoredWait", into = "StoredWait")]
pub struct Wait {
    /// The reason.
    pub reason: WaitReason,
    /// When the wait fails.
    pub deadline: Deadline,
    /// When the next action starts without an event: a poll, a retry, another boot, or the step after
    /// a `wait` step. Always before the deadline; `None` if nothing is done before it.
    pub next_action_at: Option<Timestamp>,
    /// The provision state in which the wait began.
    pub state: ProvisionState,
}

impl Wait {
    /// When the node has to be processed again, outside of maintenance: at the next action, or at the
    /// deadline.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        self.next_action_at.or(self.deadline.timestamp())
    }
}

/// The stored form. Earlier versions stored the time of the next action as the deadline; the aliases
/// are their names.
///
/// Versions before the job queues cannot read their wait reason. In a rolling upgrade they read such a wait
/// as a hold, which they leave alone; `queued` distinguishes it.
#[derive(Serialize, Deserialize)]
struct StoredWait {
    #[serde(alias = "why")]
    reason: WaitReason,
    #[serde(alias = "until")]
    deadline: Deadline,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_action_at: Option<Timestamp>,
    state: ProvisionState,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    queued: bool,
}

impl From<Wait> for StoredWait {
    fn from(wait: Wait) -> Self {
        let Wait { reason, deadline, next_action_at, state } = wait;
        let queued = reason == WaitReason::JobQueue;
        let reason = if queued { WaitReason::Hold } else { reason };
        Self { reason, deadline, next_action_at, state, queued }
    }
}

impl From<StoredWait> for Wait {
    fn from(stored: StoredWait) -> Self {
        let StoredWait { reason, deadline, next_action_at, state, queued } = stored;
        let reason = if queued { WaitReason::JobQueue } else { reason };
        if next_action_at.is_none() && reason.is_scheduled() {
            let next_action_at = deadline.timestamp();
            return Self { reason, deadline: Deadline::Never, next_action_at, state };
        }
        Self { reason, deadline, next_action_at, state }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wait(reason: WaitReason, deadline: Deadline, next_action_at: Option<i64>) -> Wait {
        let next_action_at = next_action_at.map(Timestamp);
        Wait { reason, deadline, next_action_at, state: ProvisionState::DeployWait }
    }

    #[test]
    fn reads_waits_stored_by_earlier_versions() {
        let at = |time| Deadline::At(Timestamp(time));
        for (reason, until, expected) in [
            ("BMC answer", json!({"At": 5}), (WaitReason::BmcResponse, Deadline::Never, Some(5))),
            ("agent step", json!({"At": 5}), (WaitReason::AgentStep, Deadline::Never, Some(5))),
            ("agent step", json!("Never"), (WaitReason::AgentStep, Deadline::Never, None)),
            ("agent heartbeat", json!({"At": 5}), (WaitReason::AgentHeartbeat, at(5), None)),
            ("hold", json!("Never"), (WaitReason::Hold, Deadline::Never, None)),
        ] {
            let stored = json!({"why": reason, "until": until, "state": "wait call-back"});
            let read: Wait = serde_json::from_value(stored).unwrap();
            assert_eq!(read, wait(expected.0, expected.1, expected.2), "{reason}");
        }
    }

    #[test]
    fn stored_waits_are_read_unchanged() {
        for wait in [
            wait(WaitReason::BmcResponse, Deadline::At(Timestamp(9)), Some(5)),
            wait(WaitReason::AgentHeartbeat, Deadline::At(Timestamp(9)), Some(5)),
            wait(WaitReason::BmcStep, Deadline::Never, Some(5)),
            wait(WaitReason::Hold, Deadline::Never, None),
            wait(WaitReason::JobQueue, Deadline::Never, None),
        ] {
            let text = serde_json::to_string(&wait).unwrap();
            assert_eq!(serde_json::from_str::<Wait>(&text).unwrap(), wait, "{text}");
        }
    }

    #[test]
    fn earlier_versions_read_a_queued_job_as_held() {
        let stored = json!(wait(WaitReason::JobQueue, Deadline::Never, None));
        assert_eq!(
            stored,
            json!({"reason": "hold", "deadline": "Never", "state": "wait call-back", "queued": true})
        );
    }

    #[test]
    fn next_action_is_before_the_deadline() {
        let deadline = Deadline::At(Timestamp(9));
        assert_eq!(wait(WaitReason::BmcResponse, deadline, Some(5)).due_at(), Some(Timestamp(5)));
        assert_eq!(wait(WaitReason::AgentHeartbeat, deadline, None).due_at(), Some(Timestamp(9)));
        assert_eq!(wait(WaitReason::Hold, Deadline::Never, None).due_at(), None);
    }
}
