// SPDX-License-Identifier: Apache-2.0
//! How slow fake hardware is, and when it fails.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use node_model::InterfaceKind;
use serde_json::{Map, Value};

use crate::interfaces::Property;
use crate::{ConfigError, Error, FakeSettings, NodeChanges, Outcome, Target};

/// The delays of the settings. Everything else is in each node's `driver_info`.
#[derive(Debug)]
pub(crate) struct FakeBehaviour {
    delays: Vec<Delay>,
}

impl FakeBehaviour {
    pub(crate) fn new(settings: &FakeSettings) -> Result<Self, ConfigError> {
        let delay = |kind: &InterfaceKind| match settings.delay(*kind) {
            None => Ok(Delay::NONE),
            Some((key, text)) => Delay::parse(text).map_err(|why| ConfigError::Delay { key, why }),
        };
        Ok(Self { delays: InterfaceKind::ALL.iter().map(delay).collect::<Result<_, _>>()? })
    }

    /// What every call of a fake interface begins with: takes its time, and fails if it is to fail.
    /// `operation` is the name of the step, the vendor method or the trait's method.
    pub(crate) async fn act(
        &self,
        kind: InterfaceKind,
        target: &Target<'_>,
        operation: &str,
    ) -> Result<(), Error> {
        let keys = keys(kind);
        let delay = match target.driver_info.get(keys.delay.0) {
            None => self.delays[kind as usize],
            Some(value) => read_delay(keys.delay.0, value)?,
        };
        let pause = delay.pick(random_fraction());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let Some(value) = target.driver_info.get(keys.failure.0) else { return Ok(()) };
        let failure = read_failure(keys.failure.0, value)?;
        if !failure.strikes(operation, random_fraction()) {
            return Ok(());
        }
        if failure == Failure::Unreachable {
            return Err(Error::Unreachable {
                address: "fake-hardware".to_owned(),
                what: format!("call {kind}.{operation}"),
                source: None,
            });
        }
        let message = target.driver_info.get(keys.message.0).and_then(Value::as_str);
        Err(Error::Failed {
            what: format!("call {kind}.{operation}"),
            why: message.map_or_else(
                || format!("driver_info['{}'] asks for it", keys.failure.0),
                str::to_owned,
            ),
        })
    }

    /// Whether the keys of `driver_info` that concern `kind` can be understood.
    pub(crate) fn validate(
        &self,
        kind: InterfaceKind,
        driver_info: &Map<String, Value>,
    ) -> Result<(), Error> {
        let keys = keys(kind);
        if let Some(value) = driver_info.get(keys.delay.0) {
            read_delay(keys.delay.0, value)?;
        }
        if let Some(value) = driver_info.get(keys.failure.0) {
            read_failure(keys.failure.0, value)?;
        }
        if driver_info.get(keys.message.0).is_some_and(|message| !message.is_string()) {
            return Err(Error::invalid(in_driver_info(keys.message.0), "use a string"));
        }
        wants_agent(driver_info).map(|_| ())
    }
}

/// The `driver_info` key that makes fake hardware wait for an agent.
pub(super) const WAIT_FOR_AGENT: Property = (
    "fake_wait_for_agent",
    "Whether deployment, cleaning, service and rescue wait for an agent to call, as with real \
     machines. Optional; false if not given.",
);

/// Whether fake hardware waits for an agent.
pub(super) fn wants_agent(driver_info: &Map<String, Value>) -> Result<bool, Error> {
    match driver_info.get(WAIT_FOR_AGENT.0) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(Error::invalid(in_driver_info(WAIT_FOR_AGENT.0), "use true or false")),
    }
}

/// Done; or, where fake hardware waits for an agent, first told to wait and done at the second call,
/// which comes when the agent has called.
pub(super) fn done_with_agent(target: &Target<'_>) -> Result<Outcome, Error> {
    if wants_agent(target.driver_info)? && !target.agent_was_awaited() {
        Ok(target.wait_for_agent(NodeChanges::none()))
    } else {
        Ok(Outcome::Done(NodeChanges::none()))
    }
}

/// Implements [`Interface`](crate::Interface) for a fake interface. With a table of steps, its
/// `run` method carries out those that are in the table.
macro_rules! fake_interface {
    ($name:ident, $kind:ident, $properties:ident $(, $steps:ident)?) => {
        #[async_trait::async_trait]
        impl $crate::Interface for $name {
            fn kind(&self) -> node_model::InterfaceKind {
                node_model::InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                super::NAME
            }

            fn properties(&self) -> &[$crate::Property] {
                super::behaviour::$properties
            }

            async fn validate(&self, target: &$crate::Target<'_>) -> Result<(), $crate::Error> {
                self.0.validate($crate::Interface::kind(self), target.driver_info)
            }

            $(
                fn steps(&self, flow: node_model::StepFlow) -> Vec<node_model::StepOffer> {
                    $crate::step::offers($steps, $crate::Interface::kind(self), flow)
                }

                async fn execute_step(
                    &self,
                    target: &$crate::Target<'_>,
                    flow: node_model::StepFlow,
                    step: &node_model::Step,
                ) -> Result<$crate::Outcome, $crate::Error> {
                    let name = step.step.as_str();
                    if !$steps.iter().any(|row| row.name == name && row.flows.contains(&flow)) {
                        let what = format!("carry out the {flow} step '{name}'");
                        return Err($crate::Interface::cannot(self, &what));
                    }
                    self.0.act($crate::Interface::kind(self), target, name).await?;
                    self.run(target, step)
                }
            )?
        }
    };
}
pub(super) use fake_interface;

/// How messages name a key of `driver_info`.
pub(super) fn in_driver_info(key: &str) -> String {
    format!("driver_info/{key}")
}

/// The three keys every fake interface has.
struct Keys {
    delay: Property,
    failure: Property,
    message: Property,
}

/// Declares the keys of each interface once, both for reading them and for describing them.
macro_rules! keys {
    ($($kind:ident, $name:literal, $properties:ident $(, $extra:expr)*;)*) => {
        const fn keys(kind: InterfaceKind) -> &'static Keys {
            match kind {
                $(InterfaceKind::$kind => const {
                    &Keys {
                        delay: $properties[0],
                        failure: $properties[1],
                        message: $properties[2],
                    }
                },)*
            }
        }

        $(
            #[doc = concat!("The keys of `driver_info` that the ", $name, " interface reads.")]
            pub(super) const $properties: &[Property] = &[
                (
                    concat!("fake_", $name, "_delay"),
                    concat!(
                        "Seconds that calls of the ", $name, " interface take: '2', or '1,10' for \
                         something between with 1 the most likely. Optional."
                    ),
                ),
                (
                    concat!("fake_", $name, "_failure"),
                    concat!(
                        "When calls of the ", $name, " interface fail: 'always', 'unreachable' \
                         (as if the BMC did not answer), a probability such as '0.2', or the name of \
                         the only step or operation that fails. Optional."
                    ),
                ),
                (
                    concat!("fake_", $name, "_failure_message"),
                    concat!("What a failing call of the ", $name, " interface says. Optional."),
                ),
                $($extra,)*
            ];
        )*
    };
}

// Network is here only because the list has to be whole: there is no fake network.
keys! {
    Bios, "bios", BIOS;
    Boot, "boot", BOOT;
    Console, "console", CONSOLE;
    Deploy, "deploy", DEPLOY, WAIT_FOR_AGENT;
    Firmware, "firmware", FIRMWARE;
    Inspect, "inspect", INSPECT, super::inspect::INVENTORY;
    Management, "management", MANAGEMENT, super::management::HEALTH, super::management::VENDOR;
    Network, "network", NETWORK;
    Power, "power", POWER;
    Raid, "raid", RAID;
    Rescue, "rescue", RESCUE, WAIT_FOR_AGENT;
    Storage, "storage", STORAGE;
    Vendor, "vendor", VENDOR, super::vendor::B1, super::vendor::B2;
}

/// How long a call takes: something between two numbers of seconds, the first the most likely.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Delay {
    likely: f64,
    other: f64,
}

impl Delay {
    const NONE: Self = Self { likely: 0.0, other: 0.0 };

    /// Reads `"a"` or `"a,b"`; nothing at all is no delay.
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::NONE);
        }
        let (likely, other) = text.split_once(',').unwrap_or((text, text));
        match (seconds(likely), seconds(other)) {
            (Some(likely), Some(other)) => Ok(Self { likely, other }),
            _ => Err(format!(
                "'{}' is not a number of seconds such as '2', nor two of them such as '1,10', up \
                 to one day",
                text.chars().take(80).collect::<String>()
            )),
        }
    }

    /// A duration from the triangular distribution whose peak is `likely`, for a fraction that is
    /// evenly distributed over 0..1.
    fn pick(self, fraction: f64) -> Duration {
        if self.likely == self.other {
            return Duration::try_from_secs_f64(self.likely).unwrap_or_default();
        }
        let seconds = self.likely + (self.other - self.likely) * (1.0 - (1.0 - fraction).sqrt());
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

fn seconds(text: &str) -> Option<f64> {
    const ONE_DAY: f64 = 86_400.0;
    text.trim().parse().ok().filter(|seconds: &f64| (0.0..=ONE_DAY).contains(seconds))
}

fn read_delay(key: &str, value: &Value) -> Result<Delay, Error> {
    let delay = match value {
        Value::String(text) => Delay::parse(text),
        Value::Number(number) => Delay::parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("use a string such as '2' or '1,10', or a number".to_owned())
        }
    };
    delay.map_err(|why| Error::invalid(in_driver_info(key), why))
}

/// When calls fail.
#[derive(Clone, PartialEq, Debug)]
enum Failure {
    Always,
    Unreachable,
    WithProbability(f64),
    Operation(String),
}

impl Failure {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(probability) = text.parse::<f64>() {
            return if (0.0..=1.0).contains(&probability) {
                Ok(Self::WithProbability(probability))
            } else {
                Err("a probability is between 0 and 1".to_owned())
            };
        }
        let is_name = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match text {
            "always" => Ok(Self::Always),
            "unreachable" => Ok(Self::Unreachable),
            name if is_name(name) => Ok(Self::Operation(name.to_owned())),
            _ => Err("use 'always', 'unreachable', a probability such as '0.2', or the name of a \
                      step or operation"
                .to_owned()),
        }
    }

    /// Whether a call of `operation` fails, for a fraction that is evenly distributed over 0..1.
    fn strikes(&self, operation: &str, fraction: f64) -> bool {
        match self {
            Self::Always | Self::Unreachable => true,
            Self::WithProbability(probability) => fraction < *probability,
            Self::Operation(name) => name == operation,
        }
    }
}

fn read_failure(key: &str, value: &Value) -> Result<Failure, Error> {
    let failure = match value {
        Value::String(text) => Failure::parse(text),
        Value::Number(number) => Failure::parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("use a string such as 'always' or '0.2'".to_owned())
        }
    };
    failure.map_err(|why| Error::invalid(in_driver_info(key), why))
}

/// Evenly distributed over 0..1, good enough for dice. Every `RandomState` hashes differently, and
/// hashing needs no crate.
fn random_fraction() -> f64 {
    const BITS_OF_A_FRACTION: u32 = 53;
    let random = RandomState::new().build_hasher().finish() >> (u64::BITS - BITS_OF_A_FRACTION);
    // 53 bits fit into the mantissa, so nothing is lost.
    random as f64 / (1_u64 << BITS_OF_A_FRACTION) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn delays() {
        for (text, likely, other) in [
            ("", 0.0, 0.0),
            ("0", 0.0, 0.0),
            ("2", 2.0, 2.0),
            ("1,10", 1.0, 10.0),
            (" 0.5 , 0 ", 0.5, 0.0),
        ] {
            assert_eq!(Delay::parse(text), Ok(Delay { likely, other }), "{text}");
        }
        for text in ["x", "1,", ",", "1,2,3", "-1", "NaN", "inf", "86401", "1;2"] {
            assert!(Delay::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn failures() {
        for (text, failure) in [
            ("always", Failure::Always),
            ("unreachable", Failure::Unreachable),
            ("0.2", Failure::WithProbability(0.2)),
            ("erase_devices", Failure::Operation("erase_devices".to_owned())),
        ] {
            assert_eq!(Failure::parse(text), Ok(failure), "{text}");
        }
        for text in ["", "1.5", "-0.1", "deploy.erase_devices", "two words"] {
            assert!(Failure::parse(text).is_err(), "{text}");
        }
        assert!(Failure::Operation("deploy".to_owned()).strikes("deploy", 0.9));
        assert!(!Failure::Operation("deploy".to_owned()).strikes("prepare", 0.0));
        assert!(Failure::WithProbability(0.2).strikes("deploy", 0.1));
        assert!(!Failure::WithProbability(0.2).strikes("deploy", 0.2));
    }

    #[test]
    fn a_bad_value_is_refused_and_its_key_named() {
        let behaviour =
            FakeBehaviour::new(&FakeSettings::default()).expect("the defaults are good");
        for (driver_info, key) in [
            (json!({"fake_power_delay": "soon"}), "fake_power_delay"),
            (json!({"fake_power_delay": [1]}), "fake_power_delay"),
            (json!({"fake_power_failure": "?"}), "fake_power_failure"),
            (json!({"fake_power_failure_message": 1}), "fake_power_failure_message"),
            (json!({"fake_wait_for_agent": "maybe"}), "fake_wait_for_agent"),
        ] {
            let driver_info = driver_info.as_object().expect("an object");
            let error = behaviour.validate(InterfaceKind::Power, driver_info).expect_err("refused");
            assert!(error.to_string().contains(key), "{error}");
            assert!(error.is_callers_fault());
        }
        // What concerns another interface is that one's to complain about.
        let driver_info = json!({"fake_boot_delay": "soon", "fake_power_delay": 1.5});
        let driver_info = driver_info.as_object().expect("an object");
        behaviour.validate(InterfaceKind::Power, driver_info).expect("accepted");
    }

    #[test]
    fn a_bad_setting_is_refused_and_named() {
        let settings = FakeSettings { raid_delay: "long".to_owned(), ..FakeSettings::default() };
        let error = FakeBehaviour::new(&settings).expect_err("refused");
        assert!(error.to_string().contains("raid_delay"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = (Delay::parse(&text), Failure::parse(&text));
        }

        #[test]
        fn a_delay_stays_within_its_bounds(
            first in 0.0..1000.0_f64, second in 0.0..1000.0_f64, fraction in 0.0..1.0_f64,
        ) {
            let delay = Delay::parse(&format!("{first},{second}")).expect("two numbers");
            let picked = delay.pick(fraction).as_secs_f64();
            let slack = 1e-6;
            prop_assert!(picked >= first.min(second) - slack && picked <= first.max(second) + slack);
        }

        #[test]
        fn half_of_the_delays_are_in_the_first_third(fraction in 0.0..0.5_f64) {
            let delay = Delay { likely: 0.0, other: 3.0 };
            prop_assert!(delay.pick(fraction).as_secs_f64() < 1.0);
        }
    }
}
