// SPDX-License-Identifier: Apache-2.0
//! Background tasks of the BMC: firmware updates, volume changes and imported configurations.

use node_model::Timestamp;

use super::{MachineError, MachineModel, SimulatedVolume};
use crate::personality::FirmwareActivation;

/// Number of tasks that a BMC stores.
const MAX_TASKS: usize = 32;

/// The number of a task, unique on its machine.
pub type BmcTaskId = u32;

/// A background task.
#[derive(Clone, Debug)]
pub struct BmcTask {
    /// Its number.
    pub id: BmcTaskId,
    /// What it does.
    pub job: BmcTaskJob,
    /// When it was created.
    pub requested_at: Timestamp,
    /// Its progress.
    pub stage: BmcTaskStage,
}

/// What a task does.
#[derive(Clone, Debug)]
pub enum BmcTaskJob {
    /// Creates a volume.
    CreateVolume(Box<SimulatedVolume>),
    /// Deletes the volume with that number.
    DeleteVolume(u32),
    /// Selects the virtual CD as boot device.
    SelectVirtualCd {
        /// Whether it applies only to the next boot.
        once: bool,
    },
    /// Downloads an image and installs it.
    UpdateFirmware {
        /// The index of the component in the personality.
        component: usize,
        /// The version in the image.
        version: Box<str>,
        /// Whether the image is corrupt, so that the update fails.
        is_damaged: bool,
    },
}

/// Progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcTaskStage {
    /// It continues at the next reset of the machine.
    WaitingForReset,
    /// The firmware image is being downloaded.
    Loading {
        /// Start of the download.
        since: Timestamp,
        /// End of the download.
        until: Timestamp,
    },
    /// The volume is being changed, or the firmware installed.
    Working {
        /// Start of the work.
        since: Timestamp,
        /// End of the work.
        until: Timestamp,
    },
    /// It succeeded.
    Completed {
        /// End of the task.
        at: Timestamp,
    },
    /// It failed.
    Failed {
        /// End of the task.
        at: Timestamp,
        /// The reason.
        reason: &'static str,
    },
}

impl BmcTask {
    /// Returns the progress in percent.
    #[must_use]
    pub fn percent(&self, now: Timestamp) -> u8 {
        let elapsed_percent = |since: Timestamp, until: Timestamp| {
            let total = until.since(since).as_millis().max(1);
            u8::try_from(now.since(since).as_millis() * 100 / total).unwrap_or(100).min(99)
        };
        match self.stage {
            BmcTaskStage::WaitingForReset => 0,
            BmcTaskStage::Loading { since, until } => elapsed_percent(since, until) / 2,
            BmcTaskStage::Working { since, until } => match self.job {
                // The download was the first half.
                BmcTaskJob::UpdateFirmware { .. } => 50 + elapsed_percent(since, until) / 2,
                BmcTaskJob::CreateVolume(_)
                | BmcTaskJob::DeleteVolume(_)
                | BmcTaskJob::SelectVirtualCd { .. } => elapsed_percent(since, until),
            },
            BmcTaskStage::Completed { .. } | BmcTaskStage::Failed { .. } => 100,
        }
    }

    /// Whether it has succeeded or failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.stage {
            BmcTaskStage::WaitingForReset
            | BmcTaskStage::Loading { .. }
            | BmcTaskStage::Working { .. } => false,
            BmcTaskStage::Completed { .. } | BmcTaskStage::Failed { .. } => true,
        }
    }

    fn next_change(&self) -> Option<Timestamp> {
        match self.stage {
            BmcTaskStage::Loading { until, .. } | BmcTaskStage::Working { until, .. } => {
                Some(until)
            }
            BmcTaskStage::WaitingForReset
            | BmcTaskStage::Completed { .. }
            | BmcTaskStage::Failed { .. } => None,
        }
    }
}

impl MachineModel {
    /// Returns the tasks of the BMC, newest last.
    #[must_use]
    pub fn tasks(&self) -> &[BmcTask] {
        &self.tasks
    }

    /// Starts a task that selects the virtual CD as boot device.
    ///
    /// # Errors
    /// When a task waits for a reset, or runs.
    pub fn import_virtual_cd(
        &mut self,
        once: bool,
        now: Timestamp,
    ) -> Result<BmcTaskId, MachineError> {
        self.advance(now);
        if self.tasks.iter().any(|task| task.stage == BmcTaskStage::WaitingForReset) {
            return Err(MachineError::ConfigurationPending);
        }
        if self.tasks.iter().any(|task| !task.is_finished()) {
            return Err(MachineError::JobRunning);
        }
        Ok(self.start_task(BmcTaskJob::SelectVirtualCd { once }, now))
    }

    /// Deletes all tasks that are not running.
    pub fn clear_tasks(&mut self) {
        let is_running = |task: &BmcTask| task.next_change().is_some();
        self.tasks.retain(is_running);
    }

    /// Adds a task that starts now.
    pub(super) fn start_task(&mut self, job: BmcTaskJob, now: Timestamp) -> BmcTaskId {
        let stage = match job {
            BmcTaskJob::UpdateFirmware { .. } => BmcTaskStage::Loading {
                since: now,
                until: now.plus(self.durations().firmware_download),
            },
            BmcTaskJob::CreateVolume(_)
            | BmcTaskJob::DeleteVolume(_)
            | BmcTaskJob::SelectVirtualCd { .. } => self.working_stage(now),
        };
        self.add_task(job, stage, now)
    }

    /// Adds a task that starts at the next reset.
    pub(super) fn queue_task_for_reset(&mut self, job: BmcTaskJob, now: Timestamp) -> BmcTaskId {
        self.add_task(job, BmcTaskStage::WaitingForReset, now)
    }

    /// Returns when the next task enters another stage without a request.
    pub(super) fn next_task_change(&self) -> Option<Timestamp> {
        self.tasks.iter().filter_map(BmcTask::next_change).min()
    }

    /// Advances the task that was due at `at` to its next stage.
    pub(super) fn apply_task_change(&mut self, at: Timestamp) {
        let Some(index) = self.tasks.iter().position(|task| task.next_change() == Some(at)) else {
            return;
        };
        let Some(task) = self.tasks.get(index) else { return };
        let stage = match (task.stage, task.job.clone()) {
            (BmcTaskStage::Loading { .. }, BmcTaskJob::UpdateFirmware { is_damaged: true, .. }) => {
                BmcTaskStage::Failed {
                    at,
                    reason: "the image is corrupt or not for this component",
                }
            }
            (BmcTaskStage::Loading { .. }, BmcTaskJob::UpdateFirmware { component, .. }) => {
                match self.activation(component) {
                    FirmwareActivation::OnReset => BmcTaskStage::WaitingForReset,
                    FirmwareActivation::Immediate | FirmwareActivation::RestartsBmc => {
                        self.working_stage(at)
                    }
                }
            }
            (_, job) => match self.complete_job(job, at) {
                Ok(()) => BmcTaskStage::Completed { at },
                Err(_) => BmcTaskStage::Failed { at, reason: "the drives are no longer free" },
            },
        };
        if let Some(task) = self.tasks.get_mut(index) {
            task.stage = stage;
        }
    }

    /// Starts the tasks that wait for a reset.
    pub(super) fn start_tasks_waiting_for_reset(&mut self, at: Timestamp) {
        for index in 0..self.tasks.len() {
            let stage = self.working_stage(at);
            if let Some(task) = self.tasks.get_mut(index)
                && task.stage == BmcTaskStage::WaitingForReset
            {
                task.stage = stage;
            }
        }
    }

    fn working_stage(&self, at: Timestamp) -> BmcTaskStage {
        BmcTaskStage::Working { since: at, until: at.plus(self.durations().volume_change) }
    }

    fn complete_job(&mut self, job: BmcTaskJob, at: Timestamp) -> Result<(), MachineError> {
        match job {
            BmcTaskJob::CreateVolume(volume) => self.add_planned_volume(*volume),
            BmcTaskJob::DeleteVolume(id) => {
                self.volumes.retain(|volume| volume.id != id);
                Ok(())
            }
            BmcTaskJob::SelectVirtualCd { once } => {
                self.select_virtual_cd(once);
                Ok(())
            }
            BmcTaskJob::UpdateFirmware { component, version, .. } => {
                self.set_firmware_version(component, version);
                if self.activation(component) == FirmwareActivation::RestartsBmc {
                    self.restart_bmc(at);
                }
                Ok(())
            }
        }
    }

    fn add_task(&mut self, job: BmcTaskJob, stage: BmcTaskStage, now: Timestamp) -> BmcTaskId {
        self.last_task = self.last_task.wrapping_add(1);
        if self.tasks.len() >= MAX_TASKS {
            // Drop the oldest finished task, or the oldest task if none is finished.
            let index = self.tasks.iter().position(BmcTask::is_finished).unwrap_or(0);
            self.tasks.remove(index);
        }
        self.tasks.push(BmcTask { id: self.last_task, job, requested_at: now, stage });
        self.last_task
    }
}
