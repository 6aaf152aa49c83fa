// SPDX-License-Identifier: Apache-2.0
//! What a machine is in the middle of, in enough detail to go on after the process is gone.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::named;
use crate::{Actor, JsonObject, PowerTarget, ProvisionState, Step, StepFlow, Timestamp};

/// The note of a job with who is awaited, where that is not the agent.
pub const AWAITED: &str = "awaited";

named! {
    /// The jobs that change a machine.
    WorkKind {
        /// Try the BMC of an enrolled machine.
        Verify = "verify",
        /// Look at its hardware.
        Inspect = "inspect",
        /// Automated cleaning.
        Clean = "clean",
        /// Cleaning with steps chosen by a user.
        ManualClean = "manual clean",
        /// Put an image on it.
        Deploy = "deploy",
        /// Put an image on it again.
        Rebuild = "rebuild",
        /// Take it back.
        TearDown = "tear down",
        /// Boot the rescue system.
        Rescue = "rescue",
        /// Leave the rescue system.
        Unrescue = "unrescue",
        /// Take over a running machine.
        Adopt = "adopt",
        /// Run steps on an active machine.
        Service = "service",
    }
}

impl WorkKind {
    /// The flow of steps the job runs, if it runs any.
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

named! {
    /// How far a job has come. Stages only move forward; each is safe to repeat from its start.
    Stage {
        /// Make the machine ready: networks, ramdisk, power.
        Prepare = "prepare",
        /// Ask driver and agent which steps there are, and put them in order.
        Plan = "plan",
        /// Run the steps from `Work::cursor` on; or, for jobs without steps, the one thing they do.
        Run = "run",
        /// Put things back after success.
        Finish = "finish",
        /// Everything is done; only the transition that says so is left.
        Over = "over",
        /// Put things back after failure or abort; the provision state says so already.
        CleanUp = "clean up",
    }
}

/// A job in flight.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Ties the journal entries of one job together.
    pub id: Uuid,
    /// Which job.
    pub kind: WorkKind,
    /// How far it has come.
    pub stage: Stage,
    /// The steps in the order they run. Empty until planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The step being run, as an index into `steps`.
    #[serde(default)]
    pub cursor: usize,
    /// Whether the current stage or step has been started and its end is awaited from outside (an
    /// agent, a hold, a delay), so that it must not be started again.
    #[serde(default)]
    pub awaiting: bool,
    /// The agent has called since the wait was last looked at.
    #[serde(default)]
    pub heard: bool,
    /// Steps the user gave, before they are merged with the driver's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_steps: Vec<Step>,
    /// Do without the ramdisk.
    #[serde(default)]
    pub disable_ramdisk: bool,
    /// When the job was asked for.
    pub started_at: Timestamp,
    /// When the current stage or step began.
    pub since: Timestamp,
    /// Who asked.
    pub asked_by: Actor,
    /// What the driver wants to remember between attempts at the current stage or step.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub notes: JsonObject,
    /// The BMC does not answer, and the same is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

impl Work {
    /// The step being run.
    #[must_use]
    pub fn current_step(&self) -> Option<&Step> {
        match self.stage {
            Stage::Run => self.steps.get(self.cursor),
            Stage::Prepare | Stage::Plan | Stage::Finish | Stage::Over | Stage::CleanUp => None,
        }
    }
}

/// A change of power that has been asked for and not yet happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PowerRequest {
    /// What was asked.
    pub target: PowerTarget,
    /// Give up after this many seconds, if the user said so.
    pub timeout: Option<u32>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Who asked.
    pub asked_by: Actor,
    /// The BMC does not answer, and the same is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// Something that failed because the machine did not answer, and is tried again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retry {
    /// When the machine was first found silent.
    pub since: Timestamp,
    /// How many times it was tried since.
    pub tries: u32,
    /// When it is tried again.
    pub at: Timestamp,
    /// What the last try said.
    pub why: String,
    /// Who does not answer.
    #[serde(default)]
    pub whom: Silent,
}

named! {
    /// Who does not answer.
    Silent {
        /// The BMC.
        Bmc = "BMC",
        /// The agent.
        Agent = "agent",
    }
}

impl Default for Silent {
    /// What jobs meant that were written down before agents were commanded.
    fn default() -> Self {
        Self::Bmc
    }
}

impl Silent {
    /// What a machine waits for whose one is silent.
    #[must_use]
    pub const fn awaited(self) -> WaitReason {
        match self {
            Self::Bmc => WaitReason::BmcAnswer,
            Self::Agent => WaitReason::AgentAnswer,
        }
    }
}

named! {
    /// What a machine that is not moving waits for.
    WaitReason {
        /// The agent has not called yet.
        AgentHeartbeat = "agent heartbeat",
        /// The agent is busy with a step. It calls when the step is over, and is asked now and then.
        AgentStep = "agent step",
        /// The inspection ramdisk has not sent its data yet.
        InspectionData = "inspection data",
        /// A `wait` step's time is not over.
        WaitStep = "wait step",
        /// An operator holds it; `unhold` or `abort` ends that.
        Hold = "hold",
        /// Its BMC does not answer; it is asked again.
        BmcAnswer = "BMC answer",
        /// Its agent does not answer; it is asked again.
        AgentAnswer = "agent answer",
    }
}

/// Until when something is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Deadline {
    /// The wait ends in failure (or in another attempt) at this moment.
    At(Timestamp),
    /// Only an event ends it.
    Never,
}

impl Deadline {
    /// `timeout` after `start`; a zero timeout is none.
    #[must_use]
    pub fn after(start: Timestamp, timeout: Duration) -> Self {
        if timeout.is_zero() { Self::Never } else { Self::At(start.plus(timeout)) }
    }

    /// The moment, if there is one.
    #[must_use]
    pub const fn moment(self) -> Option<Timestamp> {
        match self {
            Self::At(moment) => Some(moment),
            Self::Never => None,
        }
    }
}

/// Why a machine is not moving, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// What for.
    pub why: WaitReason,
    /// Until when.
    pub until: Deadline,
    /// In which provision state the wait began.
    pub state: ProvisionState,
}
