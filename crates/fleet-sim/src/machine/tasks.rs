// SPDX-License-Identifier: Apache-2.0
//! Work a BMC does in the background: firmware updates, volumes. Each is a task that can be watched.

use node_model::Timestamp;

use super::{Machine, Refused, Volume};
use crate::personality::Activation;

/// How many tasks a BMC remembers.
const TASKS_KEPT: usize = 32;

/// The number of a task.
pub type TaskId = u32;

/// Work in the background.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its number.
    pub id: TaskId,
    /// What is done.
    pub job: Job,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// How far it is.
    pub stage: Stage,
}

/// What a task does.
#[derive(Clone, Debug)]
pub enum Job {
    /// Makes a volume.
    CreateVolume(Box<Volume>),
    /// Deletes the volume with that number.
    DeleteVolume(u32),
    /// Loads an image and puts the component to another version.
    UpdateFirmware {
        /// The component, by its place in the personality.
        component: usize,
        /// The version it becomes.
        version: Box<str>,
        /// Whether the image turns out to be damaged.
        is_damaged: bool,
    },
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins with the next reset of the machine.
    WaitsForReset,
    /// An image is loaded; what follows depends on the component.
    Loading {
        /// Since when.
        since: Timestamp,
        /// When it is loaded.
        until: Timestamp,
    },
    /// It is done between these moments.
    Working {
        /// Since when.
        since: Timestamp,
        /// When it is done.
        until: Timestamp,
    },
    /// It is done.
    Done {
        /// Since when.
        at: Timestamp,
    },
    /// It failed.
    Failed {
        /// When.
        at: Timestamp,
        /// Why.
        why: &'static str,
    },
}

impl Task {
    /// From 0 to 100.
    #[must_use]
    pub fn percent(&self, now: Timestamp) -> u8 {
        let of = |since: Timestamp, until: Timestamp| {
            let whole = until.since(since).as_millis().max(1);
            u8::try_from(now.since(since).as_millis() * 100 / whole).unwrap_or(100).min(99)
        };
        match self.stage {
            Stage::WaitsForReset => 0,
            Stage::Loading { since, until } => of(since, until) / 2,
            Stage::Working { since, until } => match self.job {
                // The image was half of the work.
                Job::UpdateFirmware { .. } => 50 + of(since, until) / 2,
                Job::CreateVolume(_) | Job::DeleteVolume(_) => of(since, until),
            },
            Stage::Done { .. } | Stage::Failed { .. } => 100,
        }
    }

    /// Whether nothing more will come of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.stage {
            Stage::WaitsForReset | Stage::Loading { .. } | Stage::Working { .. } => false,
            Stage::Done { .. } | Stage::Failed { .. } => true,
        }
    }

    fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Loading { until, .. } | Stage::Working { until, .. } => Some(until),
            Stage::WaitsForReset | Stage::Done { .. } | Stage::Failed { .. } => None,
        }
    }
}

impl Machine {
    /// What the BMC does and did in the background, the newest last.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Begins with the work now.
    pub(super) fn start_task(&mut self, job: Job, now: Timestamp) -> TaskId {
        let stage = match job {
            Job::UpdateFirmware { .. } => {
                Stage::Loading { since: now, until: now.plus(self.pace().load_image) }
            }
            Job::CreateVolume(_) | Job::DeleteVolume(_) => {
                Stage::Working { since: now, until: now.plus(self.pace().volume) }
            }
        };
        self.add_task(job, stage, now)
    }

    /// Keeps the work for the next reset.
    pub(super) fn wait_for_reset(&mut self, job: Job, now: Timestamp) -> TaskId {
        self.add_task(job, Stage::WaitsForReset, now)
    }

    /// When the next task changes by itself.
    pub(super) fn tasks_due(&self) -> Option<Timestamp> {
        self.tasks.iter().filter_map(Task::due).min()
    }

    /// Takes the step of the task that was due at `at`.
    pub(super) fn task_step(&mut self, at: Timestamp) {
        let Some(place) = self.tasks.iter().position(|task| task.due() == Some(at)) else {
            return;
        };
        let Some(task) = self.tasks.get(place) else { return };
        let stage = match (task.stage, task.job.clone()) {
            (Stage::Loading { .. }, Job::UpdateFirmware { is_damaged: true, .. }) => {
                Stage::Failed { at, why: "the image is damaged or not meant for this component" }
            }
            (Stage::Loading { .. }, Job::UpdateFirmware { component, .. }) => {
                match self.activation(component) {
                    Activation::OnReset => Stage::WaitsForReset,
                    Activation::AtOnce | Activation::RestartsBmc => self.working(at),
                }
            }
            (_, job) => match self.finish(job, at) {
                Ok(()) => Stage::Done { at },
                Err(_) => Stage::Failed { at, why: "the drives are no longer free" },
            },
        };
        if let Some(task) = self.tasks.get_mut(place) {
            task.stage = stage;
        }
    }

    /// A reset begins what waited for it.
    pub(super) fn start_tasks_waiting_for_reset(&mut self, at: Timestamp) {
        for place in 0..self.tasks.len() {
            let stage = self.working(at);
            if let Some(task) = self.tasks.get_mut(place)
                && task.stage == Stage::WaitsForReset
            {
                task.stage = stage;
            }
        }
    }

    fn working(&self, at: Timestamp) -> Stage {
        Stage::Working { since: at, until: at.plus(self.pace().volume) }
    }

    fn finish(&mut self, job: Job, at: Timestamp) -> Result<(), Refused> {
        match job {
            Job::CreateVolume(volume) => self.finish_volume(*volume),
            Job::DeleteVolume(id) => {
                self.volumes.retain(|volume| volume.id != id);
                Ok(())
            }
            Job::UpdateFirmware { component, version, .. } => {
                self.set_firmware_version(component, version);
                if self.activation(component) == Activation::RestartsBmc {
                    self.restart_bmc(at);
                }
                Ok(())
            }
        }
    }

    fn add_task(&mut self, job: Job, stage: Stage, now: Timestamp) -> TaskId {
        self.last_task = self.last_task.wrapping_add(1);
        if self.tasks.len() >= TASKS_KEPT {
            // The oldest that is over goes; if none is, the oldest.
            let place = self.tasks.iter().position(Task::is_over).unwrap_or(0);
            self.tasks.remove(place);
        }
        self.tasks.push(Task { id: self.last_task, job, asked_at: now, stage });
        self.last_task
    }
}
