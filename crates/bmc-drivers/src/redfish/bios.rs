// SPDX-License-Identifier: Apache-2.0
//! BIOS settings over Redfish: reading them, changing them, and resetting them to the factory's.
//!
//! A change is first only noted by the BMC and takes effect when the machine starts anew. So a step
//! hands the change in, reboots the machine, and then looks until the settings have the values that
//! were asked for. What it has handed in is remembered between looks; what is a password is not.

mod registry;
mod values;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{BiosSetting, Step, StepArgument, StepFlow, Timestamp};
use redfish::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::bmc::Bmc;
use super::connections::Connections;
use super::patience::{is_busy, is_refusal};
use super::tasks::{self, Look};
use crate::connected::connected_interface;
use crate::step::StepRow;
use crate::{Bios, Error, NodeChanges, Outcome, Target};

use registry::Registry;
use values::{
    asked_settings, attributes, checked, differences, is_applied, same, settings, unapplied,
};

/// The redfish bios interface.
pub(super) struct RedfishBios(pub(super) Arc<Connections>);

connected_interface!(RedfishBios, Bios, STEPS);

const APPLY: &str = "apply_configuration";
const RESET: &str = "factory_reset";
const FLOWS: &[StepFlow] = &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service];

const STEPS: &[StepRow] = &[
    StepRow {
        name: APPLY,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[StepArgument::required(
            "settings",
            "The settings to change: a list of objects with 'name' and 'value'. The machine is \
             rebooted if any of them has another value.",
        )],
    },
    StepRow {
        name: RESET,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
];

/// The note of a change that was handed in.
const NOTE: &str = "redfish_bios";
/// Where a resource says what may be handed in, and where.
const SETTINGS_OBJECT: &str = "/@Redfish.Settings/SettingsObject";
const APPLY_TIMES: &str = "/@Redfish.Settings/SupportedApplyTimes";

/// What the firmware is busy with while it starts: settings are not final then.
const STARTING: &[&str] = &[
    "PrimaryProcessorInitializationStarted",
    "BusInitializationStarted",
    "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted",
    "PCIResourceConfigStarted",
];

/// A change that was handed in, for the looks that follow.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// Whether the machine is still to be rebooted for it.
    reboot: bool,
    /// When the machine was rebooted.
    since: Timestamp,
    /// The values that were asked for, without passwords. Empty after a reset, when any will do.
    wanted: Map<String, Value>,
    /// When settings were last applied, as the BMC said before the change.
    applied_before: Option<String>,
    /// The task that applies the change.
    task: Option<String>,
}

/// The settings as they are at one moment.
struct Sight {
    system: Resource,
    bios: Resource,
    /// The resource that changes are handed in to, if it is another one.
    inbox: Option<Resource>,
}

#[async_trait]
impl Bios for RedfishBios {
    async fn settings(&self, target: &Target<'_>) -> Result<Option<Vec<BiosSetting>>, Error> {
        let bmc = self.0.bmc(target, "read the BIOS settings")?;
        let system = bmc.system().await?;
        let Some(bios) = bmc.follow(&system, "/Bios").await? else { return Ok(None) };
        if bios.at("/Attributes").is_none() {
            return Ok(None);
        }
        let registry = Registry::read(&bmc, &bios).await;
        Ok(Some(settings(&bios, &registry, target.now)))
    }
}

impl RedfishBios {
    async fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        let resets = step.step == RESET;
        let what = if resets { "reset the BIOS settings" } else { "change BIOS settings" };
        let bmc = self.0.bmc(target, what)?;
        if let Some(mut progress) = tasks::recall::<Progress>(target, NOTE) {
            if !progress.reboot {
                return self.look(target, &bmc, progress).await;
            }
            (progress.reboot, progress.since) = (false, target.now);
            return tasks::reboot(target, &self.0.settings, NOTE, &progress).await;
        }
        if resets { self.reset(target, &bmc).await } else { self.apply(target, &bmc, step).await }
    }

    async fn apply(&self, target: &Target<'_>, bmc: &Bmc, step: &Step) -> Result<Outcome, Error> {
        let asked = asked_settings(&step.args)?;
        let sight = Sight::of(bmc).await?;
        let registry = Registry::read(bmc, &sight.bios).await;
        let wanted = checked(&asked, &sight.bios, &registry)?;
        if is_applied(&wanted, attributes(&sight.bios), sight.pending()) {
            return Ok(done(&sight.bios, &registry, target.now));
        }
        let task = match hand_in(bmc, &sight, &wanted).await? {
            HandedIn::Taken(task) => task,
            HandedIn::Busy(error) => {
                return tasks::try_again(target, &self.0.settings, bmc.explain(error));
            }
        };
        if !registry.reset_required(wanted.keys()) {
            let sight = Sight::of(bmc).await?;
            if is_applied(&wanted, attributes(&sight.bios), None) {
                return Ok(done(&sight.bios, &registry, target.now));
            }
        }
        let is_secret = |name: &str| registry.get(name).is_some_and(|entry| entry.is_secret());
        let progress = Progress {
            reboot: true,
            since: target.now,
            wanted: wanted.into_iter().filter(|(name, _)| !is_secret(name)).collect(),
            applied_before: applied_at(&sight.bios),
            task,
        };
        Ok(tasks::go_on(target, NOTE, &progress))
    }

    async fn reset(&self, target: &Target<'_>, bmc: &Bmc) -> Result<Outcome, Error> {
        let sight = Sight::of(bmc).await?;
        let Some(action) = sight.bios.action("Bios.ResetBios") else {
            return Err(bmc.failed(
                "the BMC has no action for it; change the settings one by one with \
                 bios.apply_configuration, or reset them in the BIOS setup",
            ));
        };
        let answer = bmc.post(&action.target, &json!({})).await?;
        let progress = Progress {
            reboot: true,
            since: target.now,
            wanted: Map::new(),
            applied_before: applied_at(&sight.bios),
            task: tasks::task_of(&answer),
        };
        Ok(tasks::go_on(target, NOTE, &progress))
    }

    /// Looks whether what was handed in has taken effect.
    async fn look(
        &self,
        target: &Target<'_>,
        bmc: &Bmc,
        mut progress: Progress,
    ) -> Result<Outcome, Error> {
        let limit = Duration::from_secs(self.0.settings.bios_apply_timeout);
        let late = target.now.since(progress.since) >= limit;
        let sight = match Sight::of(bmc).await {
            Ok(sight) => sight,
            // BMCs are at their slowest while the machine starts.
            Err(error) if late => return Err(error),
            Err(_) => return Ok(tasks::look_again(target, &self.0.settings, NOTE, &progress)),
        };
        let starting = starting(&sight.system);
        let left = unapplied(&progress.wanted, attributes(&sight.bios), sight.pending());
        if starting.is_none() && left.is_empty() {
            let registry = Registry::read(bmc, &sight.bios).await;
            return Ok(done(&sight.bios, &registry, target.now));
        }
        if let Some(task) = &progress.task {
            match tasks::look(bmc, task).await {
                Look::Failed(why) => return Err(bmc.failed(format!("the BMC says: {why}"))),
                Look::Done | Look::Gone => progress.task = None,
                Look::Working(_) | Look::Silent(_) => {}
            }
        }
        if starting.is_none() && applied_at(&sight.bios) != progress.applied_before {
            let complaints = complaints(&sight.bios);
            if !complaints.is_empty() {
                let why =
                    format!("{}; the BMC says: {complaints}", differences(&left, &sight.bios));
                return Err(bmc.failed(why));
            }
        }
        if !late {
            return Ok(tasks::look_again(target, &self.0.settings, NOTE, &progress));
        }
        Err(bmc.failed(match starting {
            Some(stage) => format!(
                "the machine has not finished starting {} seconds after the reboot (it is at \
                 {stage}); look at its console",
                limit.as_secs()
            ),
            None => format!(
                "{} even {} seconds after the reboot; look at the BMC's job queue and at the BIOS \
                 setup for what holds the change back",
                differences(&left, &sight.bios),
                limit.as_secs()
            ),
        }))
    }
}

impl Sight {
    async fn of(bmc: &Bmc) -> Result<Self, Error> {
        let system = bmc.system().await?;
        let Some(bios) = bmc.follow(&system, "/Bios").await? else {
            return Err(bmc.failed(
                "the BMC shows no BIOS settings for this machine; set bios_interface to no-bios",
            ));
        };
        // Where it cannot be read it can still be written to.
        let inbox =
            match bios.link(SETTINGS_OBJECT) {
                None => None,
                Some(path) => Some(bmc.find(path).await.ok().flatten().unwrap_or_else(|| {
                    Resource { path: path.to_owned(), etag: None, body: json!({}) }
                })),
            };
        Ok(Self { system, bios, inbox })
    }

    /// The values that take effect at the next start.
    fn pending(&self) -> Option<&Map<String, Value>> {
        self.inbox.as_ref().and_then(attributes)
    }
}

/// What became of values that were handed in.
enum HandedIn {
    /// The BMC has them, and this is the task that applies them.
    Taken(Option<String>),
    /// The BMC takes none right now.
    Busy(redfish::Error),
}

/// Hands the values in.
async fn hand_in(bmc: &Bmc, sight: &Sight, wanted: &Map<String, Value>) -> Result<HandedIn, Error> {
    let inbox = sight.inbox.as_ref().unwrap_or(&sight.bios);
    let mut refusal = None;
    for body in bodies(wanted, &sight.bios.texts(APPLY_TIMES)) {
        match bmc.client().patch(&inbox.path, &body, inbox.etag.as_deref()).await {
            Ok(answer) => return Ok(HandedIn::Taken(tasks::task_of(&answer))),
            Err(error) if is_busy(&error) || is_refusal(&error) => {
                refusal = refusal.or(Some(error))
            }
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    // The process may have died between handing in and remembering it; BMCs take the same change
    // only once.
    let again = Sight::of(bmc).await?;
    let holds = |name: &String, value: &Value| {
        again.pending().and_then(|pending| pending.get(name)).is_some_and(|held| same(held, value))
    };
    match refusal {
        Some(error) if !wanted.iter().all(|(name, value)| holds(name, value)) => {
            if is_busy(&error) { Ok(HandedIn::Busy(error)) } else { Err(bmc.explain(error)) }
        }
        Some(_) | None => Ok(HandedIn::Taken(None)),
    }
}

/// What to send, one after the other until it is accepted: BMCs say that they take a time and then
/// refuse it.
fn bodies(wanted: &Map<String, Value>, apply_times: &[&str]) -> Vec<Value> {
    let plain = json!({ "Attributes": wanted });
    if !apply_times.contains(&"OnReset") {
        return vec![plain];
    }
    let timed = json!({
        "Attributes": wanted,
        "@Redfish.SettingsApplyTime": {
            "@odata.type": "#Settings.v1_0_0.PreferredApplyTime",
            "ApplyTime": "OnReset",
        },
    });
    vec![timed, plain]
}

/// What the machine is at, if it is not through with starting. Most BMCs do not say.
fn starting(system: &Resource) -> Option<&str> {
    system.text("/BootProgress/LastState").filter(|state| STARTING.contains(state))
}

fn applied_at(bios: &Resource) -> Option<String> {
    bios.text("/@Redfish.Settings/Time").map(str::to_owned)
}

/// What the BMC did not like about the change it applied last.
fn complaints(bios: &Resource) -> String {
    let text = |message: &Value, key: &str| {
        message.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let bad = bios.list("/@Redfish.Settings/Messages").iter().filter(|message| {
        ["Severity", "MessageSeverity"]
            .iter()
            .any(|key| matches!(text(message, key).as_str(), "Critical" | "Warning"))
    });
    let told = bad.map(|message| match text(message, "Message") {
        message_text if message_text.is_empty() => text(message, "MessageId"),
        message_text => message_text,
    });
    told.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

fn done(bios: &Resource, registry: &Registry, now: Timestamp) -> Outcome {
    let bios_settings = Some(settings(bios, registry, now));
    Outcome::Done(NodeChanges { bios_settings, ..NodeChanges::none() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Systems/1/Bios".to_owned(), etag: None, body }
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn an_apply_time_is_sent_where_it_is_taken() {
        let wanted = map(json!({"A": 1}));
        assert_eq!(bodies(&wanted, &["Immediate"]), [json!({"Attributes": {"A": 1}})]);
        let both = bodies(&wanted, &["Immediate", "OnReset"]);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0]["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
        assert_eq!(both[1], json!({"Attributes": {"A": 1}}));
    }

    #[test]
    fn differences_and_complaints_in_words() {
        let bios = resource(json!({
            "Attributes": {"A": "x", "B": 5},
            "@Redfish.Settings": {"Messages": [
                {"Severity": "OK", "Message": "fine"},
                {"MessageSeverity": "Critical", "MessageId": "Vendor.1.0.Locked"},
                {"Severity": "Warning", "Message": "A depends on C."},
                7,
            ]},
        }));
        assert_eq!(
            differences(&map(json!({"A": "y", "B": 5, "C": true})), &bios),
            "A is 'x' instead of 'y', B is still to become '5', C is unset instead of 'True'"
        );
        assert_eq!(complaints(&bios), "Vendor.1.0.Locked A depends on C.");
    }
}
