// SPDX-License-Identifier: Apache-2.0
//! Actions of a job, their outcomes, and the decisions that lead to them.

use std::fmt;

use node_model::{
    ActionProgress, Event, InterfaceKind, JobQueue, PowerTarget, Step, StepFlow, Timestamp,
    UnreachablePeer, Wait, WaitReason,
};

use crate::steps::{AvailableSteps, ReservedStep};

/// One call for the conductor to make. Every action can be repeated: the process may die between
/// running an action and recording its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Validates the power interface and reads the power state.
    CheckPower,
    /// Reads BIOS settings, firmware versions, boot mode and health from the BMC and stores them.
    CacheHardware,
    /// Lists the available steps of driver and agent.
    ListSteps(StepFlow),
    /// Runs one step.
    RunStep {
        /// The flow.
        flow: StepFlow,
        /// The step.
        step: Step,
    },
    /// Queries whether a step that the agent or the BMC is running has ended.
    PollStep {
        /// The flow.
        flow: StepFlow,
        /// The step.
        step: Step,
    },
    /// Prepares the machine for deployment.
    PrepareDeploy,
    /// Cleans up after a failed or aborted deployment.
    CleanUpDeploy,
    /// Removes the instance.
    TearDown,
    /// Prepares the machine for cleaning.
    PrepareCleaning,
    /// Cleans up after cleaning.
    TearDownCleaning,
    /// Prepares the machine for service.
    PrepareService,
    /// Cleans up after service.
    TearDownService,
    /// Starts an inspection.
    Inspect,
    /// Cleans up after an inspection, and reads hardware data from the BMC.
    FinishInspection,
    /// Stops an inspection.
    AbortInspection,
    /// Boots the ramdisk again, because its agent made no request.
    BootAgain,
    /// Boots the rescue system.
    Rescue,
    /// Makes the agent of the rescue system hand over to the user.
    FinishRescue,
    /// Cleans up after a failed or aborted rescue.
    CleanUpRescue,
    /// Boots the instance again.
    Unrescue,
    /// Takes over a running machine.
    Adopt,
    /// Changes the power state.
    SetPower {
        /// The requested change.
        target: PowerTarget,
        /// Fails after this many seconds.
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

/// What a node must have for an action to succeed, so that `explain` can check it in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prerequisite {
    /// The settings that this interface validates.
    Interface(InterfaceKind),
    /// The settings for booting the deploy ramdisk, if the driver boots one for this action.
    DeployRamdisk,
    /// The settings for booting the rescue ramdisk, if the driver boots one for this action.
    RescueRamdisk,
}

impl Action {
    /// The step that the action runs or polls.
    #[must_use]
    pub const fn step(&self) -> Option<&Step> {
        if let Self::RunStep { step, .. } | Self::PollStep { step, .. } = self {
            Some(step)
        } else {
            None
        }
    }

    /// The power change that is the purpose of the action: one that a user requested, or a reserved
    /// step of a job.
    #[must_use]
    pub fn power_target(&self) -> Option<PowerTarget> {
        if let Self::SetPower { target, .. } = self {
            Some(*target)
        } else if let Self::RunStep { step, .. } = self
            && !step.execute_on_child_nodes
        {
            ReservedStep::from_step(step).and_then(ReservedStep::power_target)
        } else {
            None
        }
    }

    /// Whether the action always boots the machine, so that a wait for the agent is a wait for the
    /// boot. Steps boot the machine only sometimes.
    pub(crate) const fn boots_ramdisk(&self) -> bool {
        matches!(self, Self::PrepareCleaning | Self::PrepareService | Self::Inspect | Self::Rescue)
    }

    /// Whether the agent does not run any more after the action, so that its logs must be collected
    /// before.
    #[must_use]
    pub fn ends_agent(&self) -> bool {
        if let Self::RunStep { step, .. } = self {
            return step.qualified() == "deploy.tear_down_agent";
        }
        matches!(
            self,
            Self::CleanUpDeploy
                | Self::TearDownCleaning
                | Self::TearDownService
                | Self::CleanUpRescue
        )
    }

    /// What `explain` checks for the action. Inspections and deployments have none here: their
    /// interfaces are validated when the verb is requested.
    #[must_use]
    pub const fn prerequisite(&self) -> Option<Prerequisite> {
        if matches!(self, Self::CheckPower) {
            Some(Prerequisite::Interface(InterfaceKind::Power))
        } else if matches!(self, Self::Adopt) {
            Some(Prerequisite::Interface(InterfaceKind::Boot))
        } else if matches!(self, Self::PrepareCleaning | Self::PrepareService) {
            Some(Prerequisite::DeployRamdisk)
        } else if matches!(self, Self::Rescue) {
            Some(Prerequisite::RescueRamdisk)
        } else {
            None
        }
    }
}

/// The outcome of an action. Changes that the driver requests are applied by the conductor in the
/// same transaction; this type contains only what decisions depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ActionOutcome {
    /// The driver did the action, or part of it.
    Progress(ActionProgress),
    /// The available steps: the result of [`Action::ListSteps`], or of a step that started the
    /// agent, which has steps of its own.
    StepsListed(AvailableSteps),
    /// The peer did not respond; the action is retried.
    Unreachable(UnreachablePeer, ActionFailure),
    /// The action failed.
    Failed(ActionFailure),
}

impl ActionOutcome {
    /// The action is done.
    pub const DONE: Self = Self::Progress(ActionProgress::Done);
}

/// Why an action or a job failed, for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionFailure {
    /// What happened, and what to try.
    pub message: String,
}

impl ActionFailure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// The next change of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Run an action.
    Act(Action),
    /// Change the provision state.
    Enter {
        /// The event.
        event: Event,
        /// The reason, for users.
        why: &'static str,
    },
    /// The job needs a place of this queue before its first action.
    TakePlace(JobQueue),
    /// The current stage is done: begin the next.
    NextStage,
    /// The current step is done without an action: begin the next.
    NextStep,
    /// The job begins to wait, until this time or an event.
    BeginWait(WaitReason, Option<Timestamp>),
    /// Clean-up after a failure is done, or was not needed: the job is over.
    CleanedUp,
    /// The job fails.
    Fail(ActionFailure),
    /// The job keeps waiting.
    Wait(Wait),
    /// The job keeps waiting, and only an event or the end of maintenance continues it.
    WaitInMaintenance(Wait),
    /// There is no job.
    Idle,
}

/// What the conductor does after [`settle`](crate::settle).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettleResult {
    /// Run this action and [`record`](crate::record) its outcome.
    Act(Action),
    /// Call [`start_queued_job`](crate::start_queued_job) if a place of this queue is free, else
    /// [`queue_job`](crate::queue_job); then settle again.
    NeedsPlace(JobQueue),
    /// Leave the node alone until this time, or until an event.
    Wait(WaitReason, Option<Timestamp>),
    /// Leave the node alone.
    Idle,
}
