// SPDX-License-Identifier: Apache-2.0
//! The firmware update step: one component after the other, each in its own way.
//!
//! The BMC is told where the image is, fetches it and works on it as a task. A BIOS and a network
//! card need a reboot: some to begin, and their task waits for it; others to take effect, and their
//! task ends before it. A BMC restarts itself and does not answer for minutes, with every kind of
//! error in between; what tells that it is done is its new version. So while an update runs, an
//! answer that does not come is no failure until the time for the update is over.

use std::time::Duration;

use node_model::{FirmwareComponent, Step, Timestamp};
use redfish::{Action, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image::{Form, Kind, Update, bodies};
use super::{BIOS_NAMES, BMC_NAMES, bmc_component, cards, components, inventory_item};
use crate::redfish::bmc::Bmc;
use crate::redfish::patience::{is_busy, is_refusal};
use crate::redfish::settings::RedfishSettings;
use crate::redfish::tasks::{self, Look};
use crate::{Error, NodeChanges, Outcome, Target};

/// The note of how far the step has come.
const NOTE: &str = "redfish_firmware";
/// How long an update may stay queued before we think that it waits for a reboot. Some are queued
/// for a moment before they begin.
const QUEUED: Duration = Duration::from_secs(30);
/// How long it may stay queued after the reboot it seemed to wait for, or how long the task of a
/// BIOS may stand still, before we think that it waits for one.
const STANDSTILL: Duration = Duration::from_secs(300);
/// How often the machine is rebooted for one update.
const MOST_REBOOTS: u8 = 3;
/// How long a component may take to show its new version, if the operator does not say. If it still
/// shows the old one then, it had that version before.
const SETTLING: Duration = Duration::from_secs(300);

/// The key of `driver_info` with the seconds a BMC needs after an update before it can be relied on.
const UNRESPONSIVE_WAIT: &str = "firmware_update_unresponsive_bmc_wait";

/// What BMCs call a task that has not begun because nothing is there to begin with.
const NEW: &[&str] = &["New", "Downloading", "Downloaded"];
/// What BMCs call a task that waits for something.
const WAITING: &[&str] = &[
    "Starting",
    "Pending",
    "Suspended",
    "Scheduled",
    "Waiting",
    "ReadyForExecution",
    "Interrupted",
];

/// How far the step has come.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// Which update it is at.
    next: usize,
    /// Since when.
    since: Timestamp,
    /// The version before it, which is written down before anything is asked for; empty if the
    /// component does not tell.
    before: Option<String>,
    /// The update in flight.
    running: Option<Running>,
    /// Whether the machine is to be rebooted before anything else.
    reboot: bool,
}

impl Progress {
    fn at(next: usize, now: Timestamp) -> Self {
        Self { next, since: now, before: None, running: None, reboot: false }
    }
}

/// An update in flight.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    /// The task that does it.
    task: Option<String>,
    /// The version before.
    before: Option<String>,
    /// How much of it is done.
    percent: Option<u8>,
    /// When that last changed, or the machine was last rebooted.
    moved: Timestamp,
    /// Since when the task waits to begin.
    queued: Option<Timestamp>,
    /// Whether it is in the queue where the last reboot found it.
    still_queued: bool,
    /// How often the machine was rebooted for it.
    reboots: u8,
    /// Since when the task has ended and only the new version is awaited. After a reboot that
    /// follows the task, since that reboot.
    ended: Option<Timestamp>,
    /// Whether the reboot followed the task, so that the work is done after it.
    staged: bool,
    /// Whether the new version has been seen.
    renewed: bool,
    /// Whether the task was found and may not be ours.
    found: bool,
}

/// What a look at an update in flight shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// The image is not there yet.
    New,
    /// It waits to begin.
    Queued,
    /// It goes on.
    Running,
    /// It ended, or the BMC has forgotten it.
    Ended,
    /// It failed.
    Failed(String),
    /// The BMC does not say.
    Silent(String),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    LookAgain,
    Reboot,
    Over,
    Fail(String),
}

/// Carries the step out as far as it goes.
pub(super) async fn run(
    settings: &RedfishSettings,
    bmc: &Bmc,
    target: &Target<'_>,
    step: &Step,
    form: Form,
) -> Result<Outcome, Error> {
    let updates = wanted(target, step, form)?;
    let mut progress = match tasks::recall(target, NOTE) {
        Some(progress) => progress,
        None => {
            check_components(bmc, &updates, target.now).await?;
            Progress::at(0, target.now)
        }
    };
    if progress.reboot {
        progress.reboot = false;
        return tasks::reboot(target, settings, NOTE, &progress).await;
    }
    let Some(update) = updates.get(progress.next) else {
        return Ok(Outcome::Done(finished(bmc, target, &updates).await?));
    };
    let place = format!("update {} of {} ({})", progress.next + 1, updates.len(), update.component);
    let Some(running) = progress.running.as_mut() else {
        let outcome = start(settings, bmc, target, update, progress).await?;
        return Ok(tasks::telling(outcome, format!("{place} begins")));
    };
    let seen = look(bmc, running, target.now).await;
    let due = match while_working(update.kind, running, &seen, target.now) {
        Some(due) => due,
        None => match version(bmc, update).await {
            // It cannot be over while the BMC does not answer.
            Err(_) => Move::LookAgain,
            Ok(version) => after_end(update, running, version.as_deref(), target.now),
        },
    };
    match due {
        Move::Over | Move::Fail(_) if running.found && !running.renewed => {
            // It was busy with something else.
            progress.running = None;
            Ok(tasks::go_on(target, NOTE, &progress))
        }
        Move::Fail(why) => Err(failed(update, &format!("the BMC says: {why}"))),
        Move::Reboot => {
            progress.reboot = true;
            let outcome = tasks::go_on(target, NOTE, &progress);
            Ok(tasks::telling(outcome, format!("{place}: the machine is rebooted for it")))
        }
        Move::LookAgain => {
            let limit = Duration::from_secs(settings.firmware_update_timeout);
            let seen = last_seen(&seen, running);
            if target.now.since(progress.since) >= limit {
                let why = format!(
                    "it was not done after {} seconds ({seen}); look at the BMC's job queue",
                    limit.as_secs()
                );
                return Err(failed(update, &why));
            }
            let outcome = tasks::look_again(target, settings, NOTE, &progress);
            Ok(tasks::telling(outcome, format!("{place}: {seen}")))
        }
        Move::Over => {
            let node = target.node.id;
            tracing::info!(%node, component = update.component, "firmware update is over");
            let mut next = Progress::at(progress.next + 1, target.now);
            // Some machines take no further update before they were rebooted under their new BMC.
            next.reboot = update.kind == Kind::Bmc && next.next < updates.len();
            let outcome = tasks::go_on(target, NOTE, &next);
            Ok(tasks::telling(outcome, format!("{place} is over")))
        }
    }
}

/// The updates that are asked for. How long an image that may be one of the BMC is given, the node
/// may say for all of them.
fn wanted(target: &Target<'_>, step: &Step, form: Form) -> Result<Vec<Update>, Error> {
    let mut updates = Update::read(&step.args, form)?;
    let wait = unresponsive_wait(target)?;
    for update in &mut updates {
        if matches!(update.kind, Kind::Bmc | Kind::Unknown) {
            update.wait = update.wait.or(wait);
        }
    }
    Ok(updates)
}

fn unresponsive_wait(target: &Target<'_>) -> Result<Option<Duration>, Error> {
    let seconds = match target.driver_info.get(UNRESPONSIVE_WAIT) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64(),
    };
    let why = "use a whole number of seconds";
    let seconds =
        seconds.ok_or_else(|| Error::invalid(format!("driver_info/{UNRESPONSIVE_WAIT}"), why))?;
    Ok(Some(Duration::from_secs(seconds)).filter(|wait| !wait.is_zero()))
}

/// Whether the network cards that are to be updated are there, as far as the BMC tells.
async fn check_components(bmc: &Bmc, updates: &[Update], now: Timestamp) -> Result<(), Error> {
    if !updates.iter().any(|update| update.kind == Kind::Card) {
        return Ok(());
    }
    let system = bmc.system().await?;
    let known = cards(bmc, &system, now).await.unwrap_or_default();
    let is_known = |update: &&Update| {
        update.kind != Kind::Card || known.iter().any(|card| card.component == update.component)
    };
    match updates.iter().find(|update| !is_known(update)) {
        Some(unknown) if !known.is_empty() => {
            let names: Vec<_> = known.iter().map(|card| card.component.as_str()).collect();
            Err(Error::invalid(
                "settings",
                format!("there is no '{}'; there are {}", unknown.component, names.join(", ")),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// Tells the BMC to update a component.
async fn start(
    settings: &RedfishSettings,
    bmc: &Bmc,
    target: &Target<'_>,
    update: &Update,
    mut progress: Progress,
) -> Result<Outcome, Error> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let service = bmc.follow(&root, "/UpdateService").await?;
    let action = service.as_ref().and_then(|service| service.action("UpdateService.SimpleUpdate"));
    let (Some(service), Some(action)) = (service, action) else {
        return Err(failed(
            update,
            "the BMC cannot be told to fetch an image (it has no SimpleUpdate action); update it \
             with its own tools",
        ));
    };
    let version = version(bmc, update).await?;
    let Some(before) = progress.before.clone() else {
        progress.before = Some(version.unwrap_or_default());
        return Ok(tasks::go_on(target, NOTE, &progress));
    };
    let before = Some(before).filter(|before| !before.is_empty());
    if version.is_some() && before.is_some() && version != before {
        // It was updated, and we died before we remembered asking for it.
        return Ok(tasks::go_on(target, NOTE, &Progress::at(progress.next + 1, target.now)));
    }
    let system = bmc.system().await?;
    let targets = targets(bmc, &root, &service, &system, update.kind).await;
    let task = match submit(bmc, update, &action, &targets, &system.path).await {
        Ok(task) => task,
        Err(error) if is_busy(&error) => {
            // It may be busy with this very update, if we died before we remembered asking for it.
            let Some(task) = tasks::unfinished(bmc).await else {
                return tasks::try_again(target, settings, explain(bmc, update, error));
            };
            progress.running = Some(Running {
                task: Some(task),
                before,
                moved: target.now,
                found: true,
                ..Running::default()
            });
            return Ok(tasks::look_again(target, settings, NOTE, &progress));
        }
        Err(error) => return Err(explain(bmc, update, error)),
    };
    let node = target.node.id;
    tracing::info!(%node, component = update.component, image = ?update.image, "firmware update");
    progress.running = Some(Running { task, before, moved: target.now, ..Running::default() });
    Ok(tasks::look_again(target, settings, NOTE, &progress))
}

/// What to name as the target of an update: the machine where the BMC has several, else the
/// component's own entry if it is plain which one that is. Mostly the image knows best.
async fn targets(
    bmc: &Bmc,
    root: &Resource,
    service: &Resource,
    system: &Resource,
    kind: Kind,
) -> Vec<String> {
    let systems = match root.link("/Systems") {
        Some(path) => bmc.client().members(path).await.unwrap_or_default(),
        None => Vec::new(),
    };
    if systems.len() > 1 {
        return vec![system.path.clone()];
    }
    let item = match kind {
        Kind::Bios => inventory_item(bmc, service, BIOS_NAMES).await,
        Kind::Bmc => inventory_item(bmc, service, BMC_NAMES).await,
        Kind::Card | Kind::Unknown => None,
    };
    item.into_iter().collect()
}

async fn submit(
    bmc: &Bmc,
    update: &Update,
    action: &Action,
    targets: &[String],
    machine: &str,
) -> Result<Option<String>, redfish::Error> {
    let mut refusal = None;
    for body in bodies(&update.image, action, targets, machine) {
        match bmc.client().post(&action.target, &body).await {
            Ok(answer) => return Ok(tasks::task_of(&answer)),
            Err(error) if is_refusal(&error) => refusal = refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    // What was said to the full request says most about what is wrong.
    Err(refusal.unwrap_or_else(|| redfish::Error::NotFound { path: action.target.clone() }))
}

/// Looks at the update in flight.
async fn look(bmc: &Bmc, running: &mut Running, now: Timestamp) -> Seen {
    let Some(task) = running.task.as_deref().filter(|_| running.ended.is_none()) else {
        return Seen::Ended;
    };
    match tasks::look(bmc, task).await {
        Look::Done | Look::Gone => Seen::Ended,
        Look::Failed(why) => Seen::Failed(why),
        Look::Silent(why) => Seen::Silent(why),
        Look::Working(work) => {
            if work.percent != running.percent {
                running.percent = work.percent;
                running.moved = now;
            }
            phase(work.word.as_deref())
        }
    }
}

/// How far a task that has not ended has come, by what the BMC calls its state.
fn phase(word: Option<&str>) -> Seen {
    match word {
        Some(word) if NEW.contains(&word) => Seen::New,
        Some(word) if WAITING.contains(&word) => Seen::Queued,
        Some(_) | None => Seen::Running,
    }
}

/// What to do while the task goes on; nothing is said once it has ended.
fn while_working(kind: Kind, running: &mut Running, seen: &Seen, now: Timestamp) -> Option<Move> {
    let reboot = match seen {
        Seen::Ended => {
            running.ended = running.ended.or(Some(now));
            return None;
        }
        Seen::Failed(why) => return Some(Move::Fail(why.clone())),
        Seen::Silent(_) => false,
        Seen::New | Seen::Running => {
            (running.queued, running.still_queued) = (None, false);
            let stands = now.since(running.moved) >= STANDSTILL;
            let may_wait = matches!(kind, Kind::Bios | Kind::Unknown);
            may_wait && *seen == Seen::Running && running.reboots == 0 && stands
        }
        Seen::Queued => {
            let patience = if running.still_queued { STANDSTILL } else { QUEUED };
            now.since(*running.queued.get_or_insert(now)) >= patience
        }
    };
    if !reboot || kind == Kind::Bmc || running.reboots >= MOST_REBOOTS {
        return Some(Move::LookAgain);
    }
    running.reboots += 1;
    running.still_queued = *seen == Seen::Queued;
    (running.queued, running.moved) = (None, now);
    Some(Move::Reboot)
}

/// What to do when the task has ended and the component has this version.
fn after_end(
    update: &Update,
    running: &mut Running,
    version: Option<&str>,
    now: Timestamp,
) -> Move {
    if update.kind != Kind::Bmc && running.reboots == 0 {
        running.reboots = 1;
        running.staged = true;
        running.ended = Some(now);
        return Move::Reboot;
    }
    let ended = *running.ended.get_or_insert(now);
    let is_new =
        version.is_some() && running.before.is_some() && version != running.before.as_deref();
    // A BMC that has just come back may go again: it must be seen twice.
    let is_steady = update.kind != Kind::Bmc || running.renewed;
    running.renewed = is_new;
    let rebooted_in_time = update.kind != Kind::Bmc && !running.staged && update.wait.is_none();
    let patience = update.wait.unwrap_or(SETTLING);
    if (is_new && is_steady) || rebooted_in_time || now.since(ended) >= patience {
        return Move::Over;
    }
    Move::LookAgain
}

/// The version a component has.
async fn version(bmc: &Bmc, update: &Update) -> Result<Option<String>, Error> {
    let system = bmc.system().await?;
    let now = Timestamp(0);
    let component = match update.kind {
        Kind::Bios => return Ok(system.text("/BiosVersion").map(str::to_owned)),
        Kind::Bmc => bmc_component(bmc, &system, now).await?,
        Kind::Card => {
            // Cards are not shown while the machine starts.
            let cards = cards(bmc, &system, now).await.unwrap_or_default();
            cards.into_iter().find(|card| card.component == update.component)
        }
        Kind::Unknown => None,
    };
    Ok(component.and_then(|component| component.current_version))
}

/// What to write when all updates are over.
async fn finished(
    bmc: &Bmc,
    target: &Target<'_>,
    updates: &[Update],
) -> Result<NodeChanges, Error> {
    let mut known = components(bmc, target.now).await?;
    for component in &mut known {
        mark_flashed(component, updates);
    }
    let firmware_components = (!known.is_empty()).then_some(known);
    Ok(NodeChanges { firmware_components, ..NodeChanges::none() })
}

fn mark_flashed(component: &mut FirmwareComponent, updates: &[Update]) {
    if updates.iter().any(|update| update.component == component.component) {
        component.last_version_flashed.clone_from(&component.current_version);
    }
}

/// What a refusal means; the BMC may have repeated what it was sent.
fn explain(bmc: &Bmc, update: &Update, error: redfish::Error) -> Error {
    let mut explained = bmc.explain(error);
    if let Error::Failed { why, .. } = &mut explained {
        *why = update.image.masked(std::mem::take(why));
    }
    explained
}

fn failed(update: &Update, why: &str) -> Error {
    Error::Failed {
        what: format!("update {} from {}", update.component, update.image.shown()),
        why: update.image.masked(why.to_owned()),
    }
}

/// What was seen last, in words.
fn last_seen(seen: &Seen, running: &Running) -> String {
    let percent = running.percent.map_or_else(String::new, |percent| format!(" at {percent} %"));
    match seen {
        Seen::New => "its task has not begun".to_owned(),
        Seen::Queued => "its task waits to begin".to_owned(),
        Seen::Running => format!("its task goes on{percent}"),
        Seen::Ended => "its task has ended and no new version is seen".to_owned(),
        Seen::Failed(why) | Seen::Silent(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests;
