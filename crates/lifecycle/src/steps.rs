// SPDX-License-Identifier: Apache-2.0
//! Which steps run, in which order, and which may not be asked for.

use std::collections::BTreeMap;

use node_model::{InterfaceKind, PowerTarget, Step, StepFlow, StepOffer};
use serde_json::Value;

use crate::Settings;

/// A step that no driver carries out, because it is the conductor's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    /// Switch on.
    PowerOn,
    /// Switch off.
    PowerOff,
    /// Switch off and on again.
    Reboot,
    /// Wait for the time in `seconds`, or for the next heartbeat.
    Wait,
    /// Wait for `unhold`.
    Hold,
}

impl Reserved {
    /// The reserved step that `step` is, if it is one. Reserved names belong to no interface.
    #[must_use]
    pub fn of(step: &Step) -> Option<Self> {
        match step.step.as_str() {
            "power_on" => Some(Self::PowerOn),
            "power_off" => Some(Self::PowerOff),
            "reboot" => Some(Self::Reboot),
            "wait" => Some(Self::Wait),
            "hold" => Some(Self::Hold),
            _ => None,
        }
    }

    /// What the step does to the machine's power.
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
    /// The operator has blocked it.
    #[error("the {flow} step {step} is blocked by this service's configuration")]
    Blocked {
        /// Of which flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
    },
    /// Nothing offers it.
    #[error("node has no {flow} step {step}; it offers: {offered}")]
    Unknown {
        /// Of which flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// What there is instead.
        offered: String,
    },
    /// It was given arguments it does not take.
    #[error("{flow} step {step} has these unexpected arguments: {arguments}")]
    UnexpectedArguments {
        /// Of which flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// Which.
        arguments: String,
    },
    /// It was not given arguments it needs.
    #[error("{flow} step {step} is missing these required arguments: {arguments}")]
    MissingArguments {
        /// Of which flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
        /// Which.
        arguments: String,
    },
    /// A `wait` step's time is not a number within the limit.
    #[error("step {step}: seconds must be a whole number from 0 to {limit}, not {given}")]
    WaitTooLong {
        /// `interface.step`.
        step: String,
        /// The longest wait.
        limit: u64,
        /// What was given.
        given: String,
    },
    /// It runs in the ramdisk, and the job does without one.
    #[error("{flow} step {step} needs the ramdisk, and disable_ramdisk is set")]
    NeedsRamdisk {
        /// Of which flow.
        flow: StepFlow,
        /// `interface.step`.
        step: String,
    },
    /// The deployment itself can only be switched off.
    #[error("step deploy.deploy cannot be overridden; give it priority 0 to leave it out")]
    CoreStep,
}

/// The steps on offer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    /// Those that are known.
    pub known: Vec<StepOffer>,
    /// The interfaces for which the agent may have more: it was not asked yet.
    pub open: Vec<InterfaceKind>,
}

impl Offers {
    /// These and no others.
    #[must_use]
    pub const fn all(known: Vec<StepOffer>) -> Self {
        Self { known, open: Vec::new() }
    }

    fn is_open(&self, interface: &str) -> bool {
        self.open.iter().any(|open| open.as_str() == interface)
    }
}

/// Whether the steps will have a ramdisk to run in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ramdisk {
    /// They will.
    Booted,
    /// They will not: `disable_ramdisk` is set.
    Disabled,
    /// That is checked later.
    Unknown,
}

/// Checks steps a user asked for and fills in what the driver says of them (whether they are
/// abortable, whether they need the ramdisk). What is not known yet, because the agent was not asked,
/// is left for later: without `offers` only the rules that need none are checked.
pub fn check_requested(
    flow: StepFlow,
    requested: &[Step],
    offers: Option<&Offers>,
    ramdisk: Ramdisk,
    settings: &Settings,
) -> Result<Vec<Step>, StepError> {
    let checked = requested.iter().map(|step| check_one(flow, step, offers, settings));
    let steps: Vec<Step> = checked.collect::<Result<_, _>>()?;
    match steps.iter().find(|step| step.requires_ramdisk && ramdisk == Ramdisk::Disabled) {
        Some(step) => Err(StepError::NeedsRamdisk { flow, step: step.qualified() }),
        None => Ok(steps),
    }
}

fn check_one(
    flow: StepFlow,
    step: &Step,
    offers: Option<&Offers>,
    settings: &Settings,
) -> Result<Step, StepError> {
    let qualified = step.qualified();
    if blocked(flow, settings).contains(&qualified) {
        return Err(StepError::Blocked { flow, step: qualified });
    }
    if let Some(reserved) = Reserved::of(step) {
        if reserved == Reserved::Wait {
            check_wait(step, settings)?;
        }
        // A reserved step touches nothing on the machine that an abort could leave half done.
        return Ok(Step { abortable: true, ..step.clone() });
    }
    let Some(offers) = offers else { return Ok(step.clone()) };
    let Some(offer) = offers
        .known
        .iter()
        .find(|offer| offer.step.interface == step.interface && offer.step.step == step.step)
    else {
        if offers.is_open(&step.interface) {
            return Ok(Step { requires_ramdisk: true, ..step.clone() });
        }
        let offered = list(offers.known.iter().map(|offer| offer.step.qualified()));
        return Err(StepError::Unknown { flow, step: qualified, offered });
    };
    check_arguments(flow, step, offer)?;
    if flow == StepFlow::Deploy && qualified == "deploy.deploy" && step.priority > 0 {
        return Err(StepError::CoreStep);
    }
    Ok(Step {
        abortable: offer.step.abortable,
        requires_ramdisk: offer.step.requires_ramdisk,
        reboot_requested: offer.step.reboot_requested,
        ..step.clone()
    })
}

fn check_wait(step: &Step, settings: &Settings) -> Result<(), StepError> {
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

fn check_arguments(flow: StepFlow, step: &Step, offer: &StepOffer) -> Result<(), StepError> {
    let given = step.args.parse();
    let unexpected = list(
        given.keys().filter(|key| !offer.arguments.iter().any(|a| a.name == key.as_str())).cloned(),
    );
    if !unexpected.is_empty() {
        return Err(StepError::UnexpectedArguments {
            flow,
            step: step.qualified(),
            arguments: unexpected,
        });
    }
    let missing = list(
        offer
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

fn blocked(flow: StepFlow, settings: &Settings) -> &[String] {
    match flow {
        StepFlow::Clean => &settings.disallowed_clean_steps,
        StepFlow::Deploy => &settings.disallowed_deploy_steps,
        StepFlow::Service => &settings.disallowed_service_steps,
        StepFlow::Verify => &[],
    }
}

/// Lays a user's and the templates' deploy steps over the driver's: the same step given further
/// left in `layers` replaces those further right, and priority zero removes it.
#[must_use]
pub fn merge_deploy_steps(layers: &[&[Step]]) -> Vec<Step> {
    let mut chosen: Vec<Step> = Vec::new();
    for layer in layers {
        let taken = chosen.len();
        for step in *layer {
            let known = chosen[..taken]
                .iter()
                .any(|other| other.interface == step.interface && other.step == step.step);
            if !known {
                chosen.push(step.clone());
            }
        }
    }
    chosen
}

/// The steps that run without being asked for, in order: highest priority first, then by
/// interface, then by name so that two processes always agree. Priority zero is left out.
#[must_use]
pub fn order_steps(flow: StepFlow, mut steps: Vec<Step>, settings: &Settings) -> Vec<Step> {
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

/// Between steps of equal priority, the interface decides: higher first.
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

    fn offer(interface: &str, name: &str, arguments: &[(&'static str, bool)]) -> StepOffer {
        StepOffer {
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
    fn order_is_by_priority_then_interface_then_name() {
        let steps = vec![
            Step::new("raid", "create", 10),
            Step::new("deploy", "b", 10),
            Step::new("deploy", "a", 10),
            Step::new("vendor", "x", 10),
            Step::new("bios", "off", 0),
            Step::new("power", "late", 1),
            Step::new("raid", "first", 99),
        ];
        let ordered = order_steps(StepFlow::Clean, steps, &Settings::default());
        assert_eq!(
            names(&ordered),
            ["raid.first", "vendor.x", "deploy.a", "deploy.b", "raid.create", "power.late"]
        );
    }

    #[test]
    fn overrides_change_and_remove() {
        let mut settings = Settings::default();
        settings.clean_step_priority_override.insert("deploy.erase".to_owned(), 0);
        settings.clean_step_priority_override.insert("raid.create".to_owned(), 50);
        let steps = vec![Step::new("deploy", "erase", 99), Step::new("raid", "create", 0)];
        assert_eq!(names(&order_steps(StepFlow::Clean, steps, &settings)), ["raid.create"]);
    }

    #[test]
    fn users_win_over_templates_win_over_drivers() {
        let user = [Step::new("raid", "apply", 5)];
        let template = [Step::new("raid", "apply", 7), Step::new("bios", "apply", 0)];
        let driver = [Step::new("bios", "apply", 9), Step::new("deploy", "deploy", 100)];
        let merged = merge_deploy_steps(&[&user, &template, &driver]);
        let ordered = order_steps(StepFlow::Deploy, merged, &Settings::default());
        assert_eq!(names(&ordered), ["deploy.deploy", "raid.apply"]);
        assert_eq!(ordered[1].priority, 5);
    }

    #[test]
    fn requests_are_checked() {
        let offers =
            Offers::all(vec![offer("raid", "create", &[("level", true), ("size", false)])]);
        let settings = Settings::default();
        let check = |step: Step| {
            check_requested(StepFlow::Clean, &[step], Some(&offers), Ramdisk::Booted, &settings)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let args = |text: &str| JsonObject::from_stored(text);
        let create = |text| Step { args: args(text), ..Step::new("raid", "create", 0) };
        assert_eq!(check(create(r#"{"level":1}"#)), Ok(()));
        for (step, message) in [
            (create("{}"), "missing these required arguments: level"),
            (create(r#"{"level":1,"x":2}"#), "unexpected arguments: x"),
            (Step::new("raid", "destroy", 0), "it offers: raid.create"),
            (Step::new("vendor", "send_raw", 0), "blocked by this service's configuration"),
            (
                Step { args: args(r#"{"seconds":31}"#), ..Step::new("deploy", "wait", 0) },
                "from 0 to 30, not 31",
            ),
        ] {
            let refusal = check(step).unwrap_err();
            assert!(refusal.contains(message), "{refusal}");
        }
        assert_eq!(check(Step::new("anything", "hold", 0)), Ok(()));
    }

    #[test]
    fn a_step_for_the_ramdisk_is_refused_without_one() {
        let mut needs = offer("deploy", "erase", &[]);
        needs.step.requires_ramdisk = true;
        let check = |ramdisk| {
            let steps = [Step::new("deploy", "erase", 0)];
            let offers = Offers::all(vec![needs.clone()]);
            check_requested(StepFlow::Clean, &steps, Some(&offers), ramdisk, &Settings::default())
        };
        assert!(check(Ramdisk::Booted).is_ok());
        assert!(matches!(check(Ramdisk::Disabled), Err(StepError::NeedsRamdisk { .. })));
    }

    #[test]
    fn what_the_agent_may_offer_is_not_refused_before_it_was_asked() {
        let check = |offers: &Offers, interface, ramdisk| {
            let steps = [Step::new(interface, "burn_in", 0)];
            check_requested(StepFlow::Clean, &steps, Some(offers), ramdisk, &Settings::default())
        };
        let open = Offers { known: Vec::new(), open: vec![InterfaceKind::Deploy] };
        assert!(check(&open, "deploy", Ramdisk::Booted).is_ok());
        assert!(matches!(
            check(&open, "deploy", Ramdisk::Disabled),
            Err(StepError::NeedsRamdisk { .. })
        ));
        assert!(matches!(check(&open, "bios", Ramdisk::Booted), Err(StepError::Unknown { .. })));
        assert!(matches!(
            check(&Offers::default(), "deploy", Ramdisk::Booted),
            Err(StepError::Unknown { .. })
        ));
    }

    #[test]
    fn what_the_driver_says_of_a_step_is_kept() {
        let offers = Offers::all(vec![offer("raid", "create", &[])]);
        let step = Step::new("raid", "create", 0);
        let checked = check_requested(
            StepFlow::Clean,
            &[step],
            Some(&offers),
            Ramdisk::Booted,
            &Settings::default(),
        )
        .unwrap();
        assert!(checked[0].abortable);
    }
}
