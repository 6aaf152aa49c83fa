// SPDX-License-Identifier: Apache-2.0
//! Power: what may be asked, and what to make of what the BMC says.

use node_model::{
    Actor, Fault, Happening, Node, PowerRequest, PowerState, PowerTarget, ProvisionState, Timestamp,
};

use crate::Settings;
use crate::enter::Ledger;

/// Why a change of power is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PowerRefusal {
    /// Cleaning must not be disturbed.
    #[error(
        "node {node} is in state \"{state}\": its power cannot be changed until that ends (abort it, or wait)"
    )]
    Cleaning {
        /// Which machine.
        node: String,
        /// Where it stands.
        state: ProvisionState,
    },
    /// Somebody works on it.
    #[error(
        "Node {node} is locked by host {holder}, please retry after the current operation is completed."
    )]
    Locked {
        /// Which machine.
        node: String,
        /// Who.
        holder: String,
    },
    /// It must never be off.
    #[error(
        "node {node} must not be switched off (disable_power_off is set); ask for a reboot instead"
    )]
    NeverOff {
        /// Which machine.
        node: String,
    },
}

/// Asks for a change of power.
pub fn ask_power(
    node: &mut Node,
    target: PowerTarget,
    timeout: Option<u32>,
    actor: Actor,
    now: Timestamp,
) -> Result<Ledger, PowerRefusal> {
    if matches!(node.provision_state, ProvisionState::Cleaning | ProvisionState::CleanWait) {
        return Err(PowerRefusal::Cleaning { node: node.label(), state: node.provision_state });
    }
    if let Some(holder) = &node.reservation {
        return Err(PowerRefusal::Locked { node: node.label(), holder: holder.clone() });
    }
    if node.disable_power_off && target.state() == PowerState::Off {
        return Err(PowerRefusal::NeverOff { node: node.label() });
    }
    node.target_power_state = Some(target.state());
    node.last_error = None;
    node.power_request =
        Some(PowerRequest { target, timeout, asked_at: now, asked_by: actor, retry: None });
    node.due_at = Some(now);
    let mut ledger = Ledger::default();
    ledger.happened.push(Happening::Asked { target: target.as_str().to_owned() });
    Ok(ledger)
}

/// What a periodic look at the power means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncVerdict {
    /// Nothing to do or to write.
    AsExpected,
    /// The node was changed; write it.
    Recorded,
    /// The machine must be put back into this state.
    PutBack(PowerTarget),
    /// The BMC did not answer, but may yet.
    TryAgain,
}

/// Compares what the BMC says with what the node says. `failures` counts the looks in a row that
/// got no answer or the wrong one, this one included; `can_put_back` says whether the machine's power
/// interface allows to be told what a machine's state should be.
pub fn power_sync(
    node: &mut Node,
    seen: Result<PowerState, &str>,
    failures: u32,
    can_put_back: bool,
    settings: &Settings,
    ledger: &mut Ledger,
) -> SyncVerdict {
    match seen {
        Err(why) => no_answer(node, why, failures, settings, ledger),
        Ok(PowerState::Error) => {
            no_answer(node, "the BMC reports a power error", failures, settings, ledger)
        }
        Ok(seen) => answered(node, seen, failures, can_put_back, settings, ledger),
    }
}

fn no_answer(
    node: &mut Node,
    why: &str,
    failures: u32,
    settings: &Settings,
    ledger: &mut Ledger,
) -> SyncVerdict {
    let reason = format!(
        "the BMC could not be asked for the power {failures} times in a row: {why} (the node comes \
         back by itself when it can be asked again)"
    );
    if node.fault == Some(Fault::Power) {
        // Why it is silent may change while it is: that is worth knowing, the count is not.
        let known = node.maintenance_reason.as_ref().is_some_and(|known| known.contains(why));
        if known {
            return SyncVerdict::TryAgain;
        }
        node.maintenance_reason = Some(reason.clone());
        node.last_error = Some(reason);
        return SyncVerdict::Recorded;
    }
    if node.maintenance || failures <= settings.power_state_sync_max_retries {
        return SyncVerdict::TryAgain;
    }
    changed(node, None, "the BMC does not answer", ledger);
    node.power_state = Some(PowerState::Error);
    node.maintenance = true;
    node.maintenance_reason = Some(reason.clone());
    node.fault = Some(Fault::Power);
    node.last_error = Some(reason.clone());
    ledger.error("monitoring", &reason);
    ledger.happened.push(Happening::Maintenance {
        on: true,
        reason: Some(reason),
        fault: Some(Fault::Power.as_str().to_owned()),
    });
    SyncVerdict::Recorded
}

fn answered(
    node: &mut Node,
    seen: PowerState,
    failures: u32,
    can_put_back: bool,
    settings: &Settings,
    ledger: &mut Ledger,
) -> SyncVerdict {
    if node.fault == Some(Fault::Power) {
        changed(node, Some(seen), "the BMC answers again", ledger);
        node.power_state = Some(seen);
        // What else went wrong meanwhile, or before, stays.
        if node.last_error == node.maintenance_reason {
            node.last_error = None;
        }
        node.maintenance = false;
        node.maintenance_reason = None;
        node.fault = None;
        ledger.happened.push(Happening::Maintenance { on: false, reason: None, fault: None });
        return SyncVerdict::Recorded;
    }
    match node.power_state {
        Some(known) if known == seen => SyncVerdict::AsExpected,
        None | Some(PowerState::Error) => {
            changed(node, Some(seen), "first seen", ledger);
            node.power_state = Some(seen);
            SyncVerdict::Recorded
        }
        Some(known) => {
            let forced = settings.force_power_state_during_sync
                && can_put_back
                && !node.disable_power_off
                && !node.maintenance;
            if forced && failures <= settings.power_state_sync_max_retries {
                let target =
                    if known == PowerState::On { PowerTarget::On } else { PowerTarget::Off };
                ledger.happened.push(Happening::Noted {
                    by: "power".to_owned(),
                    text: format!(
                        "the machine is '{seen}' and should be '{known}': it is put back"
                    ),
                });
                SyncVerdict::PutBack(target)
            } else if forced {
                let reason = format!(
                    "the machine was put back to '{known}' {} times and is '{seen}' again: it is \
                     left so; look who or what switches it",
                    settings.power_state_sync_max_retries
                );
                changed(node, Some(seen), "does not stay as it was put", ledger);
                node.power_state = Some(seen);
                node.last_error = Some(reason.clone());
                ledger.error("monitoring", &reason);
                SyncVerdict::Recorded
            } else {
                changed(node, Some(seen), "changed outside of Ferrite", ledger);
                node.power_state = Some(seen);
                SyncVerdict::Recorded
            }
        }
    }
}

fn changed(node: &Node, to: Option<PowerState>, why: &str, ledger: &mut Ledger) {
    ledger.happened.push(Happening::Power {
        from: node.power_state.map(|state| state.as_str().to_owned()),
        to: to.map(|state| state.as_str().to_owned()),
        why: why.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use node_model::NodeId;

    use super::*;

    fn node(power: Option<PowerState>) -> Node {
        let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
        node.power_state = power;
        node
    }

    fn sync(node: &mut Node, seen: Result<PowerState, &str>, failures: u32) -> SyncVerdict {
        power_sync(node, seen, failures, true, &Settings::default(), &mut Ledger::default())
    }

    #[test]
    fn a_silent_bmc_is_a_fault_after_the_retries_and_recovers() {
        let mut node = node(Some(PowerState::On));
        for failures in 1..=3 {
            assert_eq!(sync(&mut node, Err("timeout"), failures), SyncVerdict::TryAgain);
        }
        assert_eq!(sync(&mut node, Err("timeout"), 4), SyncVerdict::Recorded);
        assert_eq!((node.maintenance, node.fault), (true, Some(Fault::Power)));
        assert_eq!(sync(&mut node, Ok(PowerState::Off), 0), SyncVerdict::Recorded);
        assert_eq!((node.maintenance, node.fault), (false, None));
        assert_eq!(node.power_state, Some(PowerState::Off));
    }

    #[test]
    fn why_a_bmc_is_silent_is_kept_fresh() {
        let mut node = node(Some(PowerState::On));
        sync(&mut node, Err("no route to host"), 4);
        assert_eq!(sync(&mut node, Err("no route to host"), 5), SyncVerdict::TryAgain);
        assert_eq!(sync(&mut node, Err("wrong password"), 6), SyncVerdict::Recorded);
        assert!(node.maintenance_reason.unwrap().contains("wrong password"));
    }

    #[test]
    fn an_unexpected_state_is_put_back_or_believed() {
        let on = Some(PowerState::On);
        assert_eq!(sync(&mut node(on), Ok(PowerState::On), 0), SyncVerdict::AsExpected);
        assert_eq!(
            sync(&mut node(on), Ok(PowerState::Off), 0),
            SyncVerdict::PutBack(PowerTarget::On)
        );
        let mut never_off = node(on);
        never_off.disable_power_off = true;
        assert_eq!(sync(&mut never_off, Ok(PowerState::Off), 0), SyncVerdict::Recorded);
        assert_eq!(sync(&mut node(None), Ok(PowerState::Off), 0), SyncVerdict::Recorded);
    }

    #[test]
    fn a_machine_that_does_not_stay_put_is_believed_in_the_end() {
        let mut node = node(Some(PowerState::On));
        for failures in 1..=3 {
            let verdict = sync(&mut node, Ok(PowerState::Off), failures);
            assert_eq!(verdict, SyncVerdict::PutBack(PowerTarget::On));
        }
        assert_eq!(sync(&mut node, Ok(PowerState::Off), 4), SyncVerdict::Recorded);
        assert_eq!(node.power_state, Some(PowerState::Off));
        assert!(node.last_error.unwrap().contains("put back"), "it is said why");
    }

    #[test]
    fn maintenance_set_by_an_operator_stays() {
        let mut node = node(Some(PowerState::On));
        node.maintenance = true;
        assert_eq!(sync(&mut node, Err("timeout"), 99), SyncVerdict::TryAgain);
        assert_eq!(sync(&mut node, Ok(PowerState::On), 0), SyncVerdict::AsExpected);
        assert!(node.maintenance);
    }
}
