// SPDX-License-Identifier: Apache-2.0
//! BIOS settings over Redfish: reading, changing and resetting them.
//!
//! A BMC stores a change as pending and applies it at the next boot. A step submits the change,
//! reboots the machine, and polls until the settings have the requested values. The requested values
//! are stored between polls, except passwords.

mod registry;
mod values;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::{
    BiosInterface, DriverError, DriverTarget, NodeChanges, StepDefinition, StepOutcome,
    bmc_interface,
};
use node_model::{BiosSetting, Step, StepArgument, StepFlow, Timestamp};
use redfish::RedfishResource;
use registry::BiosAttributeRegistry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use values::{
    attributes, differences, is_applied, requested_settings, same_value, settings, unapplied,
    validate,
};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::retries::{is_busy, is_refusal};
use super::tasks::{self, TaskPoll};
use super::variant::RedfishVariant;

/// The Redfish BIOS interface.
pub(super) struct RedfishBios(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishBios, Bios, step_tables);

const APPLY: &str = "apply_configuration";
const RESET: &str = "factory_reset";
const FLOWS: &[StepFlow] = &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service];

fn step_tables(_variant: RedfishVariant) -> &'static [&'static [StepDefinition]] {
    &[STEPS]
}

const STEPS: &[StepDefinition] = &[
    StepDefinition {
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
    StepDefinition {
        name: RESET,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
];

/// The driver state key of a submitted change.
const DRIVER_STATE_KEY: &str = "redfish_bios";
/// Pointers to the settings resource and to the supported apply times.
const SETTINGS_OBJECT: &str = "/@Redfish.Settings/SettingsObject";
const APPLY_TIMES: &str = "/@Redfish.Settings/SupportedApplyTimes";

/// `BootProgress` states of the power-on self-test, in which settings are not final.
const POST_STATES: &[&str] = &[
    "PrimaryProcessorInitializationStarted",
    "BusInitializationStarted",
    "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted",
    "PCIResourceConfigStarted",
];

/// A submitted change; stored between polls.
#[derive(Debug, Serialize, Deserialize)]
struct BiosProgress {
    /// Whether the reboot that applies the change is still due.
    reboot: bool,
    /// The time of the reboot.
    since: Timestamp,
    /// The requested values without passwords. Empty after a reset, which has no target values.
    #[serde(alias = "wanted")]
    requested: Map<String, Value>,
    /// `@Redfish.Settings/Time` before the change.
    applied_before: Option<String>,
    /// The path of the task that applies the change.
    task: Option<String>,
}

/// System and BIOS resources, read at one point in time.
struct BiosSnapshot {
    system: RedfishResource,
    bios: RedfishResource,
    /// The resource that accepts changes, if it is not `bios` itself.
    settings_object: Option<RedfishResource>,
}

#[async_trait]
impl BiosInterface for RedfishBios {
    async fn settings(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<BiosSetting>>, DriverError> {
        let bmc = self.0.bmc(target, "read the BIOS settings")?;
        let system = bmc.system().await?;
        let Some(bios) = bmc.follow(&system, "/Bios").await? else { return Ok(None) };
        if bios.at("/Attributes").is_none() {
            return Ok(None);
        }
        let registry = BiosAttributeRegistry::read(&bmc, &bios).await;
        Ok(Some(settings(&bios, &registry, target.now)))
    }
}

impl RedfishBios {
    async fn run(
        &self,
        target: &DriverTarget<'_>,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let resets = step.step == RESET;
        let what = if resets { "reset the BIOS settings" } else { "change BIOS settings" };
        let bmc = self.0.bmc(target, what)?;
        if let Some(mut progress) = tasks::load_state::<BiosProgress>(target, DRIVER_STATE_KEY) {
            if !progress.reboot {
                return self.poll(target, &bmc, progress).await;
            }
            (progress.reboot, progress.since) = (false, target.now);
            return tasks::reboot(target, &self.0.settings, DRIVER_STATE_KEY, &progress).await;
        }
        if resets { self.reset(target, &bmc).await } else { self.apply(target, &bmc, step).await }
    }

    async fn apply(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let requested = requested_settings(&step.args)?;
        let snapshot = BiosSnapshot::read(bmc).await?;
        let registry = BiosAttributeRegistry::read(bmc, &snapshot.bios).await;
        let wanted = validate(&requested, &snapshot.bios, &registry)?;
        if is_applied(&wanted, attributes(&snapshot.bios), snapshot.pending()) {
            return Ok(done(&snapshot.bios, &registry, target.now));
        }
        let task = match submit(bmc, &snapshot, &wanted).await? {
            SubmitResult::Accepted(task) => task,
            SubmitResult::Busy(error) => {
                return tasks::retry_while_busy(target, &self.0.settings, bmc.explain(error));
            }
        };
        if !registry.reset_required(wanted.keys()) {
            let snapshot = BiosSnapshot::read(bmc).await?;
            if is_applied(&wanted, attributes(&snapshot.bios), None) {
                return Ok(done(&snapshot.bios, &registry, target.now));
            }
        }
        let is_secret = |name: &str| registry.get(name).is_some_and(|entry| entry.is_secret());
        let progress = BiosProgress {
            reboot: true,
            since: target.now,
            requested: wanted.into_iter().filter(|(name, _)| !is_secret(name)).collect(),
            applied_before: applied_at(&snapshot.bios),
            task,
        };
        Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress))
    }

    async fn reset(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
    ) -> Result<StepOutcome, DriverError> {
        let snapshot = BiosSnapshot::read(bmc).await?;
        let Some(action) = snapshot.bios.action("Bios.ResetBios") else {
            return Err(bmc.failed(
                "the BMC has no reset action; change the settings one by one with \
                 bios.apply_configuration, or reset them in the BIOS setup",
            ));
        };
        let response = bmc.post(&action.target, &json!({})).await?;
        let progress = BiosProgress {
            reboot: true,
            since: target.now,
            requested: Map::new(),
            applied_before: applied_at(&snapshot.bios),
            task: tasks::task_path(&response),
        };
        Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress))
    }

    /// Checks whether the submitted change has taken effect.
    async fn poll(
        &self,
        target: &DriverTarget<'_>,
        bmc: &RedfishBmc,
        mut progress: BiosProgress,
    ) -> Result<StepOutcome, DriverError> {
        let limit = Duration::from_secs(self.0.settings.bios_apply_timeout);
        let timed_out = target.now.since(progress.since) >= limit;
        let snapshot = match BiosSnapshot::read(bmc).await {
            Ok(snapshot) => snapshot,
            // BMCs respond slowly while the machine boots.
            Err(error) if timed_out => return Err(error),
            Err(_) => {
                return Ok(tasks::poll_later(
                    target,
                    &self.0.settings,
                    DRIVER_STATE_KEY,
                    &progress,
                ));
            }
        };
        let starting = boot_stage(&snapshot.system);
        let left = unapplied(&progress.requested, attributes(&snapshot.bios), snapshot.pending());
        if starting.is_none() && left.is_empty() {
            let registry = BiosAttributeRegistry::read(bmc, &snapshot.bios).await;
            return Ok(done(&snapshot.bios, &registry, target.now));
        }
        if let Some(task) = &progress.task {
            match tasks::poll(bmc, task).await {
                TaskPoll::Failed(why) => return Err(bmc.failed(format!("the BMC reports: {why}"))),
                TaskPoll::Done | TaskPoll::NotFound => progress.task = None,
                TaskPoll::Working(_) | TaskPoll::Unreadable(_) => {}
            }
        }
        if starting.is_none() && applied_at(&snapshot.bios) != progress.applied_before {
            let messages = error_messages(&snapshot.bios);
            if !messages.is_empty() {
                let why =
                    format!("{}; the BMC reports: {messages}", differences(&left, &snapshot.bios));
                return Err(bmc.failed(why));
            }
        }
        if !timed_out {
            return Ok(tasks::poll_later(target, &self.0.settings, DRIVER_STATE_KEY, &progress));
        }
        Err(bmc.failed(match starting {
            Some(stage) => format!(
                "the machine has not finished booting {} seconds after the reboot (stage \
                 {stage}); check its console",
                limit.as_secs()
            ),
            None => format!(
                "{} {} seconds after the reboot; check the BMC's job queue and the BIOS setup for \
                 the reason",
                differences(&left, &snapshot.bios),
                limit.as_secs()
            ),
        }))
    }
}

impl BiosSnapshot {
    async fn read(bmc: &RedfishBmc) -> Result<Self, DriverError> {
        let system = bmc.system().await?;
        let Some(bios) = bmc.follow(&system, "/Bios").await? else {
            return Err(bmc.failed(
                "the BMC reports no BIOS settings for this machine; set bios_interface to no-bios",
            ));
        };
        // A settings resource that cannot be read may still be writable.
        let settings_object = match bios.link(SETTINGS_OBJECT) {
            None => None,
            Some(path) => Some(bmc.find(path).await.ok().flatten().unwrap_or_else(|| {
                RedfishResource { path: path.to_owned(), etag: None, body: json!({}) }
            })),
        };
        Ok(Self { system, bios, settings_object })
    }

    /// The values that take effect at the next boot.
    fn pending(&self) -> Option<&Map<String, Value>> {
        self.settings_object.as_ref().and_then(attributes)
    }
}

/// The result of submitting values.
enum SubmitResult {
    /// The BMC accepted them; the task that applies them, if there is one.
    Accepted(Option<String>),
    /// The BMC is busy and accepts no change.
    Busy(redfish::RedfishError),
}

/// Submits the values.
async fn submit(
    bmc: &RedfishBmc,
    snapshot: &BiosSnapshot,
    wanted: &Map<String, Value>,
) -> Result<SubmitResult, DriverError> {
    let resource = snapshot.settings_object.as_ref().unwrap_or(&snapshot.bios);
    let mut refusal = None;
    for body in bodies(wanted, &snapshot.bios.texts(APPLY_TIMES)) {
        match bmc.client().patch(&resource.path, &body, resource.etag.as_deref()).await {
            Ok(response) => return Ok(SubmitResult::Accepted(tasks::task_path(&response))),
            Err(error) if is_busy(&error) || is_refusal(&error) => {
                refusal = refusal.or(Some(error))
            }
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    // The process may have stopped between submitting and storing the progress; BMCs accept the same
    // pending change only once.
    let again = BiosSnapshot::read(bmc).await?;
    let is_pending = |name: &String, value: &Value| {
        again
            .pending()
            .and_then(|pending| pending.get(name))
            .is_some_and(|held| same_value(held, value))
    };
    match refusal {
        Some(error) if !wanted.iter().all(|(name, value)| is_pending(name, value)) => {
            if is_busy(&error) { Ok(SubmitResult::Busy(error)) } else { Err(bmc.explain(error)) }
        }
        Some(_) | None => Ok(SubmitResult::Accepted(None)),
    }
}

/// The bodies to send until one is accepted: some BMCs announce an apply time and then reject it.
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

/// The self-test stage the machine is in; `None` if it has booted or the BMC does not report it.
fn boot_stage(system: &RedfishResource) -> Option<&str> {
    system.text("/BootProgress/LastState").filter(|state| POST_STATES.contains(state))
}

fn applied_at(bios: &RedfishResource) -> Option<String> {
    bios.text("/@Redfish.Settings/Time").map(str::to_owned)
}

/// The warnings and errors of the BMC about the change it applied last.
fn error_messages(bios: &RedfishResource) -> String {
    let text = |message: &Value, key: &str| {
        message.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let bad = bios.list("/@Redfish.Settings/Messages").iter().filter(|message| {
        ["Severity", "MessageSeverity"]
            .iter()
            .any(|key| matches!(text(message, key).as_str(), "Critical" | "Warning"))
    });
    let texts = bad.map(|message| match text(message, "Message") {
        message_text if message_text.is_empty() => text(message, "MessageId"),
        message_text => message_text,
    });
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

fn done(bios: &RedfishResource, registry: &BiosAttributeRegistry, now: Timestamp) -> StepOutcome {
    let bios_settings = Some(settings(bios, registry, now));
    StepOutcome::done(NodeChanges { bios_settings, ..NodeChanges::none() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/Systems/1/Bios".to_owned(), etag: None, body }
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn sends_supported_apply_time_first() {
        let wanted = map(json!({"A": 1}));
        assert_eq!(bodies(&wanted, &["Immediate"]), [json!({"Attributes": {"A": 1}})]);
        let both = bodies(&wanted, &["Immediate", "OnReset"]);
        assert_eq!(both.len(), 2);
        assert_eq!(both[0]["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
        assert_eq!(both[1], json!({"Attributes": {"A": 1}}));
    }

    #[test]
    fn describes_differences_and_bmc_messages() {
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
            "A is 'x' instead of 'y', B is not yet '5', C is unset instead of 'True'"
        );
        assert_eq!(error_messages(&bios), "Vendor.1.0.Locked A depends on C.");
    }
}
