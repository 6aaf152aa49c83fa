// SPDX-License-Identifier: Apache-2.0
//! Power requests, and the synchronisation of the recorded power state with the BMC.

use node_model::{
    Actor, Fault, JournalEvent, Node, PowerRequest, PowerState, PowerTarget, ProvisionState,
    Timestamp,
};

use crate::LifecycleSettings;
use crate::maintenance::is_held;
use crate::pending_entries::PendingEntries;
use crate::transitions::{StateClass, power_sync_excluded, state_class};

/// Why a power request is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PowerRequestError {
    /// Cleaning must not be interrupted.
    #[error(
        "node {node} is in state \"{state}\": its power cannot be changed until that ends (abort it, or wait)"
    )]
    Cleaning {
        /// The node.
        node: String,
        /// The state.
        state: ProvisionState,
    },
    /// Another process holds the node's lease.
    #[error(
        "Node {node} is locked by host {holder}, please retry after the current operation is completed."
    )]
    Locked {
        /// The node.
        node: String,
        /// The process.
        holder: String,
    },
    /// A power change would continue the work of a restored node.
    #[error(
        "node {node} has unfinished work that is held while it is in maintenance; end the maintenance to continue \
         the work, or abort it first"
    )]
    WorkHeld {
        /// The node.
        node: String,
    },
    /// The node must never be powered off.
    #[error("node {node} must not be powered off (disable_power_off is set); use a reboot instead")]
    PowerOffDisabled {
        /// The node.
        node: String,
    },
}

/// Records a power request. The caller wakes the node.
pub fn request_power(
    node: &mut Node,
    target: PowerTarget,
    timeout: Option<u32>,
    actor: Actor,
    now: Timestamp,
) -> Result<PendingEntries, PowerRequestError> {
    if matches!(node.provision_state, ProvisionState::Cleaning | ProvisionState::CleanWait) {
        return Err(PowerRequestError::Cleaning {
            node: node.label(),
            state: node.provision_state,
        });
    }
    if node.work.is_some()
        && is_held(node)
        && state_class(node.provision_state) != StateClass::Waiting
    {
        return Err(PowerRequestError::WorkHeld { node: node.label() });
    }
    if let Some(holder) = &node.reservation {
        return Err(PowerRequestError::Locked { node: node.label(), holder: holder.clone() });
    }
    if node.disable_power_off && target.state() == PowerState::Off {
        return Err(PowerRequestError::PowerOffDisabled { node: node.label() });
    }
    node.last_error = None;
    start_request(node, target, timeout, actor, now);
    let mut entries = PendingEntries::default();
    entries.events.push(JournalEvent::Requested { target: target.as_str().to_owned() });
    Ok(entries)
}

fn start_request(
    node: &mut Node,
    target: PowerTarget,
    timeout: Option<u32>,
    requested_by: Actor,
    now: Timestamp,
) {
    node.set_power_request(Some(PowerRequest {
        target,
        timeout,
        requested_at: now,
        requested_by,
        retry: None,
    }));
    node.due_at = Some(now);
}

/// The nodes whose power follows that of another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelatedNodes {
    /// The child nodes.
    Children,
    /// The parent node.
    Parent,
}

/// The power change of related nodes after a change of `node`: children are powered off with their
/// parent, and a parent is powered on for its children, unless they have their own power supply.
#[must_use]
pub fn related_power_change(
    node: &Node,
    target: PowerTarget,
) -> Option<(RelatedNodes, PowerTarget)> {
    match target.state() {
        PowerState::Off => Some((RelatedNodes::Children, PowerTarget::Off)),
        PowerState::On if node.driver_info.get("has_dedicated_power_supply").is_none() => {
            Some((RelatedNodes::Parent, PowerTarget::On))
        }
        PowerState::On | PowerState::Error => None,
    }
}

/// Whether a related node needs the power change. A node whose power state is unknown is not
/// changed.
#[must_use]
pub fn needs_related_change(related: &Node, target: PowerTarget) -> bool {
    related.power_state.is_some_and(|state| state != target.state())
}

/// Whether the recorded power state of the node is synchronised with the BMC. Jobs change the power
/// themselves: firmware updates power machines off.
#[must_use]
pub fn is_power_monitored(node: &Node) -> bool {
    let is_excluded = node.maintenance && node.fault != Some(Fault::Power);
    !is_excluded
        && !power_sync_excluded(node.provision_state)
        && node.work.is_none()
        && node.reservation.is_none()
        && node.target_power_state.is_none()
}

/// The result of a periodic power poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PowerPollResult {
    /// The power state, or the error.
    pub power: Result<PowerState, String>,
    /// The number of consecutive polls, including this one, that failed or returned another state
    /// than recorded.
    pub unexpected_polls: u32,
    /// Whether the power interface allows restoring the recorded state.
    pub can_restore: bool,
}

/// What follows from a power poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerSyncDecision {
    /// The recorded state is right.
    AsExpected,
    /// The poll failed; the next one may succeed.
    Retry,
    /// The BMC still does not respond, with another error than recorded.
    UpdateFault,
    /// The BMC did not respond too often: the node gets a fault.
    SetFault,
    /// The BMC responds again.
    ClearFault,
    /// The state is read for the first time.
    RecordFirst(PowerState),
    /// The state changed outside of Ferrite and is recorded.
    RecordChange(PowerState),
    /// The recorded state was restored too often without lasting effect: the new state is recorded.
    StopRestoring(PowerState),
    /// The recorded state is restored.
    Restore(PowerTarget),
}

impl PowerSyncDecision {
    /// Whether [`apply_power_sync`] changes the node.
    #[must_use]
    pub const fn changes_node(self) -> bool {
        !matches!(self, Self::AsExpected | Self::Retry)
    }
}

/// Compares the polled with the recorded power state.
#[must_use]
pub fn decide_power_sync(
    node: &Node,
    poll: &PowerPollResult,
    settings: &LifecycleSettings,
) -> PowerSyncDecision {
    match poll_state(poll) {
        Err(error) => decide_failed_poll(node, error, poll.unexpected_polls, settings),
        Ok(polled) => decide_successful_poll(node, polled, poll, settings),
    }
}

fn poll_state(poll: &PowerPollResult) -> Result<PowerState, &str> {
    match &poll.power {
        Ok(PowerState::Error) => Err("the BMC reports a power error"),
        Ok(state) => Ok(*state),
        Err(error) => Err(error),
    }
}

fn decide_failed_poll(
    node: &Node,
    error: &str,
    failures: u32,
    settings: &LifecycleSettings,
) -> PowerSyncDecision {
    if node.fault == Some(Fault::Power) {
        let is_recorded =
            node.maintenance_reason.as_ref().is_some_and(|reason| reason.contains(error));
        return if is_recorded { PowerSyncDecision::Retry } else { PowerSyncDecision::UpdateFault };
    }
    if node.maintenance || failures <= settings.power_state_sync_max_retries {
        return PowerSyncDecision::Retry;
    }
    PowerSyncDecision::SetFault
}

fn decide_successful_poll(
    node: &Node,
    polled: PowerState,
    poll: &PowerPollResult,
    settings: &LifecycleSettings,
) -> PowerSyncDecision {
    if node.fault == Some(Fault::Power) {
        return PowerSyncDecision::ClearFault;
    }
    match node.power_state {
        Some(recorded) if recorded == polled => PowerSyncDecision::AsExpected,
        None | Some(PowerState::Error) => PowerSyncDecision::RecordFirst(polled),
        Some(recorded) => {
            let restores = settings.force_power_state_during_sync
                && poll.can_restore
                && !node.disable_power_off
                && !node.maintenance;
            if !restores {
                PowerSyncDecision::RecordChange(polled)
            } else if poll.unexpected_polls > settings.power_state_sync_max_retries {
                PowerSyncDecision::StopRestoring(polled)
            } else if recorded == PowerState::On {
                PowerSyncDecision::Restore(PowerTarget::On)
            } else {
                PowerSyncDecision::Restore(PowerTarget::Off)
            }
        }
    }
}

/// Compares the polled with the recorded power state and updates the node. The caller wakes the node
/// after [`PowerSyncDecision::Restore`].
pub fn apply_power_sync(
    node: &mut Node,
    poll: &PowerPollResult,
    conductor: Actor,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> PowerSyncDecision {
    let decision = decide_power_sync(node, poll, settings);
    match decision {
        PowerSyncDecision::AsExpected | PowerSyncDecision::Retry => {}
        PowerSyncDecision::UpdateFault => {
            let reason = fault_reason(poll);
            node.maintenance_reason = Some(reason.clone());
            node.last_error = Some(reason);
        }
        PowerSyncDecision::SetFault => set_power_fault(node, fault_reason(poll), entries),
        PowerSyncDecision::ClearFault => clear_power_fault(node, poll, entries),
        PowerSyncDecision::RecordFirst(state) => {
            record_state(node, Some(state), "first poll", entries);
        }
        PowerSyncDecision::RecordChange(state) => {
            record_state(node, Some(state), "changed outside of Ferrite", entries);
        }
        PowerSyncDecision::StopRestoring(state) => {
            let reason = format!(
                "the power state was restored {} times and is '{state}' again: it is not restored \
                 any more; find out what changes it",
                settings.power_state_sync_max_retries
            );
            record_state(node, Some(state), "restoring had no lasting effect", entries);
            entries.error("monitoring", &reason);
            node.last_error = Some(reason);
        }
        PowerSyncDecision::Restore(target) => {
            let polled = poll.power.as_ref().map_or(PowerState::Error, |state| *state);
            entries.events.push(JournalEvent::Note {
                by: "power".to_owned(),
                text: format!(
                    "the power state is '{polled}' instead of '{}': restoring it",
                    target.state()
                ),
            });
            start_request(node, target, None, conductor, now);
        }
    }
    decision
}

fn fault_reason(poll: &PowerPollResult) -> String {
    format!(
        "the power state could not be read {} times in a row: {} (maintenance ends when the BMC \
         responds again)",
        poll.unexpected_polls,
        poll_state(poll).err().unwrap_or_default()
    )
}

fn set_power_fault(node: &mut Node, reason: String, entries: &mut PendingEntries) {
    record_state(node, None, "the BMC does not respond", entries);
    node.power_state = Some(PowerState::Error);
    node.maintenance = true;
    node.maintenance_reason = Some(reason.clone());
    node.fault = Some(Fault::Power);
    node.last_error = Some(reason.clone());
    entries.error("monitoring", &reason);
    entries.events.push(JournalEvent::Maintenance {
        on: true,
        reason: Some(reason),
        fault: Some(Fault::Power.as_str().to_owned()),
    });
}

fn clear_power_fault(node: &mut Node, poll: &PowerPollResult, entries: &mut PendingEntries) {
    record_state(node, poll.power.as_ref().ok().copied(), "the BMC responds again", entries);
    // Other errors are kept.
    if node.last_error == node.maintenance_reason {
        node.last_error = None;
    }
    node.maintenance = false;
    node.maintenance_reason = None;
    node.fault = None;
    entries.events.push(JournalEvent::Maintenance { on: false, reason: None, fault: None });
}

fn record_state(
    node: &mut Node,
    state: Option<PowerState>,
    why: &str,
    entries: &mut PendingEntries,
) {
    entries.events.push(JournalEvent::Power {
        from: node.power_state.map(|state| state.as_str().to_owned()),
        to: state.map(|state| state.as_str().to_owned()),
        reason: why.to_owned(),
    });
    node.power_state = state;
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

    fn sync(
        node: &mut Node,
        power: Result<PowerState, &str>,
        unexpected_polls: u32,
    ) -> PowerSyncDecision {
        let power = power.map_err(str::to_owned);
        let poll = PowerPollResult { power, unexpected_polls, can_restore: true };
        apply_power_sync(
            node,
            &poll,
            Actor::Conductor { hostname: "tests".to_owned() },
            &LifecycleSettings::default(),
            Timestamp(0),
            &mut PendingEntries::default(),
        )
    }

    #[test]
    fn unresponsive_bmc_is_a_fault_after_the_retries_and_recovers() {
        let mut node = node(Some(PowerState::On));
        for failures in 1..=3 {
            assert_eq!(sync(&mut node, Err("timeout"), failures), PowerSyncDecision::Retry);
        }
        assert_eq!(sync(&mut node, Err("timeout"), 4), PowerSyncDecision::SetFault);
        assert_eq!((node.maintenance, node.fault), (true, Some(Fault::Power)));
        assert_eq!(sync(&mut node, Ok(PowerState::Off), 0), PowerSyncDecision::ClearFault);
        assert_eq!((node.maintenance, node.fault), (false, None));
        assert_eq!(node.power_state, Some(PowerState::Off));
    }

    #[test]
    fn reason_of_a_fault_is_updated() {
        let mut node = node(Some(PowerState::On));
        sync(&mut node, Err("no route to host"), 4);
        assert_eq!(sync(&mut node, Err("no route to host"), 5), PowerSyncDecision::Retry);
        assert_eq!(sync(&mut node, Err("wrong password"), 6), PowerSyncDecision::UpdateFault);
        assert!(node.maintenance_reason.unwrap().contains("wrong password"));
    }

    #[test]
    fn unexpected_state_is_restored_or_recorded() {
        let on = Some(PowerState::On);
        assert_eq!(sync(&mut node(on), Ok(PowerState::On), 0), PowerSyncDecision::AsExpected);
        let mut restored = node(on);
        assert_eq!(
            sync(&mut restored, Ok(PowerState::Off), 0),
            PowerSyncDecision::Restore(PowerTarget::On)
        );
        assert_eq!(restored.target_power_state, on);
        assert_eq!(restored.due_at, Some(Timestamp(0)));
        let mut never_off = node(on);
        never_off.disable_power_off = true;
        assert_eq!(
            sync(&mut never_off, Ok(PowerState::Off), 0),
            PowerSyncDecision::RecordChange(PowerState::Off)
        );
        assert_eq!(
            sync(&mut node(None), Ok(PowerState::Off), 0),
            PowerSyncDecision::RecordFirst(PowerState::Off)
        );
    }

    #[test]
    fn stops_restoring_after_the_retries() {
        let mut node = node(Some(PowerState::On));
        for polls in 1..=3 {
            let decision = sync(&mut node, Ok(PowerState::Off), polls);
            assert_eq!(decision, PowerSyncDecision::Restore(PowerTarget::On));
        }
        assert_eq!(
            sync(&mut node, Ok(PowerState::Off), 4),
            PowerSyncDecision::StopRestoring(PowerState::Off)
        );
        assert_eq!(node.power_state, Some(PowerState::Off));
        assert!(node.last_error.unwrap().contains("restored 3 times"));
    }

    #[test]
    fn keeps_maintenance_set_by_an_operator() {
        let mut node = node(Some(PowerState::On));
        node.maintenance = true;
        assert_eq!(sync(&mut node, Err("timeout"), 99), PowerSyncDecision::Retry);
        assert_eq!(sync(&mut node, Ok(PowerState::On), 0), PowerSyncDecision::AsExpected);
        assert!(node.maintenance);
    }
}
