// SPDX-License-Identifier: Apache-2.0
//! Checks, merges and orders steps.

use std::collections::BTreeMap;

use node_model::{
    AvailableStep, InterfaceKind, JobHints, Node, PowerTarget, Stage, Step, StepFlow,
    UnreachablePeer,
};
use serde_json::Value;

use crate::LifecycleSettings;

/// A step that the conductor runs itself, without a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservedStep {
    /// Powers on.
    PowerOn,
    /// Powers off.
    PowerOff,
    /// Powers off and on again.
    Reboot,
    /// Waits for the time in `seconds`, or for the next heartbeat.
    Wait,
    /// Waits for `unhold`.
    Hold,
}

impl ReservedStep {
    /// The reserved step with the name of `step`. Reserved names belong to no interface.
    #[must_use]
    pub fn from_step(step: &Step) -> Option<Self> {
        match step.step.as_str() {
            "power_on" => Some(Self::PowerOn),
            "power_off" => Some(Self::PowerOff),
            "reboot" => Some(Self::Reboot),
            "wait" => Some(Self::Wait),
            "hold" => Some(Self::Hold),
            _ => None,
        }
    }

    /// The power change that the step makes.
    #[must_use]
    pub const fn power_target(self) -> Option<PowerTarget> {
        match self {
            Self::PowerOn => Some(PowerTarget::On),
            Self::PowerOff => Some(PowerTarget::Off),
            Self::Reboot => Some(PowerTarget::Reboot),
            Self::Wait | Self::Hold => None,
        }
    }
}

/// Why a list of steps is not acceptable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StepError {
    /// The configuration blocks the step.
    #[error("the {flow} step {step} is blocked by this service's configuration")]
    Blocked {
        /// The flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
    },
    /// Neither driver nor agent offers the step.
    #[error("node has no {flow} step {step}; available steps: {offered}")]
    Unknown {
        /// The flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// The offered steps.
        offered: String,
    },
    /// The step does not accept some of the arguments.
    #[error("{flow} step {step} has these unexpected arguments: {arguments}")]
    UnexpectedArguments {
        /// The flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// The arguments.
        arguments: String,
    },
    /// Mandatory arguments are missing.
    #[error("{flow} step {step} is missing these required arguments: {arguments}")]
    MissingArguments {
        /// The flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// The arguments.
        arguments: String,
    },
    /// The time of a `wait` step is not a number within the limit.
    #[error("step {step}: seconds must be a whole number from 0 to {limit}, not {given}")]
    WaitTooLong {
        /// `interface.step`.
        step: String,
        /// The longest wait in seconds.
        limit: u64,
        /// The value in the request.
        given: String,
    },
    /// The step needs the ramdisk, and the job runs without it.
    #[error("{flow} step {step} needs the ramdisk, and disable_ramdisk is set")]
    NeedsRamdisk {
        /// The flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
    },
    /// `deploy.deploy` can only be disabled.
    #[error("step deploy.deploy cannot be overridden; give it priority 0 to leave it out")]
    CoreStep,
}

/// The steps that a driver and an agent offer for a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AvailableSteps {
    /// The known steps.
    pub known: Vec<AvailableStep>,
    /// The interfaces for which the agent may offer more: it has not listed its steps yet.
    pub agent_interfaces: Vec<InterfaceKind>,
}

impl AvailableSteps {
    /// A complete list.
    #[must_use]
    pub const fn all(known: Vec<AvailableStep>) -> Self {
        Self { known, agent_interfaces: Vec::new() }
    }

    /// The known step with the interface and name of `step`.
    #[must_use]
    pub fn find(&self, step: &Step) -> Option<&AvailableStep> {
        let is_same = |known: &&AvailableStep| {
            known.step.interface == step.interface && known.step.step == step.step
        };
        self.known.iter().find(is_same)
    }

    fn may_have_more(&self, interface: &str) -> bool {
        self.agent_interfaces.iter().any(|kind| kind.as_str() == interface)
    }
}

/// Whether the agent has to list its steps before the steps of `flow` can be planned. A deployment
/// plans before the agent runs; the agent lists its steps when it does.
#[must_use]
pub fn agent_steps_are_needed(node: &Node, flow: StepFlow, steps: &AvailableSteps) -> bool {
    let has_ramdisk = node.work.as_ref().is_some_and(|work| !work.disable_ramdisk);
    let agent_runs = match flow {
        StepFlow::Clean | StepFlow::Service => true,
        StepFlow::Deploy | StepFlow::Verify => false,
    };
    agent_runs && has_ramdisk && !steps.agent_interfaces.is_empty()
}

/// What the driver calls of the node's job need to know about it.
#[must_use]
pub fn job_hints(node: &Node) -> JobHints {
    let Some(work) = &node.work else { return JobHints::NONE };
    let mut later_steps = work.steps.iter().skip(work.cursor.saturating_add(1));
    let agent_retry = work.retry.as_ref().filter(|retry| retry.peer == UnreachablePeer::Agent);
    JobHints {
        may_keep_agent: work.stage == Stage::Finish,
        needs_agent_later: !work.disable_ramdisk && later_steps.any(|step| step.requires_ramdisk),
        agent_unreachable_since: agent_retry.map(|retry| retry.since),
    }
}

/// Whether the job boots the ramdisk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ramdisk {
    /// It does.
    Booted,
    /// It does not: `disable_ramdisk` is set.
    Disabled,
    /// Not known yet.
    Unknown,
}

/// Checks requested steps and completes them with the properties of the offered ones (whether they
/// are abortable, whether they need the ramdisk). Steps that only the agent may know are accepted, and
/// checked again later. Without `available`, only the rules that do not depend on it are checked.
pub fn check_requested(
    flow: StepFlow,
    requested: &[Step],
    available: Option<&AvailableSteps>,
    ramdisk: Ramdisk,
    settings: &LifecycleSettings,
) -> Result<Vec<Step>, StepError> {
    let checked = requested.iter().map(|step| check_step(flow, step, available, settings));
    let steps: Vec<Step> = checked.collect::<Result<_, _>>()?;
    match steps.iter().find(|step| step.requires_ramdisk && ramdisk == Ramdisk::Disabled) {
        Some(step) => Err(StepError::NeedsRamdisk { flow, step: step.qualified() }),
        None => Ok(steps),
    }
}

fn check_step(
    flow: StepFlow,
    step: &Step,
    available: Option<&AvailableSteps>,
    settings: &LifecycleSettings,
) -> Result<Step, StepError> {
    let qualified = step.qualified();
    if blocked_steps(flow, settings).contains(&qualified) {
        return Err(StepError::Blocked { flow, step: qualified });
    }
    if let Some(reserved) = ReservedStep::from_step(step) {
        if reserved == ReservedStep::Wait {
            check_wait(step, settings)?;
        }
        // Aborting a reserved step leaves nothing half done on the machine.
        return Ok(Step { abortable: true, ..step.clone() });
    }
    let Some(available) = available else { return Ok(step.clone()) };
    let Some(known) = available.find(step) else {
        if available.may_have_more(&step.interface) {
            return Ok(Step { requires_ramdisk: true, ..step.clone() });
        }
        let offered = list(available.known.iter().map(|known| known.step.qualified()));
        return Err(StepError::Unknown { flow, step: qualified, offered });
    };
    check_arguments(flow, step, known)?;
    if flow == StepFlow::Deploy && qualified == "deploy.deploy" && step.priority > 0 {
        return Err(StepError::CoreStep);
    }
    Ok(Step {
        abortable: known.step.abortable,
        requires_ramdisk: known.step.requires_ramdisk,
        reboot_requested: known.step.reboot_requested,
        ..step.clone()
    })
}

fn check_wait(step: &Step, settings: &LifecycleSettings) -> Result<(), StepError> {
    let limit = settings.max_wait_step_seconds;
    match step.args.get("seconds") {
        None => Ok(()),
        Some(Value::Number(number)) if number.as_u64().is_some_and(|given| given <= limit) => {
            Ok(())
        }
        Some(given) => {
            Err(StepError::WaitTooLong { step: step.qualified(), limit, given: given.to_string() })
        }
    }
}

fn check_arguments(flow: StepFlow, step: &Step, known: &AvailableStep) -> Result<(), StepError> {
    let given = step.args.parse();
    let unexpected = list(
        given.keys().filter(|key| !known.arguments.iter().any(|a| a.name == key.as_str())).cloned(),
    );
    if !unexpected.is_empty() {
        return Err(StepError::UnexpectedArguments {
            flow,
            step: step.qualified(),
            arguments: unexpected,
        });
    }
    let missing = list(
        known
            .arguments
            .iter()
            .filter(|argument| argument.required && !given.contains_key(&*argument.name))
            .map(|argument| argument.name.to_string()),
    );
    if missing.is_empty() {
        Ok(())
    } else {
        Err(StepError::MissingArguments { flow, step: step.qualified(), arguments: missing })
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn blocked_steps(flow: StepFlow, settings: &LifecycleSettings) -> &[String] {
    match flow {
        StepFlow::Clean => &settings.disallowed_clean_steps,
        StepFlow::Deploy => &settings.disallowed_deploy_steps,
        StepFlow::Service => &settings.disallowed_service_steps,
        StepFlow::Verify => &[],
    }
}

/// Merges the deploy steps of user, templates and driver. A step in an earlier layer replaces the same
/// step in later ones; with priority zero it disables it.
#[must_use]
pub fn merge_deploy_steps(layers: &[&[Step]]) -> Vec<Step> {
    let mut chosen: Vec<Step> = Vec::new();
    for layer in layers {
        let count = chosen.len();
        for step in *layer {
            let is_replaced = chosen[..count]
                .iter()
                .any(|other| other.interface == step.interface && other.step == step.step);
            if !is_replaced {
                chosen.push(step.clone());
            }
        }
    }
    chosen
}

/// The steps that run automatically, in order: by descending priority, then by interface, then by name,
/// so that the order is deterministic. Steps with priority zero are dropped.
#[must_use]
pub fn order_steps(
    flow: StepFlow,
    mut steps: Vec<Step>,
    settings: &LifecycleSettings,
) -> Vec<Step> {
    let overrides: &BTreeMap<String, i64> = match flow {
        StepFlow::Clean => &settings.clean_step_priority_override,
        StepFlow::Deploy => &settings.deploy_step_priority_override,
        StepFlow::Verify => &settings.verify_step_priority_override,
        StepFlow::Service => return steps,
    };
    if !overrides.is_empty() {
        for step in &mut steps {
            if let Some(priority) = overrides.get(&step.qualified()) {
                step.priority = *priority;
            }
        }
    }
    steps.retain(|step| step.priority > 0);
    steps.sort_by(|a, b| {
        b.priority
            .cmp(&a.priority)
            .then_with(|| interface_rank(&b.interface).cmp(&interface_rank(&a.interface)))
            .then_with(|| a.step.cmp(&b.step))
    });
    steps
}

/// Orders steps of equal priority: higher ranks run first.
fn interface_rank(interface: &str) -> u8 {
    match interface {
        "network" => 8,
        "vendor" => 7,
        "power" => 6,
        "management" => 5,
        "firmware" => 4,
        "deploy" => 3,
        "bios" => 2,
        "raid" => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use node_model::{JsonObject, StepArgument};

    use super::*;

    fn names(steps: &[Step]) -> Vec<String> {
        steps.iter().map(Step::qualified).collect()
    }

    fn available(interface: &str, name: &str, arguments: &[(&'static str, bool)]) -> AvailableStep {
        AvailableStep {
            step: Step { abortable: true, ..Step::new(interface, name, 0) },
            arguments: arguments
                .iter()
                .map(|(name, required)| StepArgument {
                    required: *required,
                    ..StepArgument::optional(name, "")
                })
                .collect(),
        }
    }

    #[test]
    fn orders_by_priority_then_interface_then_name() {
        let steps = vec![
            Step::new("raid", "create", 10),
            Step::new("deploy", "b", 10),
            Step::new("deploy", "a", 10),
            Step::new("vendor", "x", 10),
            Step::new("bios", "off", 0),
            Step::new("power", "late", 1),
            Step::new("raid", "first", 99),
        ];
        let ordered = order_steps(StepFlow::Clean, steps, &LifecycleSettings::default());
        assert_eq!(
            names(&ordered),
            ["raid.first", "vendor.x", "deploy.a", "deploy.b", "raid.create", "power.late"]
        );
    }

    #[test]
    fn overrides_change_and_disable_steps() {
        let mut settings = LifecycleSettings::default();
        settings.clean_step_priority_override.insert("deploy.erase".to_owned(), 0);
        settings.clean_step_priority_override.insert("raid.create".to_owned(), 50);
        let steps = vec![Step::new("deploy", "erase", 99), Step::new("raid", "create", 0)];
        assert_eq!(names(&order_steps(StepFlow::Clean, steps, &settings)), ["raid.create"]);
    }

    #[test]
    fn user_steps_replace_template_steps_replace_driver_steps() {
        let user = [Step::new("raid", "apply", 5)];
        let template = [Step::new("raid", "apply", 7), Step::new("bios", "apply", 0)];
        let driver = [Step::new("bios", "apply", 9), Step::new("deploy", "deploy", 100)];
        let merged = merge_deploy_steps(&[&user, &template, &driver]);
        let ordered = order_steps(StepFlow::Deploy, merged, &LifecycleSettings::default());
        assert_eq!(names(&ordered), ["deploy.deploy", "raid.apply"]);
        assert_eq!(ordered[1].priority, 5);
    }

    #[test]
    fn checks_requested_steps() {
        let offered_steps = AvailableSteps::all(vec![available(
            "raid",
            "create",
            &[("level", true), ("size", false)],
        )]);
        let settings = LifecycleSettings::default();
        let check = |step: Step| {
            check_requested(
                StepFlow::Clean,
                &[step],
                Some(&offered_steps),
                Ramdisk::Booted,
                &settings,
            )
            .map(|_| ())
            .map_err(|error| error.to_string())
        };
        let args = |text: &str| JsonObject::from_stored(text);
        let create = |text| Step { args: args(text), ..Step::new("raid", "create", 0) };
        assert_eq!(check(create(r#"{"level":1}"#)), Ok(()));
        for (step, message) in [
            (create("{}"), "missing these required arguments: level"),
            (create(r#"{"level":1,"x":2}"#), "unexpected arguments: x"),
            (Step::new("raid", "destroy", 0), "available steps: raid.create"),
            (Step::new("vendor", "send_raw", 0), "blocked by this service's configuration"),
            (
                Step { args: args(r#"{"seconds":31}"#), ..Step::new("deploy", "wait", 0) },
                "from 0 to 30, not 31",
            ),
        ] {
            let error = check(step).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert_eq!(check(Step::new("anything", "hold", 0)), Ok(()));
    }

    #[test]
    fn rejects_ramdisk_steps_without_a_ramdisk() {
        let mut needs = available("deploy", "erase", &[]);
        needs.step.requires_ramdisk = true;
        let check = |ramdisk| {
            let steps = [Step::new("deploy", "erase", 0)];
            let offered_steps = AvailableSteps::all(vec![needs.clone()]);
            check_requested(
                StepFlow::Clean,
                &steps,
                Some(&offered_steps),
                ramdisk,
                &LifecycleSettings::default(),
            )
        };
        assert!(check(Ramdisk::Booted).is_ok());
        assert!(matches!(check(Ramdisk::Disabled), Err(StepError::NeedsRamdisk { .. })));
    }

    #[test]
    fn accepts_steps_that_the_agent_may_offer_later() {
        let check = |offered_steps: &AvailableSteps, interface, ramdisk| {
            let steps = [Step::new(interface, "burn_in", 0)];
            check_requested(
                StepFlow::Clean,
                &steps,
                Some(offered_steps),
                ramdisk,
                &LifecycleSettings::default(),
            )
        };
        let open =
            AvailableSteps { known: Vec::new(), agent_interfaces: vec![InterfaceKind::Deploy] };
        assert!(check(&open, "deploy", Ramdisk::Booted).is_ok());
        assert!(matches!(
            check(&open, "deploy", Ramdisk::Disabled),
            Err(StepError::NeedsRamdisk { .. })
        ));
        assert!(matches!(check(&open, "bios", Ramdisk::Booted), Err(StepError::Unknown { .. })));
        assert!(matches!(
            check(&AvailableSteps::default(), "deploy", Ramdisk::Booted),
            Err(StepError::Unknown { .. })
        ));
    }

    #[test]
    fn completes_requested_steps_with_driver_properties() {
        let offered_steps = AvailableSteps::all(vec![available("raid", "create", &[])]);
        let step = Step::new("raid", "create", 0);
        let checked = check_requested(
            StepFlow::Clean,
            &[step],
            Some(&offered_steps),
            Ramdisk::Booted,
            &LifecycleSettings::default(),
        )
        .unwrap();
        assert!(checked[0].abortable);
    }
}
