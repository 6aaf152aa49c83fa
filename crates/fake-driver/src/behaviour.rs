// SPDX-License-Identifier: Apache-2.0
//! Delays and failures of fake hardware.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use drivers::{DriverError, DriverProperty, DriverTarget, NodeChanges, StepOutcome};
use node_model::InterfaceKind;
use serde_json::{Map, Value};

use crate::{FakeSettings, FakeSettingsError};

/// The configured delays. Everything else is in each node's `driver_info`.
#[derive(Debug)]
pub(crate) struct FakeBehaviour {
    delays: Vec<FakeDelay>,
}

impl FakeBehaviour {
    pub(crate) fn new(settings: &FakeSettings) -> Result<Self, FakeSettingsError> {
        let delay = |kind: &InterfaceKind| match settings.delay(*kind) {
            None => Ok(FakeDelay::NONE),
            Some((key, text)) => {
                FakeDelay::parse(text).map_err(|reason| FakeSettingsError { key, reason })
            }
        };
        Ok(Self { delays: InterfaceKind::ALL.iter().map(delay).collect::<Result<_, _>>()? })
    }

    /// Starts every call of a fake interface: waits for the delay, and fails if a failure is set.
    /// `operation` is the name of the step, the vendor method or the trait's method.
    pub(crate) async fn begin_call(
        &self,
        kind: InterfaceKind,
        target: &DriverTarget<'_>,
        operation: &str,
    ) -> Result<(), DriverError> {
        let keys = keys(kind);
        let delay = match target.driver_info.get(keys.delay.0) {
            None => self.delays[kind as usize],
            Some(value) => parse_delay(keys.delay.0, value)?,
        };
        let duration = delay.sample(random_fraction());
        if !duration.is_zero() {
            tokio::time::sleep(duration).await;
        }
        let Some(value) = target.driver_info.get(keys.failure.0) else { return Ok(()) };
        let failure = parse_failure(keys.failure.0, value)?;
        if !failure.applies_to(operation, random_fraction()) {
            return Ok(());
        }
        if failure == FakeFailure::Unreachable {
            return Err(DriverError::BmcUnreachable {
                address: "fake-hardware".to_owned(),
                what: format!("call {kind}.{operation}"),
                source: None,
            });
        }
        let message = target.driver_info.get(keys.message.0).and_then(Value::as_str);
        Err(DriverError::Failed {
            what: format!("call {kind}.{operation}"),
            why: message.map_or_else(
                || format!("driver_info['{}'] requests it", keys.failure.0),
                str::to_owned,
            ),
        })
    }

    /// Fails if a `driver_info` key of `kind` is invalid.
    pub(crate) fn validate(
        &self,
        kind: InterfaceKind,
        driver_info: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        let keys = keys(kind);
        if let Some(value) = driver_info.get(keys.delay.0) {
            parse_delay(keys.delay.0, value)?;
        }
        if let Some(value) = driver_info.get(keys.failure.0) {
            parse_failure(keys.failure.0, value)?;
        }
        if driver_info.get(keys.message.0).is_some_and(|message| !message.is_string()) {
            return Err(DriverError::invalid(driver_info_key(keys.message.0), "use a string"));
        }
        waits_for_agent(driver_info).map(|_| ())
    }
}

/// The `driver_info` key that makes fake hardware wait for an agent.
pub(super) const WAIT_FOR_AGENT: DriverProperty = (
    "fake_wait_for_agent",
    "Whether deployment, cleaning, service and rescue wait for an agent's heartbeat, as with real \
     machines. Optional; false if not given.",
);

/// Whether fake hardware waits for an agent.
pub(super) fn waits_for_agent(driver_info: &Map<String, Value>) -> Result<bool, DriverError> {
    match driver_info.get(WAIT_FOR_AGENT.0) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => {
            Err(DriverError::invalid(driver_info_key(WAIT_FOR_AGENT.0), "use true or false"))
        }
    }
}

/// Done; or, if fake hardware waits for an agent, a wait at the first call, and done at the second,
/// which follows the agent's heartbeat.
pub(super) fn done_with_agent(target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
    if waits_for_agent(target.driver_info)? && !target.agent_was_awaited() {
        Ok(target.wait_for_agent(NodeChanges::none()))
    } else {
        Ok(StepOutcome::done(NodeChanges::none()))
    }
}

/// Implements [`BaseInterface`](drivers::BaseInterface) for a fake interface. With a table of steps, its
/// `run` method executes the steps of the table.
macro_rules! fake_interface {
    ($name:ident, $kind:ident, $properties:ident $(, $steps:ident)?) => {
        #[async_trait::async_trait]
        impl drivers::BaseInterface for $name {
            fn kind(&self) -> node_model::InterfaceKind {
                node_model::InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                super::NAME
            }

            fn properties(&self) -> &[drivers::DriverProperty] {
                super::behaviour::$properties
            }

            async fn validate(&self, target: &drivers::DriverTarget<'_>) -> Result<(), drivers::DriverError> {
                self.0.validate(drivers::BaseInterface::kind(self), target.driver_info)
            }

            $(
                fn steps(&self, flow: node_model::StepFlow) -> Vec<node_model::AvailableStep> {
                    drivers::steps_of_flow($steps, drivers::BaseInterface::kind(self), flow)
                }

                async fn execute_step(
                    &self,
                    target: &drivers::DriverTarget<'_>,
                    flow: node_model::StepFlow,
                    step: &node_model::Step,
                ) -> Result<drivers::StepOutcome, drivers::DriverError> {
                    let name = step.step.as_str();
                    if !$steps.iter().any(|row| row.name == name && row.flows.contains(&flow)) {
                        let what = format!("carry out the {flow} step '{name}'");
                        return Err(drivers::BaseInterface::unsupported(self, &what));
                    }
                    self.0.begin_call(drivers::BaseInterface::kind(self), target, name).await?;
                    self.run(target, step)
                }
            )?
        }
    };
}
pub(super) use fake_interface;

/// The name of a `driver_info` key in error messages.
pub(super) fn driver_info_key(key: &str) -> String {
    format!("driver_info/{key}")
}

/// The three `driver_info` keys of every fake interface.
struct FakeInterfaceKeys {
    delay: DriverProperty,
    failure: DriverProperty,
    message: DriverProperty,
}

/// Declares the keys of each interface, for parsing and for their descriptions.
macro_rules! keys {
    ($($kind:ident, $name:literal, $properties:ident $(, $extra:expr)*;)*) => {
        const fn keys(kind: InterfaceKind) -> &'static FakeInterfaceKeys {
            match kind {
                $(InterfaceKind::$kind => const {
                    &FakeInterfaceKeys {
                        delay: $properties[0],
                        failure: $properties[1],
                        message: $properties[2],
                    }
                },)*
            }
        }

        $(
            #[doc = concat!("The keys of `driver_info` that the ", $name, " interface reads.")]
            pub(super) const $properties: &[DriverProperty] = &[
                (
                    concat!("fake_", $name, "_delay"),
                    concat!(
                        "Seconds that calls of the ", $name, " interface take: '2', or '1,10' for a \
                         random value in between, with 1 the most likely. Optional."
                    ),
                ),
                (
                    concat!("fake_", $name, "_failure"),
                    concat!(
                        "When calls of the ", $name, " interface fail: 'always', 'unreachable' \
                         (as if the BMC did not respond), a probability such as '0.2', or the name of \
                         the only step or operation that fails. Optional."
                    ),
                ),
                (
                    concat!("fake_", $name, "_failure_message"),
                    concat!("Error text of a failing call of the ", $name, " interface. Optional."),
                ),
                $($extra,)*
            ];
        )*
    };
}

// Network is listed only for completeness: there is no fake network interface.
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

/// The duration of a call: between two numbers of seconds, the first being the most peak.
#[derive(Clone, Copy, PartialEq, Debug)]
struct FakeDelay {
    peak: f64,
    other: f64,
}

impl FakeDelay {
    const NONE: Self = Self { peak: 0.0, other: 0.0 };

    /// Parses `"a"` or `"a,b"`; empty text is no delay.
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::NONE);
        }
        let (peak, other) = text.split_once(',').unwrap_or((text, text));
        match (seconds(peak), seconds(other)) {
            (Some(peak), Some(other)) => Ok(Self { peak, other }),
            _ => Err(format!(
                "'{}' is not a number of seconds such as '2', nor two of them such as '1,10', up \
                 to one day",
                text.chars().take(80).collect::<String>()
            )),
        }
    }

    /// A duration from the triangular distribution with the peak `peak`, for a fraction uniformly
    /// distributed over 0..1.
    fn sample(self, fraction: f64) -> Duration {
        if self.peak == self.other {
            return Duration::try_from_secs_f64(self.peak).unwrap_or_default();
        }
        let seconds = self.peak + (self.other - self.peak) * (1.0 - (1.0 - fraction).sqrt());
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

fn seconds(text: &str) -> Option<f64> {
    const ONE_DAY: f64 = 86_400.0;
    text.trim().parse().ok().filter(|seconds: &f64| (0.0..=ONE_DAY).contains(seconds))
}

fn parse_delay(key: &str, value: &Value) -> Result<FakeDelay, DriverError> {
    let delay = match value {
        Value::String(text) => FakeDelay::parse(text),
        Value::Number(number) => FakeDelay::parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("use a string such as '2' or '1,10', or a number".to_owned())
        }
    };
    delay.map_err(|why| DriverError::invalid(driver_info_key(key), why))
}

/// When calls fail.
#[derive(Clone, PartialEq, Debug)]
enum FakeFailure {
    Always,
    Unreachable,
    WithProbability(f64),
    Operation(String),
}

impl FakeFailure {
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

    /// Whether a call of `operation` fails, for a fraction uniformly distributed over 0..1.
    fn applies_to(&self, operation: &str, fraction: f64) -> bool {
        match self {
            Self::Always | Self::Unreachable => true,
            Self::WithProbability(probability) => fraction < *probability,
            Self::Operation(name) => name == operation,
        }
    }
}

fn parse_failure(key: &str, value: &Value) -> Result<FakeFailure, DriverError> {
    let failure = match value {
        Value::String(text) => FakeFailure::parse(text),
        Value::Number(number) => FakeFailure::parse(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("use a string such as 'always' or '0.2'".to_owned())
        }
    };
    failure.map_err(|why| DriverError::invalid(driver_info_key(key), why))
}

/// Uniformly distributed over 0..1, not cryptographically secure. Every `RandomState` hashes
/// differently, which avoids a dependency.
fn random_fraction() -> f64 {
    const FRACTION_BITS: u32 = 53;
    let random = RandomState::new().build_hasher().finish() >> (u64::BITS - FRACTION_BITS);
    // 53 bits fit into the mantissa.
    random as f64 / (1_u64 << FRACTION_BITS) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_delays() {
        for (text, peak, other) in [
            ("", 0.0, 0.0),
            ("0", 0.0, 0.0),
            ("2", 2.0, 2.0),
            ("1,10", 1.0, 10.0),
            (" 0.5 , 0 ", 0.5, 0.0),
        ] {
            assert_eq!(FakeDelay::parse(text), Ok(FakeDelay { peak, other }), "{text}");
        }
        for text in ["x", "1,", ",", "1,2,3", "-1", "NaN", "inf", "86401", "1;2"] {
            assert!(FakeDelay::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_failures() {
        for (text, failure) in [
            ("always", FakeFailure::Always),
            ("unreachable", FakeFailure::Unreachable),
            ("0.2", FakeFailure::WithProbability(0.2)),
            ("erase_devices", FakeFailure::Operation("erase_devices".to_owned())),
        ] {
            assert_eq!(FakeFailure::parse(text), Ok(failure), "{text}");
        }
        for text in ["", "1.5", "-0.1", "deploy.erase_devices", "two words"] {
            assert!(FakeFailure::parse(text).is_err(), "{text}");
        }
        assert!(FakeFailure::Operation("deploy".to_owned()).applies_to("deploy", 0.9));
        assert!(!FakeFailure::Operation("deploy".to_owned()).applies_to("prepare", 0.0));
        assert!(FakeFailure::WithProbability(0.2).applies_to("deploy", 0.1));
        assert!(!FakeFailure::WithProbability(0.2).applies_to("deploy", 0.2));
    }

    #[test]
    fn validation_rejects_invalid_values_and_names_the_key() {
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
            assert!(error.is_caller_error());
        }
        // FakeInterfaceKeys of other interfaces are not validated.
        let driver_info = json!({"fake_boot_delay": "soon", "fake_power_delay": 1.5});
        let driver_info = driver_info.as_object().expect("an object");
        behaviour.validate(InterfaceKind::Power, driver_info).expect("accepted");
    }

    #[test]
    fn rejects_invalid_setting_and_names_it() {
        let settings = FakeSettings { raid_delay: "long".to_owned(), ..FakeSettings::default() };
        let error = FakeBehaviour::new(&settings).expect_err("refused");
        assert!(error.to_string().contains("raid_delay"), "{error}");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = (FakeDelay::parse(&text), FakeFailure::parse(&text));
        }

        #[test]
        fn delay_stays_within_bounds(
            first in 0.0..1000.0_f64, second in 0.0..1000.0_f64, fraction in 0.0..1.0_f64,
        ) {
            let delay = FakeDelay::parse(&format!("{first},{second}")).expect("two numbers");
            let sampled = delay.sample(fraction).as_secs_f64();
            let slack = 1e-6;
            prop_assert!(sampled >= first.min(second) - slack && sampled <= first.max(second) + slack);
        }

        #[test]
        fn half_of_the_delays_are_in_the_first_third(fraction in 0.0..0.5_f64) {
            let delay = FakeDelay { peak: 0.0, other: 3.0 };
            prop_assert!(delay.sample(fraction).as_secs_f64() < 1.0);
        }
    }
}
