// SPDX-License-Identifier: Apache-2.0
//! RAID over Redfish: volumes of the machine's storage controllers.
//!
//! A step first plans which drives each volume uses ([`plan`]) and stores the plan, so that a process
//! that resumes after a crash uses the same plan. Each further call deletes or creates one volume and
//! waits until the BMC shows the result: at once, when a task has ended, or after a reboot if the
//! controller applies changes only then.

mod levels;
mod plan;
mod requested_disks;
mod result;
mod storage;
mod volume_request;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::{
    DriverError, DriverTarget, RaidInterface, StepDefinition, StepOutcome, bmc_interface,
    validate_raid_config,
};
use node_model::{Step, StepArgument, StepFlow, Timestamp};
use plan::{ExistingVolumes, PlannedVolume, plan, same_path};
use requested_disks::{RequestedLogicalDisk, VolumeSelection};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use storage::{RaidController, RedfishRaidVolume, VolumeCollection};
use volume_request::{apply_time, submit, waits_for_reset};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::idrac;
use super::retries::is_busy;
use super::tasks::{self, TaskPoll};
use super::variant::RedfishVariant;

/// The Redfish RAID interface.
pub(super) struct RedfishRaid(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishRaid, Raid, step_tables);

#[async_trait]
impl RaidInterface for RedfishRaid {
    async fn validate_config(
        &self,
        _target: &DriverTarget<'_>,
        config: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        validate_raid_config(config)?;
        let disks = config.get("logical_disks").and_then(Value::as_array);
        let is_scsi = |disk: &Value| disk.get("interface_type") == Some(&Value::from("scsi"));
        if disks.is_some_and(|disks| disks.iter().any(is_scsi)) {
            let why = "Redfish does not support 'scsi'; use 'sas' or 'sata'";
            return Err(DriverError::invalid("interface_type", why));
        }
        Ok(())
    }
}

const CREATE: &str = "create_configuration";
const APPLY: &str = "apply_configuration";
const DELETE: &str = "delete_configuration";

const ROOT: StepArgument = StepArgument::optional(
    "create_root_volume",
    "Whether to create the root volume; true if not given.",
);
const OTHERS: StepArgument = StepArgument::optional(
    "create_nonroot_volumes",
    "Whether to create the volumes other than the root volume; true if not given when the target \
     configuration is created, false when a configuration is applied.",
);
const DELETE_EXISTING: StepArgument = StepArgument::optional(
    "delete_existing",
    "Whether to delete the existing volumes first; false if not given.",
);
const CONFIG: StepArgument =
    StepArgument::required("raid_config", "The RAID configuration to apply.");

fn step_tables(_variant: RedfishVariant) -> &'static [&'static [StepDefinition]] {
    &[STEPS]
}

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: CREATE,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[ROOT, OTHERS, DELETE_EXISTING],
    },
    StepDefinition {
        name: DELETE,
        flows: &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: APPLY,
        flows: &[StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[CONFIG, ROOT, OTHERS, DELETE_EXISTING],
    },
];

/// The driver state key of the progress.
const DRIVER_STATE_KEY: &str = "redfish_raid";
/// Timeout for a running task on the BMC that may belong to another client.
const FOREIGN_TASK_TIMEOUT: Duration = Duration::from_secs(600);
/// Time after a failed task in which the change may still appear. If the process stopped before it
/// stored a request, the BMC received it twice and completes only the first.
const FAILED_TASK_GRACE: Duration = Duration::from_secs(60);
/// Time a task may take before it is assumed to wait for a reboot, if the BMC reports no apply time.
const REBOOT_AFTER: Duration = Duration::from_secs(120);

/// Progress of a step; stored between calls.
#[derive(Debug, Serialize, Deserialize)]
struct RaidProgress {
    /// The volume collections of the machine.
    #[serde(alias = "shelves")]
    collections: Vec<VolumeCollection>,
    /// Whether existing volumes are being deleted.
    #[serde(alias = "clearing")]
    deleting_existing: bool,
    /// The volumes to create, in order.
    create: Vec<PlannedVolume>,
    /// The paths of existing volumes that are kept.
    #[serde(alias = "staying")]
    kept: Vec<String>,
    /// The volumes that were created or already existed as requested.
    #[serde(alias = "made")]
    created: Vec<CreatedVolume>,
    /// The running change.
    change: Option<VolumeChange>,
}

/// A requested volume that exists.
#[derive(Debug, Serialize, Deserialize)]
struct CreatedVolume {
    path: String,
    /// The requested level: not all BMCs report it.
    level: String,
    root: bool,
}

/// A change that was requested from the BMC and is not complete.
#[derive(Debug, Default, Serialize, Deserialize)]
struct VolumeChange {
    since: Timestamp,
    /// The path of its task.
    task: Option<String>,
    /// Whether a reboot is due.
    reboot: bool,
    /// Whether it is unknown if a reboot is needed: the machine is rebooted if the task takes long.
    undecided: bool,
    /// The path of the deleted volume, and the number of volumes before.
    deletes: Option<(String, usize)>,
    /// The message of the failed task, and the time of the failure.
    failed: Option<(String, Timestamp)>,
    /// Whether the task was found on the BMC and may belong to another client.
    #[serde(alias = "found")]
    is_foreign_task: bool,
}

/// HTTP 201 Created.
const CREATED: u16 = 201;

impl RaidProgress {
    /// Records that the next planned volume exists at `path`.
    fn done(&mut self, path: String) {
        self.change = None;
        if self.create.is_empty() {
            return;
        }
        let planned = self.create.remove(0);
        self.created.push(CreatedVolume { path, level: planned.level, root: planned.root });
    }
}

impl RedfishRaid {
    async fn run(
        &self,
        target: &DriverTarget<'_>,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let what = if step.step == DELETE { "delete the volumes" } else { "create the volumes" };
        let bmc = self.0.bmc(target, what)?;
        match tasks::load_state(target, DRIVER_STATE_KEY) {
            Some(progress) => self.resume(target, &bmc, progress).await,
            None => {
                if self.1 == RedfishVariant::Idrac {
                    let wait = idrac::wait_for_real_time(&bmc, target, &self.0.settings).await?;
                    if let Some(outcome) = wait {
                        return Ok(outcome);
                    }
                }
                let progress = self.plan_step(target, &bmc, step).await?;
                Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress))
            }
        }
    }

    /// Plans the step. Nothing has been changed if it fails.
    async fn plan_step(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        step: &Step,
    ) -> Result<RaidProgress, DriverError> {
        let mut progress = RaidProgress {
            collections: Vec::new(),
            deleting_existing: true,
            create: Vec::new(),
            kept: Vec::new(),
            created: Vec::new(),
            change: None,
        };
        if step.step == DELETE {
            progress.collections = storage::volume_collections(bmc).await?;
            return Ok(progress);
        }
        let arguments = step.args.parse();
        let flag = |argument: &StepArgument, default| {
            arguments.get(&*argument.name).and_then(Value::as_bool).unwrap_or(default)
        };
        let config = requested_config(target, step, &arguments)?;
        self.validate_config(target, &config).await?;
        let selection =
            VolumeSelection { root: flag(&ROOT, true), others: flag(&OTHERS, step.step == CREATE) };
        let wanted = RequestedLogicalDisk::read(&config, selection)?;
        let controllers = storage::controllers(bmc).await?;
        progress.collections =
            controllers.iter().filter_map(|c| c.volume_collection.clone()).collect();
        if progress.collections.is_empty() {
            return Err(bmc.failed(
                "the BMC reports no storage controller that supports volumes; set raid_interface to \
                 agent or no-raid",
            ));
        }
        progress.deleting_existing = flag(&DELETE_EXISTING, false);
        let (wanted, existing) = if progress.deleting_existing {
            (wanted, ExistingVolumes::Delete)
        } else {
            let existing_volumes = controllers.iter().flat_map(|controller| &controller.volumes);
            progress.kept = existing_volumes.map(|volume| volume.path.clone()).collect();
            let (left, created) = split_existing(wanted, &controllers);
            progress.created = created;
            (left, ExistingVolumes::Keep)
        };
        progress.create = plan(&controllers, &wanted, existing).map_err(|why| bmc.failed(why))?;
        Ok(progress)
    }

    /// Continues with the next change, or polls the running one.
    async fn resume(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        mut progress: RaidProgress,
    ) -> Result<StepOutcome, DriverError> {
        if let Some(change) = &mut progress.change {
            if change.reboot {
                change.reboot = false;
                return tasks::reboot(target, &self.0.settings, DRIVER_STATE_KEY, &progress).await;
            }
            if let Some(task) = change.task.take() {
                match tasks::poll(bmc, &task).await {
                    TaskPoll::Done | TaskPoll::NotFound => {}
                    TaskPoll::Failed(_) if change.is_foreign_task => {}
                    TaskPoll::Failed(why) => change.failed = Some((why, target.now)),
                    TaskPoll::Working(_) => {
                        change.task = Some(task);
                        let elapsed = target.now.since(change.since);
                        if change.undecided && elapsed >= REBOOT_AFTER {
                            (change.undecided, change.reboot) = (false, true);
                            return Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress));
                        }
                        if change.is_foreign_task && elapsed >= FOREIGN_TASK_TIMEOUT {
                            change.task = None;
                            return Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress));
                        }
                        return self.poll_or_time_out(
                            target,
                            bmc,
                            &progress,
                            "its task is running",
                        );
                    }
                    TaskPoll::Unreadable(why) => {
                        change.task = Some(task);
                        return self.poll_or_time_out(target, bmc, &progress, &why);
                    }
                }
            }
        }
        if progress.deleting_existing {
            if let Some(outcome) = self.delete_next_volume(target, bmc, &mut progress).await? {
                return Ok(outcome);
            }
            progress.deleting_existing = false;
        }
        if let Some(outcome) = self.create_next_volume(target, bmc, &mut progress).await? {
            return Ok(outcome);
        }
        let mut volumes = Vec::new();
        for collection in &progress.collections {
            for volume in storage::volumes(bmc, collection).await? {
                volumes.push((collection.controller.as_str(), volume));
            }
        }
        Ok(StepOutcome::done(result::changes(target, &volumes, &progress.created)))
    }

    /// Deletes the next volume. Returns the outcome of the step; `None` if no volume is left.
    async fn delete_next_volume(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        progress: &mut RaidProgress,
    ) -> Result<Option<StepOutcome>, DriverError> {
        let ours = result::recorded(target);
        let mut to_delete: Vec<(&VolumeCollection, RedfishRaidVolume)> = Vec::new();
        for collection in &progress.collections {
            let volumes = match storage::volumes(bmc, collection).await {
                Ok(volumes) => volumes.into_iter(),
                Err(error) => return self.volumes_unreadable(target, bmc, progress, error),
            };
            // A volume without RAID level is a passed-through drive and is kept, unless the node records
            // that this driver created it.
            let is_volume = |volume: &RedfishRaidVolume| {
                let key = (collection.controller.clone(), volume.id.clone());
                volume.level.is_some() || ours.contains(&key)
            };
            to_delete.extend(volumes.filter(is_volume).map(|volume| (collection, volume)));
        }
        if let Some((path, count)) = progress.change.as_ref().and_then(|c| c.deletes.as_ref()) {
            // Some BMCs give the id of a deleted volume to the next one.
            let still_exists = to_delete.iter().any(|(_, volume)| same_path(&volume.path, path));
            if still_exists && to_delete.len() >= *count {
                let observed = format!("the volume {path} still exists");
                return self.poll_or_time_out(target, bmc, progress, &observed).map(Some);
            }
        }
        progress.change = None;
        let Some((collection, volume)) = to_delete.first() else { return Ok(None) };
        let response = match bmc.client().delete(&volume.path).await {
            Ok(response) => tasks::task_path(&response),
            Err(redfish::RedfishError::NotFound { .. }) => None,
            Err(error) if is_busy(&error) => {
                return tasks::retry_while_busy(target, &self.0.settings, bmc.explain(error))
                    .map(Some);
            }
            Err(error) => return Err(bmc.explain(error)),
        };
        progress.change = Some(VolumeChange {
            since: target.now,
            reboot: response.is_some() && waits_for_reset(collection),
            undecided: !waits_for_reset(collection),
            task: response,
            deletes: Some((volume.path.clone(), to_delete.len())),
            ..VolumeChange::default()
        });
        Ok(Some(tasks::checkpoint(DRIVER_STATE_KEY, progress)))
    }

    /// Creates the next volume, or finds the one that is being created. Returns the outcome of the
    /// step; `None` if no volume is left to create.
    async fn create_next_volume(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        progress: &mut RaidProgress,
    ) -> Result<Option<StepOutcome>, DriverError> {
        let Some(next) = progress.create.first() else { return Ok(None) };
        let collection =
            progress.collections.iter().find(|collection| collection.controller == next.controller);
        let Some(collection) = collection else {
            return Err(bmc.failed(format!("controller {} no longer exists", next.controller)));
        };
        let existing_volumes = match storage::volumes(bmc, collection).await {
            Ok(existing_volumes) => existing_volumes,
            Err(error) => return self.volumes_unreadable(target, bmc, progress, error),
        };
        // Volumes are created one at a time, so a new one is the planned one. It may exist although the
        // request was not stored.
        if let Some(volume) =
            existing_volumes.iter().find(|volume| is_planned_volume(volume, next, progress))
        {
            progress.done(volume.path.clone());
            if progress.create.is_empty() {
                return Ok(None);
            }
            return Ok(Some(tasks::checkpoint(DRIVER_STATE_KEY, progress)));
        }
        match progress.change.take() {
            Some(change) if !change.is_foreign_task => {
                progress.change = Some(change);
                let observed = "the new volume does not exist yet";
                return self.poll_or_time_out(target, bmc, progress, observed).map(Some);
            }
            // The other task has ended and did not create this volume.
            Some(_) => {}
            None => {
                if let Some(task) = tasks::unfinished(bmc).await {
                    progress.change = Some(VolumeChange {
                        since: target.now,
                        task: Some(task),
                        undecided: true,
                        is_foreign_task: true,
                        ..VolumeChange::default()
                    });
                    return Ok(Some(tasks::checkpoint(DRIVER_STATE_KEY, progress)));
                }
            }
        }
        let response = match submit(bmc, collection, next).await {
            Ok(response) => response,
            Err(error) if is_busy(&error) => {
                return tasks::retry_while_busy(target, &self.0.settings, bmc.explain(error))
                    .map(Some);
            }
            Err(error) => return Err(bmc.explain(error)),
        };
        let task = tasks::task_path(&response);
        let reboot = waits_for_reset(collection);
        if task.is_none() && !reboot {
            // The volume exists and the response has its path.
            if let Some(path) = response.location.filter(|_| response.status == CREATED) {
                progress.done(path);
                return Ok(Some(tasks::checkpoint(DRIVER_STATE_KEY, progress)));
            }
        }
        let undecided = apply_time(collection).is_none();
        progress.change = Some(VolumeChange {
            since: target.now,
            task,
            reboot,
            undecided,
            ..VolumeChange::default()
        });
        Ok(Some(tasks::checkpoint(DRIVER_STATE_KEY, progress)))
    }

    /// Handles unreadable volumes, which are expected while the BMC changes them.
    fn volumes_unreadable(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        progress: &RaidProgress,
        error: DriverError,
    ) -> Result<Option<StepOutcome>, DriverError> {
        match progress.change {
            Some(_) => self.poll_or_time_out(target, bmc, progress, &error.to_string()).map(Some),
            None => Err(error),
        }
    }

    /// Polls later, or fails after the timeout.
    fn poll_or_time_out(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        progress: &RaidProgress,
        observed: &str,
    ) -> Result<StepOutcome, DriverError> {
        let failed = progress.change.as_ref().and_then(|change| change.failed.as_ref());
        if let Some((why, at)) = failed
            && target.now.since(*at) >= FAILED_TASK_GRACE
        {
            return Err(bmc.failed(format!("the BMC reports: {why}")));
        }
        let limit = Duration::from_secs(self.0.settings.raid_config_timeout);
        let since = progress.change.as_ref().map_or(target.now, |change| change.since);
        if target.now.since(since) >= limit {
            return Err(bmc.failed(format!(
                "the BMC did not finish within {} seconds ({observed}); check its job queue and the \
                 controller",
                limit.as_secs()
            )));
        }
        Ok(tasks::poll_later(target, &self.0.settings, DRIVER_STATE_KEY, progress))
    }
}

/// Returns the configuration that the step creates.
fn requested_config(
    target: &DriverTarget<'_>,
    step: &Step,
    arguments: &Map<String, Value>,
) -> Result<Map<String, Value>, DriverError> {
    if step.step == APPLY {
        let config = arguments.get("raid_config").and_then(Value::as_object).cloned();
        return config.ok_or_else(|| {
            DriverError::missing("raid_config", "give the RAID configuration to apply")
        });
    }
    let config = target.node.target_raid_config.parse();
    if config.is_empty() {
        return Err(DriverError::missing(
            "target_raid_config",
            "set it with PUT states/raid before creating the configuration",
        ));
    }
    Ok(config)
}

/// Splits the requested disks into those to create and those that exist: a volume with the requested
/// name and, if reported, level.
fn split_existing(
    wanted: Vec<RequestedLogicalDisk>,
    controllers: &[RaidController],
) -> (Vec<RequestedLogicalDisk>, Vec<CreatedVolume>) {
    let mut created = Vec::new();
    let mut left = Vec::new();
    for disk in wanted {
        let existing =
            controllers.iter().flat_map(|controller| &controller.volumes).find(|volume| {
                disk.name.as_deref() == Some(volume.name.as_str())
                    && volume.level.is_none_or(|level| level == disk.level)
            });
        match existing {
            Some(volume) => created.push(CreatedVolume {
                path: volume.path.clone(),
                level: disk.level.name.to_owned(),
                root: disk.root,
            }),
            None => left.push(disk),
        }
    }
    (left, created)
}

/// Whether this is the planned volume: it did not exist before and matches the plan as far as the BMC
/// reports it.
fn is_planned_volume(
    volume: &RedfishRaidVolume,
    planned: &PlannedVolume,
    progress: &RaidProgress,
) -> bool {
    let known = progress.kept.iter().chain(progress.created.iter().map(|created| &created.path));
    let is_known = known.into_iter().any(|path| same_path(path, &volume.path));
    let level = volume.level.is_some_and(|level| level.name == planned.level);
    let drives = volume.drives.is_empty()
        || volume
            .drives
            .iter()
            .all(|drive| planned.drives.iter().any(|planned| same_path(planned, drive)));
    !is_known && level && drives
}

#[cfg(test)]
mod tests {
    use super::levels::RaidLevel;
    use super::*;

    fn planned() -> PlannedVolume {
        PlannedVolume {
            controller: "A".to_owned(),
            level: "1".to_owned(),
            drives: vec!["/d/0".to_owned(), "/d/1".to_owned()],
            bytes: Some(5),
            name: Some("root".to_owned()),
            root: true,
        }
    }

    #[test]
    fn recognizes_the_planned_volume() {
        let progress = RaidProgress {
            collections: Vec::new(),
            deleting_existing: false,
            create: Vec::new(),
            kept: vec!["/v/1".to_owned()],
            created: vec![CreatedVolume {
                path: "/v/2".to_owned(),
                level: "1".to_owned(),
                root: false,
            }],
            change: None,
        };
        for (path, level, drives, expected) in [
            ("/v/3", "1", vec!["/d/1/", "/d/0"], true),
            ("/v/3", "1", vec![], true),
            ("/v/3", "1", vec!["/d/7"], false),
            ("/v/3", "5", vec![], false),
            ("/v/3", "raw", vec![], false),
            ("/v/1/", "1", vec![], false),
            ("/v/2", "1", vec![], false),
        ] {
            let volume = RedfishRaidVolume {
                id: String::new(),
                path: path.to_owned(),
                name: String::new(),
                level: RaidLevel::named(level),
                bytes: 0,
                drives: drives.into_iter().map(str::to_owned).collect(),
                wwn: None,
            };
            assert_eq!(
                is_planned_volume(&volume, &planned(), &progress),
                expected,
                "{path} {level}"
            );
        }
    }
}
