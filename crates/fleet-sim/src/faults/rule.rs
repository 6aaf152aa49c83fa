// SPDX-License-Identifier: Apache-2.0
//! Fault rules and their text formats.
//!
//! On the command line a rule is one line: `hang bmcs=10% path=/redfish/v1/Systems`. In TOML and
//! JSON it is a table: `effect = "hang"`, `bmcs = "10%"`.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A rule that applies an effect to selected requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "FaultRuleFields", into = "FaultRuleFields")]
pub struct FaultRule {
    /// The BMCs it applies to.
    pub bmcs: BmcSelection,
    /// The method it applies to; all if `None`. IPMI requests have the method `IPMI`.
    pub method: Option<String>,
    /// Prefix of the paths it applies to; all if `None`.
    pub path: Option<String>,
    /// Probability from 0 to 1.
    pub probability: f64,
    /// It applies to every n-th matching request, counted over all its BMCs.
    pub every: u64,
    /// Number of matching requests that it skips first.
    pub skip: u64,
    /// Maximum number of requests it applies to.
    pub times: Option<u64>,
    /// Start of its time window, in seconds since it was added.
    pub from: f64,
    /// End of its time window, in seconds since it was added.
    pub until: Option<f64>,
    /// The effect on the requests.
    pub effect: FaultEffect,
}

/// The effect of a fault rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The connection is closed.
    Drop,
    /// There is never a response.
    Hang,
    /// The response is delayed.
    Delay {
        /// The delay.
        milliseconds: u64,
    },
    /// The response is an error.
    Status {
        /// The status code.
        code: StatusCode,
        /// Value of the `Retry-After` header, in seconds.
        retry_after: Option<u64>,
    },
    /// The response body is truncated to half its length.
    WrongJson,
    /// Power requests succeed without an effect.
    PowerStuck,
    /// The BMC restarts and is unreachable.
    BmcReboot {
        /// The duration.
        seconds: u64,
    },
    /// The BMC rejects all credentials.
    WrongPassword,
    /// A step or command of an agent fails.
    Fail {
        /// The reason that the agent reports.
        reason: String,
    },
    /// The image that an agent writes has another checksum than expected.
    WrongChecksum,
    /// The machine loses power halfway through a step.
    PowerCut,
    /// The agent loses its network halfway through a step.
    NetworkLoss {
        /// The duration.
        seconds: u64,
    },
}

/// Selection of BMCs: `all`, or a list of indexes, ranges and percentages: `0-99,250,10%`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BmcSelection(Vec<SelectionPart>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectionPart {
    Range(u32, u32),
    Percent(u32),
}

/// A fault rule could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid fault rule {rule:?}: {reason}")]
pub struct FaultRuleError {
    /// The text of the rule.
    pub rule: String,
    /// What is invalid.
    pub reason: String,
}

/// The effects with their arguments, for error messages.
const EFFECTS: &str = "drop, hang, delay=MILLISECONDS, status=CODE, wrong-json, power-stuck, bmc-reboot=SECONDS, wrong-password, fail=WHY, wrong-checksum, power-cut, network-loss=SECONDS";
/// Path prefix of rules for agents.
const AGENT_PATH_PREFIX: &str = "/agent";
const KEYS: &str = "bmcs, method, path, probability, every, skip, times, from, until, retry_after";

/// A rule as serialised in TOML and JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultRuleFields {
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
    /// Creates a rule that applies to all requests to all BMCs.
    #[must_use]
    pub fn new(effect: FaultEffect) -> Self {
        Self {
            bmcs: BmcSelection::default(),
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

    /// Whether method, path and BMC match.
    pub(super) fn matches_request(&self, bmc: u32, method: &str, path: &str) -> bool {
        self.bmcs.contains(bmc)
            && self.method.as_deref().is_none_or(|own| own.eq_ignore_ascii_case(method))
            && self.path.as_deref().is_none_or(|prefix| path.starts_with(prefix))
            && (self.effect != FaultEffect::PowerStuck || is_power_request(method, path))
            && self.targets_agents() == path.starts_with(AGENT_PATH_PREFIX)
            && (self.targets_agents() || !self.effect.is_agent_only())
    }

    /// Whether the rule is for agents. Rules without such a path are for BMCs.
    fn targets_agents(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path.starts_with(AGENT_PATH_PREFIX))
    }
}

impl FaultEffect {
    /// Whether the effect exists for agents only.
    fn is_agent_only(&self) -> bool {
        matches!(
            self,
            Self::Fail { .. } | Self::WrongChecksum | Self::PowerCut | Self::NetworkLoss { .. }
        )
    }
}

impl BmcSelection {
    /// Selects one BMC.
    #[must_use]
    pub fn one(bmc: u32) -> Self {
        Self(vec![SelectionPart::Range(bmc, bmc)])
    }

    /// Selects the BMCs from `first` to `last`, inclusive.
    #[must_use]
    pub fn range(first: u32, last: u32) -> Self {
        Self(vec![SelectionPart::Range(first, last)])
    }

    /// Selects a percentage of the BMCs, evenly distributed.
    #[must_use]
    pub fn percent(percent: u32) -> Self {
        Self(vec![SelectionPart::Percent(percent)])
    }

    /// Whether the BMC is selected.
    #[must_use]
    pub fn contains(&self, bmc: u32) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|part| match part {
                SelectionPart::Range(first, last) => (*first..=*last).contains(&bmc),
                // 37 and 100 are coprime, so this permutes each hundred and selects exactly
                // `percent` of it.
                SelectionPart::Percent(percent) => (bmc % 100) * 37 % 100 < *percent,
            })
    }
}

impl FromStr for FaultRule {
    type Err = FaultRuleError;

    fn from_str(text: &str) -> Result<Self, FaultRuleError> {
        let invalid = |reason: String| FaultRuleError { rule: text.to_owned(), reason };
        let mut words = text.split_whitespace();
        let Some(effect) = words.next() else {
            return Err(invalid(format!("it must start with one of {EFFECTS}")));
        };
        let mut fields =
            FaultRuleFields { effect: effect.to_owned(), ..FaultRuleFields::default() };
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(invalid(format!("{word:?} is not KEY=VALUE; the keys are {KEYS}")));
            };
            fields.set_field(key, value).map_err(invalid)?;
        }
        fields.into_rule().map_err(invalid)
    }
}

impl FromStr for BmcSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::default());
        }
        let parts: Option<Vec<SelectionPart>> =
            text.split(',').map(|part| parse_part(part.trim())).collect();
        parts.map(Self).ok_or_else(|| {
            format!("invalid BMC selection {text:?}; use for example 0-99,250 or 10% or all")
        })
    }
}

impl fmt::Display for BmcSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("all");
        }
        for (index, part) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match part {
                SelectionPart::Range(first, last) if first == last => write!(f, "{comma}{first}")?,
                SelectionPart::Range(first, last) => write!(f, "{comma}{first}-{last}")?,
                SelectionPart::Percent(percent) => write!(f, "{comma}{percent}%")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<FaultRuleFields> for FaultRule {
    type Error = FaultRuleError;

    fn try_from(fields: FaultRuleFields) -> Result<Self, FaultRuleError> {
        let rule = fields.effect.clone();
        fields.into_rule().map_err(|reason| FaultRuleError { rule, reason })
    }
}

impl From<FaultRule> for FaultRuleFields {
    fn from(rule: FaultRule) -> Self {
        let retry_after = match rule.effect {
            FaultEffect::Status { retry_after, .. } => retry_after,
            FaultEffect::Drop
            | FaultEffect::Hang
            | FaultEffect::Delay { .. }
            | FaultEffect::WrongJson
            | FaultEffect::PowerStuck
            | FaultEffect::BmcReboot { .. }
            | FaultEffect::WrongPassword
            | FaultEffect::Fail { .. }
            | FaultEffect::WrongChecksum
            | FaultEffect::PowerCut
            | FaultEffect::NetworkLoss { .. } => None,
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

impl fmt::Display for FaultEffect {
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
            Self::Fail { reason } => write!(f, "fail={reason}"),
            Self::WrongChecksum => f.write_str("wrong-checksum"),
            Self::PowerCut => f.write_str("power-cut"),
            Self::NetworkLoss { seconds } => write!(f, "network-loss={seconds}"),
        }
    }
}

impl FaultRuleFields {
    fn set_field(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn number<T: FromStr>(key: &str, value: &str) -> Result<Option<T>, String> {
            value.parse().map(Some).map_err(|_| format!("invalid value {value:?} for {key}"))
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
            _ => return Err(format!("unknown key {key:?}; the keys are {KEYS}")),
        }
        Ok(())
    }

    fn into_rule(self) -> Result<FaultRule, String> {
        let effect = parse_effect(&self.effect, self.retry_after)?;
        let probability = self.probability.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&probability) {
            return Err("probability must be from 0 to 1".to_owned());
        }
        if self.every == Some(0) {
            return Err("every must be 1 or more".to_owned());
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

fn parse_effect(text: &str, retry_after: Option<u64>) -> Result<FaultEffect, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let number = || value.and_then(|value| value.parse::<u64>().ok());
    let effect = match name {
        "drop" => Some(FaultEffect::Drop),
        "hang" => Some(FaultEffect::Hang),
        "delay" => number().map(|milliseconds| FaultEffect::Delay { milliseconds }),
        "status" => number()
            .and_then(|code| u16::try_from(code).ok())
            // A 1xx status is not a final response.
            .filter(|code| *code >= 200)
            .and_then(|code| StatusCode::from_u16(code).ok())
            .map(|code| FaultEffect::Status { code, retry_after }),
        "wrong-json" => Some(FaultEffect::WrongJson),
        "power-stuck" => Some(FaultEffect::PowerStuck),
        "bmc-reboot" => number().map(|seconds| FaultEffect::BmcReboot { seconds }),
        "wrong-password" => Some(FaultEffect::WrongPassword),
        "fail" => value.map(|reason| FaultEffect::Fail { reason: reason.to_owned() }),
        "wrong-checksum" => Some(FaultEffect::WrongChecksum),
        "power-cut" => Some(FaultEffect::PowerCut),
        "network-loss" => number().map(|seconds| FaultEffect::NetworkLoss { seconds }),
        _ => None,
    };
    effect.ok_or_else(|| format!("invalid effect {text:?}; use one of {EFFECTS}"))
}

fn parse_part(text: &str) -> Option<SelectionPart> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok().filter(|percent| *percent <= 100).map(SelectionPart::Percent);
    }
    match text.split_once('-') {
        Some((first, last)) => Some(SelectionPart::Range(first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|bmc| SelectionPart::Range(bmc, bmc)),
    }
}

/// Whether a request changes the power state, over Redfish or IPMI.
fn is_power_request(method: &str, path: &str) -> bool {
    (method == "POST"
        && (path.ends_with("/ComputerSystem.Reset") || path.ends_with("/Chassis.Reset")))
        || (method == "IPMI" && path == "/ipmi/power")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_bmcs() {
        for (text, inside, outside) in [
            ("all", vec![0, 5, 99_999], vec![]),
            ("7", vec![7], vec![6, 8]),
            ("0-3,10", vec![0, 3, 10], vec![4, 9, 11]),
        ] {
            let selection: BmcSelection = text.parse().unwrap();
            assert!(inside.iter().all(|bmc| selection.contains(*bmc)), "{text}");
            assert!(!outside.iter().any(|bmc| selection.contains(*bmc)), "{text}");
            assert_eq!(selection.to_string(), text);
        }
        let tenth: BmcSelection = "10%".parse().unwrap();
        assert_eq!((0..1_000).filter(|bmc| tenth.contains(*bmc)).count(), 100);
        assert_eq!((0..100).filter(|bmc| BmcSelection::percent(0).contains(*bmc)).count(), 0);
        assert_eq!((0..100).filter(|bmc| BmcSelection::percent(100).contains(*bmc)).count(), 100);
    }

    #[test]
    fn rules_round_trip_through_json() {
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
            let json = serde_json::to_string(&rule).unwrap();
            assert_eq!(serde_json::from_str::<FaultRule>(&json).unwrap(), rule, "{json}");
        }
    }

    #[test]
    fn errors_name_the_mistake() {
        for (text, expected) in [
            ("", "must start with one of drop"),
            ("explode", "invalid effect \"explode\"; use one of"),
            ("delay", "invalid effect \"delay\""),
            ("status=99", "invalid effect \"status=99\""),
            ("hang bmcs=many", "invalid BMC selection \"many\""),
            ("hang bmcs=101%", "invalid BMC selection"),
            ("hang often", "is not KEY=VALUE"),
            ("hang colour=red", "unknown key \"colour\""),
            ("hang every=0", "every must be 1 or more"),
            ("hang probability=2", "from 0 to 1"),
            ("hang times=x", "invalid value \"x\" for times"),
        ] {
            let error = text.parse::<FaultRule>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
