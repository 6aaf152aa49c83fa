// SPDX-License-Identifier: Apache-2.0
//! What goes wrong, by rule: which BMCs, which requests, how often, from when until when, and what
//! happens then. Rules can be changed while the fleet runs.

mod rule;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use node_model::Timestamp;

use crate::machine::{fraction, mix};
pub use rule::{Effect, FaultError, FaultRule, Which};

/// The rules of a fleet, shared by all its BMCs.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there are any: the usual answer is no, and must cost nothing.
    is_any: AtomicBool,
    active: RwLock<Vec<Active>>,
}

#[derive(Debug)]
struct Active {
    rule: FaultRule,
    since: Timestamp,
    /// How many requests it was about.
    matched: AtomicU64,
    /// How many of them it struck.
    struck: AtomicU64,
}

/// What happens to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) delay: Duration,
    pub(crate) end: Option<End>,
    pub(crate) power_is_stuck: bool,
    pub(crate) refuses_everybody: bool,
    pub(crate) garbles_json: bool,
    /// What is only for agents.
    pub(crate) agent: Option<Mishap>,
}

/// What happens to a step of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It fails, with these words.
    Fails(Box<str>),
    /// What was written is not what was announced.
    WrongChecksum,
    /// The power goes away in the middle.
    PowerCut,
    /// The network goes away in the middle, for this long.
    Away(Duration),
}

/// How a request ends without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is closed.
    Drop,
    /// Nothing ever comes.
    Hang,
    /// An error is all that comes.
    Status { code: StatusCode, retry_after: Option<u64> },
    /// The BMC restarts and is away for this long.
    Restart(Duration),
}

impl Faults {
    /// Puts these rules in place of all others. Their times count from `now`.
    pub fn set(&self, rules: Vec<FaultRule>, now: Timestamp) {
        let active: Vec<Active> = rules.into_iter().map(|rule| Active::new(rule, now)).collect();
        let is_any = !active.is_empty();
        *self.0.active.write().unwrap_or_else(PoisonError::into_inner) = active;
        self.0.is_any.store(is_any, Ordering::Release);
    }

    /// Adds a rule after the others. Its times count from `now`.
    pub fn add(&self, rule: FaultRule, now: Timestamp) {
        let mut active = self.0.active.write().unwrap_or_else(PoisonError::into_inner);
        active.push(Active::new(rule, now));
        self.0.is_any.store(true, Ordering::Release);
    }

    /// Everything works again.
    pub fn clear(&self) {
        self.set(Vec::new(), Timestamp::default());
    }

    /// The rules, each with the number of requests it struck.
    #[must_use]
    pub fn rules(&self) -> Vec<(FaultRule, u64)> {
        let active = self.0.active.read().unwrap_or_else(PoisonError::into_inner);
        active.iter().map(|it| (it.rule.clone(), it.struck.load(Ordering::Relaxed))).collect()
    }

    /// What happens to a request. Delays add up; of the rest, the first rule that strikes decides.
    pub(crate) fn verdict(&self, bmc: u32, method: &str, path: &str, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::default();
        if !self.0.is_any.load(Ordering::Acquire) {
            return verdict;
        }
        let active = self.0.active.read().unwrap_or_else(PoisonError::into_inner);
        for fault in active.iter() {
            if fault.rule.is_about(bmc, method, path) && fault.strikes(now) {
                apply(&mut verdict, &fault.rule.effect);
            }
        }
        verdict
    }
}

fn apply(verdict: &mut Verdict, effect: &Effect) {
    let end = match effect {
        Effect::Delay { milliseconds } => {
            verdict.delay += Duration::from_millis(*milliseconds);
            return;
        }
        Effect::PowerStuck => {
            verdict.power_is_stuck = true;
            return;
        }
        Effect::WrongPassword => {
            verdict.refuses_everybody = true;
            return;
        }
        Effect::WrongJson => {
            verdict.garbles_json = true;
            return;
        }
        Effect::Fail { why } => return mishap(verdict, Mishap::Fails(why.as_str().into())),
        Effect::WrongChecksum => return mishap(verdict, Mishap::WrongChecksum),
        Effect::PowerCut => return mishap(verdict, Mishap::PowerCut),
        Effect::NetworkLoss { seconds } => {
            return mishap(verdict, Mishap::Away(Duration::from_secs(*seconds)));
        }
        Effect::Drop => End::Drop,
        Effect::Hang => End::Hang,
        Effect::Status { code, retry_after } => {
            End::Status { code: *code, retry_after: *retry_after }
        }
        Effect::BmcReboot { seconds } => End::Restart(Duration::from_secs(*seconds)),
    };
    verdict.end.get_or_insert(end);
}

fn mishap(verdict: &mut Verdict, mishap: Mishap) {
    verdict.agent.get_or_insert(mishap);
}

impl Active {
    fn new(rule: FaultRule, since: Timestamp) -> Self {
        Self { rule, since, matched: AtomicU64::new(0), struck: AtomicU64::new(0) }
    }

    /// Whether this request, which the rule is about, is one that it strikes.
    fn strikes(&self, now: Timestamp) -> bool {
        let age = now.since(self.since).as_secs_f64();
        let rule = &self.rule;
        if age < rule.from || rule.until.is_some_and(|until| age >= until) {
            return false;
        }
        let number = self.matched.fetch_add(1, Ordering::Relaxed);
        let Some(number) = number.checked_sub(rule.skip) else { return false };
        if rule.every > 1 && !(number + 1).is_multiple_of(rule.every) {
            return false;
        }
        if rule.probability < 1.0 && fraction(mix(number ^ 0xfa17)) >= rule.probability {
            return false;
        }
        let most = rule.times.unwrap_or(u64::MAX);
        let count = |struck: u64| (struck < most).then_some(struck + 1);
        self.struck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the first requests a rule strikes.
    fn struck(rule: &str, requests: u64) -> Vec<u64> {
        let faults = Faults::default();
        faults.add(rule.parse().unwrap(), Timestamp::from_secs(100));
        let at = |second: u64| Timestamp::from_secs(100 + i64::try_from(second).unwrap());
        let is_struck = |second: &u64| {
            faults.verdict(0, "GET", "/redfish/v1/Systems", at(*second)).end.is_some()
        };
        (0..requests).filter(is_struck).collect()
    }

    #[test]
    fn rules_strike_when_they_should() {
        for (rule, expected) in [
            ("drop", vec![0, 1, 2, 3, 4, 5]),
            ("hang every=3", vec![2, 5]),
            ("hang skip=4", vec![4, 5]),
            ("drop times=2", vec![0, 1]),
            ("drop skip=1 times=2 every=2", vec![2, 4]),
            ("drop from=2 until=4", vec![2, 3]),
            ("drop method=POST", vec![]),
            ("drop path=/redfish/v1/Systems", vec![0, 1, 2, 3, 4, 5]),
            ("drop path=/redfish/v1/Managers", vec![]),
            ("drop probability=0", vec![]),
            ("drop bmcs=1-9", vec![]),
        ] {
            assert_eq!(struck(rule, 6), expected, "{rule}");
        }
    }

    #[test]
    fn a_probability_is_about_right() {
        let count = struck("drop probability=0.25", 1_000).len();
        assert!((200..300).contains(&count), "{count}");
    }

    #[test]
    fn delays_add_up_and_the_first_end_counts() {
        let faults = Faults::default();
        let now = Timestamp::default();
        let rules = ["delay=200", "status=503 retry_after=7", "delay=50", "drop"];
        faults.set(rules.iter().map(|rule| rule.parse().unwrap()).collect(), now);
        let verdict = faults.verdict(3, "GET", "/", now);
        assert_eq!(verdict.delay, Duration::from_millis(250));
        let code = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(verdict.end, Some(End::Status { code, retry_after: Some(7) }));
        faults.clear();
        assert_eq!(faults.verdict(3, "GET", "/", now), Verdict::default());
    }

    #[test]
    fn agents_are_struck_by_rules_about_agents_only() {
        let now = Timestamp::default();
        for (rule, path, is_struck) in [
            ("hang", "/agent/boot", false),
            ("hang path=/redfish", "/agent/boot", false),
            ("hang path=/agent/boot", "/agent/boot", true),
            ("hang path=/agent/boot", "/redfish/v1", false),
            ("fail=no_disk path=/agent/step/write_image", "/agent/step/write_image", true),
            ("power-cut path=/agent/step", "/agent/step/erase_devices", true),
            ("network-loss=9 path=/agent/step", "/agent/step/write_image", true),
            ("wrong-checksum path=/agent/step", "/agent/step/write_image", true),
            ("fail=no_disk", "/redfish/v1", false),
        ] {
            let faults = Faults::default();
            faults.add(rule.parse().unwrap(), now);
            let verdict = faults.verdict(0, "GET", path, now);
            assert_eq!(verdict != Verdict::default(), is_struck, "{rule} {path}");
        }
    }

    #[test]
    fn stuck_power_is_about_power_only() {
        let faults = Faults::default();
        let now = Timestamp::default();
        faults.add("power-stuck times=1".parse().unwrap(), now);
        let path = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
        assert!(!faults.verdict(0, "GET", "/redfish/v1/Systems/1", now).power_is_stuck);
        assert!(faults.verdict(0, "POST", path, now).power_is_stuck);
        assert!(!faults.verdict(0, "POST", path, now).power_is_stuck);
    }
}
