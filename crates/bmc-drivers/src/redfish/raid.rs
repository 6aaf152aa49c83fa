// SPDX-License-Identifier: Apache-2.0
//! Logical disks over Redfish: volumes of the machine's storage controllers.
//!
//! A step first plans (which drives each volume goes onto, [`plan`]) and has the plan written down,
//! so that whoever goes on after a crash goes on with the same plan. Then it does one thing per
//! call, deleting one volume or creating one, and goes on when the BMC shows that it is done: at
//! once, when a task has ended, or after a reboot where the controller changes nothing before.

mod hardware;
mod levels;
mod plan;
mod request;
mod result;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{Step, StepArgument, StepFlow, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bmc::Bmc;
use super::connections::Connections;
use super::patience::is_busy;
use super::tasks::{self, Look};
use crate::connected::connected_interface;
use crate::interfaces::validate_raid_config;
use crate::step::StepRow;
use crate::{Error, Outcome, Raid, Target};

use hardware::{Controller, Shelf, Volume};
use plan::{Existing, Planned, plan, same_path};
use request::{apply_time, submit, waits_for_reset};
use wanted::{Selection, Wanted};

/// The redfish raid interface.
pub(super) struct RedfishRaid(pub(super) Arc<Connections>);

connected_interface!(RedfishRaid, Raid, STEPS);

#[async_trait]
impl Raid for RedfishRaid {
    async fn validate_config(
        &self,
        _target: &Target<'_>,
        config: &Map<String, Value>,
    ) -> Result<(), Error> {
        validate_raid_config(config)?;
        let disks = config.get("logical_disks").and_then(Value::as_array);
        let is_scsi = |disk: &Value| disk.get("interface_type") == Some(&Value::from("scsi"));
        if disks.is_some_and(|disks| disks.iter().any(is_scsi)) {
            let why = "Redfish knows no 'scsi' drives; use 'sas' or 'sata'";
            return Err(Error::invalid("interface_type", why));
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

const STEPS: &[StepRow] = &[
    StepRow {
        name: CREATE,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[ROOT, OTHERS, DELETE_EXISTING],
    },
    StepRow {
        name: DELETE,
        flows: &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepRow {
        name: APPLY,
        flows: &[StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[CONFIG, ROOT, OTHERS, DELETE_EXISTING],
    },
];

/// The note of how far a step has come.
const NOTE: &str = "redfish_raid";
/// How long something that the BMC does and that may not be ours is waited for.
const OTHERS_WORK: Duration = Duration::from_secs(600);
/// How long after a task has failed the change may still be seen. If the process died before it
/// remembered a request, the BMC has got it twice, and only the first of the two is done.
const GRACE: Duration = Duration::from_secs(60);
/// How long a task may take before we think that it waits for a reboot, where nobody says.
const WITHOUT_REBOOT: Duration = Duration::from_secs(120);

/// How far a step has come.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// Where volumes are.
    shelves: Vec<Shelf>,
    /// Whether the volumes that are there are to go.
    clearing: bool,
    /// The volumes to create, in order.
    create: Vec<Planned>,
    /// The volumes that were there and stay.
    staying: Vec<String>,
    /// The volumes that were created, or were there already as wanted.
    made: Vec<Made>,
    /// What the BMC is doing.
    change: Option<Change>,
}

/// A volume that was asked for and is there.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    path: String,
    /// Its level as it was asked for: not all BMCs tell.
    level: String,
    root: bool,
}

/// Something the BMC was asked to do and has not done yet.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Change {
    since: Timestamp,
    /// The task that does it.
    task: Option<String>,
    /// Whether it needs a reboot that has not happened yet.
    reboot: bool,
    /// Whether it is not known if it needs one: then it gets one when it takes long.
    undecided: bool,
    /// The volume that is deleted, and how many there were.
    deletes: Option<(String, usize)>,
    /// What the BMC said when its task failed, and when.
    failed: Option<(String, Timestamp)>,
    /// Whether the task was found and may not be ours.
    found: bool,
}

/// The status of an answer that says that something was made.
const CREATED: u16 = 201;

impl Progress {
    /// The volume that was to be created next is there, at `path`.
    fn done(&mut self, path: String) {
        self.change = None;
        if self.create.is_empty() {
            return;
        }
        let planned = self.create.remove(0);
        self.made.push(Made { path, level: planned.level, root: planned.root });
    }
}

impl RedfishRaid {
    async fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        let what = if step.step == DELETE { "delete the volumes" } else { "create the volumes" };
        let bmc = self.0.bmc(target, what)?;
        match tasks::recall(target, NOTE) {
            Some(progress) => self.go_on(target, &bmc, progress).await,
            None => {
                let progress = self.begin(target, &bmc, step).await?;
                Ok(tasks::go_on(target, NOTE, &progress))
            }
        }
    }

    /// Decides what is to be done. Nothing has been changed when this fails.
    async fn begin(&self, target: &Target<'_>, bmc: &Bmc, step: &Step) -> Result<Progress, Error> {
        let mut progress = Progress {
            shelves: Vec::new(),
            clearing: true,
            create: Vec::new(),
            staying: Vec::new(),
            made: Vec::new(),
            change: None,
        };
        if step.step == DELETE {
            progress.shelves = hardware::shelves(bmc).await?;
            return Ok(progress);
        }
        let arguments = step.args.parse();
        let flag = |argument: &StepArgument, default| {
            arguments.get(&*argument.name).and_then(Value::as_bool).unwrap_or(default)
        };
        let config = config(target, step, &arguments)?;
        self.validate_config(target, &config).await?;
        let selection =
            Selection { root: flag(&ROOT, true), others: flag(&OTHERS, step.step == CREATE) };
        let wanted = Wanted::read(&config, selection)?;
        let controllers = hardware::controllers(bmc).await?;
        progress.shelves = controllers.iter().filter_map(|c| c.shelf.clone()).collect();
        if progress.shelves.is_empty() {
            return Err(bmc.failed(
                "the BMC shows no storage controller that can have volumes; set raid_interface to \
                 agent or no-raid",
            ));
        }
        progress.clearing = flag(&DELETE_EXISTING, false);
        let (wanted, existing) = if progress.clearing {
            (wanted, Existing::Go)
        } else {
            let there = controllers.iter().flat_map(|controller| &controller.volumes);
            progress.staying = there.map(|volume| volume.path.clone()).collect();
            let (left, made) = without_made(wanted, &controllers);
            progress.made = made;
            (left, Existing::Stay)
        };
        progress.create = plan(&controllers, &wanted, existing).map_err(|why| bmc.failed(why))?;
        Ok(progress)
    }

    /// Does the next thing, or looks how far the last one has come.
    async fn go_on(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        mut progress: Progress,
    ) -> Result<Outcome, Error> {
        if let Some(change) = &mut progress.change {
            if change.reboot {
                change.reboot = false;
                return tasks::reboot(target, &self.0.settings, NOTE, &progress).await;
            }
            if let Some(task) = change.task.take() {
                match tasks::look(bmc, &task).await {
                    Look::Done | Look::Gone => {}
                    Look::Failed(_) if change.found => {}
                    Look::Failed(why) => change.failed = Some((why, target.now)),
                    Look::Working(_) => {
                        change.task = Some(task);
                        let taken = target.now.since(change.since);
                        if change.undecided && taken >= WITHOUT_REBOOT {
                            (change.undecided, change.reboot) = (false, true);
                            return Ok(tasks::go_on(target, NOTE, &progress));
                        }
                        if change.found && taken >= OTHERS_WORK {
                            change.task = None;
                            return Ok(tasks::go_on(target, NOTE, &progress));
                        }
                        return self.wait(target, bmc, &progress, "its task has not ended");
                    }
                    Look::Silent(why) => {
                        change.task = Some(task);
                        return self.wait(target, bmc, &progress, &why);
                    }
                }
            }
        }
        if progress.clearing {
            if let Some(waits) = self.clear(target, bmc, &mut progress).await? {
                return Ok(waits);
            }
            progress.clearing = false;
        }
        if let Some(waits) = self.create(target, bmc, &mut progress).await? {
            return Ok(waits);
        }
        let mut volumes = Vec::new();
        for shelf in &progress.shelves {
            for volume in hardware::volumes(bmc, shelf).await? {
                volumes.push((shelf.controller.as_str(), volume));
            }
        }
        Ok(Outcome::Done(result::changes(target, &volumes, &progress.made)))
    }

    /// Deletes the next volume; the answer is that of the step, or none if no volume is left.
    async fn clear(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        progress: &mut Progress,
    ) -> Result<Option<Outcome>, Error> {
        let ours = result::recorded(target);
        let mut doomed: Vec<(&Shelf, Volume)> = Vec::new();
        for shelf in &progress.shelves {
            let volumes = match hardware::volumes(bmc, shelf).await {
                Ok(volumes) => volumes.into_iter(),
                Err(error) => return self.unseen(target, bmc, progress, error),
            };
            // What has no level is a drive that is passed through as it is, and no volume to us;
            // unless we know better because we have made it.
            let is_volume = |volume: &Volume| {
                let key = (shelf.controller.clone(), volume.id.clone());
                volume.level.is_some() || ours.contains(&key)
            };
            doomed.extend(volumes.filter(is_volume).map(|volume| (shelf, volume)));
        }
        if let Some((path, count)) = progress.change.as_ref().and_then(|c| c.deletes.as_ref()) {
            // Some BMCs give the number of a deleted volume to the next one.
            let there = doomed.iter().any(|(_, volume)| same_path(&volume.path, path));
            if there && doomed.len() >= *count {
                let seen = format!("the volume {path} is still there");
                return self.wait(target, bmc, progress, &seen).map(Some);
            }
        }
        progress.change = None;
        let Some((shelf, volume)) = doomed.first() else { return Ok(None) };
        let answer = match bmc.client().delete(&volume.path).await {
            Ok(answer) => tasks::task_of(&answer),
            Err(redfish::Error::NotFound { .. }) => None,
            Err(error) if is_busy(&error) => {
                return tasks::try_again(target, &self.0.settings, bmc.explain(error)).map(Some);
            }
            Err(error) => return Err(bmc.explain(error)),
        };
        progress.change = Some(Change {
            since: target.now,
            reboot: answer.is_some() && waits_for_reset(shelf),
            undecided: !waits_for_reset(shelf),
            task: answer,
            deletes: Some((volume.path.clone(), doomed.len())),
            ..Change::default()
        });
        Ok(Some(tasks::go_on(target, NOTE, progress)))
    }

    /// Creates the next volume, or finds the one that was being created; the answer is that of the
    /// step, or none if there is nothing left to create.
    async fn create(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        progress: &mut Progress,
    ) -> Result<Option<Outcome>, Error> {
        let Some(next) = progress.create.first() else { return Ok(None) };
        let shelf = progress.shelves.iter().find(|shelf| shelf.controller == next.controller);
        let Some(shelf) = shelf else {
            return Err(bmc.failed(format!("controller {} is gone", next.controller)));
        };
        let there = match hardware::volumes(bmc, shelf).await {
            Ok(there) => there,
            Err(error) => return self.unseen(target, bmc, progress, error),
        };
        // Volumes are created one at a time, so one that was not there before is the one. It may be
        // there without our remembering having created it.
        if let Some(volume) = there.iter().find(|volume| is_new(volume, next, progress)) {
            progress.done(volume.path.clone());
            if progress.create.is_empty() {
                return Ok(None);
            }
            return Ok(Some(tasks::go_on(target, NOTE, progress)));
        }
        match progress.change.take() {
            Some(change) if !change.found => {
                progress.change = Some(change);
                let seen = "the new volume is not shown yet";
                return self.wait(target, bmc, progress, seen).map(Some);
            }
            // What was going on has ended, and it was not about this volume.
            Some(_) => {}
            None => {
                if let Some(task) = tasks::unfinished(bmc).await {
                    progress.change = Some(Change {
                        since: target.now,
                        task: Some(task),
                        undecided: true,
                        found: true,
                        ..Change::default()
                    });
                    return Ok(Some(tasks::go_on(target, NOTE, progress)));
                }
            }
        }
        let answer = match submit(bmc, shelf, next).await {
            Ok(answer) => answer,
            Err(error) if is_busy(&error) => {
                return tasks::try_again(target, &self.0.settings, bmc.explain(error)).map(Some);
            }
            Err(error) => return Err(bmc.explain(error)),
        };
        let task = tasks::task_of(&answer);
        let reboot = waits_for_reset(shelf);
        if task.is_none() && !reboot {
            // It is there at once, and the BMC says where: no need to guess which one it is.
            if let Some(path) = answer.location.filter(|_| answer.status == CREATED) {
                progress.done(path);
                return Ok(Some(tasks::go_on(target, NOTE, progress)));
            }
        }
        let undecided = apply_time(shelf).is_none();
        progress.change =
            Some(Change { since: target.now, task, reboot, undecided, ..Change::default() });
        Ok(Some(tasks::go_on(target, NOTE, progress)))
    }

    /// The volumes cannot be seen. While the BMC is changing something that is to be expected.
    fn unseen(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        progress: &Progress,
        error: Error,
    ) -> Result<Option<Outcome>, Error> {
        match progress.change {
            Some(_) => self.wait(target, bmc, progress, &error.to_string()).map(Some),
            None => Err(error),
        }
    }

    /// Looks again later, or gives up.
    fn wait(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        progress: &Progress,
        seen: &str,
    ) -> Result<Outcome, Error> {
        let failed = progress.change.as_ref().and_then(|change| change.failed.as_ref());
        if let Some((why, at)) = failed
            && target.now.since(*at) >= GRACE
        {
            return Err(bmc.failed(format!("the BMC says: {why}")));
        }
        let limit = Duration::from_secs(self.0.settings.raid_config_timeout);
        let since = progress.change.as_ref().map_or(target.now, |change| change.since);
        if target.now.since(since) >= limit {
            return Err(bmc.failed(format!(
                "the BMC was not done after {} seconds ({seen}); look at its job queue and at the \
                 controller",
                limit.as_secs()
            )));
        }
        Ok(tasks::look_again(target, &self.0.settings, NOTE, progress))
    }
}

/// The configuration that a step is to create.
fn config(
    target: &Target<'_>,
    step: &Step,
    arguments: &Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    if step.step == APPLY {
        let config = arguments.get("raid_config").and_then(Value::as_object).cloned();
        return config
            .ok_or_else(|| Error::missing("raid_config", "give the RAID configuration to apply"));
    }
    let config = target.node.target_raid_config.parse();
    if config.is_empty() {
        return Err(Error::missing(
            "target_raid_config",
            "set it with PUT states/raid before creating the configuration",
        ));
    }
    Ok(config)
}

/// What is left to create, and what is there already: a volume of the name wanted and, if it tells,
/// of the level.
fn without_made(wanted: Vec<Wanted>, controllers: &[Controller]) -> (Vec<Wanted>, Vec<Made>) {
    let mut made = Vec::new();
    let mut left = Vec::new();
    for disk in wanted {
        let there = controllers.iter().flat_map(|controller| &controller.volumes).find(|volume| {
            disk.name.as_deref() == Some(volume.name.as_str())
                && volume.level.is_none_or(|level| level == disk.level)
        });
        match there {
            Some(volume) => made.push(Made {
                path: volume.path.clone(),
                level: disk.level.name.to_owned(),
                root: disk.root,
            }),
            None => left.push(disk),
        }
    }
    (left, made)
}

/// Whether this is the volume that was planned: it was not there, and it is as planned as far as it
/// tells.
fn is_new(volume: &Volume, planned: &Planned, progress: &Progress) -> bool {
    let known = progress.staying.iter().chain(progress.made.iter().map(|made| &made.path));
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
    use super::levels::Level;
    use super::*;

    fn planned() -> Planned {
        Planned {
            controller: "A".to_owned(),
            level: "1".to_owned(),
            drives: vec!["/d/0".to_owned(), "/d/1".to_owned()],
            bytes: Some(5),
            name: Some("root".to_owned()),
            root: true,
        }
    }

    #[test]
    fn a_new_volume_is_told_from_the_others() {
        let progress = Progress {
            shelves: Vec::new(),
            clearing: false,
            create: Vec::new(),
            staying: vec!["/v/1".to_owned()],
            made: vec![Made { path: "/v/2".to_owned(), level: "1".to_owned(), root: false }],
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
            let volume = Volume {
                id: String::new(),
                path: path.to_owned(),
                name: String::new(),
                level: Level::named(level),
                bytes: 0,
                drives: drives.into_iter().map(str::to_owned).collect(),
                wwn: None,
            };
            assert_eq!(is_new(&volume, &planned(), &progress), expected, "{path} {level}");
        }
    }
}
