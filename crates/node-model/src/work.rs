// SPDX-License-Identifier: Apache-2.0
//! Jobs in progress, in enough detail to resume them after a process restart.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;

use crate::named_enum;
use crate::{
    Actor, BootMethod, JsonObject, PowerState, PowerTarget, Step, StepFlow, Timestamp, WaitReason,
};

named_enum! {
    /// The kinds of jobs.
    WorkKind {
        /// Checks access to the BMC of an enrolled node.
        Verify = "verify",
        /// Collects the hardware inventory.
        Inspect = "inspect",
        /// Automated cleaning.
        Clean = "clean",
        /// Cleaning with steps chosen by a user.
        ManualClean = "manual clean",
        /// Deploys an instance.
        Deploy = "deploy",
        /// Deploys an instance again.
        Rebuild = "rebuild",
        /// Removes the instance.
        TearDown = "tear down",
        /// Boots the rescue system.
        Rescue = "rescue",
        /// Leaves the rescue system.
        Unrescue = "unrescue",
        /// Takes over a running machine.
        Adopt = "adopt",
        /// Runs steps on an active machine.
        Service = "service",
    }
}

impl WorkKind {
    /// The flow of steps that the job runs, if it runs any.
    #[must_use]
    pub const fn flow(self) -> Option<StepFlow> {
        match self {
            Self::Verify => Some(StepFlow::Verify),
            Self::Clean | Self::ManualClean => Some(StepFlow::Clean),
            Self::Deploy | Self::Rebuild => Some(StepFlow::Deploy),
            Self::Service => Some(StepFlow::Service),
            Self::Inspect | Self::TearDown | Self::Rescue | Self::Unrescue | Self::Adopt => None,
        }
    }
}

named_enum! {
    /// The part of a job that is running. Stages only move forward; each can be repeated from its
    /// start.
    Stage {
        /// Prepares the machine: networks, ramdisk, power.
        Prepare = "prepare",
        /// Lists the available steps of driver and agent, and orders them.
        Plan = "plan",
        /// Runs the steps from `Work::cursor` on; or, for jobs without steps, their only action.
        Run = "run",
        /// Restores networks, boot settings and power after success.
        Finish = "finish",
        /// All actions are done; only the transition to the final state is left.
        Over = "over",
        /// Restores networks, boot settings and power after a failure or an abort. The provision
        /// state has changed already.
        CleanUp = "clean up",
    }
}

/// A job in progress.
///
/// A wait is described by four fields, each with one meaning:
/// - `awaiting`: whether the current stage or step was started and waits for its end;
/// - [`Node::wait`](crate::Node::wait): why, and until when. A job that waits always has it; a job
///   that does not wait has it only while an action is retried;
/// - `heartbeat_received`: the event that ends the wait, until it is evaluated;
/// - [`Node::due_at`](crate::Node::due_at): derived from `wait` by `lifecycle::settle`
///   ([`Wait::due_at`](crate::Wait::due_at); nothing in maintenance), because the scheduler searches
///   this column.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Work {
    /// Correlates the journal entries of one job.
    pub id: Uuid,
    /// The kind of job.
    pub kind: WorkKind,
    /// The current stage.
    pub stage: Stage,
    /// The steps in the order in which they run. Empty until [`Stage::Plan`] is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The current step, as an index into `steps`.
    #[serde(default)]
    pub cursor: usize,
    /// Whether the current stage or step was started and ends by an event (a heartbeat, `unhold`, a
    /// deadline), so that it must not be started again.
    #[serde(default)]
    pub awaiting: bool,
    /// Whether a heartbeat arrived since the wait was last evaluated.
    #[serde(default, alias = "heard")]
    pub heartbeat_received: bool,
    /// Steps from the user's request, before they are merged with the driver's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_steps: Vec<Step>,
    /// Whether the job runs without booting the ramdisk.
    #[serde(default)]
    pub disable_ramdisk: bool,
    /// When the job was requested.
    pub started_at: Timestamp,
    /// When the current stage or step began.
    pub since: Timestamp,
    /// Who requested the job.
    #[serde(alias = "asked_by")]
    pub requested_by: Actor,
    /// Private data of the driver for the current stage or step. Cleared when it ends.
    #[serde(alias = "notes", default, skip_serializing_if = "JsonObject::is_empty")]
    pub driver_state: JsonObject,
    /// What the driver last reported about the current stage or step, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_text: Option<String>,
    /// Whether the job waits for an installer instead of the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_installer: bool,
    /// How often and how the machine was booted for the current wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootAttempts>,
    /// Whether the job was aborted by a user. Set in [`Stage::CleanUp`] only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Whether [`Stage::CleanUp`] powers the machine off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub power_off: bool,
    /// Whether the agent's logs were requested in the current stage or step, so that a retry does
    /// not request them again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logs_collected: bool,
    /// The retry in progress, if the BMC or the agent did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

impl Work {
    /// A job that has not done anything yet.
    #[must_use]
    pub const fn new(id: Uuid, kind: WorkKind, requested_by: Actor, now: Timestamp) -> Self {
        Self {
            id,
            kind,
            stage: Stage::Prepare,
            steps: Vec::new(),
            cursor: 0,
            awaiting: false,
            heartbeat_received: false,
            requested_steps: Vec::new(),
            disable_ramdisk: false,
            started_at: now,
            since: now,
            requested_by,
            driver_state: JsonObject::empty(),
            progress_text: None,
            awaits_installer: false,
            boot: None,
            aborted: false,
            power_off: false,
            logs_collected: false,
            retry: None,
        }
    }

    /// The step that is running.
    #[must_use]
    pub fn current_step(&self) -> Option<&Step> {
        match self.stage {
            Stage::Run => self.steps.get(self.cursor),
            Stage::Prepare | Stage::Plan | Stage::Finish | Stage::Over | Stage::CleanUp => None,
        }
    }

    /// Enters `stage`.
    pub fn begin_stage(&mut self, stage: Stage, now: Timestamp) {
        self.stage = stage;
        self.reset(now);
    }

    /// Moves on to the next step.
    pub fn begin_next_step(&mut self, now: Timestamp) {
        self.cursor += 1;
        self.reset(now);
    }

    /// Drops everything that concerns one stage or step.
    fn reset(&mut self, now: Timestamp) {
        self.since = now;
        self.awaiting = false;
        self.heartbeat_received = false;
        self.driver_state = JsonObject::empty();
        self.progress_text = None;
        self.awaits_installer = false;
        self.boot = None;
        self.logs_collected = false;
    }

    /// Moves what earlier versions stored under keys of `driver_state` into fields.
    fn upgrade(&mut self) {
        const OLD_KEYS: [&str; 6] = [
            "\"boots\"",
            "\"aborted\"",
            "\"power_off\"",
            "\"logs_collected\"",
            "\"awaited\"",
            "\"progress\"",
        ];
        let text = self.driver_state.as_str();
        if !OLD_KEYS.iter().any(|key| text.contains(key)) {
            return;
        }
        self.driver_state.edit(|state| {
            let mut flag = |key| state.remove(key).is_some();
            self.aborted |= flag("aborted");
            self.power_off |= flag("power_off");
            self.logs_collected |= flag("logs_collected");
            self.awaits_installer |= flag("awaited");
            if let Some(Value::String(text)) = state.remove("progress") {
                self.progress_text = Some(text);
            }
            if let Some(boots) = state.remove("boots") {
                self.boot = serde_json::from_value(boots).ok();
            }
        });
    }
}

impl Serialize for Work {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut work = Self::deserialize(deserializer)?;
        work.upgrade();
        Ok(work)
    }
}

/// The boots of a machine for the agent that the job waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BootAttempts {
    /// When the last boot was started.
    #[serde(alias = "at")]
    pub started_at: Timestamp,
    /// How many boots were started.
    #[serde(alias = "times")]
    pub count: u32,
    /// The boot method, if the boot interface chooses it automatically.
    #[serde(alias = "way")]
    pub method: Option<BootMethod>,
    /// When that method was first tried.
    #[serde(alias = "way_since")]
    pub method_since: Timestamp,
    /// Whether the agent made any request since the last boot.
    #[serde(alias = "answered")]
    pub responded: bool,
    /// Whether the failure of the method was recorded already. It counts once per wait, however
    /// often the machine is booted, so that one broken cable does not disqualify the method for the
    /// whole model.
    #[serde(alias = "told")]
    pub failure_recorded: bool,
}

/// A power change that was requested and is not done yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PowerRequest {
    /// The requested change.
    pub target: PowerTarget,
    /// Fails after this many seconds, if the user gave a timeout.
    pub timeout: Option<u32>,
    /// When it was requested.
    #[serde(alias = "asked_at")]
    pub requested_at: Timestamp,
    /// Who requested it.
    #[serde(alias = "asked_by")]
    pub requested_by: Actor,
    /// The retry in progress, if the BMC did not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

impl PowerRequest {
    /// The power state of the machine once the request is done.
    #[must_use]
    pub const fn target_state(&self) -> PowerState {
        self.target.state()
    }
}

/// An action that failed because a peer did not respond, and that is retried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retry {
    /// When the first attempt failed.
    pub since: Timestamp,
    /// The number of failed attempts.
    #[serde(alias = "tries")]
    pub attempts: u32,
    /// When the next attempt starts.
    pub at: Timestamp,
    /// The error of the last attempt.
    #[serde(alias = "why")]
    pub error: String,
    /// The peer that does not respond.
    #[serde(default, alias = "whom")]
    pub peer: UnreachablePeer,
}

named_enum! {
    /// The peer that does not respond.
    UnreachablePeer {
        /// The BMC.
        Bmc = "BMC",
        /// The agent.
        Agent = "agent",
    }
}

impl Default for UnreachablePeer {
    /// Jobs stored before agents were commanded name no peer: it was the BMC.
    fn default() -> Self {
        Self::Bmc
    }
}

impl UnreachablePeer {
    /// The wait reason of a node whose peer does not respond.
    #[must_use]
    pub const fn wait_reason(self) -> WaitReason {
        match self {
            Self::Bmc => WaitReason::BmcResponse,
            Self::Agent => WaitReason::AgentResponse,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_jobs_stored_by_earlier_versions() {
        let stored = json!({
            "id": "3f0c9d0e-7d1a-4f0e-9a51-0d3a5f2f2c11", "kind": "deploy", "stage": "clean up",
            "awaiting": true, "heard": true, "started_at": 1, "since": 2,
            "asked_by": {"kind": "conductor", "hostname": "a"},
            "notes": {
                "aborted": true, "power_off": true, "logs_collected": true, "own": 1,
                "awaited": "installer", "progress": "update 1 of 2 started",
                "boots": {"at": 5, "times": 2, "way": "ipxe", "way_since": 4, "answered": false,
                          "told": true},
            },
            "retry": {"since": 1, "tries": 3, "at": 9, "why": "timeout", "whom": "agent"},
        });
        let work: Work = serde_json::from_value(stored).unwrap();
        assert!(work.heartbeat_received && work.aborted && work.power_off && work.logs_collected);
        assert!(work.awaits_installer);
        assert_eq!(work.progress_text.as_deref(), Some("update 1 of 2 started"));
        assert_eq!(work.driver_state.as_str(), r#"{"own":1}"#);
        let boot = BootAttempts {
            started_at: Timestamp(5),
            count: 2,
            method: Some(BootMethod::Ipxe),
            method_since: Timestamp(4),
            responded: false,
            failure_recorded: true,
        };
        assert_eq!(work.boot, Some(boot));
        let retry = work.retry.clone().unwrap();
        assert_eq!((retry.attempts, retry.peer), (3, UnreachablePeer::Agent));
        let again: Work = serde_json::from_str(&serde_json::to_string(&work).unwrap()).unwrap();
        assert_eq!(again, work);
    }
}
