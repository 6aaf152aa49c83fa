// SPDX-License-Identifier: Apache-2.0
//! Fault injection by rules that can be changed while the fleet runs.

mod rule;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use node_model::Timestamp;

use crate::machine::{fraction, mix};
pub use rule::{BmcSelection, FaultEffect, FaultRule, FaultRuleError};

/// The fault rules of a fleet, shared by all its BMCs.
#[derive(Clone, Debug, Default)]
pub struct FaultRules(Arc<ActiveFaults>);

#[derive(Debug, Default)]
struct ActiveFaults {
    /// Whether there are any rules. Avoids the lock in the usual case that there are none.
    has_rules: AtomicBool,
    active: RwLock<Vec<ActiveFault>>,
}

#[derive(Debug)]
struct ActiveFault {
    rule: FaultRule,
    active_since: Timestamp,
    /// Number of matching requests within the rule's time window.
    matched: AtomicU64,
    /// Number of requests to which the effect was applied.
    fired: AtomicU64,
}

/// The combined effects of all rules on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InjectedFaults {
    pub(crate) delay: Duration,
    pub(crate) termination: Option<RequestTermination>,
    pub(crate) power_stuck: bool,
    pub(crate) rejects_credentials: bool,
    pub(crate) truncates_body: bool,
    /// Applies to agents only.
    pub(crate) step_fault: Option<AgentStepFault>,
}

/// Fault of an agent's step or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentStepFault {
    /// It fails with this reason.
    Fail(Box<str>),
    /// The image has another checksum than expected.
    WrongChecksum,
    /// The machine loses power halfway.
    PowerCut,
    /// The agent loses its network halfway, for this long.
    NetworkLoss(Duration),
}

/// How a request ends instead of with its regular response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestTermination {
    /// The connection is closed.
    Drop,
    /// There is never a response.
    Hang,
    /// The response is an error.
    Status { code: StatusCode, retry_after: Option<u64> },
    /// The BMC restarts and is unreachable for this long.
    RestartBmc(Duration),
}

impl FaultRules {
    /// Replaces all rules. Their times count from `now`.
    pub fn set(&self, rules: Vec<FaultRule>, now: Timestamp) {
        let active: Vec<ActiveFault> =
            rules.into_iter().map(|rule| ActiveFault::new(rule, now)).collect();
        let has_rules = !active.is_empty();
        *self.0.active.write().unwrap_or_else(PoisonError::into_inner) = active;
        self.0.has_rules.store(has_rules, Ordering::Release);
    }

    /// Adds a rule after the others. Its times count from `now`.
    pub fn add(&self, rule: FaultRule, now: Timestamp) {
        let mut active = self.0.active.write().unwrap_or_else(PoisonError::into_inner);
        active.push(ActiveFault::new(rule, now));
        self.0.has_rules.store(true, Ordering::Release);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.set(Vec::new(), Timestamp::default());
    }

    /// Returns the rules, each with the number of requests to which it was applied.
    #[must_use]
    pub fn rules(&self) -> Vec<(FaultRule, u64)> {
        let active = self.0.active.read().unwrap_or_else(PoisonError::into_inner);
        active.iter().map(|it| (it.rule.clone(), it.fired.load(Ordering::Relaxed))).collect()
    }

    /// Returns the effects on a request. Delays add up; of other effects, the first rule wins.
    pub(crate) fn evaluate(
        &self,
        bmc: u32,
        method: &str,
        path: &str,
        now: Timestamp,
    ) -> InjectedFaults {
        let mut injected = InjectedFaults::default();
        if !self.0.has_rules.load(Ordering::Acquire) {
            return injected;
        }
        let active = self.0.active.read().unwrap_or_else(PoisonError::into_inner);
        for fault in active.iter() {
            if fault.rule.matches_request(bmc, method, path) && fault.fires(now) {
                apply_effect(&mut injected, &fault.rule.effect);
            }
        }
        injected
    }
}

fn apply_effect(injected: &mut InjectedFaults, effect: &FaultEffect) {
    let termination = match effect {
        FaultEffect::Delay { milliseconds } => {
            injected.delay += Duration::from_millis(*milliseconds);
            return;
        }
        FaultEffect::PowerStuck => {
            injected.power_stuck = true;
            return;
        }
        FaultEffect::WrongPassword => {
            injected.rejects_credentials = true;
            return;
        }
        FaultEffect::WrongJson => {
            injected.truncates_body = true;
            return;
        }
        FaultEffect::Fail { reason } => {
            return set_step_fault(injected, AgentStepFault::Fail(reason.as_str().into()));
        }
        FaultEffect::WrongChecksum => {
            return set_step_fault(injected, AgentStepFault::WrongChecksum);
        }
        FaultEffect::PowerCut => return set_step_fault(injected, AgentStepFault::PowerCut),
        FaultEffect::NetworkLoss { seconds } => {
            let duration = Duration::from_secs(*seconds);
            return set_step_fault(injected, AgentStepFault::NetworkLoss(duration));
        }
        FaultEffect::Drop => RequestTermination::Drop,
        FaultEffect::Hang => RequestTermination::Hang,
        FaultEffect::Status { code, retry_after } => {
            RequestTermination::Status { code: *code, retry_after: *retry_after }
        }
        FaultEffect::BmcReboot { seconds } => {
            RequestTermination::RestartBmc(Duration::from_secs(*seconds))
        }
    };
    injected.termination.get_or_insert(termination);
}

fn set_step_fault(injected: &mut InjectedFaults, fault: AgentStepFault) {
    injected.step_fault.get_or_insert(fault);
}

impl ActiveFault {
    fn new(rule: FaultRule, active_since: Timestamp) -> Self {
        Self { rule, active_since, matched: AtomicU64::new(0), fired: AtomicU64::new(0) }
    }

    /// Counts a matching request. Returns whether the effect applies to it.
    fn fires(&self, now: Timestamp) -> bool {
        let age = now.since(self.active_since).as_secs_f64();
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
        let max = rule.times.unwrap_or(u64::MAX);
        let increment = |fired: u64| (fired < max).then_some(fired + 1);
        self.fired.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the indexes of the requests to which a rule applies; there is one request per
    /// second.
    fn affected_requests(rule: &str, requests: u64) -> Vec<u64> {
        let faults = FaultRules::default();
        faults.add(rule.parse().unwrap(), Timestamp::from_secs(100));
        let at = |second: u64| Timestamp::from_secs(100 + i64::try_from(second).unwrap());
        let is_affected = |second: &u64| {
            faults.evaluate(0, "GET", "/redfish/v1/Systems", at(*second)).termination.is_some()
        };
        (0..requests).filter(is_affected).collect()
    }

    #[test]
    fn rules_apply_to_the_selected_requests() {
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
            assert_eq!(affected_requests(rule, 6), expected, "{rule}");
        }
    }

    #[test]
    fn probability_is_approximately_respected() {
        let count = affected_requests("drop probability=0.25", 1_000).len();
        assert!((200..300).contains(&count), "{count}");
    }

    #[test]
    fn delays_add_up_and_the_first_termination_wins() {
        let faults = FaultRules::default();
        let now = Timestamp::default();
        let rules = ["delay=200", "status=503 retry_after=7", "delay=50", "drop"];
        faults.set(rules.iter().map(|rule| rule.parse().unwrap()).collect(), now);
        let injected = faults.evaluate(3, "GET", "/", now);
        assert_eq!(injected.delay, Duration::from_millis(250));
        let code = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(
            injected.termination,
            Some(RequestTermination::Status { code, retry_after: Some(7) })
        );
        faults.clear();
        assert_eq!(faults.evaluate(3, "GET", "/", now), InjectedFaults::default());
    }

    #[test]
    fn agents_are_affected_only_by_rules_with_an_agent_path() {
        let now = Timestamp::default();
        for (rule, path, is_affected) in [
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
            let faults = FaultRules::default();
            faults.add(rule.parse().unwrap(), now);
            let injected = faults.evaluate(0, "GET", path, now);
            assert_eq!(injected != InjectedFaults::default(), is_affected, "{rule} {path}");
        }
    }

    #[test]
    fn power_stuck_applies_to_power_requests_only() {
        let faults = FaultRules::default();
        let now = Timestamp::default();
        faults.add("power-stuck times=1".parse().unwrap(), now);
        let path = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
        assert!(!faults.evaluate(0, "GET", "/redfish/v1/Systems/1", now).power_stuck);
        assert!(faults.evaluate(0, "POST", path, now).power_stuck);
        assert!(!faults.evaluate(0, "POST", path, now).power_stuck);
    }
}
