// SPDX-License-Identifier: Apache-2.0
//! A rule by which something goes wrong, and how it is written.
//!
//! As one line, for the command line: `hang bmcs=10% path=/redfish/v1/Systems`. As a table, for TOML
//! and JSON: `effect = "hang"`, `bmcs = "10%"`.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A rule by which something goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct FaultRule {
    /// Whom it is about.
    pub bmcs: Which,
    /// The method it is about; all if there is none. Requests over IPMI have the method `IPMI`.
    pub method: Option<String>,
    /// What the path begins with.
    pub path: Option<String>,
    /// How likely it strikes, from 0 to 1.
    pub probability: f64,
    /// It strikes every so many requests it is about, over all its BMCs.
    pub every: u64,
    /// How many requests it lets pass first.
    pub skip: u64,
    /// How often it strikes at most.
    pub times: Option<u64>,
    /// From how many seconds after it was set.
    pub from: f64,
    /// Until how many seconds after it was set.
    pub until: Option<f64>,
    /// What happens.
    pub effect: Effect,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The connection is closed.
    Drop,
    /// Nothing ever comes.
    Hang,
    /// The answer comes later.
    Delay {
        /// By how much.
        milliseconds: u64,
    },
    /// An error is all that comes.
    Status {
        /// Which.
        code: StatusCode,
        /// When to ask again, in seconds.
        retry_after: Option<u64>,
    },
    /// The answer is cut off in the middle of its JSON.
    WrongJson,
    /// Power actions are accepted, and nothing changes.
    PowerStuck,
    /// The BMC restarts and is away.
    BmcReboot {
        /// For how long.
        seconds: u64,
    },
    /// The password is no longer right.
    WrongPassword,
    /// A step of an agent fails.
    Fail {
        /// Why, as the agent tells it.
        why: String,
    },
    /// What an agent writes is not what was announced.
    WrongChecksum,
    /// The power is cut in the middle of a step of an agent.
    PowerCut,
    /// The network of an agent goes away in the middle of a step.
    NetworkLoss {
        /// For how long.
        seconds: u64,
    },
}

/// Which BMCs: `all`, or numbers, ranges and shares: `0-99,250,10%`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Which(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Range(u32, u32),
    Percent(u32),
}

/// Why a rule is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fault {rule:?} is not understood: {why}")]
pub struct FaultError {
    /// The rule as it was written.
    pub rule: String,
    /// What is wrong with it.
    pub why: String,
}

/// The effects, as they are written, with what follows the equals sign.
const EFFECTS: &str = "drop, hang, delay=MILLISECONDS, status=CODE, wrong-json, power-stuck, bmc-reboot=SECONDS, wrong-password, fail=WHY, wrong-checksum, power-cut, network-loss=SECONDS";
/// What the paths of agents' doings begin with.
const AGENTS: &str = "/agent";
const KEYS: &str = "bmcs, method, path, probability, every, skip, times, from, until, retry_after";

/// A rule as it is written in TOML and JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bmcs: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probability: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skip: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl FaultRule {
    /// A rule that always strikes everybody.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        Self {
            bmcs: Which::default(),
            method: None,
            path: None,
            probability: 1.0,
            every: 1,
            skip: 0,
            times: None,
            from: 0.0,
            until: None,
            effect,
        }
    }

    /// The same rule about these BMCs only.
    #[must_use]
    pub fn about(mut self, bmcs: Which) -> Self {
        self.bmcs = bmcs;
        self
    }

    /// Whether it is about this request.
    pub(super) fn is_about(&self, bmc: u32, method: &str, path: &str) -> bool {
        self.bmcs.has(bmc)
            && self.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && self.path.as_deref().is_none_or(|front| path.starts_with(front))
            && (self.effect != Effect::PowerStuck || is_power_request(method, path))
            && self.is_about_agents() == path.starts_with(AGENTS)
            && (self.is_about_agents() || !self.effect.is_for_agents())
    }

    /// Rules are about BMCs unless they say otherwise.
    fn is_about_agents(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path.starts_with(AGENTS))
    }
}

impl Effect {
    /// Whether it happens to agents only.
    fn is_for_agents(&self) -> bool {
        matches!(
            self,
            Self::Fail { .. } | Self::WrongChecksum | Self::PowerCut | Self::NetworkLoss { .. }
        )
    }
}

impl Which {
    /// Only this one.
    #[must_use]
    pub fn one(bmc: u32) -> Self {
        Self(vec![Part::Range(bmc, bmc)])
    }

    /// Those from the first to the last, both included.
    #[must_use]
    pub fn range(first: u32, last: u32) -> Self {
        Self(vec![Part::Range(first, last)])
    }

    /// So many of every hundred, spread evenly.
    #[must_use]
    pub fn percent(percent: u32) -> Self {
        Self(vec![Part::Percent(percent)])
    }

    /// Whether this one is meant.
    #[must_use]
    pub fn has(&self, bmc: u32) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|part| match part {
                Part::Range(first, last) => (*first..=*last).contains(&bmc),
                // 37 has no divisor in common with 100, so every hundred is hit in another order.
                Part::Percent(percent) => (bmc % 100) * 37 % 100 < *percent,
            })
    }
}

impl FromStr for FaultRule {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let wrong = |why: String| FaultError { rule: text.to_owned(), why };
        let mut words = text.split_whitespace();
        let Some(effect) = words.next() else {
            return Err(wrong(format!("it begins with one of {EFFECTS}")));
        };
        let mut written = Written { effect: effect.to_owned(), ..Written::default() };
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(wrong(format!("{word:?} is not KEY=VALUE with a key of {KEYS}")));
            };
            written.put(key, value).map_err(wrong)?;
        }
        written.into_rule().map_err(wrong)
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::default());
        }
        let parts: Option<Vec<Part>> = text.split(',').map(|part| part_of(part.trim())).collect();
        parts.map(Self).ok_or_else(|| format!("{text:?} is not like 0-99,250 or 10% or all"))
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("all");
        }
        for (place, part) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match part {
                Part::Range(first, last) if first == last => write!(f, "{comma}{first}")?,
                Part::Range(first, last) => write!(f, "{comma}{first}-{last}")?,
                Part::Percent(percent) => write!(f, "{comma}{percent}%")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<Written> for FaultRule {
    type Error = FaultError;

    fn try_from(written: Written) -> Result<Self, FaultError> {
        let rule = written.effect.clone();
        written.into_rule().map_err(|why| FaultError { rule, why })
    }
}

impl From<FaultRule> for Written {
    fn from(rule: FaultRule) -> Self {
        let retry_after = match rule.effect {
            Effect::Status { retry_after, .. } => retry_after,
            Effect::Drop
            | Effect::Hang
            | Effect::Delay { .. }
            | Effect::WrongJson
            | Effect::PowerStuck
            | Effect::BmcReboot { .. }
            | Effect::WrongPassword
            | Effect::Fail { .. }
            | Effect::WrongChecksum
            | Effect::PowerCut
            | Effect::NetworkLoss { .. } => None,
        };
        Self {
            effect: rule.effect.to_string(),
            bmcs: Some(rule.bmcs.to_string()),
            method: rule.method,
            path: rule.path,
            probability: Some(rule.probability).filter(|probability| *probability < 1.0),
            every: Some(rule.every).filter(|every| *every > 1),
            skip: Some(rule.skip).filter(|skip| *skip > 0),
            times: rule.times,
            from: Some(rule.from).filter(|from| *from > 0.0),
            until: rule.until,
            retry_after,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("drop"),
            Self::Hang => f.write_str("hang"),
            Self::Delay { milliseconds } => write!(f, "delay={milliseconds}"),
            Self::Status { code, .. } => write!(f, "status={}", code.as_u16()),
            Self::WrongJson => f.write_str("wrong-json"),
            Self::PowerStuck => f.write_str("power-stuck"),
            Self::BmcReboot { seconds } => write!(f, "bmc-reboot={seconds}"),
            Self::WrongPassword => f.write_str("wrong-password"),
            Self::Fail { why } => write!(f, "fail={why}"),
            Self::WrongChecksum => f.write_str("wrong-checksum"),
            Self::PowerCut => f.write_str("power-cut"),
            Self::NetworkLoss { seconds } => write!(f, "network-loss={seconds}"),
        }
    }
}

impl Written {
    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn number<T: FromStr>(key: &str, value: &str) -> Result<Option<T>, String> {
            value.parse().map(Some).map_err(|_| format!("{key} cannot be {value:?}"))
        }
        match key {
            "bmcs" => self.bmcs = Some(value.to_owned()),
            "method" => self.method = Some(value.to_owned()),
            "path" => self.path = Some(value.to_owned()),
            "probability" => self.probability = number(key, value)?,
            "every" => self.every = number(key, value)?,
            "skip" => self.skip = number(key, value)?,
            "times" => self.times = number(key, value)?,
            "from" => self.from = number(key, value)?,
            "until" => self.until = number(key, value)?,
            "retry_after" => self.retry_after = number(key, value)?,
            _ => return Err(format!("there is no key {key:?}; there are {KEYS}")),
        }
        Ok(())
    }

    fn into_rule(self) -> Result<FaultRule, String> {
        let effect = effect_of(&self.effect, self.retry_after)?;
        let probability = self.probability.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&probability) {
            return Err("a probability is from 0 to 1".to_owned());
        }
        if self.every == Some(0) {
            return Err("every is 1 or more".to_owned());
        }
        Ok(FaultRule {
            bmcs: self.bmcs.as_deref().unwrap_or("all").parse()?,
            method: self.method,
            path: self.path,
            probability,
            every: self.every.unwrap_or(1),
            skip: self.skip.unwrap_or(0),
            times: self.times,
            from: self.from.unwrap_or(0.0),
            until: self.until,
            effect,
        })
    }
}

fn effect_of(text: &str, retry_after: Option<u64>) -> Result<Effect, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let number = || value.and_then(|value| value.parse::<u64>().ok());
    let effect = match name {
        "drop" => Some(Effect::Drop),
        "hang" => Some(Effect::Hang),
        "delay" => number().map(|milliseconds| Effect::Delay { milliseconds }),
        "status" => number()
            .and_then(|code| u16::try_from(code).ok())
            // Informational codes are no answers.
            .filter(|code| *code >= 200)
            .and_then(|code| StatusCode::from_u16(code).ok())
            .map(|code| Effect::Status { code, retry_after }),
        "wrong-json" => Some(Effect::WrongJson),
        "power-stuck" => Some(Effect::PowerStuck),
        "bmc-reboot" => number().map(|seconds| Effect::BmcReboot { seconds }),
        "wrong-password" => Some(Effect::WrongPassword),
        "fail" => value.map(|why| Effect::Fail { why: why.to_owned() }),
        "wrong-checksum" => Some(Effect::WrongChecksum),
        "power-cut" => Some(Effect::PowerCut),
        "network-loss" => number().map(|seconds| Effect::NetworkLoss { seconds }),
        _ => None,
    };
    effect.ok_or_else(|| format!("{text:?} is none of {EFFECTS}"))
}

fn part_of(text: &str) -> Option<Part> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok().filter(|percent| *percent <= 100).map(Part::Percent);
    }
    match text.split_once('-') {
        Some((first, last)) => Some(Part::Range(first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|bmc| Part::Range(bmc, bmc)),
    }
}

/// Whether a request is for power, over Redfish or over IPMI.
fn is_power_request(method: &str, path: &str) -> bool {
    (method == "POST"
        && (path.ends_with("/ComputerSystem.Reset") || path.ends_with("/Chassis.Reset")))
        || (method == "IPMI" && path == "/ipmi/power")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_bmcs() {
        for (text, inside, outside) in [
            ("all", vec![0, 5, 99_999], vec![]),
            ("7", vec![7], vec![6, 8]),
            ("0-3,10", vec![0, 3, 10], vec![4, 9, 11]),
        ] {
            let which: Which = text.parse().unwrap();
            assert!(inside.iter().all(|bmc| which.has(*bmc)), "{text}");
            assert!(!outside.iter().any(|bmc| which.has(*bmc)), "{text}");
            assert_eq!(which.to_string(), text);
        }
        let tenth: Which = "10%".parse().unwrap();
        assert_eq!((0..1_000).filter(|bmc| tenth.has(*bmc)).count(), 100);
        assert_eq!((0..100).filter(|bmc| Which::percent(0).has(*bmc)).count(), 0);
        assert_eq!((0..100).filter(|bmc| Which::percent(100).has(*bmc)).count(), 100);
    }

    #[test]
    fn rules_are_read_and_written() {
        for text in [
            "hang bmcs=10%",
            "delay=1500 bmcs=0-99 method=GET path=/redfish/v1/Systems",
            "status=503 retry_after=3 probability=0.5 every=2 skip=1 times=9 from=10 until=20.5",
            "bmc-reboot=30 times=1",
            "power-stuck",
            "fail=no-disk path=/agent/step/write_image",
            "network-loss=30 path=/agent/step",
        ] {
            let rule: FaultRule = text.parse().unwrap();
            let again = serde_json::to_string(&rule).unwrap();
            assert_eq!(serde_json::from_str::<FaultRule>(&again).unwrap(), rule, "{again}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("", "begins with one of drop"),
            ("explode", "\"explode\" is none of"),
            ("delay", "\"delay\" is none of"),
            ("status=99", "\"status=99\" is none of"),
            ("hang bmcs=many", "\"many\" is not like"),
            ("hang bmcs=101%", "is not like"),
            ("hang often", "is not KEY=VALUE"),
            ("hang colour=red", "there is no key \"colour\""),
            ("hang every=0", "every is 1 or more"),
            ("hang probability=2", "from 0 to 1"),
            ("hang times=x", "times cannot be \"x\""),
        ] {
            let error = text.parse::<FaultRule>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
