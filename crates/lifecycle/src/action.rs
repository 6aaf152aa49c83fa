// SPDX-License-Identifier: Apache-2.0
//! The things that can be done to a machine, and how they can turn out.

use std::fmt;

use node_model::{Deadline, Event, PowerTarget, Silent, Step, StepFlow, Timestamp, WaitReason};

use crate::steps::{Offers, Reserved};

/// One thing for the conductor to do. Each is safe to repeat: a process may die between doing it
/// and recording it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Validate the power interface and read the power state.
    CheckPower,
    /// Read settings, firmware versions, boot mode and health from the BMC and keep them.
    CacheHardware,
    /// Ask driver and agent which steps they offer.
    ListSteps(StepFlow),
    /// Run one step.
    RunStep {
        /// Of which flow.
        flow: StepFlow,
        /// The step.
        step: Step,
    },
    /// Look whether a step that the agent or the BMC is busy with has ended.
    PollStep {
        /// Of which flow.
        flow: StepFlow,
        /// The step.
        step: Step,
    },
    /// Make the machine ready for deployment.
    PrepareDeploy,
    /// Put things back after a failed or aborted deployment.
    CleanUpDeploy,
    /// Take the instance off the machine.
    TearDown,
    /// Make the machine ready for cleaning.
    PrepareCleaning,
    /// Put things back after cleaning.
    TearDownCleaning,
    /// Make the machine ready for service.
    PrepareService,
    /// Put things back after service.
    TearDownService,
    /// Start inspecting.
    Inspect,
    /// Put things back after inspection, and read from the BMC what it knows.
    FinishInspection,
    /// Stop inspecting.
    AbortInspection,
    /// Boot the ramdisk again, because nothing was heard of it.
    BootAgain,
    /// Boot the rescue system.
    Rescue,
    /// Tell the agent of the rescue system to hand over.
    FinishRescue,
    /// Put things back after a failed or aborted rescue.
    CleanUpRescue,
    /// Boot the machine's own system again.
    Unrescue,
    /// Take over a machine that already runs.
    Adopt,
    /// Change the power.
    SetPower {
        /// To what.
        target: PowerTarget,
        /// Give up after this many seconds.
        timeout: Option<u32>,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckPower => f.write_str("check power"),
            Self::CacheHardware => f.write_str("read hardware"),
            Self::ListSteps(flow) => write!(f, "list {flow} steps"),
            Self::RunStep { flow, step } => write!(f, "run {flow} step {}", step.qualified()),
            Self::PollStep { flow, step } => write!(f, "poll {flow} step {}", step.qualified()),
            Self::PrepareDeploy => f.write_str("prepare deployment"),
            Self::CleanUpDeploy => f.write_str("clean up deployment"),
            Self::TearDown => f.write_str("tear down"),
            Self::PrepareCleaning => f.write_str("prepare cleaning"),
            Self::TearDownCleaning => f.write_str("tear down cleaning"),
            Self::PrepareService => f.write_str("prepare service"),
            Self::TearDownService => f.write_str("tear down service"),
            Self::Inspect => f.write_str("inspect"),
            Self::FinishInspection => f.write_str("finish inspection"),
            Self::AbortInspection => f.write_str("abort inspection"),
            Self::BootAgain => f.write_str("boot again"),
            Self::Rescue => f.write_str("rescue"),
            Self::FinishRescue => f.write_str("finish rescue"),
            Self::CleanUpRescue => f.write_str("clean up rescue"),
            Self::Unrescue => f.write_str("unrescue"),
            Self::Adopt => f.write_str("adopt"),
            Self::SetPower { target, .. } => write!(f, "set power: {target}"),
        }
    }
}

impl Action {
    /// The step the action carries out, if it does.
    #[must_use]
    pub fn step(&self) -> Option<&Step> {
        if let Self::RunStep { step, .. } | Self::PollStep { step, .. } = self {
            Some(step)
        } else {
            None
        }
    }

    /// What the action does to the machine's power, if that is what it is for: a change a user
    /// asked for, or a reserved step of a job.
    #[must_use]
    pub fn power_target(&self) -> Option<PowerTarget> {
        match self {
            Self::SetPower { target, .. } => Some(*target),
            Self::RunStep { step, .. } if !step.execute_on_child_nodes => {
                Reserved::of(step).and_then(Reserved::power_target)
            }
            Self::RunStep { .. }
            | Self::PollStep { .. }
            | Self::CheckPower
            | Self::CacheHardware
            | Self::ListSteps(_)
            | Self::PrepareDeploy
            | Self::CleanUpDeploy
            | Self::TearDown
            | Self::PrepareCleaning
            | Self::TearDownCleaning
            | Self::PrepareService
            | Self::TearDownService
            | Self::Inspect
            | Self::FinishInspection
            | Self::AbortInspection
            | Self::BootAgain
            | Self::Rescue
            | Self::FinishRescue
            | Self::CleanUpRescue
            | Self::Unrescue
            | Self::Adopt => None,
        }
    }
}

/// How an action turned out. What the driver wants changed on the node is applied by the conductor
/// in the same transaction; only what decisions depend on is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The steps on offer: in answer to [`Action::ListSteps`], or because the step that was run
    /// brought up the agent, which has steps of its own.
    Offers(Offers),
    /// It goes on without us; the agent calls back.
    AwaitAgent,
    /// It goes on without us; look again at this moment.
    AwaitUntil(Timestamp),
    /// The agent is busy with it and calls when it is over; look at this moment in any case.
    AwaitStep(Timestamp),
    /// The machine did not answer: it may when it is tried again.
    Unreachable(Silent, Failure),
    /// It failed.
    Failed(Failure),
}

/// Why something failed, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What happened, and what to try.
    pub message: String,
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// What is next for a node, one step at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Do one thing, then ask again.
    Act(Action),
    /// Change the provision state, then ask again.
    Enter {
        /// By which event.
        event: Event,
        /// In words.
        why: &'static str,
    },
    /// The current stage has nothing (more) to do: go to the next, then ask again.
    NextStage,
    /// The current step is over without anything having to be done: go to the next, then ask again.
    NextStep,
    /// The job begins to wait, then ask again.
    Await(WaitReason, Deadline),
    /// There is nothing to put back after the failure: the job is over.
    CleanedUp,
    /// The job cannot go on.
    Fail(Failure),
    /// Something has to happen first.
    Wait(WaitReason, Deadline),
    /// Nothing is going on.
    Rest,
}

/// What the conductor has to do once everything decidable is decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Carry this out and [`record`](crate::record) how it went.
    Act(Action),
    /// Leave the node alone until the moment, or until an event.
    Wait(WaitReason, Option<Timestamp>),
    /// Leave the node alone.
    Rest,
}
