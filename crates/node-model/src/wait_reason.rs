// SPDX-License-Identifier: Apache-2.0
//! Why a job waits: the reasons, their texts and their properties.
//!
//! To add a reason, add a variant here. The compiler then requires its texts and properties, and a
//! decision in `lifecycle/src/decide.rs` for when its deadline passes. Two tests require the rest:
//! the generated JavaScript (`UPDATE=1 cargo test -p web-ui`) and a row in
//! `docs/guide/troubleshooting.md`. What remains is the code that begins the wait, usually in
//! `lifecycle/src/record.rs`.

use crate::named_enum;

named_enum! {
    /// The reason why a job makes no progress. The aliases are names that earlier versions stored.
    WaitReason {
        /// The agent has not sent a heartbeat yet.
        AgentHeartbeat = "agent heartbeat",
        /// The agent runs a step. It sends a heartbeat when the step ends, and is polled.
        AgentStep = "agent step",
        /// The machine or its BMC runs a step without the agent, and is polled.
        BmcStep = "BMC step",
        /// The inspection ramdisk has not sent its data yet.
        InspectionData = "inspection data",
        /// The time of a `wait` step is not over.
        WaitStep = "wait step",
        /// An operator holds the node until `unhold` or `abort`.
        Hold = "hold",
        /// As many jobs of this kind run as the configuration allows.
        JobQueue = "job queue",
        /// The BMC does not respond; the action is retried.
        #[serde(alias = "BMC answer")]
        BmcResponse = "BMC response",
        /// The agent does not respond; the action is retried.
        #[serde(alias = "agent answer")]
        AgentResponse = "agent response",
    }
}

impl WaitReason {
    /// What the node waits for, as a headline.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::AgentHeartbeat => "Waiting for the agent's first heartbeat",
            Self::AgentStep => "The agent runs a step",
            Self::BmcStep => "The machine or its BMC runs a step",
            Self::InspectionData => "Waiting for inspection data",
            Self::WaitStep => "Running a wait step",
            Self::Hold => "Held by an operator",
            Self::JobQueue => "Waiting in the job queue",
            Self::BmcResponse => "BMC unreachable",
            Self::AgentResponse => "Agent unreachable",
        }
    }

    /// What happens next.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::AgentHeartbeat => {
                "The machine boots the ramdisk. If the agent sends no request, the machine is booted \
                 again, if possible by another method. At the timeout the job fails."
            }
            Self::AgentStep => "The agent reports when the step ends; it is also polled.",
            Self::BmcStep => "The BMC is polled until the step ends.",
            Self::InspectionData => {
                "The machine boots the inspection ramdisk, which sends the inventory. At the timeout \
                 inspection fails."
            }
            Self::WaitStep => "The job continues by itself.",
            Self::Hold => "“Release hold” or “Abort” ends the hold.",
            Self::JobQueue => {
                "As many jobs of this kind run as the configuration allows. This one starts when others \
                 have ended, oldest first."
            }
            Self::BmcResponse => {
                "The request to the BMC is repeated. At the timeout the action fails."
            }
            Self::AgentResponse => {
                "The request to the agent is repeated. At the timeout the action fails."
            }
        }
    }

    /// What happens at [`Wait::next_action_at`](crate::Wait::next_action_at), to be followed by a
    /// time: "next poll in 0:02".
    #[must_use]
    pub const fn next_action(self) -> &'static str {
        match self {
            Self::AgentHeartbeat | Self::InspectionData => "next boot",
            Self::AgentStep | Self::BmcStep => "next poll",
            Self::WaitStep | Self::Hold | Self::JobQueue => "continues",
            Self::BmcResponse | Self::AgentResponse => "next attempt",
        }
    }

    /// Whether a peer does not respond and the action is retried.
    #[must_use]
    pub const fn is_retry(self) -> bool {
        match self {
            Self::BmcResponse | Self::AgentResponse => true,
            Self::AgentHeartbeat
            | Self::AgentStep
            | Self::BmcStep
            | Self::InspectionData
            | Self::WaitStep
            | Self::Hold
            | Self::JobQueue => false,
        }
    }

    /// Whether the job continues at a time that was stored when the wait began
    /// ([`Wait::next_action_at`](crate::Wait::next_action_at)). The times of the other waits follow
    /// from the settings and are computed again for each decision.
    #[must_use]
    pub const fn is_scheduled(self) -> bool {
        match self {
            Self::AgentStep
            | Self::BmcStep
            | Self::WaitStep
            | Self::BmcResponse
            | Self::AgentResponse => true,
            Self::AgentHeartbeat | Self::InspectionData | Self::Hold | Self::JobQueue => false,
        }
    }

    /// Whether a heartbeat ends the wait.
    #[must_use]
    pub const fn ends_with_heartbeat(self) -> bool {
        match self {
            Self::AgentHeartbeat | Self::AgentStep => true,
            Self::BmcStep
            | Self::InspectionData
            | Self::WaitStep
            | Self::Hold
            | Self::JobQueue
            | Self::BmcResponse
            | Self::AgentResponse => false,
        }
    }

    /// Whether the machine may be booting, so that it is booted again if no request arrives.
    #[must_use]
    pub const fn is_for_boot(self) -> bool {
        match self {
            Self::AgentHeartbeat | Self::InspectionData => true,
            Self::AgentStep
            | Self::BmcStep
            | Self::WaitStep
            | Self::Hold
            | Self::JobQueue
            | Self::BmcResponse
            | Self::AgentResponse => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubleshooting_guide_explains_all_reasons() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/troubleshooting.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let (_, table) = guide.split_once("| wait reason | meaning |").expect("the table exists");
        let reasons: Vec<&str> = table
            .lines()
            .skip(2)
            .map_while(|row| row.strip_prefix("| "))
            .flat_map(|row| row.split('|').next().unwrap_or_default().split(','))
            .map(str::trim)
            .collect();
        for reason in WaitReason::ALL {
            assert!(reasons.contains(&reason.as_str()), "{path} has no row for \"{reason}\"");
        }
    }

    #[test]
    fn retries_are_scheduled_and_texts_are_distinct() {
        let titles: std::collections::BTreeSet<_> =
            WaitReason::ALL.iter().map(|reason| reason.title()).collect();
        assert_eq!(titles.len(), WaitReason::ALL.len());
        for reason in WaitReason::ALL {
            assert!(!reason.is_retry() || reason.is_scheduled(), "{reason}");
            assert!(!reason.explanation().is_empty(), "{reason}");
        }
    }
}
